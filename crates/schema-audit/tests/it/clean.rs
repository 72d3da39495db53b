//! Clean changes the keys of one declared family, and only with `apply`.

use std::time::Duration;

use hob_schema::{Catalog, Layout};
use hob_schema_audit::{CleanAction, CleanOptions, CleanReport, Pace, clean};
use hob_testkit::{RedisCluster, RedisServer};

use crate::{chat_catalog, open};

async fn run(url: &str, catalog: &Catalog, family: &str, action: CleanAction, apply: bool) -> CleanReport {
    let options = CleanOptions { action, pace: Pace::Full, apply };
    clean(&open(url).await, catalog, family, options, &mut |_| {}).await.unwrap()
}

fn seed(server: &RedisServer) {
    let mut pipe = redis::pipe();
    for n in 0..2_500 {
        pipe.cmd("SET").arg(format!("unread:u1:c{n}")).arg(1).ignore();
        pipe.cmd("SET").arg(format!("typing:c{n}:u1")).arg(1).ignore();
    }
    pipe.cmd("SET").arg("unread:u1:total").arg(2_500).ignore();
    pipe.query::<()>(&mut server.connect()).unwrap();
}

/// C18: thousands of keys, and none of another family.
#[tokio::test]
async fn only_keys_of_the_family_are_deleted() {
    let (server, catalog) = (RedisServer::start(), chat_catalog(Layout::Plain));
    seed(&server);
    let dry = run(&server.url(), &catalog, "unread", CleanAction::Delete, false).await;
    assert_eq!((dry.seen, dry.changed, dry.applied), (2_500, 2_500, false));
    assert_eq!(server.command::<u64>(&["DBSIZE"]), 5_001);

    let done = run(&server.url(), &catalog, "chat.unread", CleanAction::Delete, true).await;
    assert_eq!(done.changed, 2_500);
    assert_eq!(server.command::<u64>(&["DBSIZE"]), 2_501);
    assert_eq!(server.command::<u64>(&["EXISTS", "unread:u1:total"]), 1);
    assert_eq!(run(&server.url(), &catalog, "unread", CleanAction::Delete, true).await.changed, 0);
}

#[tokio::test]
async fn missing_ttl_is_added_and_an_existing_one_is_kept() {
    let (server, catalog) = (RedisServer::start(), chat_catalog(Layout::Plain));
    server.command::<()>(&["SET", "typing:c1:u1", "1"]);
    server.command::<()>(&["SET", "typing:c1:u2", "1", "PX", "60000"]);
    let report = run(&server.url(), &catalog, "typing", CleanAction::RepairTtl, true).await;
    assert_eq!((report.seen, report.changed), (2, 1));
    let ttl = |key: &str| server.command::<i64>(&["PTTL", key]);
    assert!((1..=5_000).contains(&ttl("typing:c1:u1")) || ttl("typing:c1:u1") == -2);
    assert!((5_001..=60_000).contains(&ttl("typing:c1:u2")));
    let options = CleanOptions { action: CleanAction::RepairTtl, pace: Pace::Full, apply: true };
    let error =
        clean(&open(&server.url()).await, &catalog, "online", options, &mut |_| {}).await.unwrap_err();
    assert!(error.to_string().contains("does not need a TTL"), "{error}");
}

#[tokio::test]
async fn keys_in_use_are_kept_when_idle_ones_are_deleted() {
    let (server, catalog) = (RedisServer::start(), chat_catalog(Layout::Plain));
    server.command::<()>(&["SET", "lastseen:u1", "2025-11-16T10:00:00Z"]);
    let idle = CleanAction::DeleteIdle(Duration::from_secs(3_600));
    assert_eq!(run(&server.url(), &catalog, "last_seen", idle, true).await.changed, 0);
    let any = CleanAction::DeleteIdle(Duration::ZERO);
    assert_eq!(run(&server.url(), &catalog, "last_seen", any, true).await.changed, 1);
}

#[tokio::test]
async fn cluster_is_cleaned_on_every_master() {
    let (cluster, catalog) = (RedisCluster::start(), chat_catalog(Layout::Tagged));
    for n in 0..50 {
        let key = format!("lastseen:{{u{n}}}");
        cluster.master_of(&key).command::<()>(&["SET", &key, "2025-11-16T10:00:00Z"]);
    }
    let report = run(&cluster.url(), &catalog, "last_seen", CleanAction::Delete, true).await;
    assert_eq!(report.changed, 50);
    assert!(cluster.masters().iter().all(|master| master.command::<u64>(&["DBSIZE"]) == 0));
}

#[tokio::test]
async fn only_declared_families_can_be_cleaned() {
    let (server, catalog) = (RedisServer::start(), chat_catalog(Layout::Plain));
    let options = CleanOptions { action: CleanAction::Delete, pace: Pace::Full, apply: true };
    let error =
        clean(&open(&server.url()).await, &catalog, "everything", options, &mut |_| {}).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the schema has no key family \"everything\"; use the NAME of one of its [key.NAME] tables"
    );
}
