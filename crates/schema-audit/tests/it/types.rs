//! Streams with consumer groups, binary values, places, and fields with a TTL, on a real server and in its RDB file.

use std::path::Path;
use std::time::Duration;

use hob_schema::{Catalog, Layout, Schema};
use hob_schema_audit::{AuditReport, InferOptions, audit_rdb, infer};
use hob_testkit::RedisServer;

use crate::{open, run_audit};

const SCHEMA: &str = r#"
[schema]
name = "t"
version = 1

[ids]
id = {}

[key.events]
pattern = "events:<id>"
type = "stream"
groups = ["billing", "search"]
max_pending = 2
max_age = "1h"

[key.bits]
pattern = "bits:<id>"
type = "string"
value = { bitmap = 100 }

[key.visitors]
pattern = "visitors:<id>"
type = "string"
value = "hyperloglog"

[key.places]
pattern = "places:<id>"
type = "zset"
score = "geo"

[key.packed]
pattern = "packed:<id>"
type = "string"
value = { msgpack = 64 }

[key.message]
pattern = "message:<id>"
type = "string"
value = { protobuf = 64 }

[key.flag]
pattern = "flag:<id>"
type = "string"
ttl = { exact = "1h" }

[key.devices]
pattern = "devices:<id>"
type = "hash"
field_ttl = { max = "1h" }
"#;

fn catalog() -> Catalog {
    let schema = Schema::parse("t.toml", SCHEMA).unwrap_or_else(|errors| panic!("{errors}"));
    Catalog::new(vec![schema], Layout::Plain).unwrap()
}

/// `family breach keys` of each finding.
pub(crate) fn findings(report: &AuditReport) -> Vec<String> {
    let group = |group: &hob_schema_audit::ViolationGroup| {
        format!("{} {} {}", group.family, group.breach.as_str(), group.keys)
    };
    let mut findings: Vec<String> = report.violations.iter().map(group).collect();
    findings.sort();
    findings
}

pub(crate) async fn live_and_file(server: &RedisServer, catalog: &Catalog) -> [AuditReport; 2] {
    let live = run_audit(&open(&server.url()).await, catalog).await;
    server.command::<()>(&["SAVE"]);
    let (_, folder): (String, String) = server.command(&["CONFIG", "GET", "dir"]);
    let file = std::fs::read(Path::new(&folder).join("dump.rdb")).unwrap();
    [live, audit_rdb(file.as_slice(), catalog, 0).unwrap()]
}

fn send(server: &RedisServer, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    server.command::<redis::Value>(&words);
}

#[tokio::test]
async fn groups_pending_entries_and_age_of_streams_are_audited() {
    let (server, catalog) = (RedisServer::start(), catalog());
    // The first stream is as declared, also with a group that has no entries.
    for line in [
        "XADD events:good * n 1",
        "XADD events:good * n 2",
        "XGROUP CREATE events:good billing 0",
        "XGROUP CREATE events:good search 0",
        "XREADGROUP GROUP billing one COUNT 2 STREAMS events:good >",
        "XGROUP CREATE events:empty search 0 MKSTREAM",
        "XADD events:group * n 1",
        "XGROUP CREATE events:group other 0",
        "XADD events:old 1000-0 n 1",
        "XADD events:old * n 1",
        "XGROUP CREATE events:slow billing 0 MKSTREAM",
    ] {
        send(&server, line);
    }
    for _ in 0..3 {
        send(&server, "XADD events:slow * n 1");
    }
    send(&server, "XREADGROUP GROUP billing one STREAMS events:slow >");
    for report in live_and_file(&server, &catalog).await {
        assert_eq!(
            findings(&report),
            ["t.events old-entry 1", "t.events over-pending 1", "t.events undeclared-group 1"],
            "{}",
            report.text()
        );
        assert!(
            report.text().contains("group \"billing\" has 3 pending entries, more than 2"),
            "{}",
            report.text()
        );
    }
}

#[tokio::test]
async fn binary_values_and_places_are_audited_and_inferred() {
    let (server, catalog) = (RedisServer::start(), catalog());
    for line in [
        "SETBIT bits:good 799 1",
        "PFADD visitors:good a b c",
        "GEOADD places:good 13.361389 38.115556 Palermo 15.087269 37.502669 Catania",
    ] {
        send(&server, line);
    }
    let mut connection = server.connect();
    let elements: Vec<String> = (0..20_000).map(|n| n.to_string()).collect();
    redis::cmd("PFADD").arg("visitors:dense").arg(&elements).exec(&mut connection).unwrap();
    let mut set =
        |key: &str, value: &[u8]| redis::cmd("SET").arg(key).arg(value).exec(&mut connection).unwrap();
    set("packed:good", b"\x81\xa4name\xa3Ada");
    set("message:good", b"\x08\x96\x01\x12\x03Ada");
    for report in live_and_file(&server, &catalog).await {
        assert_eq!(findings(&report), [""; 0], "{}", report.text());
    }
    // What infer writes for them, audit passes; only a HyperLogLog is certain.
    let store = open(&server.url()).await;
    let proposed =
        infer(&store, &InferOptions { max_time: Duration::from_secs(600), ..InferOptions::default() })
            .await
            .unwrap()
            .text;
    assert_eq!(proposed.matches("\"hyperloglog\"").count(), 2, "{proposed}");
    // The bits are valid UTF-8, but not a text.
    let bits = proposed.split("[key.").find(|family| family.starts_with("bits")).unwrap();
    assert!(bits.contains("value    = \"any\"") && bits.contains("they could be bitmaps"), "{proposed}");
    let schema = Schema::parse("p.toml", &proposed).unwrap_or_else(|errors| panic!("{errors}\n{proposed}"));
    let report = run_audit(&store, &Catalog::new(vec![schema], Layout::Plain).unwrap()).await;
    assert_eq!(findings(&report), [""; 0], "{}\n{proposed}", report.text());

    set("packed:bad", b"plain text");
    set("message:bad", b"\xff");
    set("visitors:bad", b"plain text");
    send(&server, "SETBIT bits:bad 800 1");
    // Longer than what is read.
    send(&server, "SETBIT bits:huge 800000 1");
    send(&server, "ZADD places:bad 1.5 Palermo");
    for report in live_and_file(&server, &catalog).await {
        let expected = [
            "t.bits misfit-value 2",
            "t.message misfit-value 1",
            "t.packed misfit-value 1",
            "t.places misfit-value 1",
            "t.visitors misfit-value 1",
        ];
        assert_eq!(findings(&report), expected, "{}", report.text());
    }
}

/// The time in a file has no milliseconds. A TTL that was just set is not longer than declared.
#[tokio::test]
async fn new_ttl_is_not_too_long_in_a_file() {
    let (server, catalog) = (RedisServer::start(), catalog());
    for _ in 0..5 {
        send(&server, "SET flag:1 x PX 3600000");
        for report in live_and_file(&server, &catalog).await {
            assert_eq!(findings(&report), [""; 0], "{}", report.text());
        }
        tokio::time::sleep(Duration::from_millis(230)).await;
    }
}

/// Redis 7.4 and Valkey 9 have TTLs of fields. Older servers are not asked, and the report says so.
#[tokio::test]
async fn ttls_of_fields_are_audited_where_the_server_has_them() {
    let (server, catalog) = (RedisServer::start(), catalog());
    send(&server, "HSET devices:good a 1 b 2");
    send(&server, "HSET devices:late a 1");
    send(&server, "HSET devices:bad a 1 b 2");
    for n in 0..600 {
        send(&server, &format!("HSET devices:many field-{n} {n}"));
    }
    let expire = |key: &str, ms: &str, fields: &[&str]| {
        let count = fields.len().to_string();
        server.try_command::<redis::Value>(&[&["HPEXPIRE", key, ms, "FIELDS", &count][..], fields].concat())
    };
    if expire("devices:good", "3600000", &["a", "b"]).is_err() {
        let report = run_audit(&open(&server.url()).await, &catalog).await;
        assert_eq!(findings(&report), [""; 0], "{}", report.text());
        assert!(report.text().contains("the server has no HPTTL"), "{}", report.text());
        return;
    }
    expire("devices:late", "9000000", &["a"]).unwrap();
    expire("devices:bad", "3600000", &["a"]).unwrap();
    let fields: Vec<String> = (0..600).map(|n| format!("field-{n}")).collect();
    expire("devices:many", "3600000", &fields.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    for report in live_and_file(&server, &catalog).await {
        assert_eq!(
            findings(&report),
            ["t.devices long-field-ttl 1", "t.devices missing-field-ttl 1"],
            "{}",
            report.text()
        );
    }
}

/// A hash whose fields all expire needs no TTL, and a field that expires is not required.
#[tokio::test]
async fn ttls_of_fields_are_inferred_where_the_server_has_them() {
    let server = RedisServer::start();
    for n in 0..3 {
        send(&server, &format!("HSET devices:{n} a 1 b 2"));
        send(&server, &format!("HSET profile:{n} name Ada token x"));
        send(&server, &format!("HSET settings:{n} theme dark"));
    }
    // Of this hash not all fields are read.
    for n in 0..100 {
        send(&server, &format!("HSET many:1 field-{n} {n}"));
    }
    let expire = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        server.try_command::<redis::Value>(&words).is_ok()
    };
    let mut has_field_ttls = false;
    for n in 0..3 {
        has_field_ttls = expire(&format!("HPEXPIRE devices:{n} 3500000 FIELDS 2 a b"));
        expire(&format!("HPEXPIRE profile:{n} 290000 FIELDS 1 token"));
    }
    for n in 0..100 {
        expire(&format!("HPEXPIRE many:1 290000 FIELDS 1 field-{n}"));
    }
    let store = open(&server.url()).await;
    let options = InferOptions { max_time: Duration::from_secs(600), ..InferOptions::default() };
    let text = infer(&store, &options).await.unwrap().text;
    let family = |name: &str| {
        let body = text.split("[key.").find_map(|body| body.strip_prefix(&format!("{name}]")));
        body.unwrap_or_else(|| panic!("{text}")).split_once("\npurpose").unwrap()
    };
    let declared = |name: &str, lines: &[&str]| {
        lines.iter().for_each(|line| assert!(family(name).0.contains(line), "{line} in {name}\n{text}"));
    };
    declared("settings", &["fields   = { theme = { text = 64 } }", "none = \"TODO\""]);
    assert_eq!(text.contains("field_ttl"), has_field_ttls, "{text}");
    if has_field_ttls {
        declared(
            "devices",
            &["a = \"int?\"", "field_ttl = { max = \"1h\" }", "none = \"its fields expire\""],
        );
        assert!(!family("devices").1.starts_with("  = \"TODO\"\nunconfirmed"), "{text}");
        let fields = "{ name = { text = 64 }, token = { text = 64, optional = true } }";
        declared("profile", &[fields, "field_ttl = { late = \"5m\", why = \"TODO\" }", "none = \"TODO\""]);
        declared("many", &["field_ttl = { late = \"5m\", why = \"TODO\" }"]);
    }
    let schema = Schema::parse("p.toml", &text).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    for report in live_and_file(&server, &Catalog::new(vec![schema], Layout::Plain).unwrap()).await {
        assert_eq!(findings(&report), [""; 0], "{}\n{text}", report.text());
    }
}
