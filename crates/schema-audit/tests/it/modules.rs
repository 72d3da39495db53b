//! The types of modules: JSON, time series and Bloom filters, on a server that has them. `cargo xtask versions redis-7.4` runs
//! these tests on one. Redis of Debian has no modules; there, only the answer for that is tested.

use hob_schema::{Catalog, Layout, Schema, acl};
use hob_schema_audit::{InferOptions, infer};
use hob_testkit::RedisServer;

use crate::types::{findings, live_and_file};
use crate::{open, run_audit};

const WRITES: &[(&str, &[&str])] = &[
    ("ReJSON-RL", &["JSON.SET", "user:1", "$", r#"{"name":"Ada"}"#]),
    ("TSDB-TYPE", &["TS.ADD", "temperature:1", "1000", "20.5"]),
    ("MBbloom--", &["BF.ADD", "seen:1", "a"]),
    ("MBbloomCF", &["CF.ADD", "cuckoo:1", "a"]),
    ("CMSk-TYPE", &["CMS.INITBYDIM", "sketch:1", "100", "5"]),
    ("TopK-TYPE", &["TOPK.RESERVE", "top:1", "5"]),
    ("TDIS-TYPE", &["TDIGEST.CREATE", "latency:1"]),
];

fn catalog(text: &str) -> Catalog {
    let schema = Schema::parse("t.toml", text).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    Catalog::new(vec![schema], Layout::Plain).unwrap()
}

/// One family for each type, of the same keys as in `WRITES`.
fn declared() -> Catalog {
    let mut text = "[schema]\nname = \"t\"\nversion = 1\n[ids]\nid = {}\n".to_owned();
    for (kind, words) in WRITES {
        let name = words[1].trim_end_matches(":1");
        text += &format!(
            "[key.{name}]\npattern = \"{name}:<id>\"\ntype = \"module:{kind}\"\nttl = {{ max = \"1h\" }}\n"
        );
    }
    catalog(&text)
}

/// Writes a key of each type; `false` if the server does not have these modules.
fn fill(server: &RedisServer) -> bool {
    let modules: Vec<redis::Value> = server.command(&["MODULE", "LIST"]);
    // Some servers have other modules: Valkey's Lua is one.
    if !format!("{modules:?}").contains("ReJSON") {
        return false;
    }
    for (_, words) in WRITES {
        server.command::<redis::Value>(words);
    }
    true
}

#[tokio::test]
async fn types_of_modules_are_inferred_and_audited() {
    let server = RedisServer::start();
    let filled = fill(&server);
    let store = open(&server.url()).await;
    let text = infer(&store, &InferOptions::default()).await.unwrap().text;
    for (kind, words) in WRITES {
        assert_eq!(text.contains(&format!("\"module:{kind}\"")), filled, "{text}");
        assert_eq!(text.contains(words[1].trim_end_matches('1')), filled, "{text}");
    }
    for report in live_and_file(&server, &catalog(&text)).await {
        assert_eq!(findings(&report), [""; 0], "{}", report.text());
    }
    let catalog = declared();
    let missing: Vec<String> = match filled {
        true => ["cuckoo", "latency", "seen", "sketch", "temperature", "top", "user"]
            .map(|name| format!("t.{name} missing-ttl 1"))
            .to_vec(),
        false => Vec::new(),
    };
    for report in live_and_file(&server, &catalog).await {
        assert_eq!(findings(&report), missing, "{}", report.text());
    }
    if filled {
        server.command::<()>(&["DEL", "user:1"]);
    }
    server.command::<()>(&["SET", "user:1", "x", "EX", "60"]);
    let report = run_audit(&store, &catalog).await;
    assert!(findings(&report).contains(&"t.user wrong-type 1".to_owned()), "{}", report.text());
}

/// C19. Before Redis 8, the commands of modules are in no category.
#[test]
fn acl_allows_the_commands_of_declared_modules() {
    let server = RedisServer::start();
    let filled = fill(&server);
    let rule = acl(&declared(), "app");
    let words: Vec<&str> = ["ACL", "SETUSER"].into_iter().chain(rule.split_whitespace().skip(1)).collect();
    let accepted = server.try_command::<()>(&[words.as_slice(), &[">pw"]].concat());
    if !filled {
        // A schema of modules is of no use here, and Redis names the first command that it does not know.
        let error = accepted.unwrap_err().to_string();
        assert!(error.contains("+json."), "{error}");
        return;
    }
    accepted.unwrap();
    let mut connection = server.connect();
    redis::cmd("AUTH").arg("app").arg("pw").exec(&mut connection).unwrap();
    let mut send = |words: &[&str]| {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        command.query::<redis::Value>(&mut connection)
    };
    for (_, words) in WRITES {
        let other: Vec<&str> =
            words.iter().map(|word| if *word == words[1] { "other:1" } else { word }).collect();
        let refused = send(&other).unwrap_err().to_string();
        assert!(refused.contains("No permissions to access a key"), "{words:?}: {refused}");
    }
    for words in [
        &["JSON.GET", "user:1"][..],
        &["TS.RANGE", "temperature:1", "-", "+"],
        &["BF.EXISTS", "seen:1", "a"],
        &["CF.EXISTS", "cuckoo:1", "a"],
        &["CMS.INFO", "sketch:1"],
        &["TOPK.LIST", "top:1"],
        &["TDIGEST.INFO", "latency:1"],
    ] {
        send(words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
    }
}
