//! A Sentinel set.

use hob_testkit::{LIMIT, SentinelSet, wait_for};
use redis::Commands;

#[tokio::test]
async fn the_replica_takes_over_from_a_killed_master_and_is_followed_by_it_later() {
    let set = SentinelSet::start();
    let old = set.master();
    // WAIT speaks of the writes of its own connection.
    let mut connection = old.connect();
    let () = connection.set("key", "value").unwrap();
    assert_eq!(redis::cmd("WAIT").arg(1).arg(0).query::<usize>(&mut connection).unwrap(), 1);
    old.kill();
    set.wait_for_failover(old).await;

    let new = set.master();
    assert_ne!(new.port(), old.port());
    assert_eq!(new.command::<String>(&["GET", "key"]), "value");
    new.command::<()>(&["SET", "key", "newer"]);

    // A Sentinel demotes a server only after eight seconds in which it was never down, and on a busy machine a
    // server may seem to be down for a moment again and again.
    set.sentinel().command::<()>(&["SENTINEL", "SET", "mymaster", "down-after-milliseconds", "60000"]);
    old.restart();
    assert_eq!(set.replica().port(), old.port());
    wait_for("the old master to follow the new one", 2 * LIMIT, async || {
        // The Sentinel cuts all connections of a server that it makes a replica.
        old.try_command::<Option<String>>(&["GET", "key"])
            .is_ok_and(|value| value.as_deref() == Some("newer"))
    })
    .await;
}

#[tokio::test]
async fn a_frozen_master_is_replaced_too() {
    let set = SentinelSet::start();
    let old = set.master();
    old.freeze();
    set.wait_for_failover(old).await;
    assert_ne!(set.master().port(), old.port());
}

#[test]
fn the_url_leads_to_the_sentinel() {
    let set = SentinelSet::start();
    assert_eq!(set.url(), format!("redis+sentinel://127.0.0.1:{}/mymaster", set.sentinel().port()));
    assert_eq!(set.sentinel().info("server").get::<String>("redis_mode").as_deref(), Some("sentinel"));
}
