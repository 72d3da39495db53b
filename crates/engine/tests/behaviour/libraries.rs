//! Job queues and locks of other languages, unmodified, on the engine and on a real redis-server.

use std::path::{Path, PathBuf};
use std::process::Command;

use hob_engine::Config;
use hob_testkit::{RedisServer, node_modules, python};

use crate::clients::text;
use crate::server::Server;

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/behaviour/libraries").join(name)
}

fn run_python(name: &str, port: u16) -> String {
    let mut command = Command::new(python());
    // A worker of rq imports its jobs from the folder of the script.
    command.env("PYTHONPATH", script("")).env("PYTHONDONTWRITEBYTECODE", "1");
    text(&command.arg(script(name)).arg(port.to_string()).output().expect("python is installed"))
}

fn run_node(name: &str, port: u16) -> String {
    let mut command = Command::new("node");
    command.env("NODE_PATH", node_modules()).env("NODE_NO_WARNINGS", "1");
    text(&command.arg(script(name)).arg(port.to_string()).output().expect("node is installed"))
}

/// Runs a script on both servers.
fn works(run: fn(&str, u16) -> String, name: &str) {
    let redis = RedisServer::start();
    assert_eq!(run(name, redis.port()), "done", "on Redis");
    let engine = Server::start(Config::default());
    assert_eq!(run(name, engine.address.port()), "done", "on the engine");
}

mod slow {
    use super::*;

    #[test]
    fn celery_works() {
        works(run_python, "celery_app.py");
    }

    #[test]
    fn huey_works() {
        works(run_python, "huey_app.py");
    }

    #[test]
    fn python_redis_lock_works() {
        works(run_python, "redis_lock_app.py");
    }

    #[test]
    fn bee_queue_works() {
        works(run_node, "bee_queue.js");
    }

    #[test]
    fn rq_works() {
        works(run_python, "rq_app.py");
    }

    #[test]
    fn bull_works() {
        works(run_node, "bull.js");
    }

    #[test]
    fn bullmq_works() {
        works(run_node, "bullmq.js");
    }
}
