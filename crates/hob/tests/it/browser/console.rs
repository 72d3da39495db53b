//! The console with the data of the demo, in a browser.

use hob_testkit::fantoccini::{Client, Locator};
use hob_testkit::page::{check_pages, find, press, text, wait_for_text};
use hob_testkit::{Browser, JavaScript, LIMIT, Window, console_errors, wait_for};
use serde_json::Value;

use crate::program::Server;

/// Pages are below this size.
const MAX_PAGE_BYTES: usize = 100 * 1024;
/// The size of a page with its styles and scripts, as they are transferred.
const TRANSFERRED: &str =
    "return [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
    .filter((entry) => ['navigation', 'link', 'script'].includes(entry.initiatorType))
    .reduce((sum, entry) => sum + entry.encodedBodySize, 0)";
/// The status of the response.
const STATUS: &str = "return performance.getEntriesByType('navigation')[0].responseStatus";
/// Every kind of page.
pub(super) const PAGES: [&str; 41] = [
    "/",
    "/access",
    "/access/audit",
    "/gateway",
    "/gateway?range=24h",
    "/gateway?range=30d",
    "/gateway/limits",
    "/gateway/limits?rule=demo&caller=10.0.0.7",
    "/uptime",
    "/uptime/new",
    "/uptime/monitors/demo-shop",
    "/uptime/monitors/demo-shop?range=1h",
    "/uptime/monitors/demo-shop?range=90d",
    "/uptime/monitors/demo-shop/edit",
    "/uptime/incidents",
    "/uptime/channels",
    "/uptime/maintenance",
    "/uptime/incidents/i0001demo-shop",
    "/uptime/pages",
    "/uptime/pages/default",
    "/status",
    "/status/default/widget",
    "/status/default/confirm?token=x",
    "/search?q=shop",
    "/chat",
    "/chat/operator",
    "/chat?as=you&conversation=kitchen",
    "/load",
    "/load/plans/new",
    "/load/plans/1",
    "/load/runs/demo-shop-4",
    "/load/compare?a=demo-shop-3&b=demo-shop-4",
    "/pipelines",
    "/pipelines/runs/opinions-backfill",
    "/pipelines/runs/courtlistener-nightly",
    "/keys",
    "/keys?sort=memory",
    "/keys/uptime/schedule",
    "/health",
    "/api/docs",
    "/api/docs/uptime_add_monitor",
];

pub(super) async fn open(server: &Server, browser: &Browser, path: &str) -> Client {
    let client = browser.open(Window::default()).await;
    client.goto(&server.url(path)).await.unwrap();
    client
}

pub(super) async fn run(client: &Client, script: &str) -> Value {
    client.execute(script, Vec::new()).await.unwrap()
}

#[tokio::test]
async fn demo_has_a_past() {
    let server = Server::start(&["--demo"]);
    let browser = Browser::start();
    let client = open(&server, &browser, "/").await;
    // Five cards of equal height, each with a sparkline. The first call of the pipeline and the first request of the load run take
    // a moment.
    wait_for("a sparkline on each card", LIMIT, async || {
        let cards = "return [...document.querySelectorAll('.card')].map((card) =>
            [card.querySelectorAll('svg.spark').length, Math.round(card.getBoundingClientRect().height)])";
        client.goto(&server.url("/")).await.unwrap();
        let cards = run(&client, cards).await;
        let all = cards.as_array().unwrap();
        if all.len() == 5 && all.iter().all(|card| card[0] == 1 && card[1] == all[0][1]) {
            Ok(())
        } else {
            Err(cards)
        }
    })
    .await;
    client.goto(&server.url("/uptime/monitors/demo-shop?range=90d")).await.unwrap();
    // Values of many days, and incidents that are resolved.
    let days = run(&client, "return document.querySelectorAll('#history .chart-plot .hit').length").await;
    assert!(days.as_u64().is_some_and(|days| days >= 85), "{days}");
    wait_for_text(&client, "#incidents", "connection refused").await;
    for range in ["1h", "24h", "7d", "30d"] {
        client.goto(&server.url(&format!("/uptime/monitors/demo-search?range={range}"))).await.unwrap();
        let points =
            run(&client, "return document.querySelectorAll('#history .chart-plot .hit').length").await;
        assert!(points.as_u64().is_some_and(|points| points >= 20), "{range}: {points}");
    }
    client.goto(&server.url("/gateway?range=24h")).await.unwrap();
    let hours = run(&client, "return document.querySelectorAll('#hours .chart-data tbody tr').length").await;
    assert_eq!(hours, 24);
    let steps = run(&client, "return document.querySelectorAll('#latency .chart-plot .hit').length").await;
    assert!(steps.as_u64().is_some_and(|steps| steps >= 80), "{steps}");
    for (range, bars) in [("7d", 80..=85), ("30d", 115..=121)] {
        client.goto(&server.url(&format!("/gateway?range={range}"))).await.unwrap();
        let drawn = "return [...document.querySelectorAll('#hours .chart-plot .hit')].length";
        let drawn = run(&client, drawn).await.as_u64().unwrap();
        assert!(bars.contains(&drawn), "{range}: {drawn}");
        let times = text(&client, "#hours .chart-data").await;
        assert!(!times.contains('–'), "{times}");
    }
    client.goto(&server.url("/load/compare?a=demo-shop-3&b=demo-shop-4")).await.unwrap();
    wait_for_text(&client, "main", "search").await;
    client.goto(&server.url("/load/runs/demo-shop-4")).await.unwrap();
    wait_for_text(&client, "#state", "failed").await;
    client.goto(&server.url("/pipelines/runs/courtlistener-nightly")).await.unwrap();
    wait_for_text(&client, "main", "completed").await;
    client.goto(&server.url("/pipelines/runs/opinions-backfill")).await.unwrap();
    wait_for_text(&client, "main", "paused").await;
    client.goto(&server.url("/health")).await.unwrap();
    press(&client, "#running-tasks summary").await;
    let tasks = text(&client, "#tasks").await;
    assert!(tasks.contains("gateway metrics") && !tasks.to_lowercase().contains("demo"), "{tasks}");
    client.close().await.unwrap();
}

/// Refused requests are not shown as errors of the service.
#[tokio::test]
async fn demo_gateway_has_plausible_rates() {
    let server = Server::start(&["--demo"]);
    wait_for("requests of the bots", LIMIT, async || {
        let summary: Value = serde_json::from_str(&server.get("/api/v1/gateway/summary").body).unwrap();
        let of = |name: &str| summary[name].as_f64().unwrap_or(f64::NAN);
        let (limited, server_errors) = (of("limited") / of("total"), of("server_errors") / of("accepted"));
        let adds_up = of("limited") + of("server_errors") + of("client_errors") == of("errors");
        let plausible = limited > 0.005 && limited < 0.06 && server_errors > 0.0 && server_errors < 0.03;
        if adds_up && plausible && of("total") > 1e6 { Ok(()) } else { Err(summary.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn charts_answer_to_the_keyboard() {
    let server = Server::start(&["--demo"]);
    let browser = Browser::start();
    let client = open(&server, &browser, "/uptime/monitors/demo-blog?range=7d").await;
    let plot = find(&client, "#history .chart-plot").await;
    // The left arrow key, as WebDriver writes it.
    plot.send_keys("\u{e012}").await.unwrap();
    wait_for_text(&client, ".tip", "p95").await;
    let before = text(&client, ".tip").await;
    plot.send_keys("\u{e012}").await.unwrap();
    wait_for("another column", LIMIT, async || {
        let tip = text(&client, ".tip").await;
        if tip != before && tip.contains("UTC") && tip.contains("p50") { Ok(()) } else { Err(tip) }
    })
    .await;
    plot.send_keys("\u{e00c}").await.unwrap();
    wait_for("no tip", LIMIT, async || match client.find(Locator::Css(".tip")).await {
        Ok(_) => Err("a tip"),
        Err(_) => Ok(()),
    })
    .await;
    client.close().await.unwrap();

    let plain = browser.open(Window { scripts: JavaScript::Off, ..Window::default() }).await;
    plain.goto(&server.url("/uptime/monitors/demo-blog?range=7d")).await.unwrap();
    press(&plain, "#history .chart-data summary").await;
    wait_for_text(&plain, "#history .chart-data table", "p50").await;
    press(&plain, "#history .ranges a[aria-current] + a").await;
    wait_for_text(&plain, "#history .ranges a[aria-current]", "30d").await;
    plain.close().await.unwrap();
}

#[tokio::test]
async fn long_pages_are_short() {
    let server = Server::start(&["--demo"]);
    let browser = Browser::start();
    let client = open(&server, &browser, "/keys").await;
    let height =
        async |client: &Client| run(client, "return document.body.scrollHeight").await.as_u64().unwrap();
    assert!(height(&client).await < 2_000, "{}", height(&client).await);
    press(&client, "#schema-gateway summary").await;
    wait_for_text(&client, "#schema-gateway", "requests_total").await;
    wait_for("the first audit", LIMIT, async || {
        client.goto(&server.url("/keys?sort=memory")).await.unwrap();
        let shown = client.find(Locator::Css("#memory .legend")).await;
        shown.map(drop).map_err(|error| error.to_string())
    })
    .await;
    let memory = run(
        &client,
        "return [...document.querySelectorAll('#families details summary')].map((summary) => summary.textContent)",
    )
    .await;
    assert!(memory[0].as_str().is_some_and(|text| text.contains("iB")), "{memory}");
    client.goto(&server.url("/health")).await.unwrap();
    assert!(height(&client).await < 2_600, "{}", height(&client).await);
    client.close().await.unwrap();
}

#[tokio::test]
async fn pages_are_small_and_readable_without_an_error_in_the_console() {
    let server = Server::start(&["--demo"]);
    let browser = Browser::start();
    let client = open(&server, &browser, "/").await;
    for path in PAGES {
        let bytes = server.get(path).body.len();
        assert!(bytes < MAX_PAGE_BYTES, "{path} has {bytes} bytes");
        // A busy server may refuse a request, and the browser logs this.
        wait_for(path, LIMIT, async || {
            console_errors(&client).await;
            client.goto(&server.url(path)).await.unwrap();
            let status = run(&client, STATUS).await;
            if status == 200 { Ok(()) } else { Err(status) }
        })
        .await;
        let mut errors = console_errors(&client).await;
        errors.retain(|error| !error.contains("status of 503"));
        assert!(errors.is_empty(), "{path}: {errors:?}");
        let transferred = run(&client, TRANSFERRED).await.as_u64().unwrap();
        assert!(
            (1..MAX_PAGE_BYTES as u64).contains(&transferred),
            "{path}: {transferred} bytes with its files"
        );
    }
    client.close().await.unwrap();
    let name = |path: &str| format!("demo{}", path.replace(['/', '?', '=', '&'], "-"));
    let pages: Vec<(String, String)> = PAGES.iter().map(|path| (name(path), server.url(path))).collect();
    check_pages(&browser, &pages).await;
}

/// The types of an operation are folded, except the first one. A link to a type unfolds it.
#[tokio::test]
async fn link_to_a_type_of_the_api_unfolds_it() {
    let server = Server::start(&["--demo"]);
    let browser = Browser::start();
    let client = open(&server, &browser, "/api/docs").await;
    press(&client, "#uptime > summary").await;
    press(&client, "#uptime a[href='/api/docs/uptime_add_monitor']").await;
    wait_for_text(&client, "#type-MonitorSpec[open]", "assertions").await;
    assert!(client.find(Locator::Css("#type-Problem[open]")).await.is_err());
    press(&client, "a[href='#type-Problem']").await;
    wait_for_text(&client, "#type-Problem[open]", "errors").await;
    client.goto(&server.url("/api/docs#chat")).await.unwrap();
    wait_for_text(&client, "#chat[open]", "Send a message").await;
    client.close().await.unwrap();
}

/// `/` searches monitors, rules, conversations, plans, runs and keys; without scripts, the field in the navigation does.
#[tokio::test]
async fn search_finds_everything_by_name() {
    let server = Server::start(&["--demo"]);
    let browser = Browser::start();
    let client = open(&server, &browser, "/health").await;
    find(&client, "body").await.send_keys("/").await.unwrap();
    let field = find(&client, "input[data-search]").await;
    field.send_keys("SHOP\u{e007}").await.unwrap();
    wait_for_text(&client, "#hits", "monitor").await;
    let hits = text(&client, "#hits").await;
    for kind in ["monitor", "load plan", "load run"] {
        assert!(hits.contains(kind), "{kind}: {hits}");
    }
    press(&client, "#hits td a").await;
    wait_for_text(&client, "h1", "Shop").await;
    for (query, kind) in [
        ("schedule", "key family"),
        ("courtlistener", "pipeline run"),
        ("kitchen", "conversation"),
        ("xyzzy", "Nothing contains"),
    ] {
        client.goto(&server.url(&format!("/search?q={query}"))).await.unwrap();
        wait_for_text(&client, "#hits", kind).await;
    }
    client.close().await.unwrap();
}

#[tokio::test]
async fn results_are_toasts_with_undo_and_unsaved_changes_are_guarded() {
    let server = Server::start(&["--demo"]);
    let browser = Browser::start();
    let client = open(&server, &browser, "/uptime/monitors/demo-blog").await;
    press(&client, "form[action$='/pause'] button").await;
    wait_for_text(&client, ".toast", "Monitor paused").await;
    press(&client, ".toast button").await;
    wait_for_text(&client, ".toast", "Monitor resumed").await;
    client.goto(&server.url("/uptime/new")).await.unwrap();
    find(&client, "#field-name").await.send_keys("Unsaved").await.unwrap();
    let prevented = "const event = new Event('beforeunload', { cancelable: true });
        dispatchEvent(event); return event.defaultPrevented";
    assert_eq!(run(&client, prevented).await, true);
    // The value is removed, so that the window can close.
    run(&client, "document.querySelector('form[data-guard]').removeAttribute('data-guard')").await;
    assert_eq!(run(&client, prevented).await, false);
    client.close().await.unwrap();
}

/// A rule is tried without counting the request.
#[tokio::test]
async fn rule_is_tried_without_counting() {
    let server = Server::start(&["--demo"]);
    let browser = Browser::start();
    let plain = browser.open(Window { scripts: JavaScript::Off, ..Window::default() }).await;
    plain.goto(&server.url("/gateway/limits")).await.unwrap();
    let caller = find(&plain, "#field-caller").await;
    caller.send_keys("10.20.30.40").await.unwrap();
    press(&plain, "#try button").await;
    wait_for_text(&plain, "#trial", "10.20.30.40 would be allowed now. All 30 requests are left.").await;
    let before = text(&plain, "#trial").await;
    plain.refresh().await.unwrap();
    assert_eq!(text(&plain, "#trial").await, before, "nothing was counted");
    plain.close().await.unwrap();
}

/// The editors of plans have line numbers, show the first mistake at its line while the user types, and offer templates.
#[tokio::test]
async fn plans_are_checked_while_they_are_written() {
    let server = Server::start(&["--demo"]);
    let browser = Browser::start();
    let client = open(&server, &browser, "/load/plans/new?template=shop").await;
    for (path, first) in
        [("/load/plans/new?template=shop", "name"), ("/pipelines?template=courtlistener", "#")]
    {
        client.goto(&server.url(path)).await.unwrap();
        let field = find(&client, "form[data-check] textarea[name=source]").await;
        let text = field.prop("value").await.unwrap().unwrap();
        assert!(text.starts_with(first), "{text}");
        let lines = run(&client, "return document.querySelectorAll('.numbered pre span').length").await;
        assert_eq!(lines.as_u64(), Some(text.split('\n').count() as u64));
        field.send_keys("x").await.unwrap();
        let clear = "const field = arguments[0] ?? document.querySelector('form[data-check] textarea[name=source]');
            field.value = 'name = \\'a\\'\\nnothing = 1'; field.dispatchEvent(new Event('input', { bubbles: true }))";
        run(&client, clear).await;
        wait_for_text(&client, ".verdict", "line").await;
        wait_for_text(&client, ".numbered .wrong", "").await;
        run(&client, "document.querySelector('form[data-guard]').removeAttribute('data-guard')").await;
    }
    client.close().await.unwrap();
}

/// The answer to a form is not requested again: its address shows another page, or none.
#[tokio::test]
async fn dry_run_stays_as_it_is() {
    // How often the page requests itself when it becomes visible.
    const REQUESTS: &str = "const [done] = arguments, fetch = window.fetch;
        let requests = 0;
        window.fetch = (...of) => { requests += 1; return fetch(...of); };
        document.dispatchEvent(new Event('visibilitychange'));
        setTimeout(() => { window.fetch = fetch; done(requests); });";
    let server = Server::start(&["--demo"]);
    let browser = Browser::start();
    let client = open(&server, &browser, "/load/plans/1").await;
    wait_for("a live page", LIMIT, async || {
        let requests = client.execute_async(REQUESTS, Vec::new()).await.unwrap();
        if requests == 1 { Ok(()) } else { Err(requests) }
    })
    .await;
    for path in ["/load/plans/1", "/pipelines?template=courtlistener"] {
        client.goto(&server.url(path)).await.unwrap();
        press(&client, "button[formaction*='/dry-run']").await;
        wait_for("the answer", LIMIT, async || {
            let url = client.current_url().await.unwrap();
            if url.path().ends_with("/dry-run") { Ok(()) } else { Err(url) }
        })
        .await;
        let requests = client.execute_async(REQUESTS, Vec::new()).await.unwrap();
        assert_eq!(requests, 0, "{path}");
        assert_eq!(run(&client, "return document.getElementById('banner').hidden").await, true);
        run(&client, "document.querySelectorAll('form[data-guard]').forEach((form) => form.removeAttribute('data-guard'))").await;
    }
    client.close().await.unwrap();
}
