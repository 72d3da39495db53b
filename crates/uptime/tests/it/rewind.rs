//! The store goes back in time and keeps its marker, as after a failover that lost writes, or a restart from an old
//! snapshot. What the database knows is not lost.

use std::time::Duration;

use hob_fixtures::{TestContext, every_service};
use hob_store::{Key, cmd};
use hob_testkit::{LIMIT, wait_for};
use hob_uptime::database::incidents;
use hob_uptime::incident::{self, Alerting, Filter};
use hob_uptime::monitor::check::{Check, FailureClass, MonitorKind, Observation};
use hob_uptime::monitor::{Monitor, MonitorId, MonitorSpec};
use hob_uptime::schedule::Schedule;
use hob_uptime::schedule::state::{IncidentChange, MonitorState};
use serde_json::json;

use crate::NEEDS;
use crate::harness::{GRACE, ScheduleHarness, bad, good};
use crate::service::{Service, StatusTarget};

/// The hashes of all shards at one moment: markers, health and pending changes.
struct Saved(Vec<(Key, Vec<(String, String)>)>);

impl Saved {
    async fn save(context: &TestContext, schedule: &Schedule) -> Self {
        let keys = schedule.keys();
        let mut saved = Vec::new();
        for shard in schedule.shards() {
            for key in [keys.marker(shard), keys.standing(shard), keys.unsettled(shard)] {
                let fields = context.store.run(cmd("HGETALL").arg(&key)).await.unwrap();
                saved.push((key, fields));
            }
        }
        Self(saved)
    }

    /// Writes everything back as it was.
    async fn restore(&self, context: &TestContext) {
        for (key, fields) in &self.0 {
            context.test_store().as_outsider(cmd("DEL").arg(key).clone()).await;
            for (field, value) in fields {
                context.test_store().as_outsider(cmd("HSET").arg(key).arg(field).arg(value).clone()).await;
            }
        }
    }
}

/// Checks a monitor, and saves the incident that the result opens or resolves.
async fn check_and_save(harness: &ScheduleHarness, monitor: &Monitor, observation: &Observation) {
    let change = harness.check_when_due(monitor, observation).await.expect("a change");
    let database = &harness.context.database;
    let alerted = incident::save_change(database, monitor, &change, Alerting::Enabled).await.unwrap();
    harness.schedule.confirm_change(&change, alerted).await.unwrap();
}

every_service! {
    NEEDS;

    /// U3 U6 U8
    async fn incident_that_the_store_has_forgotten_is_resolved(context: TestContext) {
        let (target, service) = (StatusTarget::start().await, Service::start(&context).await);
        let id = service.add_monitor(&target, json!({"retries": 0})).await;
        service.wait_for_state(&id, "up").await;
        let up = Saved::save(&context, service.uptime.schedule()).await;
        target.respond_with(500);
        service.wait_for_state(&id, "down").await;
        wait_for("an incident", LIMIT, async || service.incidents().await.len() == 1).await;

        up.restore(&context).await;
        target.respond_with(200);
        wait_for("the incident to be resolved", LIMIT, async || service.incidents().await[0].resolved_at.is_some()).await;
        service.wait_for_state(&id, "up").await;
        assert_eq!(service.incidents().await.len(), 1);
    }

    /// U3 U9
    async fn monitor_with_an_open_incident_is_down_again(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let monitor = harness.add("m1", |spec| spec.retries = 0).await;
        harness.check_when_due(&monitor, &good()).await;
        let up = Saved::save(&harness.context, &harness.schedule).await;
        check_and_save(&harness, &monitor, &bad()).await;
        let open = incidents::all_open(&harness.context.database).await.unwrap().remove(0);
        harness.schedule.reconcile_incidents(&harness.context.database, GRACE).await.unwrap();
        assert_eq!(harness.schedule.snapshot().await.unwrap().health(&monitor.id).state, MonitorState::Down);

        up.restore(&harness.context).await;
        harness.schedule.reconcile_incidents(&harness.context.database, GRACE).await.unwrap();
        let health = harness.schedule.snapshot().await.unwrap().health(&monitor.id);
        assert_eq!((health.state, health.first_failure_ms), (MonitorState::Down, u64::try_from(open.opened_at.0).unwrap()));
        harness.clock.advance(Duration::from_secs(61));
        let claim = harness.claim_one().await;
        assert!(claim.fence.get() > open.opened_fence, "fences do not repeat");
        let (_, change) = harness.record(&monitor, &claim, &good()).await;
        assert_eq!(change.map(|change| change.change), Some(IncidentChange::Resolved));
    }

    /// U3 U9
    async fn monitor_that_is_down_without_an_incident_gets_one(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let monitor = harness.add("m1", |spec| spec.retries = 0).await;
        check_and_save(&harness, &monitor, &bad()).await;
        let down = Saved::save(&harness.context, &harness.schedule).await;
        check_and_save(&harness, &monitor, &good()).await;
        let database = &harness.context.database;
        assert!(incidents::all_open(database).await.unwrap().is_empty());

        down.restore(&harness.context).await;
        let ids = [monitor.id.clone()];
        harness.schedule.reconcile_states(database, harness.schedule.shard_of(&monitor.id), &ids, GRACE).await.unwrap();
        assert_eq!(harness.schedule.snapshot().await.unwrap().health(&monitor.id).state, MonitorState::Pending);
        check_and_save(&harness, &monitor, &bad()).await;
        assert_eq!(incidents::all_open(database).await.unwrap().len(), 1);
    }

    /// U3 U8
    async fn outage_with_a_repeated_fence_is_an_incident(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let monitor = harness.add("m1", |spec| spec.retries = 0).await;
        harness.check_when_due(&monitor, &good()).await;
        let up = Saved::save(&harness.context, &harness.schedule).await;
        check_and_save(&harness, &monitor, &bad()).await;
        check_and_save(&harness, &monitor, &good()).await;

        // The counter of fences is back as well.
        up.restore(&harness.context).await;
        check_and_save(&harness, &monitor, &bad()).await;
        let database = &harness.context.database;
        let all = incidents::page(database, &Filter::Of(monitor.id.clone()), &hob_database::PageRequest::default()).await.unwrap();
        assert_eq!(all.rows.len(), 2);
        assert_eq!(all.rows[0].opened_fence, all.rows[1].opened_fence);
        check_and_save(&harness, &monitor, &good()).await;
        assert!(incidents::all_open(database).await.unwrap().is_empty());
    }

    /// U1
    async fn change_that_is_not_in_the_database_yet_is_not_a_contradiction(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let monitor = harness.add("m1", |spec| spec.retries = 0).await;
        let (database, shard) = (&harness.context.database, harness.schedule.shard_of(&monitor.id));
        let ids = [monitor.id.clone()];
        let opened = harness.check_when_due(&monitor, &bad()).await.expect("a change");
        harness.schedule.reconcile_states(database, shard, &ids, GRACE).await.unwrap();
        let health = harness.schedule.snapshot().await.unwrap().health(&monitor.id);
        assert_eq!(health.state, MonitorState::Down, "the incident is not in the database yet");

        let alerted = incident::save_change(database, &monitor, &opened, Alerting::Enabled).await.unwrap();
        harness.schedule.confirm_change(&opened, alerted).await.unwrap();
        let resolved = harness.check_when_due(&monitor, &good()).await.expect("a change");
        harness.schedule.reconcile_incidents(database, GRACE).await.unwrap();
        let health = harness.schedule.snapshot().await.unwrap().health(&monitor.id);
        assert_eq!(health.state, MonitorState::Up, "the recovery is not in the database yet");
        incident::save_change(database, &monitor, &resolved, Alerting::Enabled).await.unwrap();
        assert!(incidents::all_open(database).await.unwrap().is_empty());
    }

    /// U1 U9: a heartbeat is silent since its job last called, no matter how often the store is lost.
    async fn silence_of_a_job_counts_from_the_database(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let monitor = harness.add("job", |spec| {
            *spec = MonitorSpec { interval_s: 60, retries: 1, ..MonitorSpec::new("job", MonitorKind::Heartbeat, "") };
        }).await;
        let changed_ms = u64::try_from(monitor.created_at.0).unwrap();
        let Check::Heartbeat(heartbeat) = &monitor.check else { panic!("{:?}", monitor.check) };
        let first_ms = heartbeat.deadline_ms(Duration::from_secs(60), changed_ms);
        let second_ms = heartbeat.deadline_ms(Duration::from_secs(60), first_ms);
        for now_ms in [first_ms + 1, second_ms - 1, second_ms + 5_000] {
            harness.clock.set(Duration::from_millis(now_ms));
            harness.context.test_store().flush_all().await;
            for shard in harness.schedule.shards() {
                harness.schedule.rebuild(&harness.context.database, shard, GRACE).await.unwrap();
            }
            let health = harness.schedule.snapshot().await.unwrap().health(&monitor.id);
            assert_eq!((health.state, health.first_failure_ms), (MonitorState::Suspect, first_ms));
        }
        let claim = harness.claim_one().await;
        let silent = Observation::failed(FailureClass::Silent, "the job did not call in time");
        let (_, change) = harness.record(&monitor, &claim, &silent).await;
        let change = change.expect("an incident");
        assert_eq!((change.change, change.first_failure_ms), (IncidentChange::Opened, first_ms));
    }

    /// U1: the store has lost the last call of a job, and so has an earlier deadline.
    async fn lost_call_of_a_job_is_not_silence(context: TestContext) {
        let service = Service::start(&context).await;
        let job = json!({"name": "Job", "kind": "heartbeat", "interval_s": 3600, "retries": 0});
        let added = service.app.post("/api/v1/uptime/monitors", &job).await.json::<serde_json::Value>();
        let (id, path) = (added["id"].as_str().unwrap(), added["heartbeat_path"].as_str().unwrap());
        assert_eq!(service.app.get(path).await.status, 200);
        let schedule = service.uptime.schedule();
        let key = schedule.keys().schedule(schedule.shard_of(&MonitorId::new(id).unwrap()));
        context.test_store().as_outsider(cmd("ZADD").arg(&key).arg(1).arg(id).clone()).await;
        wait_for("the deadline of the last call", LIMIT, async || {
            let due: Option<f64> = context.store.run(cmd("ZSCORE").arg(&key).arg(id)).await.unwrap();
            due.is_some_and(|due| due > 1_000_000.0)
        })
        .await;
        assert_eq!(service.monitor(id).await["state"], "up");
        assert!(service.incidents().await.is_empty());
    }
}
