//! The console in a browser: adds a monitor, follows its state without reloading, acknowledges the incident, and opens the
//! public status page.

use hob_fixtures::{Layout, TestContext};
use hob_testkit::page::{fill, press, text, wait_for_text};
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
    press(&client, "form.form > button").await;
    wait_for_text(&client, "#state", "up").await;

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
        if seen.contains("Shop") && seen.contains("was down from") { Ok(()) } else { Err(seen) }
    })
    .await;
    for client in [client, list, visitor] {
        client.close().await.unwrap();
    }
}

/// U9
#[tokio::test(flavor = "multi_thread")]
async fn channel_is_added_and_tested() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let (hook, service) = (StatusTarget::start().await, Service::start(&context).await);
    let browser = Browser::start();
    let client = browser.open(Window::default()).await;
    client.goto(&service.app.url("/uptime/channels")).await.unwrap();
    fill(&client, "#field-name", "Operations").await;
    fill(&client, "#field-url", &hook.url).await;
    press(&client, "form.form > button").await;
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
    client.close().await.unwrap();
}
