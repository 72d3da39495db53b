//! U9: a lost store is rebuilt from the database.

use std::collections::HashSet;
use std::time::Duration;

use hob_fixtures::every_service;
use hob_store::epoch::Outcome;
use hob_uptime::database::incidents;
use hob_uptime::incident::{self, Alerting};
use hob_uptime::schedule::record::JudgedResult;
use hob_uptime::schedule::state::{MonitorHealth, MonitorState};

use crate::NEEDS;
use crate::harness::{GRACE, ScheduleHarness, bad, good};

async fn rebuild(harness: &ScheduleHarness) {
    for shard in harness.schedule.shards() {
        if let Outcome::Lost { .. } = harness.schedule.claim(shard, 0).await.unwrap() {
            harness.schedule.rebuild(&harness.context.database, shard, GRACE).await.unwrap();
        }
    }
}

every_service! {
    NEEDS;

    /// U9
    async fn rebuilt_monitors_are_down_or_pending(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let up = harness.add("up", |_| {}).await;
        harness.check_when_due(&up, &good()).await;
        let down = harness.add("down", |spec| spec.retries = 0).await;
        let opened = harness.check_when_due(&down, &bad()).await.expect("a change");
        let alerted = incident::save_change(&harness.context.database, &down, &opened, Alerting::Enabled).await.unwrap();
        harness.schedule.confirm_change(&opened, alerted).await.unwrap();
        let incident = harness.hash(harness.schedule.keys().incident(&down.id)).await;
        let last_fence = opened.fence;

        harness.context.test_store().flush_all().await;
        rebuild(&harness).await;
        assert_eq!(harness.hash(harness.schedule.keys().incident(&down.id)).await, incident);
        harness.clock.advance(Duration::from_secs(61));
        let mut claims = harness.claim().await;
        claims.sort_by(|a, b| a.id.cmp(&b.id));
        let states: Vec<MonitorState> = claims.iter().map(|claim| claim.health.state).collect();
        assert_eq!(states, [MonitorState::Down, MonitorState::Pending]);
        assert!(claims.iter().all(|claim| claim.fence > last_fence), "fences never repeat");

        let (_, change) = harness.record(&down, &claims[0], &bad()).await;
        assert_eq!(change, None, "no second incident");
        assert_eq!(incidents::all_open(&harness.context.database).await.unwrap().len(), 1);
    }

    /// U9
    async fn result_from_before_the_loss_is_refused(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let monitor = harness.add("m1", |_| {}).await;
        let claim = harness.claim_one().await;
        let late = good();
        let result = JudgedResult::new(&monitor, &claim, &late, claim.claimed_ms);
        harness.context.test_store().flush_all().await;
        assert!(matches!(harness.schedule.record(&result).await.unwrap(), Outcome::Lost { found: None }));
        rebuild(&harness).await;
        let refused = harness.schedule.record(&result).await.unwrap();
        assert!(matches!(refused, Outcome::Done(hob_uptime::schedule::record::RecordOutcome::Refused(_))), "{refused:?}");
    }

    /// U9
    async fn first_checks_after_a_rebuild_are_spread_over_one_interval(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        for n in 0..60 {
            harness.add(&format!("m{n}"), |_| {}).await;
        }
        harness.context.test_store().flush_all().await;
        rebuild(&harness).await;
        let mut seen = HashSet::new();
        for _ in 0..6 {
            harness.clock.advance(Duration::from_secs(10));
            let before = seen.len();
            // No result is recorded, so leases expire and monitors are claimed again.
            seen.extend(harness.claim().await.into_iter().map(|claim| claim.id));
            assert!((1..=25).contains(&(seen.len() - before)), "{} at once", seen.len() - before);
        }
        assert_eq!(seen.len(), 60);
    }

    /// U9
    async fn node_adopts_a_shard_that_another_has_rebuilt(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let monitor = harness.add("m1", |_| {}).await;
        let other = harness.another().await;
        harness.context.test_store().flush_all().await;
        rebuild(&harness).await;
        let shard = other.shard_of(&monitor.id);
        let Outcome::Lost { found: Some(_) } = other.claim(shard, 10).await.unwrap() else { panic!("lost") };
        other.rebuild(&harness.context.database, shard, GRACE).await.unwrap();
        harness.clock.advance(Duration::from_secs(61));
        let Outcome::Done(claims) = other.claim(shard, 10).await.unwrap() else { panic!("claims") };
        assert_eq!(claims.claims[0].health, MonitorHealth::NEW);
    }

    /// U9
    async fn two_nodes_rebuild_a_shard_together(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        for n in 0..20 {
            harness.add(&format!("m{n}"), |_| {}).await;
        }
        let other = harness.another().await;
        harness.context.test_store().flush_all().await;
        let database = &harness.context.database;
        for shard in harness.schedule.shards() {
            let (mine, others) = tokio::join!(
                harness.schedule.rebuild(database, shard, GRACE),
                other.rebuild(database, shard, GRACE)
            );
            mine.unwrap();
            others.unwrap();
        }
        harness.clock.advance(Duration::from_secs(61));
        assert_eq!(harness.claim().await.len(), 20);
    }
}
