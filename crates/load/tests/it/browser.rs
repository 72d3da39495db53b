//! The console in a browser: add a plan, run it, follow it live, cancel it, open its report, compare two runs.

use std::path::Path;

use hob_load::RunState;
use hob_testkit::fantoccini::{Client, Locator};
use hob_testkit::{Browser, LIMIT, Scheme, Window, assert_readable, screenshot, wait_for};

use crate::api::Site;
use crate::kit::plan;

async fn text(client: &Client, css: &str) -> String {
    match client.find(Locator::Css(css)).await {
        Ok(element) => element.text().await.unwrap_or_default(),
        Err(_) => String::new(),
    }
}

async fn press(client: &Client, css: &str) {
    client.find(Locator::Css(css)).await.unwrap().click().await.unwrap();
}

/// Checks pages in light, dark and phone windows; screenshots are in `target/screenshots`.
async fn check_pages(browser: &Browser, site: &Site, pages: &[(&str, &str)]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/screenshots");
    for (kind, width, scheme) in
        [("light", 1440, Scheme::Light), ("dark", 1440, Scheme::Dark), ("phone", 500, Scheme::Light)]
    {
        let client = browser.open(Window { width, height: 2200, scheme, ..Window::default() }).await;
        for (name, path) in pages {
            client.goto(&site.app.url(path)).await.unwrap();
            screenshot(&client, &folder.join(format!("load-{name}-{kind}.png"))).await;
            assert_readable(&client, &format!("{path}, {kind}")).await;
        }
        client.close().await.unwrap();
    }
}

/// Fills in a new plan and saves it.
async fn write_plan(client: &Client, site: &Site, source: &str) {
    client.goto(&site.app.url("/load/plans/new")).await.unwrap();
    let area = client.find(Locator::Css("textarea[name=source]")).await.unwrap();
    area.clear().await.unwrap();
    area.send_keys(source).await.unwrap();
    press(client, "form.editor button.primary").await;
}

/// Presses Run and returns the id of the run.
async fn run(client: &Client) -> String {
    press(client, "form.inline button.primary").await;
    wait_for("the page of the run", LIMIT, async || {
        let url = client.current_url().await.unwrap();
        url.path().strip_prefix("/load/runs/").map(str::to_owned)
    })
    .await
}

#[tokio::test]
async fn plan_is_saved_run_followed_cancelled_and_compared() {
    let site = Site::open().await;
    let browser = Browser::start();
    let client = browser.open(Window::default()).await;
    let source = plan(&site.server.url(""), 40, "10m");

    write_plan(&client, &site, &source.replace("GET /", "FETCH /")).await;
    wait_for("the mistake", LIMIT, async || text(&client, "#mistake").await.contains("line 13")).await;
    write_plan(&client, &site, &source).await;
    wait_for("the plan", LIMIT, async || text(&client, "h1").await == "Site check").await;

    let first = run(&client).await;
    // The page updates itself.
    wait_for("live numbers", LIMIT, async || text(&client, "#report").await.contains("Requests per second"))
        .await;
    let before = text(&client, "#report dl.vitals dd").await;
    wait_for("newer numbers", LIMIT, async || text(&client, "#report dl.vitals dd").await != before).await;
    wait_for("the button", LIMIT, async || client.find(Locator::Css("#cancel")).await.is_ok()).await;
    press(&client, "#cancel").await;
    site.wait_for(&first, RunState::Cancelled).await;
    wait_for("the end on the page", LIMIT, async || text(&client, "#state").await.contains("cancelled"))
        .await;
    let file = client.find(Locator::Css("#download")).await.unwrap().attr("href").await.unwrap().unwrap();
    client.goto(&site.app.url(&file)).await.unwrap();
    let report = text(&client, "body").await;
    assert!(
        report.contains("Site check") && report.contains("p99.9") && report.contains("status 404"),
        "{report}"
    );

    client.goto(&site.app.url("/load/plans/1")).await.unwrap();
    let second = run(&client).await;
    wait_for("live numbers", LIMIT, async || text(&client, "#report").await.contains("Requests per second"))
        .await;
    press(&client, "#cancel").await;
    site.wait_for(&second, RunState::Cancelled).await;
    let compared = format!("/load/compare?a={first}&b={second}");
    client.goto(&site.app.url(&compared)).await.unwrap();
    let page = text(&client, "main").await;
    assert!(page.contains(&first) && page.contains("p99.9"), "{page}");
    client.close().await.unwrap();
    let run = format!("/load/runs/{first}");
    let pages = [
        ("home", "/load"),
        ("plan", "/load/plans/1"),
        ("run", run.as_str()),
        ("report", file.as_str()),
        ("compare", compared.as_str()),
    ];
    check_pages(&browser, &site, &pages).await;
}
