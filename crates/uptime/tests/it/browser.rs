//! The console in a browser: adds a monitor, follows its state without reloading, acknowledges the incident, and opens the
//! public status page.

use hob_fixtures::{Layout, TestContext};
use hob_testkit::fantoccini::{Client, Locator};
use hob_testkit::{Browser, LIMIT, Scripts, Window, wait_for};

use crate::NEEDS;
use crate::service::{Service, StatusTarget};

async fn text(client: &Client, selector: &str) -> String {
    match client.find(Locator::Css(selector)).await {
        Ok(element) => element.text().await.unwrap_or_default(),
        Err(_) => String::new(),
    }
}

async fn fill(client: &Client, field: &str, value: &str) {
    let field = client.find(Locator::Css(&format!("#field-{field}"))).await.unwrap();
    field.clear().await.unwrap();
    field.send_keys(value).await.unwrap();
}

async fn press(client: &Client, selector: &str) {
    client.find(Locator::Css(selector)).await.unwrap().click().await.unwrap();
}

/// Waits until an element of the open page contains the text, without a reload.
async fn wait_to_see(client: &Client, selector: &str, words: &str) {
    wait_for(format!("{words:?} in {selector}"), LIMIT, async || {
        let seen = text(client, selector).await;
        if seen.to_lowercase().contains(words) { Ok(()) } else { Err(seen) }
    })
    .await;
}

/// U7
#[tokio::test(flavor = "multi_thread")]
async fn pages_follow_the_state_of_a_monitor() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let (target, service) = (StatusTarget::start().await, Service::start(&context).await);
    let browser = Browser::start();
    let client = browser.open(Window::default()).await;
    client.goto(&service.app.url("/uptime/new")).await.unwrap();
    fill(&client, "name", "Shop").await;
    fill(&client, "target", &target.url).await;
    fill(&client, "interval_s", "1").await;
    fill(&client, "assertions", "status == 200").await;
    press(&client, "#field-published").await;
    press(&client, "form.form > button").await;
    wait_to_see(&client, "#state", "up").await;

    let list = browser.open(Window::default()).await;
    list.goto(&service.app.url("/uptime")).await.unwrap();
    wait_to_see(&list, "#monitors", "up").await;
    target.respond_with(500);
    wait_to_see(&client, "#state", "down").await;
    wait_to_see(&list, "#monitors", "down").await;

    client.goto(&service.app.url("/uptime/incidents")).await.unwrap();
    wait_to_see(&client, "#incidents", "open").await;
    press(&client, "#incidents td a").await;
    press(&client, ".page-head button.primary").await;
    wait_to_see(&client, "#state", "acknowledged").await;
    target.respond_with(200);
    wait_to_see(&client, "#state", "resolved").await;
    wait_to_see(&list, "#monitors", "up").await;

    let visitor = browser.open(Window { scripts: Scripts::Off, ..Window::default() }).await;
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
    fill(&client, "name", "Operations").await;
    fill(&client, "url", &hook.url).await;
    press(&client, "form.form > button").await;
    wait_to_see(&client, "#deliveries", "no deliveries yet").await;
    press(&client, ".page-head button.primary").await;
    wait_to_see(&client, "#deliveries", "delivered").await;
    wait_to_see(&client, "#deliveries", "status 200").await;
    assert_eq!(hook.request_count(), 1);

    hook.respond_with(500);
    press(&client, ".page-head button.primary").await;
    wait_to_see(&client, "#deliveries", "status 500").await;
    client.goto(&service.app.url("/uptime/channels")).await.unwrap();
    wait_to_see(&client, "main", "operations").await;
    client.close().await.unwrap();
}
