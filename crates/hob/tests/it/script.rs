//! Scripts from clients such as `redis-cli`: they block only the embedded engine.

use std::time::{Duration, Instant};

use hob_testkit::wait_until;
use redis::{Client, Connection, RedisResult};

use crate::program::Server;

/// Much shorter than each script, and long enough for a busy machine.
const MAX_RESPONSE_TIME: Duration = Duration::from_secs(2);
const REQUESTS: usize = 20;
/// A machine that stalls delays single requests; a script that blocks the server delays all of them.
const MAX_SLOW_REQUESTS: usize = 5;

const LOOPS: &str = "while true do redis.call('GET', 'x') end";
const ALLOCATES: &str = "local t = {} while true do t[#t+1] = string.rep('x', 100000) end";
const RUNS_LONG: &str = "for i = 1, 1000000 do redis.call('GET', 'x') end return 'done'";
const WRITES: &str = "redis.call('SET', 'x', 'y') while true do redis.call('GET', 'x') end";
/// Each additional star multiplies the duration of this call.
const NEVER_RETURNS: &str = "return string.find(string.rep('a', 3000), string.rep('a*', 20) .. 'b')";

fn connect(server: &Server) -> Connection {
    let port = server.store_port.expect("the embedded store does not listen");
    Client::open(("127.0.0.1", port)).unwrap().get_connection().unwrap()
}

fn start_script(server: &Server, script: &'static str) -> std::thread::JoinHandle<RedisResult<redis::Value>> {
    let mut connection = connect(server);
    std::thread::spawn(move || redis::cmd("EVAL").arg(script).arg(0).query(&mut connection))
}

fn assert_responsive(server: &Server, script: &str) {
    let mut slow = Vec::new();
    for _ in 0..REQUESTS {
        let started = Instant::now();
        assert_eq!(server.get("/healthz").body, "ok\n");
        let took = started.elapsed();
        if took > MAX_RESPONSE_TIME {
            slow.push(took);
        }
        assert!(slow.len() <= MAX_SLOW_REQUESTS, "/healthz took {slow:?} during {script}");
    }
}

fn is_busy<T>(reply: &RedisResult<T>) -> bool {
    reply.as_ref().is_err_and(|error| error.code() == Some("BUSY"))
}

#[test]
fn long_client_script_does_not_block_the_server_and_can_be_killed() {
    let server = Server::start(&[]);
    for script in [LOOPS, ALLOCATES] {
        let running = start_script(&server, script);
        let mut other = connect(&server);
        assert_responsive(&server, script);
        wait_until("the store to respond with BUSY", || {
            is_busy(&redis::cmd("GET").arg("x").query::<Option<String>>(&mut other))
        });
        assert_responsive(&server, script);
        redis::cmd("SCRIPT").arg("KILL").exec(&mut other).unwrap();
        let killed = running.join().unwrap().unwrap_err();
        assert!(killed.to_string().contains("Script killed by user"), "{killed}");
        assert_eq!(redis::cmd("GET").arg("x").query::<Option<String>>(&mut other).unwrap(), None);
    }
}

#[test]
fn long_script_runs_to_its_end_while_the_server_answers() {
    let server = Server::start(&[]);
    let running = start_script(&server, RUNS_LONG);
    wait_until("the script to end", || {
        assert_responsive(&server, RUNS_LONG);
        running.is_finished()
    });
    assert_eq!(running.join().unwrap().unwrap(), redis::Value::BulkString(b"done".to_vec()));
}

#[test]
fn server_stops_while_a_script_runs() {
    for script in [WRITES, ALLOCATES, NEVER_RETURNS] {
        let mut server = Server::start(&[]);
        let running = start_script(&server, script);
        let mut other = connect(&server);
        wait_until("the store to respond with BUSY", || {
            is_busy(&redis::cmd("GET").arg("x").query::<Option<String>>(&mut other))
        });
        let stopped = Instant::now();
        assert!(server.terminate().success(), "{script}");
        assert!(
            stopped.elapsed() < Duration::from_secs(30),
            "{script} delayed the stop by {:?}",
            stopped.elapsed()
        );
        assert!(running.join().unwrap().is_err(), "{script}");
    }
}
