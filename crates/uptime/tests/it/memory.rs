//! U9: memory of monitors.

use hob_fixtures::TestContext;
use hob_store::cmd;
use hob_testkit::{LIMIT, wait_for};
use serde_json::json;

use crate::NEEDS;
use crate::service::{Service, StatusTarget};

/// U9
#[tokio::test(flavor = "multi_thread")]
async fn estimate_is_within_a_tenth_of_the_memory_usage() {
    let context = TestContext::redis(NEEDS).await;
    let (target, service) = (StatusTarget::start().await, Service::start(&context).await);
    for n in 0..40 {
        let assertions = if n % 4 == 0 { json!(["status == 418"]) } else { json!([]) };
        service
            .add_monitor(
                &target,
                json!({"name": format!("m{n}"), "interval_s": 3600, "retries": 0, "assertions": assertions}),
            )
            .await;
    }
    wait_for("all monitors to be checked", LIMIT, async || {
        let snapshot = service.uptime.snapshot().await.unwrap();
        let counts = snapshot.state_counts(&service.uptime.monitors());
        counts.of(hob_uptime::schedule::state::MonitorState::Pending) == 0
    })
    .await;
    let estimate = service.uptime.measure_memory().await.unwrap();
    let mut exact = 0;
    let keys: Vec<String> = context.store.run(cmd("KEYS").arg("monitor:*")).await.unwrap();
    for key in keys {
        let bytes: u64 =
            context.store.run(cmd("MEMORY").arg("USAGE").arg(key).arg("SAMPLES").arg(0)).await.unwrap();
        exact += bytes;
    }
    let off = estimate.bytes.abs_diff(exact);
    assert!(off * 10 <= exact, "{estimate:?} is not about {exact}");
}
