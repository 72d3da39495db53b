//! Long scripts block only the store, and can be stopped.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hob_engine::{Config, Engine, Reply};
use hob_testkit::{LIMIT, wait_until};
use redis::AsyncCommands;
use tokio::time::timeout;

use crate::server::{Server, ask, read_to, send};
use crate::{error, eval, run};

const CALLS: &str = "while true do redis.call('GET', 'x') end";
const LIBRARY: &str = "while true do string.rep('x', 1000000) end";
/// Each instruction is slow, so the engine counts them at shorter intervals.
const HUGE: &str = "while true do string.rep('x', 5000000) end";
/// Lua stores equal strings once, so this takes time rather than memory.
const SAME: &str = "local t = {} while true do t[#t+1] = string.rep('x', 100000) end";
const CAUGHT: &str = "while true do pcall(string.rep, 'x', 1000000) end";
const WRITES: &str = "redis.call('SET', 'k', 'v') while true do redis.call('GET', 'x') end";

/// Limits for scripts that must not end by themselves during the test.
pub(crate) fn long_limits() -> Config {
    Config {
        busy_after: Duration::from_millis(50),
        max_script_instructions: u64::MAX,
        max_script_duration: Duration::from_secs(120),
        ..Config::default()
    }
}

/// A client that has started a script.
fn begin(server: &Server, script: &str) -> TcpStream {
    let mut client = server.connect();
    send(&mut client, &format!("EVAL \"{script}\" 0"));
    let mut other = server.connect();
    wait_until("the script to run", || ask(&mut other, "GET k", "\r\n").starts_with("-BUSY"));
    client
}

#[test]
fn client_script_does_not_block_the_runtime_and_can_be_killed() {
    let server = Server::start(long_limits());
    for script in [CALLS, LIBRARY, HUGE, SAME, CAUGHT, "while true do end"] {
        let mut client = begin(&server, script);
        assert!(server.runs_tasks(), "{script} blocks the runtime");
        let mut other = server.connect();
        assert_eq!(ask(&mut other, "SCRIPT KILL", "\r\n"), "+OK\r\n", "{script}");
        assert_eq!(read_to(&mut client, "\r\n"), "-ERR Script killed by user with SCRIPT KILL...\r\n");
        assert_eq!(ask(&mut other, "GET k", "\r\n"), "$-1\r\n", "after {script}");
    }
}

#[test]
fn transaction_with_a_script_does_not_block_the_runtime() {
    let server = Server::start(long_limits());
    let mut client = server.connect();
    ask(&mut client, "MULTI", "\r\n");
    assert_eq!(ask(&mut client, &format!("EVAL \"{CALLS}\" 0"), "\r\n"), "+QUEUED\r\n");
    send(&mut client, "EXEC");
    let mut other = server.connect();
    wait_until("the script to run", || ask(&mut other, "GET k", "\r\n").starts_with("-BUSY"));
    assert_eq!(ask(&mut other, "SCRIPT KILL", "\r\n"), "+OK\r\n");
    assert!(read_to(&mut client, "KILL...\r\n").starts_with("*1\r\n-ERR Script killed"));
}

#[test]
fn many_clients_can_wait_for_a_script() {
    let server = Server::start(long_limits());
    let mut client = begin(&server, CALLS);
    let mut others: Vec<TcpStream> = (0..20).map(|_| server.connect()).collect();
    for other in &mut others {
        send(other, "EVAL \"return 1\" 0");
    }
    for other in &mut others {
        assert!(read_to(other, "\r\n").starts_with("-BUSY"));
    }
    assert_eq!(ask(&mut others[0], "SCRIPT KILL", "\r\n"), "+OK\r\n");
    read_to(&mut client, "\r\n");
    assert_eq!(ask(&mut others[1], "EVAL \"return 1\" 0", "\r\n"), ":1\r\n");
}

#[test]
fn client_can_authenticate_to_kill_a_script() {
    let server = Server::start(Config { password: Some("opensesame".into()), ..long_limits() });
    let mut client = server.connect();
    ask(&mut client, "AUTH opensesame", "\r\n");
    send(&mut client, &format!("EVAL \"{CALLS}\" 0"));
    wait_until("the script to run", || match run(&server.engine, "GET k") {
        Reply::Error(text) => text.starts_with("BUSY"),
        _ => false,
    });
    let mut other = server.connect();
    assert_eq!(ask(&mut other, "SCRIPT KILL", "\r\n"), "-NOAUTH Authentication required.\r\n");
    assert_eq!(ask(&mut other, "AUTH opensesame", "\r\n"), "+OK\r\n");
    assert!(ask(&mut other, "GET k", "\r\n").starts_with("-BUSY"));
    assert_eq!(ask(&mut other, "SCRIPT KILL", "\r\n"), "+OK\r\n");
    read_to(&mut client, "\r\n");
}

#[test]
fn busy_error_aborts_the_transaction() {
    let server = Server::start(long_limits());
    let mut other = server.connect();
    ask(&mut other, "MULTI", "\r\n");
    ask(&mut other, "SET k first", "\r\n");
    let mut client = begin(&server, CALLS);
    assert!(ask(&mut other, "SET k second", "\r\n").starts_with("-BUSY"));
    let mut killer = server.connect();
    assert_eq!(ask(&mut killer, "SCRIPT KILL", "\r\n"), "+OK\r\n");
    read_to(&mut client, "\r\n");
    assert!(ask(&mut other, "EXEC", "\r\n").starts_with("-EXECABORT"));
    assert_eq!(run(&server.engine, "GET k"), Reply::Null);
}

/// All calls share one thread. A call that blocked it would block the other calls and their timers.
#[test]
fn in_process_calls_wait_for_a_script_until_their_deadline() {
    let server = Server::start(Config { busy_after: Duration::from_secs(600), ..long_limits() });
    let engine = server.engine.clone();
    let mut client = server.connect();
    send(&mut client, &format!("EVAL \"{CALLS}\" 0"));
    let tasks = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let within = |limit: Duration| engine.connection().until(tokio::time::Instant::now() + limit);
    let is_busy = |error: redis::RedisError| error.code() == Some("BUSY");
    tasks.block_on(async {
        hob_testkit::wait_for("the script to run", LIMIT, async || {
            within(Duration::from_millis(20)).get::<_, Option<String>>("k").await.is_err_and(is_busy)
        })
        .await;
        let started = Instant::now();
        let calls = (0..200).map(|_| {
            let mut connection = within(Duration::from_millis(100));
            tokio::spawn(async move { connection.incr::<_, _, i64>("n", 1).await })
        });
        for call in calls.collect::<Vec<_>>() {
            assert!(call.await.unwrap().is_err_and(is_busy));
        }
        assert!(started.elapsed() < LIMIT, "calls waited sequentially");
        let mut atomic = redis::pipe();
        atomic.atomic().incr("n", 1);
        let refused = atomic.query_async::<()>(&mut within(Duration::from_millis(20))).await;
        assert!(refused.is_err_and(is_busy));
    });
    let mut connection = engine.connection();
    let waiting = tasks.spawn(async move { connection.incr::<_, _, i64>("n", 1).await });
    tasks.block_on(tokio::task::yield_now());
    // This ends the script. None of the refused calls was executed.
    server.stop();
    let answer = tasks.block_on(async { timeout(LIMIT, waiting).await });
    assert_eq!(answer.expect("the call ends in time").unwrap().unwrap(), 1);
}

#[test]
fn in_process_calls_get_their_turn_between_many_short_scripts() {
    let server = Server::start(Config::default());
    let pipeline = "EVAL \"for i = 1, 1000 do end return 1\" 0\r\n".repeat(200);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let mut client = server.connect();
            let (stop, pipeline) = (&stop, pipeline.as_bytes());
            scope.spawn(move || {
                let mut replies = vec![0; 200 * ":1\r\n".len()];
                while !stop.load(Ordering::Relaxed) {
                    client.write_all(pipeline).unwrap();
                    client.read_exact(&mut replies).unwrap();
                }
            });
        }
        let mut connection = server.engine.connection();
        let calls = server.runtime.spawn(async move {
            for n in 1..=500 {
                assert_eq!(connection.incr::<_, _, i64>("n", 1).await.unwrap(), n);
            }
        });
        let ended = server.runtime.block_on(async { timeout(LIMIT, calls).await });
        stop.store(true, Ordering::Relaxed);
        ended.expect("all calls are answered").unwrap();
    });
}

#[test]
fn script_is_stopped_after_its_maximum_duration() {
    let limit = Duration::from_millis(300);
    let engine = Engine::new(Config { max_script_duration: limit, ..long_limits() });
    for script in
        [CALLS, LIBRARY, SAME, CAUGHT, WRITES, "while true do end", "while true do redis.pcall('NOPE') end"]
    {
        let started = Instant::now();
        assert_eq!(
            error(eval(&engine, script, &[])),
            "ERR Script exceeded its time limit of 300ms",
            "{script}"
        );
        assert!(started.elapsed() < LIMIT, "{script}");
        assert_eq!(eval(&engine, "return 1", &[]), Reply::Int(1), "after {script}");
    }
}

#[test]
fn listener_stops_a_script_that_has_written() {
    let server = Server::start(long_limits());
    let engine = server.engine.clone();
    let _client = begin(&server, WRITES);
    let mut other = server.connect();
    assert!(ask(&mut other, "SCRIPT KILL", "\r\n").starts_with("-UNKILLABLE"));
    server.stop();
    // On a busy machine the listener may stop before the script has.
    wait_until("the script to stop", || run(&engine, "GET k") == Reply::Bulk(b"v".to_vec()));
}

#[test]
fn listener_stops_although_a_library_call_never_returns() {
    let server = Server::start(long_limits());
    // Each further star multiplies the time of the match.
    let never = "string.find(string.rep('a', 3000), string.rep('a*', 20) .. 'b')";
    let _client = begin(&server, never);
    server.stop();
}

#[test]
fn script_that_exceeds_its_memory_fails_and_the_next_one_runs() {
    let engine = Engine::new(Config { script_memory_bytes: 32 << 20, ..Config::default() });
    run(&engine, &format!("SET big {}", "x".repeat(4 << 20)));
    for script in [
        "local t = {} while true do t[#t+1] = string.rep('x', 100000) .. #t end",
        "local s = 'x' while true do s = s .. s end",
        // The table is allocated before the replies arrive, so that Lua itself allocates no memory meanwhile.
        "local t = {} for i = 1, 64 do t[i] = 0 end \
         for i = 1, 64 do redis.call('APPEND', 'big', 'x') t[i] = redis.call('GET', 'big') end",
    ] {
        let text = error(eval(&engine, script, &[]));
        assert!(text.contains("not enough memory"), "{script}: {text}");
        assert_eq!(eval(&engine, "return #string.rep('x', 1000000)", &[]), Reply::Int(1_000_000), "{script}");
    }
    // Unreferenced replies are garbage-collected.
    let garbage = "for i = 1, 64 do redis.call('APPEND', 'big', 'x') redis.call('GET', 'big') end return 1";
    assert_eq!(eval(&engine, garbage, &[]), Reply::Int(1));
}

/// Lua's library allocates with the same allocator as scripts.
#[test]
fn memory_of_library_functions_counts() {
    let engine = Engine::new(Config { script_memory_bytes: 16 << 20, ..Config::default() });
    let megabyte = "local s = string.rep('x', 1000000) ";
    for script in [
        "return #string.rep('x', 1000000000)",
        "local t = {} for i = 1, 100 do t[i] = s end return #table.concat(t)",
        "local t = {} for i = 1, 20 do t[i] = s end return #string.format(string.rep('%s', 20), unpack(t))",
        "return #string.gsub(s, 'x', string.rep('y', 100))",
        "local t = {} for i = 1, 100 do table.insert(t, string.upper(s) .. i) end return #t",
    ] {
        let text = error(eval(&engine, &format!("{megabyte}{script}"), &[]));
        assert!(text.starts_with("OOM not enough memory"), "{script}: {text}");
        let caught = format!("{megabyte}local ok = pcall(function() {script} end) return ok and 1 or 2");
        assert_eq!(eval(&engine, &caught, &[]), Reply::Int(2), "{script}");
        assert_eq!(eval(&engine, "return #string.rep('x', 1000000)", &[]), Reply::Int(1_000_000), "{script}");
    }
}

/// A hundred megabytes of garbage fit into 16 MiB.
#[test]
fn garbage_of_library_functions_is_collected() {
    let engine = Engine::new(Config { script_memory_bytes: 16 << 20, ..Config::default() });
    let garbage = "local s, n = string.rep('x', 1000), 0 \
                   for i = 1, 100 do n = n + #(string.rep(s, 1000) .. i) end return n";
    assert_eq!(eval(&engine, garbage, &[]), Reply::Int(100_000_192));
}

/// A table that contains itself twice has a practically infinite number of elements.
#[test]
fn script_result_is_bounded() {
    let engine = Engine::new(Config { script_memory_bytes: 16 << 20, ..Config::default() });
    for script in [
        "local t = {} t[1] = t t[2] = t return t",
        "local t, s = {}, string.rep('x', 1000000) for i = 1, 100 do t[i] = s end return t",
    ] {
        let text = error(eval(&engine, script, &[]));
        assert!(text.contains("the reply is too large"), "{script}: {text}");
    }
    let deep = "local t = 1 for i = 1, 50 do t = {t} end return t";
    assert!(matches!(eval(&engine, deep, &[]), Reply::Array(_)));
}

#[test]
fn cached_scripts_leave_memory_for_running() {
    let engine = Engine::new(Config { script_memory_bytes: 16 << 20, ..Config::default() });
    for n in 0..40 {
        let body = format!("local t = {{{}}} return {n}", "'0123456789',".repeat(50_000));
        engine.execute(&[b"SCRIPT", b"LOAD", body.as_bytes()]);
    }
    assert_eq!(eval(&engine, "return #string.rep('x', 1000000)", &[]), Reply::Int(1_000_000));
}
