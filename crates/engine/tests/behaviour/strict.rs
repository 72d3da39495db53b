//! Strict mode and the guard.

use std::sync::{Arc, Mutex};

use hob_engine::{Config, Engine, Guard, Reply, Strict};

use crate::{error, eval, run};

#[test]
fn strict_script_may_only_access_its_keys() {
    let engine = Engine::new(Config { strict: Strict::Keys, ..Config::default() });
    let script = "return redis.call('SET', 'b', 1)";
    let text = error(eval(&engine, script, &["a"]));
    assert!(text.contains("'b' is not in KEYS"), "{text}");
    assert_eq!(run(&engine, "EXISTS b"), Reply::Int(0));
    assert_eq!(eval(&engine, script, &["b"]), Reply::OK);
    let text = error(eval(&engine, "return redis.call('MGET', KEYS[1], 'c')", &["a"]));
    assert!(text.contains("'c' is not in KEYS"), "{text}");
    assert_eq!(run(&engine, "SET anything 1"), Reply::OK, "only scripts are restricted");
}

#[test]
fn cluster_script_stays_in_one_slot() {
    let engine = Engine::new(Config { strict: Strict::KeysOfOneSlot, ..Config::default() });
    let script = "return redis.call('MSET', KEYS[1], 1, KEYS[2], 2)";
    let text = error(eval(&engine, script, &["a", "b"]));
    assert_eq!(text, "CROSSSLOT Keys in request don't hash to the same slot");
    assert_eq!(eval(&engine, script, &["{x}:a", "{x}:b"]), Reply::OK);
}

/// The guard is called once per changed key, at the end of the command, transaction or script.
#[test]
fn guard_sees_every_change_once() {
    let seen: Arc<Mutex<Vec<Vec<String>>>> = Arc::default();
    let guard = Guard::new({
        let seen = Arc::clone(&seen);
        move |changes| {
            let keys: Vec<String> =
                changes.keys().iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect();
            let too_long = keys.iter().find(
                |key| matches!(changes.ask(&[b"LLEN", key.as_bytes()]), Reply::Int(length) if length > 2),
            );
            let verdict = too_long.map_or(Ok(()), |key| Err(format!("{key} is too long")));
            seen.lock().unwrap().push(keys);
            verdict
        }
    });
    let engine = Engine::new(Config { guard: Some(guard), ..Config::default() });
    run(&engine, "GET a");
    run(&engine, "SET a 1");
    eval(
        &engine,
        "redis.call('SET', KEYS[2], 1) redis.call('DEL', KEYS[1]) redis.call('INCR', KEYS[2])",
        &["a", "b"],
    );
    assert_eq!(*seen.lock().unwrap(), [vec!["a"], vec!["a", "b"]]);
    let script = "redis.call('RPUSH', KEYS[1], 1, 2, 3) return redis.call('LTRIM', KEYS[1], 0, 1)";
    assert_eq!(eval(&engine, script, &["l"]), Reply::OK, "checked at the end of the script only");
    assert_eq!(error(run(&engine, "RPUSH l 3")), "GUARD l is too long");
}

#[test]
fn guard_may_only_read() {
    let guard = Guard::new(|changes| match changes.ask(&[b"SET", b"x", b"1"]) {
        Reply::Error(text) => Err(text.into_owned()),
        _ => Ok(()),
    });
    let engine = Engine::new(Config { guard: Some(guard), ..Config::default() });
    assert_eq!(error(run(&engine, "SET a 1")), "GUARD ERR a guard may only read");
    assert_eq!(run(&engine, "EXISTS x"), Reply::Int(0));
}
