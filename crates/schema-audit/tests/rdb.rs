//! Audits of RDB files that a real server wrote.

use std::path::Path;

use hob_schema::{Catalog, Layout, Schema};
use hob_schema_audit::{AuditOptions, AuditReport, RdbError, audit, audit_rdb, connect};
use hob_testkit::{RedisServer, budget};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

const SCHEMA: &str = r#"
[schema]
name = "t"
version = 1
[ids]
id = {}
[key.number]
pattern = "number:<id>"
type = "string"
value = "int"
ttl = { none = "Kept." }
[key.text]
pattern = "text:<id>"
type = "string"
value = { text = 10_000 }
ttl = { max = "1h" }
[key.list]
pattern = "list:<id>"
type = "list"
item = { text = 200_000 }
max_len = 400
ttl = { none = "Kept." }
[key.set]
pattern = "set:<id>"
type = "set"
member = { text = 100 }
max_len = 400
ttl = { none = "Kept." }
[key.zset]
pattern = "zset:<id>"
type = "zset"
member = { text = 100 }
score = { float = [-10, "-"] }
max_len = 400
ttl = { none = "Kept." }
[key.hash]
pattern = "hash:<id>"
type = "hash"
max_len = 400
ttl = { none = "Kept." }
[key.hash.fields]
first = "int"
"<id>" = { text = 500 }
[key.stream]
pattern = "stream:<id>"
type = "stream"
max_len = 400
ttl = { none = "Kept." }
[key.stream.fields]
n = "int"
more = "any?"
"#;

fn catalog() -> Catalog {
    let schema = Schema::parse("t.toml", SCHEMA).unwrap_or_else(|errors| panic!("{errors}"));
    Catalog::new(vec![schema], Layout::Plain).unwrap()
}

/// Writes keys of every encoding, some of which break the schema.
fn fill(redis: &RedisServer) {
    let command = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        redis.command::<redis::Value>(&words);
    };
    for number in ["7", "-300", "70000", "-9000000000", "wrong"] {
        command(&format!("SET number:{number} {number}"));
    }
    command("SET text:short x EX 60");
    command(&format!("SET text:repeated {} EX 60", "ab".repeat(4_000)));
    command(&format!("SET text:long {} EX 60", "abc".repeat(5_000)));
    command("SET text:late x EX 7200");
    command("SET text:never x");
    command("SET undeclared x");
    command("HSET number:hash a b");
    command(&format!("RPUSH list:plain {} {}", "x".repeat(100_000), "y"));
    command("RPUSH list:small 1 two 300 -5000 8388608 -9000000000");
    command("SADD set:numbers 1 70000 -9000000000");
    command("SADD set:small a b");
    command(&format!("SADD set:wrong {}", "x".repeat(101)));
    command("ZADD zset:small 1 a 2.5 b +inf c");
    command("ZADD zset:wrong -11 a");
    command(&format!("ZADD zset:long -inf {}", "x".repeat(99)));
    command("HSET hash:small first 1 a b");
    command("HSET hash:missing a b");
    command("HSET hash:wrong first x");
    command(&format!("HSET hash:long first 1 a {}", "x".repeat(400)));
    for n in 0..500 {
        command(&format!("RPUSH list:long element-{n}-{}", "x".repeat(n)));
        command(&format!("SADD set:long member-{n}"));
        command(&format!("ZADD zset:many {n} member-{n}"));
        command(&format!("HSET hash:many first 1 field-{n} x"));
        command(&format!("XADD stream:long * n {n} more x"));
    }
    command("XADD stream:small 1-1 n 1");
    command("XADD stream:small 2-1 n 2 more x");
    command("XADD stream:small 3-1 more x");
    command("XDEL stream:small 3-1");
    command("XGROUP CREATE stream:small group 0");
    command("XREADGROUP GROUP group consumer COUNT 1 STREAMS stream:small >");
    command("XADD stream:wrong * n x");
    let library = "#!lua name=l\nredis.register_function('f', function() end)";
    redis.command::<()>(&["FUNCTION", "LOAD", library]);
}

fn dump(redis: &RedisServer) -> Vec<u8> {
    redis.command::<()>(&["SAVE"]);
    let (_, folder): (String, String) = redis.command(&["CONFIG", "GET", "dir"]);
    std::fs::read(Path::new(&folder).join("dump.rdb")).unwrap()
}

/// What both kinds of audit can know.
fn comparable(report: &AuditReport) -> (u64, Vec<String>) {
    let families =
        report.families.iter().map(|family| format!("{} {} {}", family.family, family.keys, family.longest));
    let violations = report
        .violations
        .iter()
        .map(|group| format!("{} {} {}", group.family, group.breach.as_str(), group.keys));
    let undeclared =
        report.undeclared.iter().map(|group| format!("{} {} {:?}", group.pattern, group.keys, group.kinds));
    let mut lines: Vec<String> = families.chain(violations).chain(undeclared).collect();
    lines.sort_unstable();
    (report.keys, lines)
}

#[tokio::test]
async fn file_and_server_have_the_same_findings() {
    let redis = RedisServer::start();
    fill(&redis);
    let catalog = catalog();
    let store = connect(&redis.url().parse().unwrap()).await.unwrap();
    let live = audit(&store, &catalog, AuditOptions::default(), &mut |_| {}).await.unwrap();
    let file = audit_rdb(dump(&redis).as_slice(), &catalog, 0).unwrap();
    assert_eq!(comparable(&file), comparable(&live), "{}\n{}", file.text(), live.text());
    assert!(comparable(&live).1.contains(&"t.stream misfit-value 1".to_owned()), "{}", live.text());
    let other = audit_rdb(dump(&redis).as_slice(), &catalog, 1).unwrap();
    assert_eq!(other.keys, 0);
    assert!(other.text().contains("keys in other databases were not checked"), "{}", other.text());
}

#[test]
fn damaged_files_are_refused() {
    let redis = RedisServer::start();
    redis.command::<()>(&["SET", "number:1", "1"]);
    let (catalog, bytes) = (catalog(), dump(&redis));
    let error = |bytes: &[u8]| audit_rdb(bytes, &catalog, 0).unwrap_err();
    assert!(matches!(error(b"hello"), RdbError::NotRdb));
    assert!(matches!(error(b"REDIS0099"), RdbError::Version(99)));
    for end in 9..bytes.len() - 9 {
        assert!(matches!(error(&bytes[..end]), RdbError::Malformed { .. }), "{end}");
    }
}

/// Any change of a file is read or refused, without a panic, an endless loop or much memory.
#[test]
fn changed_files_do_no_harm() {
    let redis = RedisServer::start();
    fill(&redis);
    let (catalog, bytes) = (catalog(), dump(&redis));
    let edits = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8);
    let mut runner = TestRunner::new(Config { cases: budget(200, 5_000), ..Config::default() });
    let outcome = runner.run(&edits, |edits| {
        let mut changed = bytes.clone();
        for (at, byte) in edits {
            let at = 9 + at.index(changed.len() - 9);
            changed[at] = byte;
        }
        let _ = audit_rdb(changed.as_slice(), &catalog, 0);
        Ok(())
    });
    outcome.unwrap();
}
