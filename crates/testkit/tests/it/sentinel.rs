//! A Sentinel set.

use hob_testkit::{LIMIT, SentinelSet, wait_for};
use redis::Commands;

#[tokio::test]
async fn replica_replaces_a_killed_master_which_then_follows_it() {
    let set = SentinelSet::start();
    let old = set.master();
    // WAIT covers only the writes of its own connection.
    let mut connection = old.connect();
    let () = connection.set("key", "value").unwrap();
    assert_eq!(redis::cmd("WAIT").arg(1).arg(0).query::<usize>(&mut connection).unwrap(), 1);
    old.kill();
    set.wait_for_failover(old).await;

    let new = set.master();
    assert_ne!(new.port(), old.port());
    assert_eq!(new.command::<String>(&["GET", "key"]), "value");
    new.command::<()>(&["SET", "key", "newer"]);

    // A Sentinel demotes a server only after it was up for eight seconds.
    old.restart();
    assert_eq!(set.replica().port(), old.port());
    wait_for("the old master to follow the new one", 2 * LIMIT, async || {
        // The Sentinel closes all connections of a server that it demotes.
        old.try_command::<Option<String>>(&["GET", "key"])
            .is_ok_and(|value| value.as_deref() == Some("newer"))
    })
    .await;
}

#[tokio::test]
async fn frozen_master_is_replaced() {
    let set = SentinelSet::start();
    let old = set.master();
    old.freeze();
    set.wait_for_failover(old).await;
    assert_ne!(set.master().port(), old.port());
}

#[test]
fn url_has_the_address_of_the_sentinel() {
    let set = SentinelSet::start();
    assert_eq!(set.url(), format!("redis+sentinel://127.0.0.1:{}/mymaster", set.sentinel().port()));
    assert_eq!(set.sentinel().info("server").get::<String>("redis_mode").as_deref(), Some("sentinel"));
}
