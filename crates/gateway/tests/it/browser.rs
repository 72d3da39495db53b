//! The console's pages in a real browser: live updates, sorting, search, and the callers that limits refuse.

use hob_fixtures::{Layout, TestApp, TestContext};
use hob_service::Live;
use hob_testkit::fantoccini::{Client, Locator};
use hob_testkit::{Browser, LIMIT, Scheme, Scripts, Window, assert_readable, screenshot, wait_for};
use hob_web::{Service as _, Web};
use http::Method;

use crate::kit::{CLIENT, NEEDS, TestInstance};

const RULES: &str = "instance = \"gw-1\"\n\
    [[rules]]\nname = \"few\"\nwindows = \"6/1h\"\nroute = \"/api/*\"\n\
    [[rules]]\nname = \"trial\"\nwindows = \"1/1h\"\nshadow = true\n";

async fn text(window: &Client, css: &str) -> String {
    match window.find(Locator::Css(css)).await {
        Ok(element) => element.text().await.unwrap_or_default(),
        Err(_) => String::new(),
    }
}

async fn shows(window: &Client, css: &str, words: &str) {
    wait_for(format_args!("{css} to show {words:?}"), LIMIT, async || {
        let text = text(window, css).await;
        if text.contains(words) { Ok(()) } else { Err(text) }
    })
    .await;
}

/// The first column of the endpoint table.
async fn endpoints(window: &Client) -> Vec<String> {
    let mut names = Vec::new();
    for row in window.find_all(Locator::Css("#endpoints tbody th")).await.unwrap_or_default() {
        names.push(row.text().await.unwrap_or_default());
    }
    names
}

async fn start() -> (TestContext, TestInstance, TestApp) {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let web = Web::open(&context, Live::fixed(hob_web::Config::default())).unwrap();
    let instance = TestInstance::start_with_changes(&context, RULES, web.changes()).await;
    let app = TestApp::over(web, instance.gateway.routes()).await;
    for (path, status, count) in [("/api/users", 200, 5), ("/slow", 500, 3), ("/about", 200, 4)] {
        for _ in 0..count {
            instance.request(Method::GET, path, status).await;
        }
    }
    (context, instance, app)
}

#[tokio::test(flavor = "multi_thread")]
async fn traffic_page_updates_sorts_and_searches() {
    let (_context, instance, app) = start().await;
    let browser = Browser::start();
    let window = browser.open(Window::default()).await;
    window.goto(&app.url("/gateway")).await.unwrap();
    shows(&window, "#now", "12").await;
    wait_for("the busiest endpoint first", LIMIT, async || {
        endpoints(&window).await == ["GET /api/users", "GET /about", "GET /slow"]
    })
    .await;
    // The page updates without a reload.
    for _ in 0..30 {
        instance.request(Method::GET, "/about", 200).await;
    }
    shows(&window, "#now", "42").await;
    wait_for("the order to follow", LIMIT, async || {
        endpoints(&window).await.first().is_some_and(|name| name == "GET /about")
    })
    .await;
    shows(&window, "#instances", "gw-1").await;
    shows(&window, "#statuses", "500").await;

    window.find(Locator::LinkText("Errors")).await.unwrap().click().await.unwrap();
    wait_for("the worst first", LIMIT, async || {
        endpoints(&window).await.first().is_some_and(|name| name == "GET /slow")
    })
    .await;
    window.find(Locator::Css("input[name=q]")).await.unwrap().send_keys("users\u{e007}").await.unwrap();
    wait_for("only what was searched for", LIMIT, async || endpoints(&window).await == ["GET /api/users"])
        .await;
    window.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_page_shows_refused_callers_and_shadow_rules() {
    let (_context, instance, app) = start().await;
    let browser = Browser::start();
    let window = browser.open(Window { scripts: Scripts::Off, ..Window::default() }).await;
    window.goto(&app.url("/gateway")).await.unwrap();
    window.find(Locator::LinkText("Limits")).await.unwrap().click().await.unwrap();
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

/// Wide, narrow and dark: nothing is too faint or too wide. `HOB_TEST_SCREENSHOTS` names a folder for screenshots.
#[tokio::test(flavor = "multi_thread")]
async fn pages_are_readable_in_every_window() {
    let (_context, _counting, app) = start().await;
    let browser = Browser::start();
    for (name, width, scheme) in
        [("wide", 1280, Scheme::Light), ("narrow", 390, Scheme::Light), ("dark", 1280, Scheme::Dark)]
    {
        let window = browser.open(Window { width, scheme, ..Window::default() }).await;
        for (page, path) in [("traffic", "/gateway"), ("limits", "/gateway/limits")] {
            window.goto(&app.url(path)).await.unwrap();
            assert_readable(&window, &format!("{page}, {name}")).await;
            if let Some(folder) = std::env::var_os("HOB_TEST_SCREENSHOTS") {
                let file = std::path::Path::new(&folder).join(format!("gateway-{page}-{name}.png"));
                screenshot(&window, &file).await;
            }
        }
        window.close().await.unwrap();
    }
}
