//! The pages without JavaScript.

use hob_fixtures::{Layout, TestContext};
use hob_testkit::{LIMIT, wait_for};
use serde_json::json;

use crate::NEEDS;
use crate::service::{Service, StatusTarget};

async fn service() -> (TestContext, Service) {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let service = Service::start(&context).await;
    (context, service)
}

/// U7
#[tokio::test(flavor = "multi_thread")]
async fn monitor_is_added_and_edited_with_the_form() {
    let (_context, service) = service().await;
    let (app, target) = (&service.app, StatusTarget::start().await);
    assert!(app.get("/uptime").await.text().contains("No monitors yet"));
    let fields = [
        ("name", "<Shop>"),
        ("kind", "http"),
        ("target", &target.url),
        ("interval_s", "5"),
        ("assertions", "status == 200"),
    ];
    let added = app.submit("/uptime/new", &fields).await;
    assert_eq!(added.status, 303, "{}", added.text());
    let page = added.header("location").to_owned();
    let id = page.rsplit('/').next().unwrap().to_owned();
    service.wait_for_state(&id, "up").await;
    let assertion = app.get(&page).await.text();
    assert!(
        assertion.contains("<code>status == 200</code> <span class=\"quiet\">found 200</span>"),
        "{assertion}"
    );
    let shown = app.get("/uptime?search=shop&tag=&failing=false").await.text();
    assert!(shown.contains("&#60;Shop&#62;") || shown.contains("&lt;Shop&gt;"), "{shown}");
    assert!(!shown.contains("<Shop>") && shown.contains("class=\"heartbeat\""), "{shown}");

    assert_eq!(app.get(&page).await.status, 200);
    assert_eq!(app.get(&format!("{page}?range=90d")).await.status, 200);
    assert!(app.get(&format!("{page}/edit")).await.text().contains(&target.url));
    let edited = app
        .submit(&format!("{page}/edit"), &[("name", "Store"), ("kind", "http"), ("target", &target.url)])
        .await;
    assert_eq!(edited.status, 303);
    assert!(app.get(&page).await.text().contains("Store"));
    for action in ["check", "pause", "resume"] {
        assert_eq!(app.submit(&format!("{page}/{action}"), &[]).await.status, 303, "{action}");
    }
    assert_eq!(app.submit(&format!("{page}/delete"), &[]).await.status, 303);
    assert_eq!(app.get(&page).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_form_is_shown_with_its_values_and_errors() {
    let (_context, service) = service().await;
    let fields = [("name", "Shop"), ("kind", "tcp"), ("target", "nowhere"), ("assertions", "latency <")];
    let refused = service.app.submit("/uptime/new", &fields).await;
    assert_eq!(refused.status, 422);
    let page = refused.text();
    assert!(page.contains("value=\"Shop\"") && page.contains("must be a host and a port"), "{page}");
    assert!(page.contains("error-assertions"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn incident_is_acknowledged_and_annotated() {
    let (_context, service) = service().await;
    let target = StatusTarget::start().await;
    target.respond_with(503);
    service.add_monitor(&target, json!({"retries": 0})).await;
    wait_for("an incident", LIMIT, async || service.incidents().await.len() == 1).await;
    let id = service.incidents().await[0].id.clone();
    assert!(service.app.get("/uptime/incidents").await.text().contains("open"));
    let page = format!("/uptime/incidents/{id}");
    assert!(service.app.get(&page).await.text().contains(">Acknowledge</button>"));
    assert_eq!(service.app.submit(&format!("{page}/acknowledge"), &[]).await.status, 303);
    assert_eq!(service.app.submit(&format!("{page}/notes"), &[("text", "restarting it")]).await.status, 303);
    let shown = service.app.get(&page).await.text();
    assert!(shown.contains("restarting it") && !shown.contains(">Acknowledge</button>"), "{shown}");
    assert_eq!(service.app.get("/uptime/incidents/none").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn maintenance_window_is_added_with_the_form() {
    let (_context, service) = service().await;
    let app = &service.app;
    let monitor = json!({"name": "Shop", "kind": "heartbeat", "tags": ["eu"], "group": "us"});
    assert_eq!(app.post("/api/v1/uptime/monitors", &monitor).await.status, 201);
    let fields =
        [("title", "Move"), ("covers", "eu, us"), ("from", "2030-01-01T10:00"), ("to", "2030-01-01T11:30")];
    assert_eq!(app.submit("/uptime/maintenance", &fields).await.status, 303);
    let shown = app.get("/uptime/maintenance").await.text();
    assert!(shown.contains("Move") && shown.contains("eu, us") && shown.contains("planned"), "{shown}");
    for (covers, from, error) in [
        ("", "soon", "must be a time in UTC"),
        ("eu, ue", "2030-01-01T10:00", "ue&quot; is not the id"),
        ("", "2031-01-01T10:00", "must be after the start"),
    ] {
        let fields =
            [("title", "Kept title"), ("covers", covers), ("from", from), ("to", "2030-01-01T11:30")];
        let again = app.submit("/uptime/maintenance", &fields).await;
        assert_eq!(again.status, 422);
        let text = again.text();
        assert!(
            text.contains("class=\"error\"") && text.contains(error) && text.contains("Kept title"),
            "{text}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn form_of_a_status_page_shows_its_errors() {
    let (_context, service) = service().await;
    let app = &service.app;
    let page = [("slug", "shop"), ("title", "Shop"), ("accent", "#0a5cc2")];
    assert_eq!(app.submit("/uptime/pages", &page).await.status, 303);
    for (path, slug, accent, error) in [
        ("/uptime/pages", "A B", "#0a5cc2", "lower-case letters"),
        ("/uptime/pages", "shop", "#0a5cc2", "another page has this slug"),
        ("/uptime/pages", "other", "red", "must be a colour"),
        ("/uptime/pages/shop", "", "red", "must be a colour"),
    ] {
        let again = app.submit(path, &[("slug", slug), ("title", "Kept title"), ("accent", accent)]).await;
        assert_eq!(again.status, 422, "{path} {error}");
        let text = again.text();
        assert!(
            text.contains("class=\"error\"") && text.contains(error) && text.contains("Kept title"),
            "{text}"
        );
    }
    assert_eq!(app.get("/uptime/pages").await.text().matches("/status/shop").count(), 2);
    assert!(!app.get("/uptime/pages/shop").await.text().contains("Kept title"));
}

#[tokio::test(flavor = "multi_thread")]
async fn status_page_shows_published_monitors_only() {
    let (_context, service) = service().await;
    let target = StatusTarget::start().await;
    service.add_monitor(&target, json!({"name": "Internal", "group": "Secret"})).await;
    let id = service.add_monitor(&target, json!({"name": "Website", "published": true, "retries": 0})).await;
    service.wait_for_state(&id, "up").await;
    target.respond_with(500);
    service.wait_for_state(&id, "down").await;
    // The incident is in the database a moment after the state is in the store.
    wait_for("the incident on the status page", LIMIT, async || {
        service.app.get("/status").await.text().contains("ongoing")
    })
    .await;
    let page = service.app.get("/status").await;
    let text = page.text();
    assert_eq!(page.header("cache-control"), "public, max-age=15");
    assert!(text.contains("Website") && text.contains("All systems are down"), "{text}");
    // The error message is "…: found 500". A bare 500 would match the charts.
    for hidden in ["Internal", "Secret", "found 500", "status in", &target.url, &id] {
        assert!(!text.contains(hidden), "{hidden} is shown: {text}");
    }
    let feed = service.app.get("/status.rss").await;
    assert!(feed.text().contains("<title>Website: down</title>"), "{}", feed.text());
    let link = format!("<link>{}", service.app.url("/status"));
    assert_eq!(feed.text().matches(&link).count(), 2, "{}", feed.text());
}

/// A monitor that is down in a maintenance window does not look like an outage.
#[tokio::test(flavor = "multi_thread")]
async fn status_page_shows_maintenance() {
    let (_context, service) = service().await;
    let target = StatusTarget::start().await;
    let id = service
        .add_monitor(&target, json!({"name": "Website", "published": true, "retries": 0, "paused": true}))
        .await;
    let now_ms = i64::try_from(hob_units::unix_ms()).unwrap();
    let window = json!({"title": "Move", "covers": [id], "starts_at_ms": now_ms - 60_000, "ends_at_ms": now_ms + 3_600_000});
    assert_eq!(service.app.post("/api/v1/uptime/maintenance", &window).await.status, 201);
    target.respond_with(500);
    assert_eq!(
        service.app.post(&format!("/api/v1/uptime/monitors/{id}/resume"), &json!({})).await.status,
        200
    );
    service.wait_for_state(&id, "down").await;
    let page = wait_for("the incident on the status page", LIMIT, async || {
        let page = service.app.get("/status").await.text();
        if page.contains("class=\"incident\"") { Ok(page) } else { Err(page) }
    })
    .await;
    assert!(page.contains("Some systems are in maintenance"), "{page}");
    assert!(page.contains("maintenance</span>") && !page.contains("down</span>"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn page_of_a_heartbeat_shows_how_to_call_it() {
    let (_context, service) = service().await;
    let monitor =
        json!({"name": "Backup", "kind": "heartbeat", "heartbeat": {"cron": "0 3 * * *", "grace_s": 600}});
    let added: serde_json::Value = service.app.post("/api/v1/uptime/monitors", &monitor).await.json();
    let page = service.app.get(&format!("/uptime/monitors/{}", added["id"].as_str().unwrap())).await.text();
    let url = service.app.url(added["heartbeat_path"].as_str().unwrap());
    for part in [
        format!("<code>{url}</code>"),
        format!("<code>curl -fsS {url}</code>"),
        "0 3 * * * (cron, UTC), at most 600 s late".to_owned(),
        "a missed call or a reported failure".to_owned(),
    ] {
        assert!(page.contains(&part), "{part} is missing in {page}");
    }
    assert!(!page.contains("failed checks") && !page.contains("timeout"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn status_page_is_paged() {
    let (_context, service) = service().await;
    for n in 0..21 {
        let monitor = json!({"name": format!("System {n:03}"), "kind": "tcp", "target": "127.0.0.1:1",
                             "interval_s": 3600, "retries": 100, "published": true});
        assert_eq!(service.app.post("/api/v1/uptime/monitors", &monitor).await.status, 201);
    }
    wait_for("all systems to be published", LIMIT, async || {
        service.app.get("/status").await.text().contains("Page 1 / 2")
    })
    .await;
    let first = service.app.get("/status").await.text();
    assert!(first.contains("System 019") && !first.contains("System 020"), "{first}");
    assert!(first.len() < 100 * 1024, "{} bytes", first.len());
    let second = service.app.get("/status?page=2").await;
    assert_eq!(second.header("cache-control"), "public, max-age=15");
    assert!(second.text().contains("System 020") && !second.text().contains("System 019"));
    for page in ["0", "3", "-1", "x"] {
        let status = service.app.get(&format!("/status?page={page}")).await.status;
        assert!(status.is_client_error(), "{page}: {status}");
    }
}
