//! U2–U6: the documented keys after a result.

use std::time::Duration;

use hob_fixtures::every_service;
use hob_uptime::schedule::record::Alerted;
use hob_uptime::schedule::state::IncidentChange;

use crate::NEEDS;
use crate::harness::{ScheduleHarness, bad, good, permanent_failure};

every_service! {
    NEEDS;

    /// U2
    async fn success_is_the_last_good_result(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let monitor = harness.add("m1", |spec| spec.interval_s = 600).await;
        assert_eq!(harness.check_when_due(&monitor, &good()).await, None);
        let key = harness.schedule.keys().status(&monitor.id);
        let status = harness.hash(&key).await;
        let checked_at: u64 = status["checked_at"].parse().unwrap();
        assert_eq!((status["status_code"].as_str(), status["latency_ms"].as_str()), ("200", "120"));
        assert_eq!(checked_at, harness.now_s());
        let ttl = harness.ttl_s(&key).await;
        assert!((1200..=1210).contains(&ttl), "2 × 600 s + 10 s, not {ttl}");
    }

    /// U2
    async fn failure_keeps_the_last_success(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let monitor = harness.add("m1", |_| {}).await;
        harness.check_when_due(&monitor, &good()).await;
        let key = harness.schedule.keys().status(&monitor.id);
        let before = harness.hash(&key).await;
        harness.check_when_due(&monitor, &bad()).await;
        let after = harness.hash(&key).await;
        for field in ["status_code", "latency_ms", "checked_at"] {
            assert_eq!(before[field], after[field]);
        }
        assert_eq!((after["state"].as_str(), after["error"].as_str()), ("SUSPECT", "connect: connection refused"));
        let recent: Vec<&str> = after["recent"].split(' ').collect();
        assert!(recent[0].starts_with("U120:") && recent[1].starts_with("S0:"), "{recent:?}");
        let ttl = harness.ttl_s(&key).await;
        assert!((290..=300).contains(&ttl), "at least 300 s, not {ttl}");
    }

    /// U4 U5
    async fn retries_are_counted_before_the_monitor_is_down(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let monitor = harness.add("m1", |spec| (spec.retries, spec.retry_delay_s) = (2, 3)).await;
        let keys = harness.schedule.keys();
        for count in ["1", "2"] {
            assert_eq!(harness.check_when_due(&monitor, &bad()).await, None);
            assert_eq!(harness.get(keys.retry(&monitor.id)).await.as_deref(), Some(count));
            assert!(harness.ttl_s(keys.retry(&monitor.id)).await >= 290);
            assert!(harness.hash(keys.incident(&monitor.id)).await.is_empty());
        }
        let before = harness.now_s();
        let change = harness.check_when_due(&monitor, &bad()).await.expect("a change");
        assert_eq!(harness.now_s() - before, 3, "the delay of a retry");
        assert_eq!(change.change, IncidentChange::Opened);
        assert_eq!(harness.get(keys.retry(&monitor.id)).await, None);
    }

    /// U4
    async fn retry_delay_over_300_s_keeps_the_count(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let monitor = harness.add("m1", |spec| (spec.retries, spec.retry_delay_s) = (1, 1200)).await;
        harness.check_when_due(&monitor, &bad()).await;
        assert!(harness.ttl_s(harness.schedule.keys().retry(&monitor.id)).await > 1200);
        assert!(harness.check_when_due(&monitor, &bad()).await.is_some());
    }

    /// U3
    async fn incident_exists_exactly_while_the_monitor_is_down(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let monitor = harness.add("m1", |spec| (spec.retries, spec.recoveries) = (1, 2)).await;
        let key = harness.schedule.keys().incident(&monitor.id);
        harness.check_when_due(&monitor, &bad()).await;
        let first_failure = harness.now_s();
        let opened = harness.check_when_due(&monitor, &bad()).await.expect("a change");
        harness.schedule.confirm_change(&opened, Alerted::Yes).await.unwrap();
        harness.check_when_due(&monitor, &bad()).await;
        let incident = harness.hash(&key).await;
        assert_eq!((incident["failure_count"].as_str(), incident["alerted"].as_str()), ("3", "1"));
        assert_eq!(incident["first_failure_at"], first_failure.to_string());
        assert_eq!(incident["last_failure_at"], harness.now_s().to_string());
        assert_eq!(harness.ttl_s(&key).await, -1);

        assert_eq!(harness.check_when_due(&monitor, &good()).await, None);
        assert_eq!(harness.hash(&key).await["failure_count"], "3", "RECOVERING keeps it");
        let resolved = harness.check_when_due(&monitor, &good()).await.expect("a change");
        assert_eq!(resolved.change, IncidentChange::Resolved);
        assert!(harness.hash(&key).await.is_empty());
    }

    /// U5
    async fn permanent_failure_is_down_without_retries(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let monitor = harness.add("m1", |spec| spec.retries = 5).await;
        assert!(harness.check_when_due(&monitor, &permanent_failure()).await.is_some());
        assert_eq!(harness.hash(harness.schedule.keys().incident(&monitor.id)).await["failure_count"], "1");
    }

    /// U8
    async fn pending_change_blocks_the_next_one(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let monitor = harness.add("m1", |spec| spec.retries = 0).await;
        let shard = harness.schedule.shard_of(&monitor.id);
        let opened = harness.check_when_due(&monitor, &bad()).await.expect("a change");
        assert_eq!(harness.schedule.pending_changes(shard).await.unwrap(), std::slice::from_ref(&opened));
        assert_eq!(harness.check_when_due(&monitor, &good()).await, None, "the change is still pending");
        assert_eq!(harness.hash(harness.schedule.keys().status(&monitor.id)).await["state"], "RECOVERING");
        harness.schedule.confirm_change(&opened, Alerted::Yes).await.unwrap();
        assert_eq!(harness.schedule.pending_changes(shard).await.unwrap(), []);
        let resolved = harness.check_when_due(&monitor, &good()).await.expect("a change");
        harness.schedule.confirm_change(&opened, Alerted::Yes).await.unwrap();
        assert_eq!(harness.schedule.pending_changes(shard).await.unwrap(), [resolved], "an old confirmation does not confirm a new change");
    }

    /// U2
    async fn recent_results_are_bounded(context: TestContext) {
        let harness = ScheduleHarness::new(context).await;
        let monitor = harness.add("m1", |spec| spec.interval_s = 1).await;
        for _ in 0..35 {
            harness.check_when_due(&monitor, &good()).await;
        }
        let recent = harness.hash(harness.schedule.keys().status(&monitor.id)).await["recent"].clone();
        assert_eq!(recent.split(' ').count(), 30);
        harness.clock.advance(Duration::from_secs(2));
    }
}
