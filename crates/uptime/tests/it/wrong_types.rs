//! Keys that another client has replaced by another type or filled with invalid values: checks of the monitor continue,
//! and other monitors are not affected. Views are overwritten.

use std::time::Duration;

use hob_fixtures::every_service;
use hob_service::Live;
use hob_store::Key;
use hob_store::cmd;
use hob_store::epoch::Outcome;
use hob_uptime::monitor::check::MonitorKind;
use hob_uptime::monitor::{Monitor, MonitorSpec};
use hob_uptime::schedule::record::{Alerted, RecordOutcome};
use hob_uptime::schedule::state::{IncidentChange, MonitorHealth, MonitorState};
use hob_uptime::schedule::{RemovalReason, ScheduleEntry};
use hob_uptime::{AddOutcome, Config, HeartbeatSignal, Uptime};
use hob_web::Service as _;

use crate::NEEDS;
use crate::harness::{GRACE, ScheduleHarness, bad, good};

/// Replaces a key by a string, or a string by a list.
async fn overwrite(harness: &ScheduleHarness, key: &Key) {
    let kind: String = harness.store().run(cmd("TYPE").arg(key).clone()).await.unwrap();
    let test_store = harness.context.test_store();
    test_store.as_outsider(cmd("DEL").arg(key).clone()).await;
    let overwrite = match kind.as_str() {
        "string" => cmd("RPUSH").arg(key).arg("x").clone(),
        _ => cmd("SET").arg(key).arg("x").clone(),
    };
    test_store.as_outsider(overwrite).await;
}

/// Plans and checks a monitor as a node does, and rebuilds the shard if it is lost.
async fn check_again(harness: &ScheduleHarness, monitor: &Monitor) {
    let schedule = &harness.schedule;
    let shard = schedule.shard_of(&monitor.id);
    let lease = monitor.timeout() + GRACE;
    for _ in 0..3 {
        let next_ms = schedule.now_ms(shard).await.unwrap();
        let health = MonitorHealth::NEW;
        let check_when_due =
            ScheduleEntry { id: &monitor.id, generation: monitor.generation, lease, next_ms, health };
        let planned = schedule.plan(check_when_due).await.unwrap();
        // Past the next check, and past the lease of a claim.
        harness.clock.advance(Duration::from_secs(120));
        let claimed = schedule.claim(shard, 10).await.unwrap();
        if let (Outcome::Done(_), Outcome::Done(claims)) = (planned, claimed) {
            assert_eq!(claims.claims.len(), 1, "{claims:?}");
            let (recorded, _) = harness.record(monitor, &claims.claims[0], &good()).await;
            assert_eq!(recorded, RecordOutcome::Recorded);
            return;
        }
        schedule.rebuild(&harness.context.database, shard, GRACE).await.unwrap();
    }
    panic!("the shard is still lost");
}

every_service! {
    NEEDS;

    /// U2 U3 U4
    async fn next_result_overwrites_views_of_the_wrong_type(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let monitor = harness.add("m1", |spec| spec.retries = 1).await;
        let keys = harness.schedule.keys();
        let [status, incident, retry] =
            [keys.status(&monitor.id), keys.incident(&monitor.id), keys.retry(&monitor.id)];
        harness.check_when_due(&monitor, &good()).await;
        for key in [&status, &incident, &retry] {
            overwrite(&harness, key).await;
        }
        harness.check_when_due(&monitor, &bad()).await;
        assert_eq!(harness.hash(&status).await["state"], "SUSPECT");
        assert_eq!(harness.get(&retry).await.as_deref(), Some("1"));

        overwrite(&harness, &incident).await;
        overwrite(&harness, &retry).await;
        let opened = harness.check_when_due(&monitor, &bad()).await.expect("a change");
        assert_eq!(opened.change, IncidentChange::Opened);
        assert_eq!(harness.hash(&incident).await["failure_count"], "2");
        assert_eq!(harness.get(&retry).await, None);

        overwrite(&harness, &incident).await;
        harness.schedule.confirm_change(&opened, Alerted::Yes).await.unwrap();
        harness.check_when_due(&monitor, &bad()).await;
        assert_eq!(harness.hash(&incident).await["failure_count"], "3");

        overwrite(&harness, &status).await;
        harness.schedule.remove(&monitor.id, RemovalReason::Paused).await.unwrap();
        assert!(harness.hash(&status).await.is_empty());
    }

    /// U1 U7
    async fn shared_key_of_the_wrong_type_is_repaired(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let monitor = harness.add("m1", |spec| spec.retries = 0).await;
        let shard = harness.schedule.shard_of(&monitor.id);
        let keys = harness.schedule.keys().clone();
        harness.check_when_due(&monitor, &good()).await;
        for key in [keys.schedule(shard), keys.leases(shard), keys.marker(shard), keys.standing(shard), keys.unsettled(shard)] {
            // Each operation must work as the first one on the key.
            for first in 0..7 {
                overwrite(&harness, &key).await;
                match first {
                    0 => drop(harness.schedule.claim(shard, 10).await.unwrap()),
                    1 => drop(harness.schedule.claim_now(&monitor.id).await.unwrap()),
                    2 => drop(harness.schedule.snapshot().await.unwrap()),
                    3 => drop(harness.schedule.pending_changes(shard).await.unwrap()),
                    4 => drop(harness.schedule.now_ms(shard).await.unwrap()),
                    5 => harness.schedule.remove(&monitor.id, RemovalReason::Deleted).await.unwrap(),
                    _ => harness.schedule.rebuild(&harness.context.database, shard, GRACE).await.unwrap(),
                }
                check_again(&harness, &monitor).await;
                assert_eq!(harness.schedule.snapshot().await.unwrap().state(&monitor), MonitorState::Up);
            }
        }
    }

    /// U1 U7
    async fn time_of_another_client_does_not_stop_the_clock(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let monitor = harness.add("m1", |spec| spec.retries = 0).await;
        let shard = harness.schedule.shard_of(&monitor.id);
        harness.check_when_due(&monitor, &good()).await;
        let now_ms = harness.schedule.now_ms(shard).await.unwrap();
        for time in ["x", "-1", "1e300", "inf"] {
            let overwrite = cmd("HSET").arg(harness.schedule.keys().marker(shard)).arg("seen_ms").arg(time).clone();
            harness.context.test_store().as_outsider(overwrite).await;
            check_again(&harness, &monitor).await;
            let now = harness.schedule.now_ms(shard).await.unwrap();
            assert!((now_ms..now_ms + 86_400_000).contains(&now), "{time}: {now}");
        }
    }

    /// U1 U7
    async fn invalid_health_does_not_affect_other_monitors(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let (invalid, other) = (harness.add("m1", |_| {}).await, harness.add("m2", |_| {}).await);
        let standing = |monitor: &Monitor| {
            harness.schedule.keys().standing(harness.schedule.shard_of(&monitor.id))
        };
        for text in ["x", "1 2 3", "1 15000 0 0 x"] {
            let overwrite = cmd("HSET").arg(standing(&invalid)).arg("m1").arg(text).clone();
            harness.context.test_store().as_outsider(overwrite).await;
            let claims = harness.claim().await;
            assert!(claims.iter().any(|claim| claim.id == other.id), "{text}: {claims:?}");
            // Reconciliation plans the removed monitor again.
            harness.plan(&invalid).await;
            for claim in harness.claim().await.iter().chain(&claims) {
                let monitor = if claim.id == other.id { &other } else { &invalid };
                let generation = claim.generation == monitor.generation;
                if generation {
                    harness.record(monitor, claim, &good()).await;
                }
            }
            harness.clock.advance(Duration::from_secs(61));
            assert_eq!(harness.claim().await.len(), 2, "{text}");
            harness.clock.advance(Duration::from_secs(61));
        }
    }

    /// U7
    async fn view_of_the_wrong_type_does_not_hide_other_monitors(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let config = Config { concurrency: 0, ..Config::default() };
        let uptime = Uptime::open(harness.context.context(), Live::fixed(config)).await.unwrap();
        let mut ids = Vec::new();
        for (name, kind, target) in [("a", MonitorKind::Tcp, "127.0.0.1:1"), ("b", MonitorKind::Heartbeat, "")] {
            match uptime.add(None, &MonitorSpec::new(name, kind, target)).await.unwrap() {
                AddOutcome::Added(monitor) => ids.push(monitor.id.clone()),
                refused => panic!("{refused:?}"),
            }
        }
        let keys = uptime.schedule().keys();
        overwrite(&harness, &keys.status(&ids[0])).await;
        let snapshot = uptime.snapshot().await.unwrap();
        let rows = uptime.rows(&snapshot, &uptime.monitors()).await.unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].state, rows[0].status.clone()), (MonitorState::Pending, Default::default()));
        // Reading it has deleted it.
        let kind: String = harness.store().run(cmd("TYPE").arg(keys.status(&ids[0])).clone()).await.unwrap();
        assert_eq!(kind, "none");

        // A job can still report.
        let heartbeat = uptime.monitor(&ids[1]).await.unwrap().unwrap();
        for value in [None, Some("x")] {
            let started = keys.begun(&ids[1]);
            match value {
                None => overwrite(&harness, &started).await,
                Some(text) => harness.context.test_store().as_outsider(cmd("SET").arg(&started).arg(text).clone()).await,
            }
            assert!(uptime.record_signal(heartbeat.token.as_ref().unwrap(), HeartbeatSignal::Succeeded).await.unwrap());
            assert_eq!(harness.get(&started).await, None);
        }
    }
}
