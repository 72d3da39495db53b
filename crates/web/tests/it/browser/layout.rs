//! The layout of all pages: navigation, sign-in and sign-out, pages without scripts.

use std::fs;

use hob_testkit::fantoccini::Locator;
use hob_testkit::fantoccini::key::Key;
use hob_testkit::page::{fill, find, press, text, wait_for_text};
use hob_testkit::{Browser, JavaScript, LIMIT, Window, screenshot, wait_for};
use hob_web::Config;

use super::room;

#[tokio::test]
async fn pages_are_reached_by_keyboard_and_by_mouse() {
    let (browser, (_context, app, _)) = (Browser::start(), room::serve(Config::default()).await);
    let client = browser.open(Window::default()).await;
    client.goto(&app.url("/room")).await.unwrap();
    assert_eq!(text(&client, "h1").await, "Room");
    assert_eq!(find(&client, ".nav a[aria-current]").await.attr("href").await.unwrap().unwrap(), "/room");

    press(&client, ".nav a[href='/gallery']").await;
    wait_for_text(&client, "h1", "Gallery").await;

    let tab = async || {
        let focused = client.active_element().await.unwrap();
        focused.send_keys(&char::from(Key::Tab).to_string()).await.unwrap();
        client.active_element().await.unwrap()
    };
    client.goto(&app.url("/gallery")).await.unwrap();
    let skip = tab().await;
    assert_eq!(skip.text().await.unwrap(), "Skip to content");
    assert!(skip.rectangle().await.unwrap().1 >= 0.0, "the link is visible when it has the focus");
    assert_eq!(tab().await.attr("class").await.unwrap().as_deref(), Some("brand"));
    let first = tab().await;
    assert_eq!(first.text().await.unwrap(), "Room");
    first.send_keys(&char::from(Key::Enter).to_string()).await.unwrap();
    find(&client, "#visits").await;
    client.close().await.unwrap();
}

#[tokio::test]
async fn without_scripts_pages_are_complete() {
    let (browser, (_context, app, _)) = (Browser::start(), room::serve(Config::default()).await);
    let client = browser.open(Window { scripts: JavaScript::Off, ..Window::default() }).await;
    client.goto(&app.url("/room")).await.unwrap();
    assert!(text(&client, "#visits").await.starts_with("0 visits"));
    press(&client, "#visit button").await;
    wait_for_text(&client, "#visits", "1 visits").await;
    let search = find(&client, "#field-q").await;
    search.send_keys("A").await.unwrap();
    search.send_keys(&char::from(Key::Enter).to_string()).await.unwrap();
    client.wait().for_url(&app.url("/room?q=A").parse().unwrap()).await.unwrap();
    wait_for("fewer guests", LIMIT, async || text(&client, "#guests").await == "Ada\nAlan").await;
    client.close().await.unwrap();
}

#[tokio::test]
async fn user_signs_in_and_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("admin");
    fs::write(&file, "an unguessable admin token").unwrap();
    let secret = format!("file:{}", file.display()).parse().unwrap();
    let config = Config { admin_token: Some(secret), ..Config::default() };
    let (browser, (_context, app, _)) = (Browser::start(), room::serve(config).await);
    let client = browser.open(Window::default()).await;
    client.goto(&app.url("/room")).await.unwrap();
    assert_eq!(text(&client, "h1").await, "Sign in");
    assert!(client.find(Locator::Css(".nav")).await.is_err(), "the navigation is hidden before sign-in");
    hob_testkit::assert_readable(&client, "the sign-in page").await;
    screenshot(&client, "sign-in").await;

    fill(&client, "#token", "a guess").await;
    press(&client, "main button").await;
    find(&client, "[role=alert]").await;
    fill(&client, "#token", "an unguessable admin token").await;
    press(&client, "main button").await;
    find(&client, "#visits").await;

    press(&client, "form[action='/sign-out'] button").await;
    find(&client, "#token").await;
    client.goto(&app.url("/room")).await.unwrap();
    assert_eq!(text(&client, "h1").await, "Sign in");
    client.close().await.unwrap();
}

#[tokio::test]
async fn admin_creates_and_revokes_a_token() {
    let (browser, (_context, app, _)) = (Browser::start(), room::serve(Config::default()).await);
    let client = browser.open(Window { height: 1100, ..Window::default() }).await;
    client.goto(&app.url("/room")).await.unwrap();
    press(&client, ".who a").await;
    wait_for_text(&client, "main", "No tokens yet").await;

    fill(&client, "#field-name", "<ada>").await;
    fill(&client, "#field-scopes", "room:read nothing:read").await;
    press(&client, "main button.primary").await;
    find(&client, "#error-scopes").await;
    assert!(text(&client, "#error-scopes").await.contains("unknown service nothing"));
    assert_eq!(find(&client, "#field-name").await.prop("value").await.unwrap().as_deref(), Some("<ada>"));

    fill(&client, "#field-scopes", "room:read").await;
    press(&client, "main button.primary").await;
    find(&client, "#secret").await;
    assert!(text(&client, "#secret").await.starts_with("hob_"));
    hob_testkit::assert_readable(&client, "the tokens").await;
    screenshot(&client, "access").await;

    press(&client, "button.danger").await;
    client.accept_alert().await.unwrap();
    find(&client, ".badge.idle").await;
    assert!(client.find(Locator::Css("#secret")).await.is_err(), "the secret is shown once");
    press(&client, ".tabs a[href='/access/audit']").await;
    wait_for_text(&client, "main table", "token.create").await;
    wait_for_text(&client, "main table", "token.revoke").await;
    screenshot(&client, "audit").await;
    client.close().await.unwrap();
}
