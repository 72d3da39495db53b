//! The console's pages in a real browser: live updates, sorting, search, and the callers that limits refuse.

use hob_fixtures::{Layout, TestApp, TestContext};
use hob_service::Live;
use hob_testkit::fantoccini::{Client, Locator};
use hob_testkit::page::{check_pages, fill, press_labelled, text, wait_for_text};
use hob_testkit::{Browser, JavaScript, LIMIT, Window, wait_for};
use hob_web::{Service as _, Web};
use http::Method;

use crate::kit::{CLIENT, NEEDS, TestInstance};

const RULES: &str = "instance = \"gw-1\"\n\
    [[rules]]\nname = \"few\"\nwindows = \"6/1h\"\nroute = \"/api/*\"\n\
    [[rules]]\nname = \"trial\"\nwindows = \"1/1h\"\nshadow = true\n";

/// The first column of the endpoint table.
async fn endpoints(window: &Client) -> Vec<String> {
    let mut names = Vec::new();
    for row in window.find_all(Locator::Css("#endpoints tbody th")).await.unwrap_or_default() {
        names.push(row.text().await.unwrap_or_default());
    }
    names
}

async fn unused() -> (TestContext, TestInstance, TestApp) {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let web = Web::open(&context, Live::fixed(hob_web::Config::default())).unwrap();
    let instance = TestInstance::start_with_changes(&context, RULES, web.changes()).await;
    let app = TestApp::start_with(web, instance.gateway.routes()).await;
    (context, instance, app)
}

async fn start() -> (TestContext, TestInstance, TestApp) {
    let (context, instance, app) = unused().await;
    for (path, status, count) in [("/api/users", 200, 5), ("/slow", 500, 3), ("/about", 200, 4)] {
        for _ in 0..count {
            instance.request(Method::GET, path, status).await;
        }
    }
    (context, instance, app)
}

/// Without any request, the page says what to do instead of showing empty charts, until there is one.
#[tokio::test(flavor = "multi_thread")]
async fn unused_gateway_has_no_empty_charts() {
    let (_context, instance, app) = unused().await;
    let browser = Browser::start();
    let window = browser.open(Window::default()).await;
    window.goto(&app.url("/gateway")).await.unwrap();
    wait_for_text(&window, "#traffic", "no upstream configured").await;
    assert!(window.find(Locator::Css(".chart")).await.is_err());
    instance.request(Method::GET, "/about", 200).await;
    wait_for("the endpoint", LIMIT, async || endpoints(&window).await == ["GET /about"]).await;
    fill(&window, "input[type=search]", "nothing\u{e007}").await;
    wait_for_text(&window, "#endpoints", "no endpoints match").await;
    window.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn traffic_page_updates_sorts_and_searches() {
    let (_context, instance, app) = start().await;
    let browser = Browser::start();
    let window = browser.open(Window::default()).await;
    window.goto(&app.url("/gateway")).await.unwrap();
    wait_for_text(&window, "#now", "12").await;
    wait_for("the busiest endpoint first", LIMIT, async || {
        endpoints(&window).await == ["GET /api/users", "GET /about", "GET /slow"]
    })
    .await;
    // The page updates without a reload.
    for _ in 0..30 {
        instance.request(Method::GET, "/about", 200).await;
    }
    wait_for_text(&window, "#now", "42").await;
    wait_for("the new order", LIMIT, async || {
        endpoints(&window).await.first().is_some_and(|name| name == "GET /about")
    })
    .await;
    wait_for_text(&window, "#instances", "gw-1").await;
    wait_for_text(&window, "#statuses", "500").await;

    press_labelled(&window, "Server errors").await;
    wait_for("the endpoint with the most server errors first", LIMIT, async || {
        endpoints(&window).await.first().is_some_and(|name| name == "GET /slow")
    })
    .await;
    fill(&window, "input[type=search]", "users\u{e007}").await;
    wait_for("only the matching endpoint", LIMIT, async || endpoints(&window).await == ["GET /api/users"])
        .await;
    window.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_page_shows_refused_callers_and_shadow_rules() {
    let (_context, instance, app) = start().await;
    let browser = Browser::start();
    let window = browser.open(Window { scripts: JavaScript::Off, ..Window::default() }).await;
    window.goto(&app.url("/gateway")).await.unwrap();
    press_labelled(&window, "Limits").await;
    for _ in 0..3 {
        instance.request(Method::GET, "/api/users", 200).await;
    }
    // Without scripts the page shows its last load.
    wait_for("the refusals", LIMIT, async || {
        window.refresh().await.unwrap();
        let (rules, top_refused) = (text(&window, "#rules").await, text(&window, "#hottest").await);
        let all = rules.contains("few") && rules.contains("shadow") && rules.contains("12");
        if all && top_refused.contains(CLIENT) { Ok(()) } else { Err((rules, top_refused)) }
    })
    .await;
    window.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_readable_in_every_window() {
    let (_context, _counting, app) = start().await;
    let pages = [("gateway-traffic", app.url("/gateway")), ("gateway-limits", app.url("/gateway/limits"))];
    check_pages(&Browser::start(), &pages).await;
}
