//! The API of the running service.

use hob_fixtures::{Layout, TestContext};
use hob_testkit::{LIMIT, wait_for};
use hob_web::Service as _;
use serde_json::{Value, json};

use crate::NEEDS;
use crate::service::{Service, StatusTarget};

async fn service() -> (TestContext, Service) {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let service = Service::start(&context).await;
    (context, service)
}

#[tokio::test(flavor = "multi_thread")]
async fn monitor_is_added_changed_paused_and_removed() {
    let (_context, service) = service().await;
    let (app, target) = (&service.app, StatusTarget::start().await);
    let id = service.add_monitor(&target, json!({"tags": ["eu"], "group": "Web"})).await;
    let path = format!("/api/v1/uptime/monitors/{id}");
    service.wait_for_state(&id, "UP").await;

    let patched: Value = app.patch(&path, &json!({"interval_s": 30, "tags": null})).await.json();
    assert_eq!((patched["interval_s"].as_u64(), patched["tags"].as_array().unwrap().len()), (Some(30), 0));
    let same: Value = app.patch(&path, &json!({"interval_s": 30})).await.json();
    assert_eq!(same["generation"], patched["generation"], "nothing changed");

    assert_eq!(app.post(&format!("{path}/pause"), &json!({})).await.json::<Value>()["state"], "PAUSED");
    let now = app.post(&format!("{path}/check"), &json!({})).await;
    assert_eq!(now.status, 409);
    assert_eq!(app.post(&format!("{path}/resume"), &json!({})).await.status, 200);
    service.wait_for_state(&id, "UP").await;

    assert_eq!(app.delete(&path).await.status, 204);
    assert_eq!(app.get(&path).await.status, 404);
    assert_eq!(app.delete(&path).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_now_returns_phases_and_assertions() {
    let (_context, service) = service().await;
    let target = StatusTarget::start().await;
    let assertions = json!({"assertions": ["status == 200", "json $.ok == false"], "interval_s": 3600});
    let id = service.add_monitor(&target, assertions).await;
    let seen: Value =
        service.app.post(&format!("/api/v1/uptime/monitors/{id}/check"), &json!({})).await.json();
    assert_eq!((seen["ok"].as_bool(), seen["status_code"].as_u64()), (Some(false), Some(200)), "{seen}");
    assert!(seen["phases"]["connect_us"].is_u64() && seen["phases"]["total_us"].is_u64(), "{seen}");
    let holds: Vec<bool> =
        seen["assertions"].as_array().unwrap().iter().map(|one| one["holds"].as_bool().unwrap()).collect();
    assert_eq!(holds, [true, false]);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_invalid_field_is_reported() {
    let (_context, service) = service().await;
    let errors = json!({"name": "x", "kind": "http", "target": "gopher://x", "interval_s": 0, "assertions": ["latency <"]});
    let refused = service.app.post("/api/v1/uptime/monitors", &errors).await;
    assert_eq!(refused.status, 422);
    let problem: Value = refused.json();
    let fields: Vec<&str> =
        problem["errors"].as_array().unwrap().iter().map(|error| error["field"].as_str().unwrap()).collect();
    assert_eq!(fields, ["interval_s", "assertions[0]", "target"]);
    for body in [json!({"name": "x"}), json!({"name": "x", "kind": "pigeon"}), json!([])] {
        let refused = service.app.post("/api/v1/uptime/monitors", &body).await;
        assert!(refused.status.is_client_error(), "{body}: {}", refused.status);
    }
    assert_eq!(service.app.get("/api/v1/uptime/monitors/none").await.status, 404);
    assert_eq!(service.app.get("/api/v1/uptime/monitors?limit=0").await.status, 422);
    assert_eq!(service.app.get("/api/v1/uptime/incidents/none").await.status, 404);
}

/// U7
#[tokio::test(flavor = "multi_thread")]
async fn list_is_searched_filtered_and_paged() {
    let (_context, service) = service().await;
    for n in 0..7 {
        let spec = json!({"name": format!("Shop {n}"), "kind": "tcp", "target": "127.0.0.1:1", "paused": true,
                          "tags": [if n % 2 == 0 { "even" } else { "odd" }]});
        assert_eq!(service.app.put(&format!("/api/v1/uptime/monitors/m{n}"), &spec).await.status, 201);
    }
    let names = async |query: &str| -> (Vec<String>, Option<String>) {
        let list: Value = service.app.get(&format!("/api/v1/uptime/monitors{query}")).await.json();
        let items = list["items"].as_array().unwrap();
        let names = items.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect();
        (names, list["next"].as_str().map(str::to_owned))
    };
    assert_eq!(names("").await.0.len(), 7);
    assert_eq!(names("?tag=odd").await.0, ["Shop 1", "Shop 3", "Shop 5"]);
    assert_eq!(names("?search=shop%204").await.0, ["Shop 4"]);
    assert_eq!(names("?failing=true").await.0.len(), 0);
    let (first, next) = names("?limit=4").await;
    let (rest, end) = names(&format!("?limit=4&after={}", next.unwrap())).await;
    assert_eq!((first.len(), rest.len(), end), (4, 3, None));
    let summary: Value = service.app.get("/api/v1/uptime/summary").await.json();
    assert_eq!((summary["total"].as_u64(), summary["paused"].as_u64()), (Some(7), Some(7)));
}

#[tokio::test(flavor = "multi_thread")]
async fn heartbeat_is_up_until_the_job_misses_its_deadline() {
    let (_context, service) = service().await;
    let spec = json!({"name": "Backup", "kind": "heartbeat", "interval_s": 1, "heartbeat": {"grace_s": 5}});
    let added: Value = service.app.post("/api/v1/uptime/monitors", &spec).await.json();
    let (id, path) =
        (added["id"].as_str().unwrap().to_owned(), added["heartbeat_path"].as_str().unwrap().to_owned());
    assert_eq!(added["state"], "PENDING");
    assert_eq!(service.app.get(&format!("{path}/start")).await.status, 200);
    assert_eq!(service.app.post(&path, &json!({})).await.status, 200);
    service.wait_for_state(&id, "UP").await;
    service.wait_for_state(&id, "DOWN").await;
    assert!(service.monitor(&id).await["error"].as_str().unwrap().starts_with("silent"));
    service.app.get(&path).await;
    service.wait_for_state(&id, "UP").await;
    assert_eq!(service.app.get(&format!("{path}/fail")).await.status, 200);
    service.wait_for_state(&id, "DOWN").await;
    assert_eq!(service.app.get("/heartbeat/0000").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn incident_is_acknowledged_and_annotated() {
    let (_context, service) = service().await;
    let target = StatusTarget::start().await;
    target.respond_with(503);
    service.add_monitor(&target, json!({"retries": 0})).await;
    wait_for("an incident", LIMIT, async || service.incidents().await.len() == 1).await;
    let path = format!("/api/v1/uptime/incidents/{}", service.incidents().await[0].id);
    assert_eq!(service.app.post(&format!("{path}/acknowledge"), &json!({})).await.status, 200);
    assert!(service.incidents().await[0].acknowledged_by.is_some());
    assert_eq!(service.app.post(&format!("{path}/notes"), &json!({"text": "on it"})).await.status, 201);
    assert_eq!(service.app.post(&format!("{path}/notes"), &json!({"text": " "})).await.status, 422);
    let incident: Value = service.app.get(&path).await.json();
    assert_eq!(incident["notes"][0]["text"], "on it");
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_in_a_maintenance_window_is_not_alerted() {
    let (_context, service) = service().await;
    let target = StatusTarget::start().await;
    let now = i64::try_from(
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis(),
    );
    let now = now.unwrap();
    let window =
        json!({"title": "Move", "covers": ["eu"], "starts_at_ms": now - 1000, "ends_at_ms": now + 3_600_000});
    assert_eq!(service.app.post("/api/v1/uptime/maintenance", &window).await.status, 201);
    target.respond_with(500);
    service.add_monitor(&target, json!({"retries": 0, "tags": ["eu"]})).await;
    wait_for("an incident", LIMIT, async || service.incidents().await.len() == 1).await;
    assert_eq!(service.incidents().await[0].told_at, None);
    let windows: Value = service.app.get("/api/v1/uptime/maintenance").await.json();
    let path = format!("/api/v1/uptime/maintenance/{}", windows["items"][0]["id"].as_str().unwrap());
    assert_eq!(service.app.delete(&path).await.status, 204);
}

/// The API document names every operation, and no two schemas share a name.
#[tokio::test(flavor = "multi_thread")]
async fn api_document_has_no_clashes() {
    let (_context, service) = service().await;
    let routes = service.uptime.routes();
    assert_eq!(routes.conflicts(), [] as [String; 0]);
    assert!(routes.document().paths.paths.contains_key("/api/v1/uptime/monitors/{id}/history"));
}
