//! Scripts are sandboxed, and can be stopped.

use std::time::{Duration, Instant};

use hob_engine::{Config, Engine, Reply};
use hob_testkit::wait_until;

use crate::busy::long_limits;
use crate::{error, eval, run};

fn small() -> Engine {
    Engine::new(Config { max_script_instructions: 100_000, ..Config::default() })
}

#[test]
fn endless_script_is_stopped_despite_pcall() {
    let engine = small();
    for script in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "local function f() pcall(f) while true do end end f()",
        "while true do xpcall(function() while true do end end, function() while true do end end) end",
        "while true do redis.pcall('GET', 'k') end",
        "repeat pcall(error) until false",
    ] {
        let text = error(eval(&engine, script, &[]));
        assert_eq!(text, "ERR Script exceeded its limit of 100000 instructions", "{script}");
        assert_eq!(eval(&engine, "return 1", &[]), Reply::Int(1), "the next script runs");
    }
}

#[test]
fn script_after_a_stopped_one_runs_to_its_end() {
    let engine = small();
    error(eval(&engine, "while true do end", &[]));
    assert_eq!(
        eval(&engine, "local n = 0 for i = 1, 10000 do n = n + i end return n", &[]),
        Reply::Int(50_005_000)
    );
}

#[test]
fn script_memory_is_bounded() {
    let engine = Engine::new(Config { script_memory_bytes: 16 << 20, ..Config::default() });
    let text = error(eval(&engine, "return #string.rep('x', 1e9)", &[]));
    assert!(text.contains("not enough memory"), "{text}");
    error(eval(&engine, "local t = {} for i = 1, 1e9 do t[i] = {} end", &[]));
    assert_eq!(eval(&engine, "return 1", &[]), Reply::Int(1), "the next script runs");
}

#[test]
fn script_has_no_access_outside() {
    let engine = Engine::default();
    for name in [
        "io",
        "os",
        "load",
        "loadstring",
        "loadfile",
        "dofile",
        "require",
        "package",
        "debug",
        "print",
        "module",
        "collectgarbage",
        "coroutine",
        "newproxy",
        "setfenv",
        "getfenv",
        "rawset",
    ] {
        let text = error(eval(&engine, &format!("return {name}"), &[]));
        assert!(text.contains(&format!("nonexistent global variable '{name}'")), "{text}");
    }
    assert_eq!(eval(&engine, "return string.dump", &[]), Reply::Null);
}

#[test]
fn script_leaves_no_state_for_the_next_one() {
    let engine = Engine::default();
    for script in [
        "x = 1",
        "redis.call = nil",
        "string.format = nil",
        "KEYS = {}",
        "table.insert(redis, 1)",
        "math.pi = 3",
        "getmetatable('').__index = nil",
        "setmetatable(redis, {})",
        "setmetatable(string, {})",
    ] {
        let reply = eval(&engine, script, &[]);
        let unaffected =
            eval(&engine, "return {redis.call('PING').ok, string.format('%d', 3), ('x'):rep(2), #KEYS}", &[]);
        let expected = vec![
            Reply::Bulk(b"PONG".to_vec()),
            Reply::Bulk(b"3".to_vec()),
            Reply::Bulk(b"xx".to_vec()),
            Reply::Int(0),
        ];
        assert_eq!(unaffected, Reply::Array(expected), "after {script}: {reply:?}");
    }
}

#[test]
fn numbers_keep_their_digits() {
    let engine = Engine::default();
    let script = "redis.call('SET', KEYS[1], 9007199254740993) return redis.call('GET', KEYS[1])";
    assert_eq!(eval(&engine, script, &["k"]), Reply::Bulk(b"9007199254740992".to_vec()));
    let script = "redis.call('SET', KEYS[1], 1700000000123.5) return redis.call('GET', KEYS[1])";
    assert_eq!(eval(&engine, script, &["k"]), Reply::Bulk(b"1700000000123.5".to_vec()));
}

#[test]
fn other_clients_get_busy_and_can_kill_the_script() {
    let engine = Engine::new(long_limits());
    assert_eq!(error(run(&engine, "SCRIPT KILL")), "NOTBUSY No scripts in execution right now.");
    let runner = std::thread::spawn({
        let engine = engine.clone();
        move || eval(&engine, "while true do end", &[])
    });
    let started = Instant::now();
    let busy = loop {
        let reply = run(&engine, "GET k");
        if let Reply::Error(text) = reply {
            break text;
        }
        assert!(started.elapsed() < Duration::from_secs(30), "the script never started");
    };
    assert!(busy.starts_with("BUSY Redis is busy running a script."), "{busy}");
    assert_eq!(run(&engine, "SCRIPT KILL"), Reply::OK);
    assert_eq!(error(runner.join().unwrap()), "ERR Script killed by user with SCRIPT KILL...");
    assert_eq!(run(&engine, "GET k"), Reply::Null);
}

#[test]
fn script_that_has_written_cannot_be_killed() {
    let engine = Engine::new(Config {
        busy_after: Duration::from_millis(50),
        max_script_instructions: 400_000_000,
        ..Config::default()
    });
    // On a busy machine the script may be killed before it writes, or end before anyone tries to kill it.
    let ended = wait_until("a script that has written to be refused a kill", || {
        run(&engine, "DEL k");
        let runner = std::thread::spawn({
            let engine = engine.clone();
            move || eval(&engine, "redis.call('SET', KEYS[1], 1) while true do end", &["k"])
        });
        let answer = loop {
            match run(&engine, "SCRIPT KILL") {
                Reply::Error(text) if text.starts_with("NOTBUSY") && !runner.is_finished() => {}
                answer => break answer,
            }
        };
        let ended = error(runner.join().unwrap());
        match answer {
            Reply::Error(text) => text.starts_with("UNKILLABLE").then_some(ended),
            _ => {
                assert_eq!(run(&engine, "GET k"), Reply::Null, "a script that wrote was killed");
                None
            }
        }
    });
    assert!(ended.starts_with("ERR Script exceeded its "), "{ended}");
}
