//! The console in a browser: add a plan, run it, follow it live, cancel it, open its report, compare two runs.

use hob_load::RunState;
use hob_testkit::fantoccini::Client;
use hob_testkit::page::{check_pages, fill, find, press, text, wait_for_text};
use hob_testkit::{Browser, LIMIT, Window, wait_for};

use crate::api::Site;
use crate::dry_run;
use crate::kit::plan;

/// Fills in a new plan and saves it.
async fn write_plan(client: &Client, site: &Site, source: &str) {
    client.goto(&site.app.url("/load/plans/new")).await.unwrap();
    fill(client, "textarea[name=source]", source).await;
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
    wait_for_text(&client, "#mistake", "line 13").await;
    write_plan(&client, &site, &source).await;
    wait_for_text(&client, "h1", "Site check").await;

    let first = run(&client).await;
    // The page updates itself.
    wait_for_text(&client, "#report", "Requests per second").await;
    let before = text(&client, "#report dl.vitals dd").await;
    wait_for("updated numbers", LIMIT, async || text(&client, "#report dl.vitals dd").await != before).await;
    press(&client, "#cancel").await;
    client.accept_alert().await.unwrap();
    site.wait_for(&first, RunState::Cancelled).await;
    wait_for_text(&client, "#state", "cancelled").await;
    let file = find(&client, "#download").await.attr("href").await.unwrap().unwrap();
    client.goto(&site.app.url(&file)).await.unwrap();
    let report = text(&client, "body").await;
    assert!(
        report.contains("Site check") && report.contains("p99.9") && report.contains("status 404"),
        "{report}"
    );

    client.goto(&site.app.url("/load/plans/1")).await.unwrap();
    let second = run(&client).await;
    wait_for_text(&client, "#report", "Requests per second").await;
    press(&client, "#cancel").await;
    client.accept_alert().await.unwrap();
    site.wait_for(&second, RunState::Cancelled).await;
    let compared = format!("/load/compare?a={first}&b={second}");
    client.goto(&site.app.url(&compared)).await.unwrap();
    let page = text(&client, "main").await;
    assert!(page.contains(&first) && page.contains("p99.9"), "{page}");
    client.close().await.unwrap();
    let pages = [
        ("load-home", site.app.url("/load")),
        ("load-plan", site.app.url("/load/plans/1")),
        ("load-run", site.app.url(&format!("/load/runs/{first}"))),
        ("load-report", site.app.url(&file)),
        ("load-compare", site.app.url(&compared)),
    ];
    check_pages(&browser, &pages).await;
}

/// The editor shows each request of a dry run, keeps the text, and guards it as unsaved.
#[tokio::test]
async fn dry_run_of_an_unsaved_plan_shows_its_requests() {
    let (site, server) = (Site::open().await, dry_run::token_server());
    let browser = Browser::start();
    let client = browser.open(Window::default()).await;
    client.goto(&site.app.url("/load/plans/new")).await.unwrap();
    let source = dry_run::plan(&server.url(""), "welcome");
    fill(&client, "textarea[name=source]", &source).await;
    press(&client, "button[formaction$='/dry-run']").await;
    wait_for_text(&client, "#dry-run", "does not hold").await;
    let shown = text(&client, "#dry-run").await;
    for part in ["POST", "/login?user=0", "token = abc", "Not run after a failure: order", "Nothing is saved"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(find(&client, "textarea[name=source]").await.prop("value").await.unwrap(), Some(source));
    let prevented = "const event = new Event('beforeunload', { cancelable: true });
        dispatchEvent(event); return event.defaultPrevented";
    assert_eq!(client.execute(prevented, Vec::new()).await.unwrap(), true);
    assert_eq!(server.requests(), 2);
    // Saved, it is not a draft any more.
    press(&client, "form.editor button.primary").await;
    wait_for_text(&client, "h1", "Orders").await;
    assert_eq!(client.execute(prevented, Vec::new()).await.unwrap(), false);
    client.close().await.unwrap();
}
