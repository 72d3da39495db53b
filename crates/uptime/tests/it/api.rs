//! The API of the running service.

use hob_fixtures::{Layout, TestContext};
use hob_service::Live;
use hob_testkit::{LIMIT, wait_for};
use hob_uptime::Config;
use hob_web::Service as _;
use serde_json::{Value, json};

use crate::NEEDS;
use crate::identity::{Authority, Flaw};
use crate::service::{Service, StatusTarget};
use crate::target::{Target, answer};

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
    service.wait_for_state(&id, "up").await;

    let patched: Value = app.patch(&path, &json!({"interval_s": 30, "tags": null})).await.json();
    assert_eq!((patched["interval_s"].as_u64(), patched["tags"].as_array().unwrap().len()), (Some(30), 0));
    let same: Value = app.patch(&path, &json!({"interval_s": 30})).await.json();
    assert_eq!(same["generation"], patched["generation"], "nothing changed");

    assert_eq!(app.post(&format!("{path}/pause"), &json!({})).await.json::<Value>()["state"], "paused");
    let now = app.post(&format!("{path}/check"), &json!({})).await;
    assert_eq!(now.status, 409);
    assert_eq!(app.post(&format!("{path}/resume"), &json!({})).await.status, 200);
    service.wait_for_state(&id, "up").await;

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

/// A mistake in a merge patch is reported with its field, and not in the words of the program's types.
#[tokio::test(flavor = "multi_thread")]
async fn invalid_patch_and_id_are_reported_with_their_fields() {
    let (_context, service) = service().await;
    let target = StatusTarget::start().await;
    let id = service.add_monitor(&target, json!({"interval_s": 3600})).await;
    let path = format!("/api/v1/uptime/monitors/{id}");
    for (patch, field, message) in [
        (json!({"http": {"auth": {"bearer": "x"}}}), "http.auth.bearer", "expected an object"),
        (json!({"interval_s": "soon"}), "interval_s", "expected a whole number"),
        (json!({"kind": "pigeon"}), "kind", "expected one of"),
        (json!({"tags": "eu"}), "tags", "expected a list"),
        (json!({"name": null}), "", "missing field `name`"),
    ] {
        let refused = service.app.patch(&path, &patch).await;
        assert_eq!(refused.status, 422, "{patch}: {}", refused.text());
        let error = refused.json::<Value>()["errors"][0].clone();
        assert_eq!(error["field"], field, "{patch}: {error}");
        assert!(error["message"].as_str().unwrap().contains(message), "{patch}: {error}");
    }
    let long = "x".repeat(129);
    let monitor = json!({"name": "x", "kind": "tcp", "target": "127.0.0.1:1"});
    let refused = service.app.put(&format!("/api/v1/uptime/monitors/{long}"), &monitor).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    let error = refused.json::<Value>()["errors"][0].clone();
    assert_eq!(
        (&error["field"], error["message"].as_str().unwrap().contains("128")),
        (&json!("id"), true),
        "{error}"
    );
    let longest = format!("/api/v1/uptime/monitors/{}", "x".repeat(128));
    assert_eq!(service.app.put(&longest, &monitor).await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn monitor_with_an_unknown_channel_or_an_impossible_assertion_is_refused() {
    let (_context, service) = service().await;
    let app = &service.app;
    let channel = json!({"name": "Operations", "kind": "webhook", "url": "http://127.0.0.1:1/"});
    let channel: Value = app.post("/api/v1/uptime/channels", &channel).await.json();
    let channel_id = channel["id"].as_str().unwrap();
    let with = |channels: &[&str], assertions: &[&str]| {
        json!({"name": "Shop", "kind": "tcp", "target": "127.0.0.1:1", "paused": true, "channels": channels,
               "assertions": assertions})
    };
    let fields = |problem: &Value| -> Vec<String> {
        let errors = problem["errors"].as_array().unwrap();
        errors.iter().map(|error| error["field"].as_str().unwrap().to_owned()).collect()
    };
    let mistakes = with(&["Operations", "Oprations"], &["latency < 1s", "status == 200"]);
    for method in [http::Method::POST, http::Method::PUT] {
        let path = if method == http::Method::PUT {
            "/api/v1/uptime/monitors/shop"
        } else {
            "/api/v1/uptime/monitors"
        };
        let body = Some(("application/json", mistakes.to_string().into_bytes()));
        let refused = app.request(method, path, body).await;
        assert_eq!(refused.status, 422, "{}", refused.text());
        assert_eq!(fields(&refused.json()), ["assertions[1]", "channels[1]"]);
    }
    let path = "/api/v1/uptime/monitors/shop";
    assert_eq!(app.put(path, &with(&["Operations", channel_id], &["latency < 1s"])).await.status, 201);
    // A channel may be removed; the monitor can still be edited.
    assert_eq!(app.delete(&format!("/api/v1/uptime/channels/{channel_id}")).await.status, 204);
    assert_eq!(app.patch(path, &json!({"name": "Store"})).await.status, 200);
    let refused = app.patch(path, &json!({"channels": ["Operations", "Nights"]})).await;
    assert_eq!((refused.status.as_u16(), fields(&refused.json())), (422, vec!["channels[1]".to_owned()]));
}

/// A monitor that refers to a channel by its name would stop alerting it if the channel got another name.
#[tokio::test(flavor = "multi_thread")]
async fn channel_keeps_its_name_while_monitors_refer_to_it() {
    let (_context, service) = service().await;
    let app = &service.app;
    let name = "100 %_\"quick\"! \\ Ops";
    let channel = json!({"name": name, "kind": "webhook", "url": "http://127.0.0.1:1/"});
    let channel: Value = app.post("/api/v1/uptime/channels", &channel).await.json();
    let channel_id = channel["id"].as_str().unwrap();
    let (own, edit) =
        (format!("/api/v1/uptime/channels/{channel_id}"), format!("/uptime/channels/{channel_id}/edit"));
    let shop = "/api/v1/uptime/monitors/shop";
    let with = |channels: Value| json!({"name": "Shop", "kind": "tcp", "target": "127.0.0.1:1", "paused": true, "channels": channels});
    assert_eq!(app.put(shop, &with(json!([name]))).await.status, 201);
    // This one has the name of the channel, but refers to it by id.
    let other = json!({"name": name, "kind": "tcp", "target": "127.0.0.1:1", "paused": true, "channels": [channel_id]});
    assert_eq!(app.put("/api/v1/uptime/monitors/other", &other).await.status, 201);

    let refused = app.patch(&own, &json!({"name": "Nights"})).await;
    assert_eq!(refused.status, 409);
    let refused = refused.text();
    assert!(refused.contains("refer to the channel by this name: Shop."), "{refused}");
    let fields = [("name", "Nights"), ("kind", "webhook"), ("url", "http://127.0.0.1:1/")];
    let refused = app.submit(&edit, &fields).await;
    assert_eq!(refused.status, 409);
    assert!(refused.text().contains("refer to the channel by this name: Shop"), "{}", refused.text());
    assert_eq!(app.patch(&own, &json!({"url": "http://127.0.0.1:2/"})).await.status, 200);

    assert_eq!(app.put(shop, &with(json!([channel_id]))).await.status, 200);
    assert_eq!(app.patch(&own, &json!({"name": "Nights"})).await.status, 200);
}

/// The list is cached for a moment, but not over a check that a caller has requested.
#[tokio::test(flavor = "multi_thread")]
async fn state_after_a_requested_check_is_that_of_the_check() {
    let (_context, service) = service().await;
    let target = StatusTarget::start().await;
    let id = service.add_monitor(&target, json!({"interval_s": 3600, "retries": 0})).await;
    service.wait_for_state(&id, "up").await;
    for (status, state) in [(500, "down"), (200, "up"), (503, "down"), (200, "up")] {
        target.respond_with(status);
        service.monitor(&id).await;
        let checked: Value =
            service.app.post(&format!("/api/v1/uptime/monitors/{id}/check"), &json!({})).await.json();
        assert_eq!(checked["state"], state, "{checked}");
        assert_eq!(service.monitor(&id).await["state"], state);
    }
    let results = wait_for("the results in the history", LIMIT, async || {
        let history: Value = service.app.get(&format!("/api/v1/uptime/monitors/{id}/history")).await.json();
        history["results"].as_array().filter(|results| results.len() == 5).cloned()
    })
    .await;
    let states: Vec<&Value> = results.iter().map(|result| &result["state"]).collect();
    assert_eq!(states, ["up", "down", "up", "down", "up"]);
}

/// Reminders every second: with rounds of ten seconds, eight of them would take longer than the limit.
#[tokio::test(flavor = "multi_thread")]
async fn reminders_are_sent_when_they_are_due() {
    let (_context, service) = service().await;
    let target = StatusTarget::start().await;
    target.respond_with(503);
    service.add_monitor(&target, json!({"retries": 0, "remind_s": 1, "interval_s": 3600})).await;
    wait_for("eight reminders", LIMIT, async || {
        let incidents: Value = service.app.get("/api/v1/uptime/incidents").await.json();
        incidents["items"][0]["reminders"].as_u64() >= Some(8)
    })
    .await;
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
    assert_eq!(added["state"], "pending");
    assert_eq!(service.app.get(&format!("{path}/start")).await.status, 200);
    assert_eq!(service.app.post(&path, &json!({})).await.status, 200);
    service.wait_for_state(&id, "up").await;
    service.wait_for_state(&id, "down").await;
    assert!(service.monitor(&id).await["error"].as_str().unwrap().starts_with("silent"));
    service.app.get(&path).await;
    service.wait_for_state(&id, "up").await;
    assert_eq!(service.app.get(&format!("{path}/fail")).await.status, 200);
    service.wait_for_state(&id, "down").await;
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
    let refused = service.app.post("/api/v1/uptime/maintenance", &window).await;
    assert_eq!(refused.status, 422, "no monitor has the tag: {}", refused.text());
    assert_eq!(refused.json::<Value>()["errors"][0]["field"], "covers[0]");
    // Paused, so that it is not checked before the window exists.
    let id = service.add_monitor(&target, json!({"retries": 0, "tags": ["eu"], "paused": true})).await;
    assert_eq!(service.app.post("/api/v1/uptime/maintenance", &window).await.status, 201);
    target.respond_with(500);
    assert_eq!(
        service.app.post(&format!("/api/v1/uptime/monitors/{id}/resume"), &json!({})).await.status,
        200
    );
    wait_for("an incident", LIMIT, async || service.incidents().await.len() == 1).await;
    assert_eq!(service.incidents().await[0].told_at, None);
    let windows: Value = service.app.get("/api/v1/uptime/maintenance").await.json();
    let path = format!("/api/v1/uptime/maintenance/{}", windows["items"][0]["id"].as_str().unwrap());
    assert_eq!(service.app.delete(&path).await.status, 204);
}

/// The authorities are read again when the configuration is reloaded, also if the name of the file is the same.
#[tokio::test(flavor = "multi_thread")]
async fn certificate_authorities_are_reloaded() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let (old, new) = (Authority::new(), Authority::new());
    let folder = tempfile::tempdir().unwrap();
    let ca_file = folder.path().join("ca.pem");
    std::fs::write(&ca_file, old.pem()).unwrap();
    let config = Config { ca_file: Some(ca_file.clone()), ..Config::default() };
    let (live, reload) = Live::new(config.clone());
    let service = Service::live(&context, live).await;
    let acceptor = new.acceptor(Flaw::None, &["http/1.1"]);
    let target = Target::responding_over_tls(acceptor, |_| answer(200, "", "")).await;
    let monitor = json!({"name": "Shop", "kind": "http", "target": format!("https://{}/", target.address),
                         "interval_s": 3600, "retries": 0});
    let added: Value = service.app.post("/api/v1/uptime/monitors", &monitor).await.json();
    let id = added["id"].as_str().unwrap();
    service.wait_for_state(id, "down").await;
    let error = service.monitor(id).await["error"].as_str().unwrap().to_owned();
    assert!(error.starts_with("tls: "), "{error}");

    std::fs::write(&ca_file, new.pem()).unwrap();
    reload.replace(config);
    wait_for("the new authority to be trusted", LIMIT, async || {
        let checked: Value =
            service.app.post(&format!("/api/v1/uptime/monitors/{id}/check"), &json!({})).await.json();
        if checked["ok"] == true { Ok(()) } else { Err(checked) }
    })
    .await;
}

/// The API document names every operation, and no two schemas share a name.
#[tokio::test(flavor = "multi_thread")]
async fn api_document_has_no_clashes() {
    let (_context, service) = service().await;
    let routes = service.uptime.routes();
    assert_eq!(routes.conflicts(), [] as [String; 0]);
    assert!(routes.document().paths.paths.contains_key("/api/v1/uptime/monitors/{id}/history"));
}
