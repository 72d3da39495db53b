//! A server that returns with older data: its marker is there, and the tag is lost all the same.

use std::time::Duration;

use hob_store::Store;
use hob_store::epoch::{Outcome, Recovery};
use hob_testkit::{Connections, LIMIT, RedisCluster, RedisOptions, RedisServer, SentinelSet, run, wait_for};

use crate::failure::connect;
use crate::rebuild::{BATCHES, Node, epoch};

const LOST: Outcome<u32> = Outcome::Lost { found: None };

/// A node with a tag that it has rebuilt in the first epoch.
async fn built(store: &Store, tag: &str) -> Node {
    let node = Node::on(store, format!("{{{tag}}}:marker"), format!("{{{tag}}}:members"));
    assert_eq!(node.rebuild().await.unwrap(), Recovery::Rebuilt(epoch(1)));
    node
}

/// The size of the tag in the first epoch, once the store answers. A call during a reconnect may be interrupted.
async fn size(node: &Node) -> Outcome<u32> {
    wait_for("the store to answer", LIMIT, async || node.try_size(epoch(1)).await).await
}

async fn wait_for_link(replica: &RedisServer) {
    wait_for("the replica to follow", LIMIT, async || {
        replica.info("replication").get::<String>("master_link_status").is_some_and(|status| status == "up")
    })
    .await;
}

/// Starts a server; it does not wait for further replicas before it starts a transfer.
fn server() -> RedisServer {
    let arguments = ["--repl-diskless-sync-delay", "0"].map(str::to_owned).to_vec();
    RedisServer::start_with(&RedisOptions { arguments, ..RedisOptions::default() })
}

fn follow(replica: &RedisServer, master: &RedisServer) {
    replica.command::<()>(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
}

/// Two nodes find the loss. They raise the epoch once.
#[test]
fn restart_from_an_older_snapshot_is_a_loss() {
    run(async {
        let server = server();
        let first = built(&connect(&server.url()).await, "t").await;
        let second = first.with_store(&connect(&server.url()).await);
        server.command::<()>(&["SAVE"]);
        assert_eq!(size(&second).await, Outcome::Done(BATCHES));
        server.kill();
        server.restart();
        assert_eq!((size(&first).await, size(&second).await), (LOST, LOST));
        let (one, two) = tokio::join!(first.rebuild(), second.rebuild());
        for recovery in [one.unwrap(), two.unwrap()] {
            assert!(
                matches!(recovery, Recovery::Rebuilt(found) | Recovery::Adopted(found) if found == epoch(2)),
                "{recovery:?}"
            );
        }
        assert_eq!(first.epoch(), epoch(2), "one loss raises the epoch once");
    });
}

/// The snapshot contains a rebuild that had not finished.
#[test]
fn restart_from_a_snapshot_of_a_rebuild_is_a_loss() {
    run(async {
        let server = server();
        let store = connect(&server.url()).await;
        let node = Node::on(&store, "marker".to_owned(), "members".to_owned());
        assert!(node.dying().rebuild().await.is_err());
        server.command::<()>(&["SAVE"]);
        server.kill();
        server.restart();
        let recovery = wait_for("the store to answer", LIMIT, async || node.rebuild().await).await;
        assert_eq!(recovery, Recovery::Rebuilt(epoch(2)), "the first epoch is not continued");
    });
}

/// The first replica gives a server a new replication id, but nothing is lost.
#[test]
fn cut_connection_is_not_a_loss() {
    run(async {
        let server = server();
        let node = built(&connect(&server.url()).await, "t").await;
        let replica = self::server();
        follow(&replica, &server);
        wait_for_link(&replica).await;
        for _ in 0..3 {
            wait_for("a connection to close", LIMIT, async || {
                server.disconnect_clients(Connections::Normal) > 0
            })
            .await;
            assert_eq!(size(&node).await, Outcome::Done(BATCHES));
        }
        assert_eq!(node.rebuild().await.unwrap(), Recovery::Adopted(epoch(1)));
    });
}

/// The server takes the data of another master and is promoted again, during one connection of the store.
#[test]
fn promotion_of_the_same_server_is_a_loss() {
    run(async {
        let (server, other) = (server(), server());
        let store = connect(&server.url()).await;
        let node = built(&store, "t").await;
        follow(&other, &server);
        wait_for_link(&other).await;
        other.command::<()>(&["REPLICAOF", "NO", "ONE"]);
        follow(&server, &other);
        wait_for_link(&server).await;
        let short = node.with_store(&store.with_deadline(Duration::from_secs(1)));
        wait_for("a refused write", LIMIT, async || short.touch().await.is_err()).await;
        server.command::<()>(&["REPLICAOF", "NO", "ONE"]);
        assert_eq!(size(&node).await, LOST);
        assert_eq!(node.rebuild().await.unwrap(), Recovery::Rebuilt(epoch(2)));
    });
}

/// The replica has the marker and misses the last writes.
#[test]
fn sentinel_failover_is_a_loss() {
    run(async {
        let set = SentinelSet::start();
        let store = connect(&set.url()).await;
        let node = built(&store, "t").await;
        let old = set.master();
        wait_for("the marker to be replicated", LIMIT, async || {
            set.replica().command::<Option<String>>(&["HGET", "{t}:marker", "epoch"]).is_some()
        })
        .await;
        old.kill();
        set.wait_for_failover(old).await;
        wait_for("the loss", LIMIT, async || size(&node).await == LOST).await;
        assert_eq!(node.rebuild().await.unwrap(), Recovery::Rebuilt(epoch(2)));
    });
}

/// Only the tags on the master that was restarted are lost.
#[test]
fn restart_of_one_cluster_master_is_a_loss_of_its_tags() {
    run(async {
        let cluster = RedisCluster::start();
        let store = connect(&cluster.url()).await;
        let port = |tag: &str| cluster.master_of(&format!("{{{tag}}}:marker")).port();
        let tags: Vec<String> = (0..).map(|number: u32| number.to_string()).take(50).collect();
        let other = tags.iter().find(|tag| port(tag) != port(&tags[0])).unwrap();
        let (node, untouched) = (built(&store, &tags[0]).await, built(&store, other).await);
        let master = cluster.master_of(&format!("{{{}}}:marker", tags[0]));
        master.command::<()>(&["SAVE"]);
        master.kill();
        master.restart();
        cluster.wait_until_whole().await;
        assert_eq!(size(&node).await, LOST);
        assert_eq!(size(&untouched).await, Outcome::Done(BATCHES));
        assert_eq!(node.rebuild().await.unwrap(), Recovery::Rebuilt(epoch(2)));
    });
}

/// A slot moves to another master. The new owner may have lost writes between the move and now, and the marker does not show it.
/// So the tag is rebuilt once, and nodes that find it later adopt the new epoch.
#[test]
fn slot_that_moves_to_another_master_costs_one_rebuild() {
    run(async {
        let cluster = RedisCluster::start();
        let store = connect(&cluster.url()).await;
        let node = built(&store, "moving").await;
        let second = node.with_store(&connect(&cluster.url()).await);
        assert_eq!(size(&second).await, Outcome::Done(BATCHES));
        move_slot(&cluster, "{moving}:marker");
        assert_eq!(size(&node).await, LOST);
        assert_eq!(node.rebuild().await.unwrap(), Recovery::Rebuilt(epoch(2)));
        assert_eq!(second.rebuild().await.unwrap(), Recovery::Adopted(epoch(2)));
        for node in [&node, &second] {
            assert_eq!(node.try_size(epoch(2)).await.unwrap(), Outcome::Done(BATCHES));
        }
    });
}

/// Moves the slot of a key to another master, with all keys in it.
fn move_slot(cluster: &RedisCluster, key: &str) {
    let from = cluster.master_of(key);
    let to = cluster.masters().iter().find(|master| master.port() != from.port()).unwrap();
    let id = |server: &RedisServer| server.command::<String>(&["CLUSTER", "MYID"]);
    let (from_id, to_id, port) = (id(from), id(to), to.port().to_string());
    let slot = hob_store::key_slot(key.as_bytes()).to_string();
    to.command::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]);
    from.command::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]);
    let keys: Vec<String> = from.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
    let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
    migrate.extend(keys.iter().map(String::as_str));
    from.command::<()>(&migrate);
    for master in cluster.masters() {
        master.command::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]);
    }
}
