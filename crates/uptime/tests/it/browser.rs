//! The console in a browser: adds a monitor, follows its state without reloading, acknowledges the incident, and opens the
//! public status page.

use hob_fixtures::{Layout, TestContext};
use hob_testkit::fantoccini::Locator;
use hob_testkit::page::{check_pages, fill, find, press, press_labelled, text, wait_for_text};
use hob_testkit::{Browser, JavaScript, LIMIT, Window, wait_for};

use crate::NEEDS;
use crate::service::{Service, StatusTarget};

/// U7
#[tokio::test(flavor = "multi_thread")]
async fn pages_follow_the_state_of_a_monitor() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let (target, service) = (StatusTarget::start().await, Service::start(&context).await);
    let browser = Browser::start();
    let client = browser.open(Window::default()).await;
    client.goto(&service.app.url("/uptime/new")).await.unwrap();
    fill(&client, "#field-name", "Shop").await;
    fill(&client, "#field-target", &target.url).await;
    fill(&client, "#field-interval_s", "1").await;
    fill(&client, "#field-assertions", "status == 200").await;
    press(&client, "#field-published").await;
    press_labelled(&client, "Add").await;
    wait_for_text(&client, "#state", "up").await;
    wait_for_text(&client, ".toast", "Monitor added").await;

    let list = browser.open(Window::default()).await;
    list.goto(&service.app.url("/uptime")).await.unwrap();
    wait_for_text(&list, "#monitors", "up").await;
    target.respond_with(500);
    wait_for_text(&client, "#state", "down").await;
    wait_for_text(&list, "#monitors", "down").await;

    client.goto(&service.app.url("/uptime/incidents")).await.unwrap();
    wait_for_text(&client, "#incidents", "open").await;
    press(&client, "#incidents td a").await;
    press(&client, ".page-head button.primary").await;
    wait_for_text(&client, "#state", "acknowledged").await;
    target.respond_with(200);
    wait_for_text(&client, "#state", "resolved").await;
    wait_for_text(&list, "#monitors", "up").await;

    let visitor = browser.open(Window { scripts: JavaScript::Off, ..Window::default() }).await;
    wait_for("the incident on the status page", LIMIT, async || {
        visitor.goto(&service.app.url("/status")).await.unwrap();
        let seen = text(&visitor, "main").await;
        if seen.contains("Shop") && seen.contains("resolved") { Ok(()) } else { Err(seen) }
    })
    .await;
    for client in [client, list, visitor] {
        client.close().await.unwrap();
    }
}

/// U9
#[tokio::test(flavor = "multi_thread")]
async fn channel_is_added_tested_and_edited() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let (hook, service) = (StatusTarget::start().await, Service::start(&context).await);
    let browser = Browser::start();
    let client = browser.open(Window::default()).await;
    client.goto(&service.app.url("/uptime/channels")).await.unwrap();
    fill(&client, "#field-name", "Operations").await;
    fill(&client, "#field-url", &hook.url).await;
    press(&client, "#add button.primary").await;
    wait_for_text(&client, "#deliveries", "no deliveries yet").await;
    press(&client, ".page-head button.primary").await;
    wait_for_text(&client, "#deliveries", "delivered").await;
    wait_for_text(&client, "#deliveries", "status 200").await;
    assert_eq!(hook.request_count(), 1);

    hook.respond_with(500);
    press(&client, ".page-head button.primary").await;
    wait_for_text(&client, "#deliveries", "status 500").await;
    client.goto(&service.app.url("/uptime/channels")).await.unwrap();
    wait_for_text(&client, "main", "operations").await;

    press(&client, "main td a").await;
    press_labelled(&client, "Edit").await;
    let name = find(&client, "#field-name").await.prop("value").await.unwrap();
    assert_eq!(name.as_deref(), Some("Operations"));
    press_labelled(&client, "E-mail").await;
    fill(&client, "#field-name", "Nights").await;
    fill(&client, "#field-to", "nights").await;
    press_labelled(&client, "Save").await;
    wait_for_text(&client, "#error-to", "must have 1 to 16 e-mail addresses").await;
    fill(&client, "#field-to", "nights@example.com").await;
    press_labelled(&client, "Save").await;
    wait_for_text(&client, "h1", "nights").await;
    wait_for_text(&client, "main", "nights@example.com").await;
    client.close().await.unwrap();
}

/// The form of a channel shows the fields of the chosen kind, keeps what was entered, and reports errors at their fields.
#[tokio::test(flavor = "multi_thread")]
async fn form_fits_the_kind_of_channel() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let service = Service::start(&context).await;
    let browser = Browser::start();
    for (scripts, name) in [(JavaScript::On, "With scripts"), (JavaScript::Off, "Without scripts")] {
        let client = browser.open(Window { scripts, ..Window::default() }).await;
        client.goto(&service.app.url("/uptime/channels")).await.unwrap();
        fill(&client, "#field-name", name).await;
        for (kind, shown) in [
            ("Slack", ["secret"].as_slice()),
            ("E-mail", &["to"]),
            ("Webhook", &["url", "secret"]),
            ("Discord", &["secret"]),
        ] {
            press_labelled(&client, kind).await;
            find(
                &client,
                &format!("#add button[aria-pressed=true][value={}]", kind.to_lowercase().replace('-', "")),
            )
            .await;
            for field in ["url", "secret", "to"] {
                let found = client.find(Locator::Css(&format!("#field-{field}"))).await;
                assert_eq!(found.is_ok(), shown.contains(&field), "{kind}: {field}");
            }
            let kept = find(&client, "#field-name").await.prop("value").await.unwrap();
            assert_eq!(kept.as_deref(), Some(name));
        }
        fill(&client, "#field-secret", "https://discord.example/hook").await;
        press_labelled(&client, "Add").await;
        find(&client, "#error-secret").await;
        press_labelled(&client, "E-mail").await;
        fill(&client, "#field-to", "Ops <ops@example.com>, second@example.com").await;
        press_labelled(&client, "Add").await;
        wait_for_text(&client, "h1", name).await;
        client.goto(&service.app.url("/uptime/channels")).await.unwrap();
        press_labelled(&client, "E-mail").await;
        fill(&client, "#field-name", name).await;
        fill(&client, "#field-to", "ops@example.com").await;
        press_labelled(&client, "Add").await;
        wait_for_text(&client, "#error-name", "another channel has this name").await;
        client.close().await.unwrap();
    }
    let list: serde_json::Value = service.app.get("/api/v1/uptime/channels").await.json();
    assert_eq!(list["items"].as_array().map(Vec::len), Some(2), "{list}");
    assert_eq!(list["items"][0]["to"].as_array().map(Vec::len), Some(2), "{list}");
}

/// Without scripts: the form shows the fields of the chosen kind, tests the target, adds an example, and keeps what was entered.
#[tokio::test(flavor = "multi_thread")]
async fn form_fits_the_kind_of_monitor_and_tests_the_target() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let (target, service) = (StatusTarget::start().await, Service::start(&context).await);
    let hook = serde_json::json!({"name": "Operations", "kind": "webhook", "url": target.url});
    assert_eq!(service.app.post("/api/v1/uptime/channels", &hook).await.status, 201);
    let browser = Browser::start();
    for scripts in [JavaScript::On, JavaScript::Off] {
        let client = browser.open(Window { scripts, height: 1600, ..Window::default() }).await;
        client.goto(&service.app.url("/uptime/new")).await.unwrap();
        fill(&client, "#field-name", "Shop").await;
        press_labelled(&client, "DNS").await;
        find(&client, "#field-record").await;
        assert!(
            client.find(Locator::Css("#field-method")).await.is_err(),
            "only the fields of the kind are shown"
        );
        press_labelled(&client, "HTTP").await;
        find(&client, "#field-method").await;
        assert_eq!(find(&client, "#field-name").await.prop("value").await.unwrap().as_deref(), Some("Shop"));
        fill(&client, "#field-target", &target.url).await;
        press(&client, "details.examples summary").await;
        press_labelled(&client, "status in 200..299").await;
        wait_for("the example in the field", LIMIT, async || {
            // An error if the page was replaced in between.
            let value = find(&client, "#field-assertions").await.prop("value").await;
            if matches!(&value, Ok(Some(value)) if value == "status in 200..299") {
                Ok(())
            } else {
                Err(value)
            }
        })
        .await;
        press_labelled(&client, "Test now").await;
        wait_for_text(&client, "#trial", "up").await;
        let trial = text(&client, "#trial").await;
        assert!(trial.contains("Total") && trial.contains("holds") && trial.contains("found 200"), "{trial}");
        assert_eq!(service.app.get("/api/v1/uptime/summary").await.status, 200);
        press(&client, "fieldset input[type=checkbox]").await;
        press_labelled(&client, "Add").await;
        wait_for_text(&client, "h1", "Shop").await;
        client.close().await.unwrap();
    }
    let list: serde_json::Value = service.app.get("/api/v1/uptime/monitors").await.json();
    assert_eq!(list["items"].as_array().map(Vec::len), Some(2), "{list}");
    assert_eq!(list["items"][0]["channels"].as_array().map(Vec::len), Some(1), "{list}");
}

/// The status page as customers see it: updates from the console, tooltips, the reader's time zone, without console errors.
#[tokio::test(flavor = "multi_thread")]
async fn status_page_shows_updates_from_the_console() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let (target, service) = (StatusTarget::start().await, Service::start(&context).await);
    target.respond_with(500);
    service
        .add_monitor(&target, serde_json::json!({"name": "Website", "published": true, "retries": 0}))
        .await;
    wait_for("an incident", LIMIT, async || service.incidents().await.len() == 1).await;
    let id = service.incidents().await[0].id.clone();
    let browser = Browser::start();
    let client = browser.open(Window { height: 1600, ..Window::default() }).await;
    client.goto(&service.app.url(&format!("/uptime/incidents/{id}"))).await.unwrap();
    fill(&client, "#field-text", "We are looking into it.").await;
    press_labelled(&client, "Publish update").await;
    wait_for_text(&client, "#updates", "investigating").await;
    client.goto(&service.app.url("/status")).await.unwrap();
    wait_for_text(&client, "#incidents", "We are looking into it.").await;
    let run = async |script: &str| client.execute(script, Vec::new()).await.unwrap();
    assert_eq!(run("return document.querySelectorAll('.days i').length").await, 90);
    let widths = "const bars = document.querySelector('.days').getBoundingClientRect();
        const panel = document.querySelector('.system').getBoundingClientRect();
        return Math.round(panel.width - bars.width)";
    assert_eq!(run(widths).await, 0, "the bars are as wide as the page");
    let zone = run("return Intl.DateTimeFormat().resolvedOptions().timeZone").await;
    wait_for("the zone of the reader", LIMIT, async || {
        let shown = run("return document.documentElement.dataset.zone").await;
        if shown == zone { Ok(()) } else { Err(shown) }
    })
    .await;
    let last = find(&client, ".days i:last-child").await;
    let tip = last.attr("data-d").await.unwrap().unwrap();
    assert!(tip.contains("down") && tip.contains('%'), "{tip}");
    let pages = [
        ("status", service.app.url("/status")),
        ("status-widget", service.app.url("/status/default/widget")),
        ("status-pages", service.app.url("/uptime/pages")),
        ("status-page-settings", service.app.url("/uptime/pages/default")),
        ("status-unsubscribe", service.app.url("/status/default/unsubscribe?token=x")),
    ];
    client.close().await.unwrap();
    check_pages(&browser, &pages).await;
}
