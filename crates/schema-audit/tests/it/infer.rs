//! Inference of a schema from the keys of a server.

use std::time::Duration;

use hob_schema::examples::example_write;
use hob_schema::lint::lint;
use hob_schema::{Catalog, KeyType, Keyspace, Layout, Schema, TtlRule};
use hob_schema_audit::{InferOptions, Known, infer, ready_schema, recognizable};
use hob_testkit::{RedisCluster, RedisServer};

use crate::{SERVICES, chat_catalog, load_schema, open, run_audit};

fn send(server: &RedisServer, command: &str) {
    server.command::<redis::Value>(&command.split(' ').collect::<Vec<_>>());
}

/// The whole server, however slow it is.
fn whole() -> InferOptions {
    InferOptions { max_time: Duration::from_secs(600), ..InferOptions::default() }
}

async fn proposed(url: &str) -> (Schema, String) {
    let text = infer(&open(url).await, &whole()).await.unwrap().text;
    (Schema::parse("proposal", &text).unwrap_or_else(|errors| panic!("{errors}\n{text}")), text)
}

#[tokio::test]
async fn patterns_types_ttls_lengths_and_shapes_are_found() {
    let server = RedisServer::start();
    for user in ["ann", "bob", "eve", "507f1f77bcf86cd799439011"] {
        send(&server, &format!("SET app:user:{user}:online true EX 50"));
        send(&server, &format!("HSET app:user:{user}:profile name N age 5 seen 1763287200"));
        send(&server, &format!("SET app:unread:{user}:total 3"));
        for room in 1..4 {
            send(&server, &format!("SET app:unread:{user}:room{room} 1"));
        }
    }
    send(
        &server,
        "RPUSH app:events {\"id\":\"x\",\"at\":\"2025-11-16T10:00:00Z\",\"n\":1.5} {\"id\":\"y\",\"at\":\"2025-11-16T10:00:01Z\"}",
    );
    send(&server, "ZADD app:schedule 1763287200 m1");
    let (schema, text) = proposed(&server.url()).await;

    assert_eq!(schema.prefix.value, "app:");
    let patterns: Vec<&str> = schema.families.iter().map(|family| family.pattern.text.as_str()).collect();
    let expected = [
        "events",
        "schedule",
        "unread:<unread_id>:total",
        "unread:<unread_id>:<unread_id_2>",
        "user:<user_id>:online",
        "user:<user_id>:profile",
    ];
    assert_eq!(patterns, expected, "{text}");
    assert_eq!(schema.family("user_profile").unwrap().kind(), KeyType::Hash);
    let TtlRule::Max(ttl) = &schema.family("user_online").unwrap().ttl.rule else { panic!("{text}") };
    assert_eq!(ttl.value.as_secs(), 60);
    assert!(text.contains("n = \"number?\""), "{text}");
    assert!(text.contains("at = \"rfc3339\""), "{text}");
    assert!(text.contains("score    = \"unix_s\""), "{text}");

    let catalog = Catalog::new(vec![schema], Layout::Plain).unwrap();
    let report = run_audit(&open(&server.url()).await, &catalog).await;
    assert_eq!(report.worst(), None, "{}\n{text}", report.text());
}

#[tokio::test]
async fn consumer_groups_and_messagepack_are_found() {
    let server = RedisServer::start();
    for shop in ["a1", "b2", "c3"] {
        send(&server, &format!("XADD orders:{shop} * total 5"));
        send(&server, &format!("XADD orders:{shop} * total 7"));
        send(&server, &format!("XGROUP CREATE orders:{shop} billing 0"));
        send(&server, &format!("XGROUP CREATE orders:{shop} mail 0"));
        send(&server, &format!("XREADGROUP GROUP billing worker COUNT 2 STREAMS orders:{shop} >"));
        // A map with a number that is not UTF-8: {"n": 200}.
        let packed: &[u8] = b"\x81\xa1n\xcc\xc8";
        redis::cmd("SET").arg(format!("session:{shop}")).arg(packed).exec(&mut server.connect()).unwrap();
        // Bytes that are neither text nor MessagePack, and a text that could be read as MessagePack.
        redis::cmd("SET").arg(format!("blob:{shop}")).arg(b"\xc1\xff").exec(&mut server.connect()).unwrap();
        send(&server, &format!("SET word:{shop} k"));
    }
    let (schema, text) = proposed(&server.url()).await;
    assert!(text.contains("groups   = [\"billing\", \"mail\"]\nmax_pending = 10\n"), "{text}");
    let value = |family: &str| {
        let (_, rest) = text.split_once(&format!("[key.{family}]")).unwrap();
        rest.split("\n\n").next().unwrap()
    };
    assert!(value("session").contains("value    = { msgpack = 64 }"), "{text}");
    assert!(value("blob").contains("value    = \"any\""), "{text}");
    assert!(value("word").contains("value    = { text = 64 }"), "{text}");

    let catalog = Catalog::new(vec![schema], Layout::Plain).unwrap();
    let report = run_audit(&open(&server.url()).await, &catalog).await;
    assert_eq!(report.worst(), None, "{}\n{text}", report.text());
}

/// Their values do not prove what they are: the proposal passes the audit, and lint asks a person.
#[tokio::test]
async fn bitmaps_protobuf_and_places_become_findings_of_lint() {
    let server = RedisServer::start();
    for day in ["2025-11-16", "2025-11-17", "2025-11-18"] {
        send(&server, &format!("SETBIT online:{day} 7000 1"));
        send(&server, &format!("SETBIT online:{day} 7 1"));
        send(&server, &format!("SETBIT online:{day} 0 1"));
        // Field 1 of a Protocol Buffers message: the number 150.
        let message: &[u8] = b"\x08\x96\x01";
        redis::cmd("SET").arg(format!("event:{day}")).arg(message).exec(&mut server.connect()).unwrap();
        send(&server, &format!("GEOADD shops:{day} 13.361389 38.115556 palermo -122.42 37.77 sf"));
        send(&server, &format!("ZADD seen:{day} 1763287200123 ada"));
    }
    let (schema, text) = proposed(&server.url()).await;
    let suspicions: Vec<String> = lint(&schema)
        .into_iter()
        .filter(|finding| finding.rule == "unconfirmed" && finding.message.contains("unknown form"))
        .map(|finding| format!("{}: {}", finding.subject, finding.message))
        .collect();
    let binary = "values of unknown form: some are binary; they could be bitmaps or Protocol Buffers";
    let places = "scores of unknown form: they could be places (`geo`) or times in microseconds";
    let expected =
        [format!("key.event: {binary}"), format!("key.online: {binary}"), format!("key.shops: {places}")];
    assert_eq!(suspicions, expected, "{text}");
    let catalog = Catalog::new(vec![schema], Layout::Plain).unwrap();
    let report = run_audit(&open(&server.url()).await, &catalog).await;
    assert_eq!(report.worst(), None, "{}\n{text}", report.text());
}

/// For the keys of Hob's own services the proposal is a valid schema, and the keys match it.
#[tokio::test]
async fn proposal_for_hobs_own_keys_audits_clean() {
    let cluster = RedisCluster::start();
    for name in SERVICES {
        let space = Keyspace::new(load_schema(name), Layout::Tagged);
        for family in 0..space.schema().families.len() {
            for command in example_write(&space, family) {
                let words: Vec<&str> = command.iter().map(String::as_str).collect();
                cluster.master_of(words[1]).command::<redis::Value>(&words);
            }
        }
    }
    let (schema, text) = proposed(&cluster.url()).await;
    assert!(schema.families.len() > 30, "{text}");
    let catalog = Catalog::new(vec![schema], Layout::Plain).unwrap();
    let report = run_audit(&open(&cluster.url()).await, &catalog).await;
    assert_eq!(report.worst(), None, "{}\n{text}", report.text());
}

/// Narrower ids keep bare ids apart from the keys of Celery. A pattern that has keys of the program and of connect-redis stays
/// whole.
#[tokio::test]
async fn proposal_can_be_used_together_with_the_libraries_that_it_names() {
    let server = RedisServer::start();
    let session = "{\"cookie\":{\"originalMaxAge\":null,\"expires\":null,\"path\":\"/\"}}";
    for number in 0..20_u8 {
        let result = format!("{{\"status\":\"SUCCESS\",\"result\":null,\"task_id\":\"{number}\"}}");
        send(&server, &format!("SET celery-task-meta-{number} {result}"));
        send(&server, &format!("SET sess:{number}a {session} EX 50"));
        send(&server, &format!("RPUSH sess:{number}b x"));
        send(&server, &format!("SET 7f3a{number:02x}c9e1 v"));
    }
    let store = open(&server.url()).await;
    let options = InferOptions { known: recognizable().unwrap(), ..whole() };
    let text = infer(&store, &options).await.unwrap().text;
    assert!(text.contains("Recognized 20 keys of celery,"), "{text}");
    assert!(text.contains("# 20 keys look like those of connect-redis, but"), "{text}");
    let (schema, celery) = (Schema::parse("proposal", &text).unwrap(), ready_schema("celery").unwrap());
    let catalog = Catalog::with_libraries(vec![schema], vec![celery], Layout::Plain).unwrap();
    let report = run_audit(&store, &catalog).await;
    assert_eq!(report.worst(), None, "{}\n{text}", report.text());
}

/// `--with` adds all schemas of a name, so none of their keys may be in the proposal.
#[tokio::test]
async fn schemas_of_one_name_are_recognized_together() {
    let known = |schema: &str, family: &str, families| {
        let text = format!(
            "[schema]\nname = \"{schema}\"\nversion = 1\n[ids]\nn = {{}}\n[key.k]\npattern = \"{family}:<n>\"\n\
             type = \"string\"\n"
        );
        Known { name: "lib".to_owned(), schema: Schema::parse(schema, &text).unwrap(), families }
    };
    let server = RedisServer::start();
    for key in ["a:1", "b:1"] {
        send(&server, &format!("SET {key} x"));
    }
    for (families, head) in [(1, "# Recognized 2 keys of lib,"), (2, "")] {
        let known = vec![known("one", "a", families), known("other", "b", 2)];
        let text = infer(&open(&server.url()).await, &InferOptions { known, ..whole() }).await.unwrap().text;
        assert!(text.contains(head) && text.contains("[key.") == head.is_empty(), "{text}");
    }
}

#[tokio::test]
async fn empty_server_gets_an_empty_schema() {
    let (schema, text) = proposed(&RedisServer::start().url()).await;
    assert!(schema.families.is_empty(), "{text}");
}

/// Audit and infer handle any key name, and their output can be printed.
#[tokio::test]
async fn unusual_key_names_are_audited_and_inferred() {
    let server = RedisServer::start();
    let long = "x".repeat(300_000);
    let many = vec!["a"; 500].join(":");
    let mut names: Vec<Vec<u8>> = [
        "",
        ":",
        "::",
        "{",
        "}",
        "{}",
        "{}:x",
        "a{b",
        "<id>",
        "a:<b>:c",
        "a:\"b\":c",
        "a:'b'",
        "a:\n:b",
        "a:\\:b",
        "[schema]",
        "* ? [a]",
        "é:ü:ß",
        "1:2:3",
        "type:fn:impl",
        "a:%zz:b",
        "_:_:_",
        "-:x",
        "{a:b}:c",
        "{a:b",
        &long,
        &many,
    ]
    .iter()
    .map(|name| name.as_bytes().to_vec())
    .collect();
    names.extend((0..=255u8).map(|byte| vec![b'k', b':', byte, b':', byte.wrapping_mul(31)]));
    let mut pipe = redis::pipe();
    for (number, name) in names.iter().enumerate() {
        match number % 6 {
            0 => pipe.cmd("SET").arg(name).arg(name),
            1 => pipe.cmd("HSET").arg(name).arg(name).arg("{\"a\":null,\"b c\":[1],\"*\":{}}"),
            2 => pipe.cmd("RPUSH").arg(name).arg("{\"x\":1}").arg("[]"),
            3 => pipe.cmd("ZADD").arg(name).arg("-inf").arg(name),
            4 => pipe.cmd("XADD").arg(name).arg("*").arg("a").arg("b"),
            _ => pipe.cmd("SADD").arg(name).arg("1").arg(""),
        };
        pipe.ignore();
    }
    pipe.query::<()>(&mut server.connect()).unwrap();

    let store = open(&server.url()).await;
    let options = InferOptions { name: "1 \"odd\" name".into(), ..whole() };
    let text = infer(&store, &options).await.unwrap().text;
    assert!(text.contains("# The empty key is missing"), "{text}");
    let schema = Schema::parse("proposal", &text).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    let report = run_audit(&store, &Catalog::new(vec![schema], Layout::Plain).unwrap()).await;
    // Only the empty key cannot be declared.
    let undeclared: Vec<&str> = report.undeclared.iter().map(|group| group.example.as_str()).collect();
    assert_eq!((report.violations.len(), undeclared), (0, vec!["\"\""]), "{}\n{text}", report.text());
    let report = run_audit(&store, &chat_catalog(Layout::Plain)).await;
    assert_eq!(report.keys, server.command::<u64>(&["DBSIZE"]));
    assert!(serde_json::from_str::<serde_json::Value>(&report.json()).is_ok());
    assert!(report.text().chars().all(|char| char == '\n' || !char.is_control()), "{}", report.text());
    assert!(report.text().len() < 200_000, "{} bytes", report.text().len());
}
