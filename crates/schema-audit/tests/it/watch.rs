//! Watches of real servers, with and without keyspace notifications.

use std::time::Duration;

use hob_schema::{Catalog, Layout, Schema};
use hob_schema_audit::{AuditOptions, History, Pace, Watch, WatchOptions};
use hob_testkit::{LIMIT, RedisCluster, RedisOptions, RedisServer, wait_for};
use tokio::task::JoinHandle;

use crate::root;

const SCHEMA: &str = "[schema]\nname = \"app\"\nversion = 1\n[ids]\nid = {}\n\
    [key.session]\npattern = \"session:<id>\"\ntype = \"string\"\nttl = { max = \"1h\" }\n";

fn options(every: Duration) -> WatchOptions {
    WatchOptions {
        every,
        audit: AuditOptions { pace: Pace::KeysPerSecond(100_000), ..AuditOptions::default() },
        grace: Duration::from_millis(50),
        reads_per_second: 1_000,
        history: None,
    }
}

/// A watch that stops when it is dropped.
struct Running(Watch, JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.1.abort();
    }
}

async fn watch(url: &str, options: WatchOptions) -> Running {
    let catalog = Catalog::new(vec![Schema::parse("t.toml", SCHEMA).unwrap()], Layout::Plain).unwrap();
    let watch = Watch::connect(&url.parse().unwrap(), catalog, options).await.unwrap();
    let running = watch.clone();
    Running(watch, tokio::spawn(async move { running.run().await }))
}

impl Running {
    async fn shows(&self, line: &str) {
        wait_for(line, LIMIT, async || {
            let metrics = self.0.metrics();
            if metrics.lines().any(|shown| shown == line) { Ok(()) } else { Err(metrics) }
        })
        .await;
    }

    /// Writes a key without a TTL until it is noticed: the subscription may begin later than the first audit ends.
    async fn sees_a_written_key(&self, server: &RedisServer) {
        wait_for("a violation of a written key", LIMIT, async || {
            server.command::<()>(&["SET", "session:1", "x"]);
            tokio::time::sleep(Duration::from_millis(200)).await;
            let metrics = self.0.metrics();
            if metrics.contains(WRITTEN) { Ok(()) } else { Err(metrics) }
        })
        .await;
    }
}

const MISSING: &str = "hob_schema_watch_findings{family=\"app.session\",violation=\"missing-ttl\"}";
const WRITTEN: &str = "hob_schema_watch_violations_total{family=\"app.session\",violation=\"missing-ttl\"}";

#[tokio::test]
async fn without_notifications_the_next_audit_finds_a_violation() {
    let server = RedisServer::start();
    server.command::<()>(&["SET", "session:1", "x", "EX", "100"]);
    let folder = tempfile::tempdir().unwrap();
    let history = folder.path().join("history.jsonl");
    let watch = watch(
        &server.url(),
        WatchOptions { history: Some(history.clone()), ..options(Duration::from_millis(200)) },
    )
    .await;
    watch.shows("hob_schema_watch_keys{family=\"app.session\"} 1").await;
    watch.shows("hob_schema_watch_notifying_servers 0").await;
    assert!(!watch.0.metrics().contains(MISSING));
    server.command::<()>(&["SET", "session:2", "x"]);
    server.command::<()>(&["SET", "other:2", "x"]);
    watch.shows(&format!("{MISSING} 1")).await;
    watch.shows("hob_schema_watch_findings{family=\"undeclared\",violation=\"undeclared-key\"} 1").await;
    watch.shows("hob_schema_watch_keys_checked_total 0").await;
    // The setting of the server is not changed.
    let setting: Vec<String> = server.command(&["CONFIG", "GET", "notify-keyspace-events"]);
    assert_eq!(setting[1], "");
    let entries = History::load(&history).unwrap().entries().to_vec();
    assert!(entries.len() > 1 && entries.last().unwrap().findings["app.session missing-ttl"] == 1);
}

#[tokio::test]
async fn written_keys_are_checked_soon() {
    for setting in ["AE", "g$K"] {
        let server = RedisServer::start();
        server.command::<()>(&["CONFIG", "SET", "notify-keyspace-events", setting]);
        // The next audit would come too late.
        let watch = watch(&server.url(), options(Duration::from_hours(1))).await;
        watch.shows("hob_schema_watch_audits_total 1").await;
        watch.shows("hob_schema_watch_notifying_servers 1").await;
        watch.sees_a_written_key(&server).await;
        server.command::<()>(&["SET", "other:1", "x"]);
        watch
            .shows("hob_schema_watch_violations_total{family=\"undeclared\",violation=\"undeclared-key\"} 1")
            .await;
        watch.shows("hob_schema_watch_audits_total 1").await;
    }
}

/// The words of an ACL rule on the page about schemas, after this text.
fn permissions(page: &str, after: &str) -> Vec<String> {
    let (_, rest) = page.split_once(after).unwrap_or_else(|| panic!("{after:?} is not on the page"));
    let words = rest.trim_start().strip_prefix('`').and_then(|rest| rest.split_once('`'));
    words.unwrap_or_else(|| panic!("no rule after {after:?}")).0.split(' ').map(str::to_owned).collect()
}

/// Redis accepts a subscription to a pattern only if the user has the same pattern.
#[tokio::test]
async fn documented_permissions_are_enough_for_notifications() {
    let server = RedisServer::start();
    server.command::<()>(&["CONFIG", "SET", "notify-keyspace-events", "AE"]);
    server.command::<()>(&["ACL", "SETUSER", "watch", "on", ">pw", "~*"]);
    let page = std::fs::read_to_string(root().join("docs/schema.md")).unwrap();
    let audit = permissions(&page, "`audit` and `infer` need an ACL user with");
    for word in audit.iter().chain(&permissions(&page, "for notifications")) {
        // The page says that older servers do not know this one.
        let accepted = server.try_command::<()>(&["ACL", "SETUSER", "watch", word]);
        assert!(accepted.is_ok() || word == "+client|no-touch", "{word}: {accepted:?}");
    }
    let url = server.url().replace("redis://", "redis://watch:pw@");
    let watch = watch(&url, options(Duration::from_hours(1))).await;
    watch.shows("hob_schema_watch_notifying_servers 1").await;
    watch.sees_a_written_key(&server).await;
}

/// Between two commands of a program, a key may break its schema.
#[tokio::test]
async fn key_that_is_completed_within_the_grace_period_is_not_reported() {
    let server = RedisServer::start();
    server.command::<()>(&["CONFIG", "SET", "notify-keyspace-events", "AE"]);
    let slow = WatchOptions { grace: Duration::from_secs(2), ..options(Duration::from_hours(1)) };
    let watch = watch(&server.url(), slow).await;
    wait_for("a key that is checked", 2 * LIMIT, async || {
        server.command::<()>(&["SET", "session:1", "x"]);
        server.command::<()>(&["EXPIRE", "session:1", "100"]);
        tokio::time::sleep(Duration::from_millis(300)).await;
        let metrics = watch.0.metrics();
        if metrics.contains("hob_schema_watch_keys_checked_total 0") { Err(metrics) } else { Ok(()) }
    })
    .await;
    assert!(!watch.0.metrics().contains(WRITTEN), "{}", watch.0.metrics());
}

#[tokio::test]
async fn every_master_of_a_cluster_is_watched() {
    let cluster = RedisCluster::start();
    for master in cluster.masters() {
        master.command::<()>(&["CONFIG", "SET", "notify-keyspace-events", "AE"]);
    }
    for url in [cluster.url(), cluster.masters()[1].url()] {
        cluster.flush_all();
        let watch = watch(&url, options(Duration::from_hours(1))).await;
        watch.shows("hob_schema_watch_notifying_servers 3").await;
        let keys: Vec<String> = (0..12).map(|id| format!("session:{id}")).collect();
        wait_for("violations on every master", LIMIT, async || {
            for key in &keys {
                cluster.master_of(key).command::<()>(&["SET", key, "x"]);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
            let metrics = watch.0.metrics();
            let line = metrics.lines().find_map(|line| line.strip_prefix(WRITTEN)).unwrap_or("0").trim();
            if line.parse::<u64>().is_ok_and(|found| found >= 12) { Ok(()) } else { Err(metrics) }
        })
        .await;
    }
}

#[tokio::test]
async fn failed_audits_are_counted_and_repeated() {
    let server = RedisServer::start_with(&RedisOptions::default());
    let watch = watch(&server.url(), options(Duration::from_millis(100))).await;
    watch.shows("hob_schema_watch_audit_failures_total 0").await;
    watch.shows("hob_schema_watch_keys{family=\"app.session\"} 0").await;
    server.kill();
    wait_for("a failed audit", LIMIT, async || {
        let metrics = watch.0.metrics();
        if metrics.contains("hob_schema_watch_audit_failures_total 0") { Err(metrics) } else { Ok(()) }
    })
    .await;
    server.restart();
    server.command::<()>(&["SET", "session:2", "x"]);
    watch.shows(&format!("{MISSING} 1")).await;
}
