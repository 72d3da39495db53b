//! A test on the embedded store fails on any key that does not match its schema.

use hob_engine::{Config, Engine, Reply};
use hob_schema::{Catalog, Layout, Schema};
use hob_testkit::declared;

fn engine() -> Engine {
    let schema = Schema::parse("chat.toml", include_str!("../../../../schemas/chat.toml")).unwrap();
    let catalog = Catalog::new(vec![schema], Layout::Plain).unwrap();
    Engine::new(Config { guard: Some(declared(catalog)), ..Config::default() })
}

fn run(engine: &Engine, words: &[&str]) -> Reply {
    engine.execute(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>())
}

#[track_caller]
fn refused(reply: &Reply, why: &str) {
    match reply {
        Reply::Error(text) => {
            assert!(text.starts_with("GUARD ") && text.contains(why), "expected {why:?}, got {text:?}");
        }
        other => panic!("expected an error with {why:?}, got {other:?}"),
    }
}

#[test]
fn declared_keys_pass() {
    let engine = engine();
    assert_eq!(run(&engine, &["SET", "user:42:online", "true"]), Reply::OK);
    assert_eq!(run(&engine, &["SADD", "user:42:sockets", "a", "b"]), Reply::Int(2));
    assert_eq!(run(&engine, &["SET", "typing:conv1:42", "1", "EX", "5"]), Reply::OK);
    assert_eq!(run(&engine, &["DEL", "user:42:online", "user:42:sockets"]), Reply::Int(2));
}

#[test]
fn every_kind_of_violation_fails() {
    let engine = engine();
    refused(&run(&engine, &["SET", "unknown:key", "1"]), "belongs to no family");
    refused(&run(&engine, &["LPUSH", "user:42:online", "true"]), "is a list, declared string");
    refused(&run(&engine, &["SET", "typing:conv1:42", "1"]), "never expires");
    refused(&run(&engine, &["SET", "typing:conv1:43", "1", "EX", "60"]), "later than 5s");
    refused(&run(&engine, &["SET", "user:43:online", "perhaps"]), "perhaps");
    let sockets: Vec<String> = (0..65).map(|n| format!("socket{n}")).collect();
    let mut words = vec!["SADD", "user:42:sockets"];
    words.extend(sockets.iter().map(String::as_str));
    refused(&run(&engine, &words), "65");
}

/// Intermediate values of a script are not visible to other clients.
#[test]
fn script_is_checked_by_its_final_state() {
    let engine = engine();
    let script = "redis.call('SET', KEYS[1], '1') return redis.call('EXPIRE', KEYS[1], ARGV[1])";
    assert_eq!(run(&engine, &["EVAL", script, "1", "typing:conv1:42", "5"]), Reply::Int(1));
    refused(&run(&engine, &["EVAL", script, "1", "typing:conv1:42", "60"]), "later than 5s");
}
