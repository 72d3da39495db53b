//! U1: which monitors are due, and which worker holds them.

use std::collections::HashSet;
use std::time::Duration;

use hob_fixtures::every_service;
use hob_store::cmd;
use hob_uptime::database::monitors::{self, MonitorEdit};
use hob_uptime::keys::MonitorId;
use hob_uptime::schedule::record::{RecordOutcome, Refusal};
use hob_uptime::schedule::{PlanOutcome, RemovalReason};

use crate::NEEDS;
use crate::harness::{GRACE, ScheduleHarness, bad, claim_all, done, good};

every_service! {
    NEEDS;

    /// U1
    async fn only_due_monitors_are_claimed(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let monitor = harness.add("m1", |_| {}).await;
        let claim = harness.claim_one().await;
        assert_eq!((&claim.id, claim.generation), (&monitor.id, monitor.generation));
        assert_eq!(harness.claim().await, []);
        harness.record(&monitor, &claim, &good()).await;
        assert_eq!(harness.claim().await, []);
        harness.clock.advance(Duration::from_secs(61));
        let again = harness.claim_one().await;
        assert!(again.fence > claim.fence);
    }

    /// U1
    async fn scores_are_unix_seconds_on_the_grid_of_the_monitor(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let monitor = harness.add("m1", |spec| spec.interval_s = 30).await;
        let mut due = Vec::new();
        for _ in 0..3 {
            harness.check_when_due(&monitor, &good()).await;
            let key = harness.schedule.keys().schedule(harness.schedule.shard_of(&monitor.id));
            let score: f64 = harness.store().run(cmd("ZSCORE").arg(&key).arg("m1")).await.unwrap();
            due.push(score);
        }
        assert!((due[0] - harness.now_s() as f64).abs() < 120.0, "{due:?}");
        assert!(due.windows(2).all(|pair| (pair[1] - pair[0] - 30.0).abs() < 0.0005), "{due:?}");
    }

    /// U1
    async fn monitor_of_a_dead_worker_is_claimed_again(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let monitor = harness.add("m1", |_| {}).await;
        let dead = harness.claim_one().await;
        harness.clock.advance(monitor.timeout() + GRACE - Duration::from_millis(1));
        assert_eq!(harness.claim().await, []);
        harness.clock.advance(Duration::from_millis(2));
        let alive = harness.claim_one().await;
        assert!(alive.fence > dead.fence);
        assert_eq!(alive.slot_ms, dead.slot_ms);
        assert_eq!(harness.record(&monitor, &dead, &bad()).await.0, RecordOutcome::Refused(Refusal::Stale));
        assert_eq!(harness.record(&monitor, &alive, &good()).await.0, RecordOutcome::Recorded);
        assert_eq!(harness.hash(harness.schedule.keys().status(&monitor.id)).await["state"], "UP");
    }

    /// U1
    async fn result_is_recorded_once(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let monitor = harness.add("m1", |_| {}).await;
        let claim = harness.claim_one().await;
        assert_eq!(harness.record(&monitor, &claim, &good()).await.0, RecordOutcome::Recorded);
        assert_eq!(harness.record(&monitor, &claim, &good()).await.0, RecordOutcome::Refused(Refusal::Stale));
    }

    /// U1
    async fn concurrent_workers_claim_different_monitors(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        for n in 0..40 {
            harness.add(&format!("m{n}"), |_| {}).await;
        }
        let other = harness.another().await;
        let (first, second, third) =
            tokio::join!(claim_all(&harness.schedule), claim_all(&other), claim_all(&harness.schedule));
        let all: Vec<MonitorId> =
            [first, second, third].into_iter().flat_map(|claims| claims.claims).map(|claim| claim.id).collect();
        assert_eq!(all.len(), 40);
        assert_eq!(all.into_iter().collect::<HashSet<_>>().len(), 40);
    }

    /// U1
    async fn unknown_id_is_dropped(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let monitor = harness.add("m1", |_| {}).await;
        let shard = harness.schedule.shard_of(&monitor.id);
        let key = harness.schedule.keys().schedule(shard);
        harness.context.test_store().as_outsider(cmd("ZADD").arg(&key).arg(1).arg("unknown").clone()).await;
        let claims = done(harness.schedule.claim(shard, 10).await.unwrap());
        assert_eq!((claims.claims.len(), claims.dropped), (1, vec!["unknown".to_owned()]));
        let left: u64 = harness.store().run(cmd("ZCARD").arg(&key)).await.unwrap();
        assert_eq!(left, 0);
    }

    /// U1
    async fn monitor_missing_from_the_schedule_is_added_again(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let monitor = harness.add("m1", |_| {}).await;
        let key = harness.schedule.keys().schedule(harness.schedule.shard_of(&monitor.id));
        assert_eq!(harness.plan(&monitor).await, PlanOutcome::Already);
        harness.context.test_store().as_outsider(cmd("ZREM").arg(&key).arg("m1").clone()).await;
        assert_eq!(harness.plan(&monitor).await, PlanOutcome::Readded);
        assert_eq!(harness.claim_one().await.id, monitor.id);
    }

    /// U1
    async fn result_does_not_restore_a_deleted_monitor(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let monitor = harness.add("m1", |spec| spec.retries = 0).await;
        harness.check_when_due(&monitor, &bad()).await;
        harness.clock.advance(Duration::from_secs(61));
        let claim = harness.claim_one().await;
        harness.schedule.remove(&monitor.id, RemovalReason::Deleted).await.unwrap();
        assert_eq!(harness.record(&monitor, &claim, &bad()).await.0, RecordOutcome::Refused(Refusal::Removed));
        harness.clock.advance(Duration::from_secs(600));
        assert_eq!(harness.claim().await, []);
        let keys = harness.schedule.keys();
        assert!(harness.hash(keys.status(&monitor.id)).await.is_empty());
        assert!(harness.hash(keys.incident(&monitor.id)).await.is_empty());
    }

    /// U1
    async fn new_monitor_with_an_old_id_has_a_later_generation(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let old = harness.add("m1", |_| {}).await;
        let claim = harness.claim_one().await;
        // The schedule is not updated.
        monitors::remove(&harness.context.database, &old.id).await.unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
        let new = harness.add("m1", |_| {}).await;
        assert!(new.generation > old.generation);
        assert_eq!(harness.record(&old, &claim, &bad()).await.0, RecordOutcome::Refused(Refusal::Edited));
        assert_eq!(harness.claim_one().await.generation, new.generation);
    }

    /// U1
    async fn result_of_an_earlier_generation_is_refused(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let monitor = harness.add("m1", |_| {}).await;
        let claim = harness.claim_one().await;
        let (id, mut spec) = (&monitor.id, monitor.spec.clone());
        spec.target = "127.0.0.1:2".to_owned();
        let spec = &spec;
        let edited = harness.context.database.write(|tx| async move { monitors::edit(&tx, id, spec).await });
        let MonitorEdit::Edited(edited) = edited.await.unwrap() else { panic!("not edited") };
        assert_eq!(harness.plan(&edited).await, PlanOutcome::Planned);
        assert_eq!(harness.record(&monitor, &claim, &bad()).await.0, RecordOutcome::Refused(Refusal::Edited));
        let claim = harness.claim_one().await;
        assert_eq!(claim.generation, monitor.generation + 1);
        assert_eq!(harness.plan(&monitor).await, PlanOutcome::Newer);
        assert_eq!(harness.record(&edited, &claim, &good()).await.0, RecordOutcome::Recorded);
    }

    /// U1
    async fn claim_now_replaces_the_claim_of_a_worker(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let monitor = harness.add("m1", |_| {}).await;
        let slow = harness.claim_one().await;
        let now = done(harness.schedule.claim_now(&monitor.id).await.unwrap()).expect("a claim");
        assert_eq!(harness.record(&monitor, &slow, &bad()).await.0, RecordOutcome::Refused(Refusal::Stale));
        assert_eq!(harness.record(&monitor, &now, &good()).await.0, RecordOutcome::Recorded);
        let unknown = MonitorId::new("unknown").unwrap();
        assert_eq!(done(harness.schedule.claim_now(&unknown).await.unwrap()), None);
    }

    /// U1
    async fn released_monitor_is_claimed_again(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let monitor = harness.add("m1", |_| {}).await;
        let claim = harness.claim_one().await;
        harness.schedule.release(&claim, claim.claimed_ms + 2000).await.unwrap();
        assert_eq!(harness.claim().await, []);
        assert_eq!(harness.record(&monitor, &claim, &bad()).await.0, RecordOutcome::Refused(Refusal::Stale));
        harness.clock.advance(Duration::from_secs(2));
        assert_eq!(harness.claim_one().await.health, claim.health);
    }

    /// U1
    async fn clock_that_runs_backwards_has_no_effect(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let monitor = harness.add("m1", |_| {}).await;
        harness.clock.advance(Duration::from_secs(100));
        let claim = harness.claim_one().await;
        harness.clock.set(crate::harness::START - Duration::from_secs(3600));
        assert_eq!(harness.claim().await, []);
        harness.record(&monitor, &claim, &good()).await;
        let shard = harness.schedule.shard_of(&monitor.id);
        assert_eq!(harness.schedule.now_ms(shard).await.unwrap(), claim.claimed_ms);
    }
}
