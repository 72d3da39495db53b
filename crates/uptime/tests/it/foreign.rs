//! Whatever another client writes into a key of uptime, checks and pages of other monitors go on, and the key is repaired.

use hob_fixtures::{Exception, ForeignClient, Layout, TestContext};
use hob_schema::Shard;
use hob_testkit::{LIMIT, wait_for};
use hob_uptime::keys::{Keys, MonitorId};
use hob_uptime::monitor::MonitorSpec;
use hob_uptime::monitor::check::MonitorKind;
use hob_uptime::schedule::state::MonitorState;
use hob_uptime::{AddOutcome, CheckNowOutcome, HeartbeatSignal};

use crate::NEEDS;
use crate::service::{Service, StatusTarget};

async fn add(service: &Service, id: &str, kind: MonitorKind, target: &str) -> MonitorId {
    let id = MonitorId::new(id).unwrap();
    let mut spec = MonitorSpec::new(id.as_str(), kind, target);
    (spec.retries, spec.interval_s, spec.retry_delay_s) = (1, 3600, 3600);
    match service.uptime.add(Some(id.clone()), &spec).await.unwrap() {
        AddOutcome::Added(_) => id,
        refused => panic!("{refused:?}"),
    }
}

/// Checks a monitor until a result is recorded and the monitor is in one of these states.
async fn check_until(service: &Service, id: &MonitorId, states: &[MonitorState], what: &str) {
    wait_for(format_args!("{id} to be one of {states:?} after {what}"), LIMIT, async || {
        match service.uptime.check_now(id).await {
            Ok(CheckNowOutcome::Checked { state, .. }) if states.contains(&state) => Ok(()),
            outcome => Err(outcome),
        }
    })
    .await;
}

async fn other_monitors_are_not_affected(context: TestContext) {
    let service = Service::start(&context).await;
    let (up, down, flapping) =
        (StatusTarget::start().await, StatusTarget::start().await, StatusTarget::start().await);
    down.respond_with(500);
    let other = add(&service, "other", MonitorKind::Http, &up.url).await;
    let failing = add(&service, "victim-down", MonitorKind::Http, &down.url).await;
    let unstable = add(&service, "victim-flapping", MonitorKind::Http, &flapping.url).await;
    let job = add(&service, "victim-job", MonitorKind::Heartbeat, "").await;
    let token = service.uptime.monitor(&job).await.unwrap().unwrap().token.clone().unwrap();
    let work = async |what: &str| {
        for page in ["/uptime", "/api/v1/uptime/monitors", "/status", "/uptime/monitors/victim-down"] {
            let response = service.app.get(page).await;
            assert_eq!(response.status, 200, "{page} after {what}: {}", response.text());
        }
        check_until(&service, &other, &[MonitorState::Up], what).await;
        check_until(&service, &failing, &[MonitorState::Down], what).await;
        flapping.respond_with(200);
        check_until(&service, &unstable, &[MonitorState::Up], what).await;
        flapping.respond_with(500);
        check_until(&service, &unstable, &[MonitorState::Suspect, MonitorState::Down], what).await;
        for signal in [HeartbeatSignal::Succeeded, HeartbeatSignal::Started] {
            assert!(service.uptime.record_signal(&token, signal).await.unwrap(), "{what}");
        }
        service.wait_for_state("other", "up").await;
        service.wait_for_state("victim-down", "down").await;
    };
    let keys = Keys::new(context.layout);
    let exceptions = [
        // Only during a check.
        ("leases", Exception::Momentary(keys.leases(Shard::default()))),
        // Only until a change is in the database.
        ("unsettled", Exception::Momentary(keys.unsettled(Shard::default()))),
        // Limits of status pages: see the tests there.
        ("passwords", Exception::Unused),
        ("subscriptions", Exception::Unused),
    ];
    ForeignClient::new(&context, "victim", exceptions).overwrite_each_family(work).await;
    let incidents = service.incidents().await;
    let of = |id: &MonitorId| incidents.iter().filter(|one| one.monitor == id.as_str()).collect::<Vec<_>>();
    assert!(of(&other).is_empty(), "{incidents:?}");
    let open = of(&failing).iter().filter(|one| one.resolved_at.is_none()).count();
    assert_eq!((open, of(&failing).len()), (1, 1), "{incidents:?}");
}

/// U1 U2 U3 U4 U7
#[tokio::test(flavor = "multi_thread")]
async fn other_monitors_are_not_affected_by_foreign_values_on_the_embedded_engine() {
    other_monitors_are_not_affected(TestContext::embedded(NEEDS, Layout::Plain).await).await;
}

/// U1 U2 U3 U4 U7
#[tokio::test(flavor = "multi_thread")]
async fn other_monitors_are_not_affected_by_foreign_values_on_redis() {
    other_monitors_are_not_affected(TestContext::redis(NEEDS).await).await;
}
