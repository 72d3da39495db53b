//! Channels in the API and the console; secrets are never shown.

use super::*;

async fn app(harness: &AlertHarness) -> TestApp {
    TestApp::start(&harness.context, harness.alerts().routes()).await
}

#[tokio::test]
async fn channels_are_added_changed_and_removed() {
    let harness = AlertHarness::new(TestDatabase::sqlite()).await;
    let app = app(&harness).await;
    let path = "/api/v1/uptime/channels";
    let added =
        app.post(path, &json!({"name": "Ops", "kind": "webhook", "url": "https://example.com/a"})).await;
    assert_eq!(added.status, 201);
    let added: Value = serde_json::from_slice(&added.body).unwrap();
    let own = format!("{path}/{}", added["id"].as_str().unwrap());

    let taken = json!({"name": "Ops", "kind": "webhook", "url": "https://example.com/a"});
    let taken = app.post(path, &taken).await;
    assert_eq!(taken.status, 409);
    let errors = app.post(path, &json!({"name": "", "kind": "email", "to": ["invalid"]})).await;
    assert_eq!(errors.status, 422);
    let errors: Value = serde_json::from_slice(&errors.body).unwrap();
    assert_eq!(
        (&errors["errors"][0]["field"], &errors["errors"][1]["field"]),
        (&json!("name"), &json!("to"))
    );

    let changed = app.patch(&own, &json!({"url": "https://example.com/b"})).await;
    let changed: Value = serde_json::from_slice(&changed.body).unwrap();
    assert_eq!((&changed["name"], &changed["url"]), (&json!("Ops"), &json!("https://example.com/b")));
    assert_eq!(app.patch(&own, &json!({"kind": "email"})).await.status, 422);
    assert_eq!(serde_json::from_slice::<Value>(&app.get(&own).await.body).unwrap(), changed);
    assert_eq!(
        serde_json::from_slice::<Value>(&app.get(path).await.body).unwrap(),
        json!({"items": [changed], "next": null})
    );

    assert_eq!(app.delete(&own).await.status, 204);
    assert_eq!(app.delete(&own).await.status, 404);
    assert_eq!(app.get(&own).await.status, 404);
}

#[tokio::test]
async fn webhook_to_a_denied_address_is_not_sent() {
    let harness = AlertHarness::new(TestDatabase::sqlite()).await;
    // On Linux, a connection to 0.0.0.0 reaches this machine.
    let inside = Target::responding(|_| answer(200, "", "")).await;
    let (app, port) = (app(&harness).await, inside.address.port());
    for (number, host) in ["169.254.169.254", "[::ffff:169.254.169.254]", "0.0.0.0"].iter().enumerate() {
        let url = format!("http://{host}:{port}/");
        let id = harness.channel(json!({"name": number.to_string(), "kind": "webhook", "url": url})).await;
        let tested: Value = app.post(&format!("/api/v1/uptime/channels/{id}/test"), &json!({})).await.json();
        let message = tested["message"].as_str().unwrap();
        assert_eq!(tested["delivered"], json!(false));
        assert!(message.contains("are not allowed; to allow it, add it to [outbound] allow"), "{message}");
    }
    assert_eq!(inside.connections(), 0);
}

#[tokio::test]
async fn test_is_sent_once() {
    let harness = AlertHarness::new(TestDatabase::sqlite()).await;
    let target = Target::responding(|_| answer(418, "", "")).await;
    let id = harness.webhook("Ops", &target).await;
    let app = app(&harness).await;
    harness.start();
    let tested = app.post(&format!("/api/v1/uptime/channels/{id}/test"), &json!({})).await;
    let tested: Value = serde_json::from_slice(&tested.body).unwrap();
    assert_eq!((&tested["delivered"], &tested["message"]), (&json!(false), &json!("status 418")));
    assert_eq!(
        body(&target.requests()[0])
            .split_once("\"text\"")
            .map(|(begin, _)| begin.contains("\"kind\":\"test\"")),
        Some(true)
    );
    let list = app.get(&format!("/api/v1/uptime/channels/{id}/deliveries")).await;
    let list: Value = serde_json::from_slice(&list.body).unwrap();
    assert_eq!(
        (&list["items"][0]["state"], &list["items"][0]["attempts"][0]["number"]),
        (&json!("failed"), &json!(1))
    );
    assert_eq!(app.post("/api/v1/uptime/channels/unknown/test", &json!({})).await.status, 404);
    assert_eq!(target.connections(), 1);
}

#[tokio::test]
async fn channel_is_added_and_tested_in_the_console() {
    let harness = AlertHarness::new(TestDatabase::sqlite()).await;
    let target = Target::responding(|_| answer(200, "", "")).await;
    let app = app(&harness).await;
    let empty = app.get("/uptime/channels").await;
    assert!(String::from_utf8_lossy(&empty.body).contains("No channels yet"));
    let fields =
        [("name", "Ops <b>"), ("kind", "webhook"), ("url", &target.url("/hook")), ("secret", ""), ("to", "")];
    let added = app.submit("/uptime/channels", &fields).await;
    assert_eq!(added.status, 303);
    let own = added.headers["location"].to_str().unwrap().to_owned();
    assert_eq!(app.submit(&format!("{own}/test"), &[]).await.status, 303);
    let page = app.get(&own).await;
    let page = String::from_utf8_lossy(&page.body);
    assert!(page.contains("delivered") && page.contains("status 200") && page.contains("unsigned"), "{page}");
    assert!(!page.contains("Ops <b>"), "{page}");
    let edit = format!("{own}/edit");
    assert_eq!(app.submit(&edit, &[("name", "Ops"), ("kind", "webhook"), ("url", "no")]).await.status, 422);
    let url = target.url("/other");
    assert_eq!(app.submit(&edit, &[("name", "Ops"), ("kind", "webhook"), ("url", &url)]).await.status, 303);
    let page = app.get(&own).await;
    assert!(String::from_utf8_lossy(&page.body).contains(&url));
    assert_eq!(app.submit(&format!("{own}/delete"), &[]).await.status, 303);
    assert_eq!(app.get(&own).await.status, 404);
    assert_eq!(app.get(&edit).await.status, 404);
    assert_eq!(app.submit(&edit, &[("name", "Ops"), ("kind", "webhook"), ("url", &url)]).await.status, 404);
    let refused = app.submit("/uptime/channels", &[("name", "a"), ("kind", "email")]).await;
    assert_eq!(refused.status, 422);
}

/// Captures the log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn secrets_are_not_in_the_log_or_the_api() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(move || writer.clone());
    let _guard = tracing::subscriber::set_default(subscriber.finish());

    let mut harness = AlertHarness::new(TestDatabase::sqlite()).await;
    let target = Target::responding(|_| answer(403, "", "")).await;
    harness.add_secret("slack_url", &target.url(&format!("/{SECRET}")));
    harness.add_secret("nowhere", &format!("http://127.0.0.1:1/{SECRET}"));
    harness.webhook("Hook", &target).await;
    // Valid when the channel is saved, and changed afterwards.
    for secret in ["slack_url", "nowhere", "no_url", "no_file", "elsewhere"] {
        if secret != "slack_url" && secret != "nowhere" {
            harness.add_secret(secret, &target.url("/"));
        }
        harness.channel(json!({"name": secret, "kind": "slack", "secret": secret})).await;
    }
    harness.add_secret("no_url", SECRET);
    harness.add_secret("elsewhere", &format!("http://127.0.0.2/{SECRET}"));
    std::fs::remove_file(harness.folder.path().join("no_file")).unwrap();
    let app = app(&harness).await;
    let mut seen = format!("{:?}", harness.alerts());
    let list = app.get("/api/v1/uptime/channels").await;
    seen.push_str(&String::from_utf8_lossy(&list.body));
    let list: Value = serde_json::from_slice(&list.body).unwrap();
    for channel in list["items"].as_array().unwrap() {
        let own = format!("/api/v1/uptime/channels/{}", channel["id"].as_str().unwrap());
        for answer in
            [app.post(&format!("{own}/test"), &json!({})).await, app.get(&format!("{own}/deliveries")).await]
        {
            assert_eq!(answer.status, 200);
            seen.push_str(&String::from_utf8_lossy(&answer.body));
        }
    }
    for message in ["status 403", "is not a URL", "cannot be read", "is not in `hosts`"] {
        assert!(seen.contains(message), "{message}: {seen}");
    }
    seen.push_str(&String::from_utf8_lossy(&log.0.lock().unwrap()));
    assert!(!seen.contains(SECRET), "{seen}");
}

#[tokio::test]
async fn slow_response_is_a_failed_attempt() {
    let mut harness = AlertHarness::new(TestDatabase::sqlite()).await;
    harness.config.alert_timeout = Period::from_millis(200);
    let unresponsive = unresponsive_target().await;
    let id = harness.webhook("Unresponsive", &unresponsive).await;
    let started = std::time::Instant::now();
    let attempt = harness.alerts().test(&id.as_str().into()).await.unwrap().unwrap();
    assert_eq!(attempt.message, "timeout: no response after 200ms");
    assert!(started.elapsed() < LIMIT + Duration::from_millis(200));
}
