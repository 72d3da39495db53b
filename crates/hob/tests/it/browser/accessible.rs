//! Accessibility of all pages: axe-core, the keyboard, and motion.

use hob_testkit::fantoccini::Client;
use hob_testkit::page::{fill, find, press, press_labelled, text, wait_for_text};
use hob_testkit::{
    Browser, ColorScheme, LIMIT, Postgres, Window, assert_readable, node_modules, reduce_motion, set_view,
    wait_for,
};
use serde_json::{Value, json};

use super::console::{PAGES, open, run};
use crate::program::Server;

/// Runs axe-core with options when the layout is complete.
const RUN_AXE: &str = "const [options, done] = arguments;
    requestAnimationFrame(() => requestAnimationFrame(() => axe.run(options).then((result) => done(result.violations.map((one) =>
        `${one.id}: ${one.nodes.length} such as ${one.nodes[0].html.slice(0, 200)}`)))));";

/// Controls that the keyboard does not reach, or that do not show that they have the focus.
const HIDDEN_FOCUS: &str = "const controls = 'a[href], button, input:not([type=hidden]), select, textarea, summary';
    return [...document.querySelectorAll(controls)].flatMap((control) => {
        if (!control.checkVisibility({ checkVisibilityCSS: true }) || control.matches(':disabled, [aria-hidden=true]')) return [];
        control.focus({ focusVisible: true });
        const [style, box] = [getComputedStyle(control), control.getBoundingClientRect()];
        const shown = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
        const inside = box.width > 0 && box.bottom > 0 && box.top < innerHeight;
        const whole = !control.closest('.side') || (box.left > -1 && box.right < document.documentElement.clientWidth + 1);
        const reached = document.activeElement === control && control.tabIndex >= 0;
        return reached && shown && inside && whole ? [] : [control.outerHTML.slice(0, 200)];
    });";

/// Elements that move.
const MOVING: &str =
    "const moves = (style) => style.animationName !== 'none' || style.scrollBehavior !== 'auto'
        || style.transitionDuration.split(', ').some((time) => parseFloat(time) > 0);
    return [...document.querySelectorAll('*')].filter((element) =>
        [null, '::before', '::after'].some((part) => moves(getComputedStyle(element, part))))
        .map((element) => element.outerHTML.slice(0, 200))
        .concat(document.getAnimations().map((animation) => String(animation)));";

/// axe-core finds nothing on any page, in light and in dark mode.
#[tokio::test]
async fn pages_are_accessible_in_a_wide_window() {
    check_demo(1280).await;
}

#[tokio::test]
async fn pages_are_accessible_in_a_narrow_window() {
    check_demo(390).await;
}

async fn check_demo(width: u32) {
    let server = Server::start(&["--demo"]);
    let browser = Browser::start();
    let client = browser.open(Window::default()).await;
    let mut found = Vec::new();
    for path in PAGES {
        client.goto(&server.url(path)).await.unwrap();
        found.extend(problems(&client, path, &[width]).await);
    }
    client.close().await.unwrap();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Pages before sign-in, refusals and errors.
#[tokio::test]
async fn sign_in_refusals_and_errors_are_accessible() {
    const TOKEN: &str = "a-token-with-24-characters-or-more";
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, TOKEN).unwrap();
    let postgres = Postgres::start();
    let config = format!(
        "[server]\nadmin_token = \"file:{}\"\n[database]\nurl = \"{}\"\n",
        token.display(),
        postgres.url()
    );
    let server = Server::start_configured("127.0.0.1:0", &config);
    let viewer = server.post_as(
        TOKEN,
        "/api/v1/tokens",
        &json!({"name": "viewer", "scopes": ["uptime:read"]}).to_string(),
    );
    let viewer: Value = serde_json::from_str(&viewer.body).unwrap();
    let browser = Browser::start();
    let client = open(&server, &browser, "/uptime/pages").await;
    let mut found = Vec::new();
    let mut check = async |name: &str, heading: &str| {
        wait_for_text(&client, "h1", heading).await;
        assert_readable(&client, name).await;
        found.extend(problems(&client, name, &[1280, 390]).await);
    };
    check("sign-in", "Sign in").await;
    sign_in(&client, "wrong").await;
    wait_for_text(&client, ".notice", "not valid").await;
    check("sign-in with a wrong token", "Sign in").await;

    sign_in(&client, viewer["secret"].as_str().unwrap()).await;
    wait_for_text(&client, "h1", "Status pages").await;
    client.goto(&server.url("/access")).await.unwrap();
    check("403", "Forbidden").await;
    press(&client, "form[action='/sign-out'] button").await;
    wait_for_text(&client, "h1", "Sign in").await;
    client.goto(&server.url("/uptime/pages")).await.unwrap();
    sign_in(&client, TOKEN).await;
    wait_for_text(&client, "h1", "Status pages").await;
    for (field, value) in
        [("slug", "inside"), ("title", "Inside"), ("accent", "#b3007a"), ("password", "correct horse")]
    {
        fill(&client, &format!("#field-{field}"), value).await;
    }
    press_labelled(&client, "Add").await;
    check("the settings of a status page", "Inside").await;

    client.goto(&server.url("/status/inside")).await.unwrap();
    check("a status page with a password", "Inside").await;
    fill(&client, "#field-password", "wrong").await;
    press(&client, "main button").await;
    wait_for_text(&client, ".error", "not correct").await;
    check("a wrong password", "Inside").await;
    fill(&client, "#field-password", "correct horse").await;
    press(&client, "main button").await;
    wait_for_text(&client, "#incidents", "No incidents").await;
    check("a status page", "Inside").await;
    client.goto(&server.url("/status/inside/unsubscribe?token=x")).await.unwrap();
    check("unsubscribe", "Inside").await;
    client.goto(&server.url("/nothing")).await.unwrap();
    check("404", "Not Found").await;

    postgres.stop();
    wait_for("the page of a failure", LIMIT, async || {
        client.goto(&server.url("/access")).await.unwrap();
        let heading = text(&client, "h1").await;
        if heading == "Service Unavailable" { Ok(()) } else { Err(heading) }
    })
    .await;
    check("503", "Service Unavailable").await;
    client.close().await.unwrap();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// A page that respects `prefers-reduced-motion` has no motion at all: no element moves, and no scrolling is smooth.
#[tokio::test]
async fn nothing_moves_if_the_reader_prefers_reduced_motion() {
    let server = Server::start(&["--demo"]);
    let browser = Browser::start();
    let client = open(&server, &browser, "/").await;
    reduce_motion(&client).await;
    let mut found = Vec::new();
    for path in PAGES {
        client.goto(&server.url(path)).await.unwrap();
        assert_eq!(run(&client, "return matchMedia('(prefers-reduced-motion: reduce)').matches").await, true);
        let moving = run(&client, MOVING).await;
        found.extend(moving.as_array().unwrap().iter().map(|element| format!("{path}: {element}")));
    }
    client.close().await.unwrap();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Escape closes what is open, and the focus returns to where it was.
#[tokio::test]
async fn escape_returns_the_focus() {
    const ESCAPE: &str = "\u{e00c}";
    let server = Server::start(&["--demo"]);
    let browser = Browser::start();
    let client = open(&server, &browser, "/gateway").await;
    let focused = async |css: &str| {
        wait_for(format!("the focus on {css}"), LIMIT, async || {
            let script = "return [document.activeElement.matches(arguments[0]), document.activeElement.outerHTML.slice(0, 200)]";
            let found = client.execute(script, vec![json!(css)]).await.unwrap();
            if found[0] == true { Ok(()) } else { Err(found) }
        })
        .await;
    };
    let send = async |css: &str, keys: &str| find(&client, css).await.send_keys(keys).await.unwrap();
    let link = ".nav a[href='/uptime']";
    send(link, "/").await;
    focused("input[data-search]").await;
    send("input[data-search]", "shop").await;
    // The first one empties the field.
    send("input[data-search]", ESCAPE).await;
    send("input[data-search]", ESCAPE).await;
    focused(link).await;
    send(link, "?").await;
    wait_for_text(&client, "#shortcuts[open]", "Keyboard").await;
    send("#shortcuts a", ESCAPE).await;
    focused(link).await;
    let custom = ".ranges .custom summary";
    send(custom, "\u{e007}").await;
    send(".ranges .custom[open] input:not([type=hidden])", ESCAPE).await;
    focused(custom).await;
    assert_eq!(run(&client, "return document.querySelectorAll('.ranges .custom[open]').length").await, 0);
    client.close().await.unwrap();
}

async fn sign_in(client: &Client, token: &str) {
    fill(client, "#token", token).await;
    press(client, ".sign-in button").await;
}

/// What is wrong with the open page in windows of these widths.
async fn problems(client: &Client, name: &str, widths: &[u32]) -> Vec<String> {
    let axe = std::fs::read_to_string(node_modules().join("axe-core/axe.min.js")).unwrap();
    client.execute(&axe, Vec::new()).await.unwrap();
    let mut found = Vec::new();
    for width in widths {
        // Only the contrast depends on the colours.
        for (scheme, rules) in
            [(ColorScheme::Light, json!({})), (ColorScheme::Dark, json!({ "runOnly": ["color-contrast"] }))]
        {
            set_view(client, *width, 900, scheme).await;
            let violations = client.execute_async(RUN_AXE, vec![rules]).await.unwrap();
            let violations = violations.as_array().unwrap();
            found.extend(violations.iter().map(|one| format!("{name}, {width} px, {scheme:?}: {one}")));
        }
        let hidden = run(client, HIDDEN_FOCUS).await;
        let hidden = hidden.as_array().unwrap();
        found.extend(hidden.iter().map(|one| format!("{name}, {width} px: not shown with the focus: {one}")));
    }
    found
}
