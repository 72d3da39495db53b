//! What infer writes, audit passes on the same data, whatever the keys look like.

use std::time::Duration;

use hob_schema::lint::lint;
use hob_schema::{Catalog, Layout, Schema};
use hob_schema_audit::{InferOptions, infer, ready_schema, recognizable};
use hob_store::Store;
use hob_testkit::RedisServer;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::{open, run_audit};

/// A command that writes one key.
type Write = Vec<Vec<u8>>;

fn word() -> impl Strategy<Value = String> {
    select(vec![
        "user",
        "session",
        "cart",
        "celery-task-meta",
        "leaderboard",
        "eu",
        "us",
        "v2",
        "views",
        "GET",
        "total",
        "_kombu",
        "bull",
        "a",
        "x",
        "room1",
        "room2",
        "GET /a",
        "naïve",
        "",
    ])
    .prop_map(str::to_owned)
}

fn id() -> impl Strategy<Value = String> {
    prop_oneof![
        (0..200u32).prop_map(|number| number.to_string()),
        "[0-9a-f]{24}",
        "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-a[0-9a-f]{3}-[0-9a-f]{12}",
        "20[0-9]{2}-[01][0-9]-[0-3][0-9]",
        "[A-Za-z0-9_-]{8,20}",
        "[a-z]{3,6}",
        "%[0-9a-f]{2}",
    ]
}

/// Keys of libraries that infer recognizes, and keys like them.
fn library_key() -> impl Strategy<Value = Vec<u8>> {
    let start = select(vec![
        "celery-task-meta-",
        "celery",
        "unacked",
        "_kombu.binding.",
        "sess:",
        ":1:",
        "rl:",
        "rq:queue:",
        "rq:job:",
        "bull:mail:",
        "laravel_database_",
        "spring:session:sessions:",
        "centrifugo.",
    ]);
    (start, prop_oneof![id(), word()]).prop_map(|(start, end)| format!("{start}{end}").into_bytes())
}

/// Keys as programs write them: words and ids between separators.
fn usual_key() -> impl Strategy<Value = Vec<u8>> {
    let separator = select(vec![":", ":", ":", "/", ".", "-", "_", "|", ":{", "}:"]);
    vec((prop_oneof![word(), id()], separator), 1..5).prop_map(|parts| {
        let mut key: String = parts.iter().map(|(part, separator)| format!("{part}{separator}")).collect();
        key.pop();
        key.into_bytes()
    })
}

fn odd_key() -> impl Strategy<Value = Vec<u8>> {
    vec(select(b":/.-_{}<>%*\"'\\ \n\xff\xc3az09".to_vec()), 1..8)
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![12 => usual_key(), 3 => library_key(), 1 => odd_key()]
        .prop_filter("the empty key", |key| !key.is_empty())
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        (0..9_999_999_999_999u64).prop_map(|number| number.to_string().into_bytes()),
        any::<f64>().prop_map(|number| number.to_string().into_bytes()),
        select(vec![
            "",
            "true",
            "false",
            "0",
            "1",
            "text",
            "2025-11-16T10:00:00Z",
            "2025-11-16T10:00:00",
            "{}",
            "[]",
            "[1]",
            "{\"a\":1}",
            "{\"a\":\"x\",\"b c\":null}",
            "{\"*\":[\"x\"]}",
            "{\"at\":\"2025-11-16T10:00:00Z\"}",
            "{",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        vec(any::<u8>(), 0..200),
    ]
}

fn field() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        select(vec!["name", "n", "user-id", "_x", "7", "a b", "Name", "*"])
            .prop_map(|name| name.as_bytes().to_vec()),
        vec(any::<u8>(), 1..4),
    ]
}

fn write() -> impl Strategy<Value = Vec<Write>> {
    let pairs = || vec((field(), value()), 1..4);
    let elements = || vec(value(), 1..40);
    let scores = select(vec!["1", "-inf", "1763287200", "1763287200123", "0.5"]);
    let words = |command: &str, key: &[u8]| vec![command.as_bytes().to_vec(), key.to_vec()];
    let content = prop_oneof![
        (key(), value()).prop_map(move |(key, value)| [words("SET", &key), vec![value]].concat()),
        (key(), pairs()).prop_map(move |(key, pairs)| {
            let pairs = pairs.into_iter().flat_map(|(field, value)| [field, value]);
            [words("HSET", &key), pairs.collect()].concat()
        }),
        (key(), elements()).prop_map(move |(key, items)| [words("RPUSH", &key), items].concat()),
        (key(), elements()).prop_map(move |(key, members)| [words("SADD", &key), members].concat()),
        (key(), scores, value()).prop_map(move |(key, score, member)| {
            [words("ZADD", &key), vec![score.as_bytes().to_vec(), member]].concat()
        }),
        (key(), pairs()).prop_map(move |(key, pairs)| {
            let pairs = pairs.into_iter().flat_map(|(field, value)| [field, value]);
            [words("XADD", &key), vec![b"*".to_vec()], pairs.collect()].concat()
        }),
    ];
    let ttl = || prop_oneof![Just(None), (100..5_000_000u64).prop_map(Some)];
    (content, ttl(), ttl()).prop_map(|(command, ttl, field_ttl)| {
        let key = command[1].clone();
        let expire =
            ttl.map(|seconds| vec![b"EXPIRE".to_vec(), key.clone(), seconds.to_string().into_bytes()]);
        // Fails for other types than hashes, and on servers without TTLs of fields.
        let expire_field = command.get(2).zip(field_ttl).map(|(field, seconds)| {
            let seconds = seconds.to_string().into_bytes();
            vec![b"HEXPIRE".to_vec(), key, seconds, b"FIELDS".to_vec(), b"1".to_vec(), field.clone()]
        });
        [Some(command), expire, expire_field].into_iter().flatten().collect()
    })
}

async fn check(
    server: &RedisServer,
    store: &Store,
    options: &InferOptions,
    writes: &[Vec<Write>],
) -> Result<(), TestCaseError> {
    server.flush_all();
    let mut connection = server.connect();
    for command in writes.iter().flatten() {
        let mut call = redis::Cmd::new();
        for word in command {
            call.arg(word);
        }
        // A key that exists with another type keeps it.
        let _ = call.query::<redis::Value>(&mut connection);
    }
    let text = infer(store, options).await.map_err(|error| TestCaseError::fail(error.to_string()))?.text;
    let schema = Schema::parse("proposal", &text)
        .map_err(|errors| TestCaseError::fail(format!("{errors}\n{text}")))?;
    let todo = lint(&schema).iter().filter(|finding| finding.rule == "no-purpose").count();
    prop_assert_eq!(todo, usize::from(!schema.families.is_empty()), "{}", text);
    let libraries = text.split("`--with ").skip(1).filter_map(|rest| rest.split('`').next());
    let libraries = libraries.map(|name| ready_schema(name).unwrap());
    let catalog = Catalog::with_libraries(vec![schema], libraries.collect(), Layout::Plain)
        .map_err(|conflict| TestCaseError::fail(format!("{conflict}\n{text}")))?;
    let report = run_audit(store, &catalog).await;
    // Keys belong to a library also if their TTLs break its rules.
    let own = report.violations.iter().filter(|group| group.family.starts_with("inferred."));
    prop_assert_eq!(own.count() + report.undeclared.len(), 0, "{}\n{}", report.text(), text);
    Ok(())
}

/// All cases use the same server, which is emptied before each.
#[test]
fn what_infer_writes_audit_passes() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = RedisServer::start();
    let store = runtime.block_on(open(&server.url()));
    let options = InferOptions {
        max_time: Duration::from_secs(600),
        known: recognizable().unwrap(),
        ..InferOptions::default()
    };
    let config = Config {
        cases: hob_testkit::budget(24, 1_000),
        failure_persistence: None,
        max_shrink_iters: 200,
        ..Config::default()
    };
    TestRunner::new(config)
        .run(&vec(write(), 1..50), |writes| runtime.block_on(check(&server, &store, &options, &writes)))
        .unwrap();
}
