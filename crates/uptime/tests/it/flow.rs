//! Incidents from the first failed check to the recovery.

use hob_fixtures::{Layout, TestContext, every_service};
use hob_testkit::{LIMIT, wait_for};
use hob_uptime::Config;
use serde_json::{Value, json};

use crate::NEEDS;
use crate::service::{Service, StatusTarget};

every_service! {
    NEEDS;

    /// U1–U8
    async fn failure_and_recovery_of_a_target_is_one_incident(context: TestContext) {
        let (target, service) = (StatusTarget::start().await, Service::start(&context).await);
        let id = service.add_monitor(&target, json!({})).await;
        service.wait_for_state(&id, "up").await;
        target.respond_with(500);
        service.wait_for_state(&id, "down").await;
        let monitor = service.monitor(&id).await;
        assert!(monitor["error"].as_str().unwrap().contains("500"), "{monitor}");
        wait_for("an incident", LIMIT, async || service.incidents().await.len() == 1).await;

        target.respond_with(200);
        service.wait_for_state(&id, "up").await;
        wait_for("the incident to be resolved", LIMIT, async || service.incidents().await[0].resolved_at.is_some()).await;
        let incidents = service.incidents().await;
        assert_eq!((incidents.len(), incidents[0].class.as_str()), (1, "assertion"));
        assert!(incidents[0].told_at.is_some());
        wait_for("results in the database", LIMIT, async || {
            let history: Value = service.app.get(&format!("/api/v1/uptime/monitors/{id}/history")).await.json();
            history["whole"]["good"].as_u64() > Some(0) && history["whole"]["bad"].as_u64() > Some(0)
        })
        .await;
    }

    /// U9
    async fn lost_store_is_rebuilt_while_monitors_are_checked(context: TestContext) {
        let (target, service) = (StatusTarget::start().await, Service::start(&context).await);
        let up = service.add_monitor(&target, json!({})).await;
        let down = service.add_monitor(&target, json!({"name": "Down", "assertions": ["status == 418"], "retries": 0})).await;
        service.wait_for_state(&down, "down").await;
        service.wait_for_state(&up, "up").await;
        wait_for("an incident", LIMIT, async || service.incidents().await.len() == 1).await;
        for _ in 0..3 {
            context.test_store().flush_all().await;
            let before = target.request_count();
            wait_for("more checks", LIMIT, async || target.request_count() > before + 2).await;
        }
        service.wait_for_state(&up, "up").await;
        service.wait_for_state(&down, "down").await;
        assert_eq!(service.incidents().await.len(), 1, "no second incident");
    }
}

/// U1
#[tokio::test(flavor = "multi_thread")]
async fn node_sees_the_monitors_of_another() {
    let context = TestContext::embedded(NEEDS, Layout::Tagged).await;
    let other_context = context.another_node().await;
    let target = StatusTarget::start().await;
    let (first, second) = (Service::start(&context).await, Service::start(&other_context).await);
    let id = first.add_monitor(&target, json!({})).await;
    second.wait_for_state(&id, "up").await;
    let renamed = first.app.patch(&format!("/api/v1/uptime/monitors/{id}"), &json!({"name": "Store"})).await;
    assert_eq!(renamed.status, 200);
    wait_for("the new name on the other node", LIMIT, async || {
        second.uptime.monitors().iter().any(|monitor| monitor.spec.name == "Store")
    })
    .await;
    assert_eq!(first.app.delete(&format!("/api/v1/uptime/monitors/{id}")).await.status, 204);
    wait_for("the deletion on the other node", LIMIT, async || second.uptime.monitors().is_empty()).await;
    other_context.tasks.stop(LIMIT).await;
}

/// U8
#[tokio::test(flavor = "multi_thread")]
async fn outage_without_the_database_is_saved_later() {
    let context = TestContext::redis(NEEDS).await;
    let hob_testkit::TestDatabase::Postgres(postgres) = context.test_database() else { panic!("PostgreSQL") };
    let (target, service) = (StatusTarget::start().await, Service::start(&context).await);
    let id = service.add_monitor(&target, json!({"retries": 0})).await;
    service.wait_for_state(&id, "up").await;
    postgres.freeze();
    target.respond_with(500);
    let key = service.uptime.schedule().keys().incident(&hob_uptime::monitor::MonitorId::new(&id).unwrap());
    wait_for("the incident in the store", LIMIT, async || {
        let count: Option<String> =
            context.store.run(hob_store::cmd("HGET").arg(&key).arg("failure_count")).await.unwrap();
        count.is_some_and(|count| count.parse::<u32>().unwrap() >= 2)
    })
    .await;
    postgres.unfreeze();
    wait_for("the incident in the database", LIMIT, async || service.incidents().await.len() == 1).await;
    target.respond_with(200);
    wait_for("the incident to be resolved", LIMIT, async || {
        service.incidents().await[0].resolved_at.is_some()
    })
    .await;
    assert_eq!(service.incidents().await.len(), 1);
}

/// U5
#[tokio::test(flavor = "multi_thread")]
async fn failures_do_not_count_without_a_network() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    // Bound but not listening: no connection is accepted, as without a network, and no other process gets the port.
    let closed = tokio::net::TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let targets = vec![closed.local_addr().unwrap().to_string()];
    let config = Config { connectivity_targets: targets, ..Config::default() };
    let service = Service::configured(&context, config).await;
    let monitor =
        json!({"name": "x", "kind": "dns", "target": "nowhere.invalid", "interval_s": 1, "retries": 0});
    let added = service.app.post("/api/v1/uptime/monitors", &monitor).await.json::<Value>();
    let id = added["id"].as_str().unwrap().to_owned();
    let key = service.uptime.schedule().keys().schedule(service.uptime.schedule().shards().next().unwrap());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    wait_for("the claim to be released", LIMIT, async || {
        let due: Option<f64> = context.store.run(hob_store::cmd("ZSCORE").arg(&key).arg(&id)).await.unwrap();
        due.is_some_and(|due| due > now + 3.0)
    })
    .await;
    assert_eq!(service.monitor(&id).await["state"], "pending");
    assert!(service.incidents().await.is_empty());
}
