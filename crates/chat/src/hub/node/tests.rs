use std::time::{Duration, Instant};

use futures_util::poll;
use hob_fixtures::{Server, TestStore};
use hob_service::NodeName;
use hob_testkit::{LIMIT, wait_for};

use super::{Heartbeat, Node};
use crate::keys::{Keys, SocketId, UserId};
use crate::store::presence::{Known, PresenceStore};

fn node(test_store: &TestStore, deadline: Duration) -> Node {
    let store = test_store.store().with_deadline(deadline);
    Node::new(&store, &Keys::new(test_store.layout()), &NodeName::random(), LIMIT)
}

/// A call failed while the heartbeat was under way. What it may have written belongs to the incarnation, which has to end.
#[test]
fn incarnation_that_is_invalidated_during_a_heartbeat_ends() {
    hob_testkit::run(async {
        let test_store = TestStore::redis().await;
        let Server::Redis(redis) = test_store.server() else { unreachable!("it is a redis-server") };
        let node = node(&test_store, LIMIT);
        assert_eq!(node.heartbeat().await.unwrap(), Heartbeat::Rejoined);
        assert_eq!(node.heartbeat().await.unwrap(), Heartbeat::Renewed);
        let first = node.incarnation();
        let mut heartbeat = std::pin::pin!(node.heartbeat());
        // Otherwise the answer may arrive during the first poll.
        redis.freeze();
        assert!(poll!(&mut heartbeat).is_pending());
        node.invalidate();
        redis.unfreeze();
        assert_eq!(heartbeat.await.unwrap(), Heartbeat::Rejoined);
        assert_ne!(node.incarnation(), first);

        // The same while it joins.
        node.invalidate();
        let mut heartbeat = std::pin::pin!(node.heartbeat());
        redis.freeze();
        assert!(poll!(&mut heartbeat).is_pending());
        let second = node.incarnation();
        node.invalidate();
        redis.unfreeze();
        heartbeat.await.unwrap();
        node.mark_synced(&second);
        assert!(!node.is_synced() && !node.is_in_sync());
        assert_eq!(node.heartbeat().await.unwrap(), Heartbeat::Rejoined);
        assert_ne!(node.incarnation(), second);
    });
}

/// C1: while a node sweeps a dead one, a master refuses writes or a connection is cut. The users are swept as soon as it is
/// possible, and not when the claim on the dead node ends.
#[test]
fn sweep_that_failed_is_repeated_at_once() {
    hob_testkit::run(async {
        let (test_store, broken) = (TestStore::redis().await, TestStore::redis().await);
        let files = hob_testkit::TestDatabase::sqlite();
        let (url, keys) = (files.url().parse().unwrap(), Keys::new(test_store.layout()));
        let database = hob_database::Database::open(&url, &[crate::MIGRATIONS]).await.unwrap();
        let presences = PresenceStore::new(test_store.store(), &keys);
        let (anna, socket) = (UserId::new("anna").unwrap(), SocketId::new("s1").unwrap());
        let dead = node(&test_store, LIMIT);
        dead.heartbeat().await.unwrap();
        presences.join(&dead.incarnation(), &anna, &[socket], Known::Nothing).await.unwrap();
        dead.leave().await.unwrap();

        let Server::Redis(server) = broken.server() else { unreachable!("it is a Redis") };
        server.stop();
        let unreachable =
            PresenceStore::new(&broken.store().with_deadline(Duration::from_millis(250)), &keys);
        let survivor = node(&test_store, LIMIT);
        assert!(survivor.sweep(&unreachable, &database).await.is_err());
        assert!(presences.of(std::slice::from_ref(&anna)).await.unwrap()[0].online);
        assert_eq!(survivor.sweep(&presences, &database).await.unwrap(), 1);
        assert!(!presences.of(std::slice::from_ref(&anna)).await.unwrap()[0].online);
        assert_eq!(survivor.sweep(&presences, &database).await.unwrap(), 0);
    });
}

/// One master has lost its data, another does not answer and may have lost data too.
#[test]
fn look_that_did_not_reach_all_shards_does_not_count() {
    hob_testkit::run(async {
        let test_store = TestStore::cluster().await;
        let Server::Cluster(cluster) = test_store.server() else { unreachable!("it is a Cluster") };
        let node = node(&test_store, Duration::from_secs(2));
        let began = Instant::now();
        wait_for("a look at all shards", LIMIT, async || {
            node.detect_data_loss(Instant::now()).await.failed.is_none()
        })
        .await;
        let skipped = node.detect_data_loss(began).await;
        assert!(!skipped.lost && skipped.failed.is_none(), "there was a look since: {skipped:?}");

        cluster.masters()[0].flush_all();
        cluster.masters()[1].freeze();
        let since = Instant::now();
        let found = node.detect_data_loss(since).await;
        cluster.masters()[1].unfreeze();
        assert!(found.lost && found.failed.is_some(), "{found:?}");
        cluster.masters()[1].flush_all();
        wait_for("the node to look again", LIMIT, async || node.detect_data_loss(since).await.lost).await;
    });
}
