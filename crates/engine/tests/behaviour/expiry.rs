//! Expiration, with a clock that the test sets.

use std::time::Duration;

use hob_engine::{Clock, Config, DrivenClock, Engine, Reply};

use crate::{eval, run};

fn engine() -> (Engine, DrivenClock) {
    let clock = DrivenClock::starting_at(Duration::from_secs(1_700_000_000));
    (Engine::new(Config { clock: Clock::Driven(clock.clone()), ..Config::default() }), clock)
}

#[test]
fn key_expires_at_its_deadline() {
    let (engine, clock) = engine();
    run(&engine, "SET k v PX 1000");
    clock.advance(Duration::from_millis(1000));
    assert_eq!(run(&engine, "PTTL k"), Reply::Int(0));
    assert_eq!(run(&engine, "EXISTS k"), Reply::Int(1));
    clock.advance(Duration::from_millis(1));
    assert_eq!(run(&engine, "EXISTS k"), Reply::Int(0));
    assert_eq!(run(&engine, "TTL k"), Reply::Int(-2));
}

#[test]
fn time_is_constant_within_a_script() {
    let (engine, clock) = engine();
    run(&engine, "SET k v PX 1");
    clock.advance(Duration::from_millis(1));
    let script = "local a = redis.call('TIME') for i = 1, 1000 do redis.call('GET', KEYS[1]) end
                  local b = redis.call('TIME') return {redis.call('EXISTS', KEYS[1]), a[1] == b[1] and a[2] == b[2]}";
    assert_eq!(eval(&engine, script, &["k"]), Reply::Array(vec![Reply::Int(1), Reply::Int(1)]));
}

#[test]
fn sweep_removes_expired_keys() {
    let (engine, clock) = engine();
    for n in 0..10_000 {
        run(&engine, &format!("SET temporary:{n} {} EX 10", "x".repeat(100)));
        run(&engine, &format!("SET lasting:{n} v"));
    }
    let full = engine.memory();
    assert_eq!(engine.sweep(1_000_000), 0, "nothing is due yet");
    clock.advance(Duration::from_secs(11));
    let mut swept = 0;
    for _ in 0..10 {
        swept += engine.sweep(2_500);
    }
    assert_eq!((swept, engine.len()), (10_000, 10_000));
    assert!(engine.memory() < full - 10_000 * 100);
}

#[test]
fn expired_watched_key_fails_the_transaction() {
    use crate::server::{Server, ask};
    let clock = DrivenClock::starting_at(Duration::from_secs(1_700_000_000));
    let server = Server::start(Config { clock: Clock::Driven(clock.clone()), ..Config::default() });
    let mut client = server.connect();
    ask(&mut client, "SET k v PX 100", "\r\n");
    ask(&mut client, "WATCH k", "\r\n");
    ask(&mut client, "MULTI", "\r\n");
    ask(&mut client, "SET other v", "\r\n");
    clock.advance(Duration::from_millis(200));
    assert_eq!(ask(&mut client, "EXEC", "\r\n"), "*-1\r\n");
    // A key that had expired before the watch began is not a change.
    ask(&mut client, "SET k v PX 100", "\r\n");
    clock.advance(Duration::from_millis(200));
    ask(&mut client, "WATCH k", "\r\n");
    ask(&mut client, "GET k", "\r\n");
    ask(&mut client, "MULTI", "\r\n");
    assert_eq!(ask(&mut client, "EXEC", "\r\n"), "*0\r\n");
}
