//! The installed clients work with a redis-server.

use std::process::Command;

use hob_testkit::{RedisServer, node_modules, python};

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

#[test]
fn redis_py_works() {
    let server = RedisServer::start();
    let script = "import redis, sys; print(redis.Redis.from_url(sys.argv[1]).ping())";
    assert_eq!(output(Command::new(python()).args(["-c", script, &server.url()])), "True");
}

#[test]
fn ioredis_and_node_redis_work() {
    let server = RedisServer::start();
    let script = "const url = process.argv[1];
        const io = new (require('ioredis'))(url);
        const node = require('redis').createClient({ url });
        (async () => {
            await node.connect();
            console.log(await io.ping(), await node.ping());
            io.disconnect();
            node.destroy();
        })()";
    let mut node = Command::new("node");
    node.env("NODE_PATH", node_modules()).args(["-e", script, &server.url()]);
    assert_eq!(output(&mut node), "PONG PONG");
}
