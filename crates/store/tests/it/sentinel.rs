//! A Sentinel set: the store follows the master after a failover.

use std::time::Duration;

use hob_store::{BusEvent, Call, ChannelFilter, Store};
use hob_testkit::{LIMIT, SentinelSet, run, wait_for};

use crate::failure::{COUNT, address, connect, wait_for_error};

#[test]
fn sentinel_failover_is_followed() {
    run(async {
        let set = SentinelSet::start();
        let store = connect(&set.url()).await;
        assert_eq!(store.run::<i64>(COUNT.on(&["k"])).await.unwrap(), 1);
        let mut subscription = store.bus().subscribe(&[ChannelFilter::channel("c")]).await.unwrap();
        let old = set.master();
        old.kill();
        set.wait_for_failover(old).await;
        store.run::<i64>(COUNT.on(&["after"])).await.unwrap();
        assert_eq!(set.master().command::<i64>(&["GET", "after"]), 1, "written to the new master");
        assert_eq!(tokio::time::timeout(LIMIT, subscription.next()).await.unwrap(), Some(BusEvent::Missed));
        store.bus().publish("c", "x").await.unwrap();
        assert!(matches!(subscription.next().await, Some(BusEvent::Message { .. })));
    });
}

/// The old master stays reachable as a replica and keeps its connections. The store detects the change when the replica
/// refuses a write.
#[test]
fn demoted_master_is_replaced_by_the_new_one() {
    run(async {
        let set = SentinelSet::start();
        let store = connect(&set.url()).await;
        store.run::<i64>(COUNT.on(&["k"])).await.unwrap();
        let old = set.master();
        wait_for("the failover to begin", LIMIT, async || {
            // Refused while the Sentinel has not heard from the replica for a moment.
            set.sentinel().try_command::<()>(&["SENTINEL", "FAILOVER", "mymaster"])
        })
        .await;
        set.wait_for_failover(old).await;
        let new = set.master();
        old.command::<()>(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
        store.run::<i64>(COUNT.on(&["after"])).await.unwrap();
        assert_eq!(new.command::<i64>(&["GET", "after"]), 1);
        let calls: Vec<Call> = (0..10).map(|at| COUNT.on(&[format!("batch:{at}")])).collect();
        assert!(store.batch(&calls).await.iter().all(Result::is_ok));
        assert_eq!(new.command::<i64>(&["GET", "batch:9"]), 1);
    });
}

/// After a planned failover the old master accepts writes until the sentinels demote it, and all of them are lost. Here
/// it is never demoted: the store follows the sentinels, not a refusal of the old master.
#[test]
fn planned_failover_is_followed_although_the_old_master_accepts_writes() {
    run(async {
        let set = SentinelSet::start();
        let store = connect(&set.url()).await;
        store.run::<i64>(COUNT.on(&["k"])).await.unwrap();
        let mut subscription = store.bus().subscribe(&[ChannelFilter::channel("c")]).await.unwrap();
        let old = set.master();
        old.command::<()>(&["ACL", "SETUSER", "default", "-slaveof", "-replicaof"]);
        wait_for("the failover to begin", LIMIT, async || {
            set.sentinel().try_command::<()>(&["SENTINEL", "FAILOVER", "mymaster"])
        })
        .await;
        set.wait_for_failover(old).await;
        let new = set.master();
        wait_for("a write to the new master", LIMIT, async || {
            let _ = store.run::<i64>(COUNT.on(&["after"])).await;
            new.command::<Option<i64>>(&["GET", "after"]).is_some()
        })
        .await;
        assert_eq!(old.info("replication").get::<String>("role").as_deref(), Some("master"));
        assert_eq!(tokio::time::timeout(LIMIT, subscription.next()).await.unwrap(), Some(BusEvent::Missed));
        new.command::<i64>(&["PUBLISH", "c", "x"]);
        let message = tokio::time::timeout(LIMIT, subscription.next()).await.unwrap();
        assert!(matches!(message, Some(BusEvent::Message { .. })), "{message:?}");
    });
}

/// The port of one sentinel is closed; another accepts connections and never replies.
#[test]
fn silent_sentinel_is_skipped() {
    run(async {
        let set = SentinelSet::start();
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = silent.local_addr().unwrap().port();
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let hosts = format!("//127.0.0.1:{closed},127.0.0.1:{silent},");
        let store = connect(&set.url().replacen("//", &hosts, 1)).await;
        assert_eq!(store.run::<i64>(COUNT.on(&["k"])).await.unwrap(), 1);
        let unknown = Store::open(&address(&set.url().replace("mymaster", "unknown"))).unwrap();
        let unknown = unknown.with_deadline(Duration::from_secs(1));
        wait_for_error("unknown", async || unknown.ping().await).await;
    });
}

/// The sentinel and the servers require a password.
#[test]
fn sentinel_with_a_password_is_authenticated() {
    run(async {
        let set = SentinelSet::start();
        let (master, replica) = (set.master(), set.replica());
        set.sentinel().command::<()>(&["SENTINEL", "SET", "mymaster", "auth-pass", "secret"]);
        for node in [replica, master] {
            node.command::<()>(&["CONFIG", "SET", "masterauth", "secret"]);
        }
        master.command::<()>(&["CONFIG", "SET", "requirepass", "secret"]);
        set.sentinel().command::<()>(&["ACL", "SETUSER", "default", "resetpass", ">secret"]);
        let url = set.url().replacen("//", "//:secret@", 1);
        let store = connect(&url).await;
        assert_eq!(store.run::<i64>(COUNT.on(&["k"])).await.unwrap(), 1);
        let unauthenticated =
            Store::open(&address(&set.url())).unwrap().with_deadline(Duration::from_secs(1));
        wait_for_error("auth", async || unauthenticated.ping().await).await;
    });
}

#[test]
fn frozen_master_is_replaced_after_failover() {
    run(async {
        let set = SentinelSet::start();
        let store = connect(&set.url()).await;
        store.run::<i64>(COUNT.on(&["k"])).await.unwrap();
        let old = set.master();
        old.freeze();
        set.wait_for_failover(old).await;
        let short_deadline = store.with_deadline(Duration::from_millis(500));
        wait_for("the new master to reply", LIMIT, async || {
            short_deadline.run::<i64>(COUNT.on(&["new"])).await
        })
        .await;
        old.unfreeze();
        assert_ne!(set.master().port(), old.port());
    });
}
