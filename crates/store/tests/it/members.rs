//! Node membership on every store.

use std::time::Duration;

use hob_fixtures::{TestStore, every_store};
use hob_store::Clock;
use hob_store::members::{
    HeartbeatResult, Incarnation, MemberKeys, Removal, claim_dead, heartbeat, join, leave, live, remove_dead,
};

const HOLD: Duration = Duration::from_secs(10);

struct Group {
    live: String,
    info: String,
    dead: String,
}

impl Group {
    fn new(test_store: &TestStore) -> Self {
        let key = |name| test_store.key(name, "nodes");
        Self { live: key("live"), info: key("info"), dead: key("dead") }
    }

    fn keys(&self) -> MemberKeys<'_> {
        MemberKeys { live: self.live.as_bytes(), info: self.info.as_bytes(), dead: self.dead.as_bytes() }
    }
}

fn clock() -> Clock {
    Clock::driven(Duration::from_secs(1_800_000_000))
}

every_store! {
    async fn node_is_live_while_it_renews_its_lease(test_store: TestStore) {
        let (clock, group) = (clock(), Group::new(&test_store));
        let (store, keys) = (&test_store.store().with_clock(clock.clone()), group.keys());
        let (a, b) = (Incarnation::random(), Incarnation::random());
        join(store, keys, &a, "node-a", HOLD).await.unwrap();
        join(store, keys, &b, "node-b", HOLD).await.unwrap();
        clock.advance(HOLD - Duration::from_millis(1));
        assert_eq!(heartbeat(store, keys, &a, HOLD).await.unwrap(), HeartbeatResult::Alive { until_unix_ms: 1_800_000_019_999 });
        clock.advance(Duration::from_millis(1));
        let members = live(store, keys).await.unwrap();
        assert_eq!(members.len(), 1);
        assert_eq!((&members[0].incarnation, members[0].node.as_str()), (&a, "node-a"));
        assert_eq!(heartbeat(store, keys, &b, HOLD).await.unwrap(), HeartbeatResult::Dead, "an expired member is dead even before it is claimed");
    }

    async fn dead_node_is_claimed_by_one_node_at_a_time(test_store: TestStore) {
        let (clock, group) = (clock(), Group::new(&test_store));
        let (store, keys) = (&test_store.store().with_clock(clock.clone()), group.keys());
        let dead = Incarnation::random();
        join(store, keys, &dead, "node-a", HOLD).await.unwrap();
        assert_eq!(claim_dead(store, keys, 10, HOLD).await.unwrap(), []);
        clock.advance(HOLD);
        let first = claim_dead(store, keys, 10, HOLD).await.unwrap();
        assert_eq!((first.len(), &first[0].incarnation, first[0].node.as_str()), (1, &dead, "node-a"));
        assert_eq!(claim_dead(store, keys, 10, HOLD).await.unwrap(), [], "another node has claimed the member");
        // The first claim expires: another node takes over, and the first node can no longer remove the member.
        clock.advance(HOLD);
        let second = claim_dead(store, keys, 10, HOLD).await.unwrap();
        assert_eq!(second[0].incarnation, dead);
        assert!(second[0].claim > first[0].claim);
        assert_eq!(remove_dead(store, keys, &first[0]).await.unwrap(), Removal::Superseded);
        assert_eq!(remove_dead(store, keys, &second[0]).await.unwrap(), Removal::Removed);
        assert_eq!(remove_dead(store, keys, &second[0]).await.unwrap(), Removal::Superseded);
        clock.advance(HOLD);
        assert_eq!(claim_dead(store, keys, 10, HOLD).await.unwrap(), []);
        assert_eq!(heartbeat(store, keys, &dead, HOLD).await.unwrap(), HeartbeatResult::Dead);
    }

    async fn node_that_left_is_claimed_at_once_and_claims_are_bounded(test_store: TestStore) {
        let (clock, group) = (clock(), Group::new(&test_store));
        let (store, keys) = (&test_store.store().with_clock(clock.clone()), group.keys());
        for at in 0..5 {
            let incarnation = Incarnation::random();
            join(store, keys, &incarnation, &at.to_string(), HOLD).await.unwrap();
            leave(store, keys, &incarnation).await.unwrap();
        }
        assert_eq!(live(store, keys).await.unwrap(), []);
        let sizes = [claim_dead(store, keys, 3, HOLD).await.unwrap().len(), claim_dead(store, keys, 3, HOLD).await.unwrap().len()];
        assert_eq!(sizes, [3, 2]);
    }

    async fn heartbeat_reports_a_lost_store(test_store: TestStore) {
        let group = Group::new(&test_store);
        let (store, keys) = (test_store.store(), group.keys());
        let incarnation = Incarnation::random();
        join(store, keys, &incarnation, "node-a", HOLD).await.unwrap();
        test_store.flush_all().await;
        assert_eq!(heartbeat(store, keys, &incarnation, HOLD).await.unwrap(), HeartbeatResult::Dead);
    }
}
