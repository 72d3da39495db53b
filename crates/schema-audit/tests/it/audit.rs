//! Audits of real servers: one key for every kind of violation, and no other findings.

use hob_engine::Engine;
use hob_schema::check::Breach;
use hob_schema::docs::estimated_bytes;
use hob_schema::examples::{example_key, example_publish, example_write};
use hob_schema::lint::Severity;
use hob_schema::{Catalog, Keyspace, Layout, Schema};
use hob_schema_audit::{
    AuditOptions, AuditReport, Baseline, Error, InferOptions, Pace, Progress, audit, infer,
};
use hob_store::{Cmd, Store};
use hob_testkit::{LIMIT, RedisCluster, RedisServer, wait_for, wait_until};

use crate::{open, run_audit, services_catalog};

fn parse_catalog(text: &str, layout: Layout) -> Catalog {
    Catalog::new(vec![Schema::parse("t.toml", text).unwrap_or_else(|errors| panic!("{errors}"))], layout)
        .unwrap()
}

async fn run(url: &str, catalog: &Catalog) -> AuditReport {
    run_audit(&open(url).await, catalog).await
}

/// `family breach` for each group, undeclared patterns as `- pattern`.
fn findings(report: &AuditReport) -> Vec<String> {
    let violations =
        report.violations.iter().map(|group| format!("{} {}", group.family, group.breach.as_str()));
    let undeclared = report.undeclared.iter().map(|group| format!("- {}", group.pattern));
    let mut findings: Vec<String> = violations.chain(undeclared).collect();
    findings.sort();
    findings
}

fn words(command: &[String]) -> Vec<&str> {
    command.iter().map(String::as_str).collect()
}

fn seed_examples(space: &Keyspace, send: &dyn Fn(&[&str])) {
    for family in 0..space.schema().families.len() {
        example_write(space, family).iter().for_each(|command| send(&words(command)));
    }
    for channel in 0..space.schema().channels.len() {
        send(&words(&example_publish(space, channel)));
    }
}

#[tokio::test]
async fn examples_of_the_documentation_run_and_audit_clean() {
    let (server, catalog) = (RedisServer::start(), services_catalog(Layout::Plain));
    let store = open(&server.url()).await;
    // Some examples expire after two seconds.
    let report = wait_for("an audit before an example expires", LIMIT, async || {
        server.flush_all();
        for space in catalog.spaces() {
            seed_examples(space, &|command| {
                server.command::<redis::Value>(command);
            });
        }
        let report = run_audit(&store, &catalog).await;
        let is_complete = report.families.iter().all(|family| family.keys == 1 && family.bytes > 0);
        if is_complete { Ok(report) } else { Err(report.text()) }
    })
    .await;
    assert_eq!(findings(&report), [""; 0], "{}", report.text());
    assert_eq!(report.worst(), None);
}

/// The documentation has rough estimates of the memory of each key.
#[tokio::test]
async fn memory_estimates_are_within_a_factor_of_two() {
    let (server, catalog) = (RedisServer::start(), services_catalog(Layout::Plain));
    for space in catalog.spaces() {
        for (index, family) in space.schema().families.iter().enumerate() {
            let key = example_key(space, index);
            // Some examples expire after two seconds.
            let real = wait_until("the memory of an example before it expires", || {
                server.flush_all();
                for command in example_write(space, index) {
                    server.command::<redis::Value>(&words(&command));
                }
                server.command::<Option<u64>>(&["MEMORY", "USAGE", &key])
            });
            let estimate = estimated_bytes(space, index, 1);
            let accepted = real / 2..=real * 2;
            assert!(accepted.contains(&estimate), "{}: {estimate} estimated, {real} measured", family.name);
        }
    }
}

#[tokio::test]
async fn every_master_of_a_cluster_is_audited() {
    let (cluster, catalog) = (RedisCluster::start(), services_catalog(Layout::Tagged));
    let seed = || {
        cluster.flush_all();
        cluster.master_of("unknown:7").command::<redis::Value>(&["SET", "unknown:7", "1"]);
        cluster.master_of("other:7").command::<redis::Value>(&["LPUSH", "other:7", "1"]);
        for space in catalog.spaces() {
            for family in 0..space.schema().families.len() {
                for command in example_write(space, family) {
                    cluster.master_of(&command[1]).command::<redis::Value>(&words(&command));
                }
            }
        }
    };
    for url in [cluster.url(), cluster.masters()[1].url()] {
        let store = open(&url).await;
        // Some examples expire after two seconds.
        let report = wait_for("an audit before an example expires", 2 * LIMIT, async || {
            seed();
            let report = run_audit(&store, &catalog).await;
            let is_complete = report.families.iter().all(|family| family.keys == 1);
            if is_complete { Ok(report) } else { Err(report.text()) }
        })
        .await;
        assert_eq!(report.nodes, 3);
        assert_eq!(findings(&report), ["- other:<…>", "- unknown:<…>"], "{}", report.text());
    }
}

const SCHEMA: &str = r#"
[schema]
name = "t"
version = 1
prefix = "t:"
shards = 4
[ids]
id = { max = 16 }
part = { max = 16, not = ["total"] }
[key.good]
pattern = "good:<id>"
type = "string"
value = "int"
ttl = { max = "1h" }
[key.stays]
pattern = "stays:<id>"
type = "string"
ttl = { none = "x" }
[key.list]
pattern = "list:<id>"
type = "list"
item = { json = "point" }
max_len = 3
ttl = { none = "x" }
[key.hash]
pattern = "hash:<id>"
type = "hash"
fields = { n = "int" }
ttl = { none = "x" }
[key.zset]
pattern = "zset:<id>"
type = "zset"
member = { id = "id" }
score = "unix_ms"
ttl = { none = "x" }
[key.part]
pattern = "sum:<id>:<part>"
type = "string"
value = "int"
ttl = { none = "x" }
[key.total]
pattern = "sum:<id>:total"
type = "string"
value = "int"
sums = "part"
ttl = { none = "x" }
[key.few]
pattern = "few:<id>"
type = "string"
max_keys = 2
ttl = { none = "x" }
[shape.point]
x = "int"
"#;

/// Commands that follow the contract, and one group of commands for each kind of violation.
const SEED: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "SET t:good:1 5 EX 60",
            "SET t:stays:1 x",
            "RPUSH t:list:1 {\"x\":1}",
            "HSET t:hash:1 n 1",
            "ZADD t:zset:1 1700000000000 a",
            "SET t:sum:a:b 2",
            "SET t:sum:a:c 3",
            "SET t:sum:a:total 5",
            "SET t:few:1 x",
        ],
    ),
    ("t.good wrong-type", &["LPUSH t:good:2 x"]),
    ("t.good missing-ttl", &["SET t:good:3 5"]),
    ("t.good long-ttl", &["SET t:good:4 5 EX 7200"]),
    ("t.good misfit-value", &["SET t:good:5 five EX 60"]),
    ("t.stays unexpected-ttl", &["SET t:stays:2 x EX 100"]),
    ("t.list over-long", &["RPUSH t:list:2 {\"x\":1} {\"x\":2} {\"x\":3} {\"x\":4}"]),
    ("t.list misfit-value", &["RPUSH t:list:3 {\"x\":1} {\"y\":2}"]),
    ("t.hash missing-field", &["HSET t:hash:2 m 1"]),
    ("t.hash undeclared-field", &[]),
    ("t.zset misfit-value", &["ZADD t:zset:2 1700000000 a"]),
    ("t.part wrong-type", &["XADD t:sum:x:y * a b"]),
    ("t.total broken-sum", &["SET t:sum:d:total 4", "SET t:sum:d:e 3"]),
    ("t.few too-many-keys", &["SET t:few:2 x", "SET t:few:3 x"]),
    ("- t:good:<…>:<…>", &["SET t:good:1:2 5"]),
    ("- <…>", &["SET \u{7f}\u{1}9 x"]),
];

fn seed(server: &RedisServer) {
    for command in SEED.iter().flat_map(|(_, commands)| commands.iter()) {
        server.command::<redis::Value>(&command.split(' ').collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn every_breach_is_found_and_nothing_else() {
    let (server, catalog) = (RedisServer::start(), parse_catalog(SCHEMA, Layout::Plain));
    seed(&server);
    let report = run(&server.url(), &catalog).await;
    let mut expected: Vec<&str> =
        SEED.iter().map(|(finding, _)| *finding).filter(|finding| !finding.is_empty()).collect();
    expected.sort_unstable();
    assert_eq!(findings(&report), expected, "{}", report.text());
    let breaches: std::collections::BTreeSet<_> =
        report.violations.iter().map(|group| group.breach).collect();
    // All but undeclared keys, which have a table of their own, unreadable ones, those that only a command can break, and those
    // of streams and of fields with a TTL, which have tests of their own.
    assert_eq!(breaches.len() + 3 + 6, Breach::ALL.len(), "every kind of breach is seeded");
    assert!(report.violations.iter().all(|group| group.keys == 1), "{}", report.text());
    assert_eq!(report.worst(), Some(Severity::Error));
}

#[tokio::test]
async fn baseline_hides_known_findings_that_have_not_grown() {
    let (server, catalog) = (RedisServer::start(), parse_catalog(SCHEMA, Layout::Plain));
    seed(&server);
    let before = run(&server.url(), &catalog).await;
    let baseline = Baseline::from_json(&before.json()).unwrap();
    server.command::<redis::Value>(&["SET", "t:good:6", "6"]);
    server.command::<redis::Value>(&["SET", "newcomer:8", "6"]);
    server.command::<redis::Value>(&["SET", "t:few:2", "x", "EX", "900"]);
    let after = baseline.only_new(run(&server.url(), &catalog).await);
    let expected = ["- newcomer:<…>", "t.few unexpected-ttl", "t.good missing-ttl"];
    assert_eq!(findings(&after), expected, "{}", after.text());
    let grown = "t.good missing-ttl has grown: 1 key in the baseline, 2 now";
    assert!(after.notes.contains(&grown.to_owned()), "{}", after.text());
    assert!(Baseline::from_json("{}").is_err());
}

#[tokio::test]
async fn paced_audit_keeps_its_rate_and_reports_progress() {
    let (server, catalog) = (RedisServer::start(), parse_catalog(SCHEMA, Layout::Plain));
    let mut pipe = redis::pipe();
    for n in 0..1_000 {
        pipe.cmd("SET").arg(format!("t:stays:{n}")).arg("x").ignore();
    }
    pipe.query::<()>(&mut server.connect()).unwrap();
    let mut steps = Vec::new();
    let options = AuditOptions { pace: Pace::KeysPerSecond(2_000), ..AuditOptions::default() };
    let report = audit(&open(&server.url()).await, &catalog, options, &mut |progress| {
        assert_eq!(progress.expected, 1_000);
        steps.push(progress.keys);
    })
    .await
    .unwrap();
    assert_eq!(report.keys, 1_000);
    assert!(report.elapsed_ms >= 400, "{} ms", report.elapsed_ms);
    assert!(steps.len() >= 20 && steps.is_sorted(), "{steps:?}");
}

/// A key that the user may not read was not checked: it is counted, and the audit does not pass.
#[tokio::test]
async fn unreadable_key_is_an_error_of_the_audit() {
    let (server, catalog) = (RedisServer::start(), services_catalog(Layout::Plain));
    seed_examples(&catalog.spaces()[0], &|command| {
        server.command::<redis::Value>(command);
    });
    let url = server.url().replace("redis://", "redis://auditor:pass@");
    let allow = |rights: &str| {
        let user = ["ACL", "SETUSER", "auditor", "reset", "on", ">pass"];
        server.command::<()>(&user.into_iter().chain(rights.split(' ')).collect::<Vec<_>>());
    };
    for rights in [
        "~* +scan +dbsize +info",
        "~ha:nothing:* +@read +@connection +info +dbsize",
        "~* +@read +info +dbsize -pttl",
        "~* +@read +info +dbsize -type -object -zcard",
    ] {
        allow(rights);
        let report = run(&url, &catalog).await;
        let unreadable: Vec<_> =
            report.violations.iter().filter(|group| group.breach == Breach::Unreadable).collect();
        assert_eq!(report.worst(), Some(Severity::Error), "{rights}: {}", report.text());
        assert!(unreadable[0].examples[0].message.contains("NOPERM"), "{rights}: {}", report.text());
        assert!(report.verdict().contains("could not be read"), "{}", report.verdict());
        // A baseline cannot hide keys of which nothing is known.
        let baseline = Baseline::from_json(&report.json()).unwrap();
        assert_eq!(baseline.only_new(report).worst(), Some(Severity::Error), "{rights}");
    }
    allow("~ha:nothing:* +@read +info +dbsize");
    let inferred = infer(&open(&url).await, &InferOptions::default()).await.unwrap();
    assert_eq!(inferred.unreadable, server.command::<u64>(&["DBSIZE"]));
    assert!(inferred.text.contains("could not be read and are missing: TYPE: NOPERM"), "{}", inferred.text);
    allow("~* +@read +info +dbsize +memory|usage");
    let report = run(&url, &catalog).await;
    assert_eq!(findings(&report), Vec::<String>::new());
}

#[tokio::test]
async fn audit_changes_nothing() {
    let (server, catalog) = (RedisServer::start(), parse_catalog(SCHEMA, Layout::Plain));
    seed(&server);
    let dirty =
        |server: &RedisServer| server.info("persistence").get::<u64>("rdb_changes_since_last_save").unwrap();
    let before = dirty(&server);
    run(&server.url(), &catalog).await;
    assert_eq!(dirty(&server), before);
}

/// The console audits the embedded engine with the same function.
#[tokio::test]
async fn embedded_engine_is_audited_like_a_server() {
    let store = Store::embedded(&Engine::default());
    let catalog = parse_catalog(SCHEMA, Layout::Plain);
    for command in SEED.iter().flat_map(|(_, commands)| commands.iter()) {
        let mut call = Cmd::new();
        for word in command.split(' ') {
            call.arg(word);
        }
        // The engine has no streams.
        if !command.starts_with("XADD") {
            store.run::<hob_store::Value>(call).await.unwrap();
        }
    }
    let report = run_audit(&store, &catalog).await;
    let mut expected: Vec<&str> = SEED.iter().map(|(finding, _)| *finding).collect();
    expected.retain(|finding| !finding.is_empty() && *finding != "t.part wrong-type");
    expected.sort_unstable();
    assert_eq!(findings(&report), expected, "{}", report.text());
}

/// A SCAN cursor of one server process is not valid in the next.
#[tokio::test(flavor = "multi_thread")]
async fn restart_during_an_audit_is_an_error() {
    let (server, catalog) = (RedisServer::start(), parse_catalog(SCHEMA, Layout::Plain));
    let mut pipe = redis::pipe();
    for n in 0..1_000 {
        pipe.cmd("SET").arg(format!("t:stays:{n}")).arg("x").ignore();
    }
    pipe.query::<()>(&mut server.connect()).unwrap();
    let store = open(&server.url()).await;
    let options = AuditOptions { pace: Pace::KeysPerSecond(2_000), ..AuditOptions::default() };
    let mut restarted = false;
    let mut restart_once = |_: &Progress| {
        if !std::mem::replace(&mut restarted, true) {
            server.kill();
            server.restart();
        }
    };
    let error = audit(&store, &catalog, options, &mut restart_once).await.unwrap_err();
    let lost = matches!(&error, Error::Restarted { .. })
        || matches!(&error, Error::Command { source: hob_store::Error::Interrupted { .. }, .. });
    assert!(lost, "{error}");
}
