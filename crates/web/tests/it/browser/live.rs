//! Live updates in a browser.

use hob_testkit::page::{find, press, text, wait_for_text};
use hob_testkit::{Browser, LIMIT, Window, wait_for};
use hob_web::Config;

use super::room;

#[tokio::test]
async fn live_update_keeps_user_input() {
    let (browser, (_context, app, room)) = (Browser::start(), room::serve(Config::default()).await);
    let client = browser.open(Window::default()).await;
    client.goto(&app.url("/room")).await.unwrap();
    press(&client, "#more summary").await;
    let note = find(&client, "#field-note").await;
    note.send_keys("half of a sen").await.unwrap();
    client
        .execute("document.getElementById('field-note').setSelectionRange(2, 5)", Vec::new())
        .await
        .unwrap();

    // The stream may open after the first visit, so visits are repeated.
    wait_for("the update", LIMIT, async || {
        room.visit();
        !text(&client, "#visits").await.starts_with("0 ")
    })
    .await;
    assert_ne!(text(&client, "#inside").await, "0 inside", "details stay open and their content is updated");
    assert_eq!(note.prop("value").await.unwrap().as_deref(), Some("half of a sen"));
    let selection =
        "const field = document.activeElement; return [field.id, field.selectionStart, field.selectionEnd]";
    let selection = client.execute(selection, Vec::new()).await.unwrap();
    assert_eq!(selection, serde_json::json!(["field-note", 2, 5]));
    client.close().await.unwrap();
}

#[tokio::test]
async fn search_filters_while_the_user_types() {
    let (browser, (_context, app, _)) = (Browser::start(), room::serve(Config::default()).await);
    let client = browser.open(Window::default()).await;
    client.goto(&app.url("/room")).await.unwrap();
    find(&client, "#field-q").await.send_keys("Gr").await.unwrap();
    wait_for("fewer guests", LIMIT, async || text(&client, "#guests").await == "Grace").await;
    // If the second letter came late, the first was searched for on its own, with the same result.
    wait_for("the whole search in the address", LIMIT, async || {
        client.current_url().await.unwrap().query() == Some("q=Gr")
    })
    .await;
    client.close().await.unwrap();
}

#[tokio::test]
async fn interruption_shows_a_banner() {
    let (browser, (context, app, room)) = (Browser::start(), room::serve(Config::default()).await);
    let client = browser.open(Window::default()).await;
    client.goto(&app.url("/room")).await.unwrap();
    wait_for("the stream to open", LIMIT, async || {
        room.visit();
        !text(&client, "#visits").await.starts_with("0 ")
    })
    .await;
    assert!(!find(&client, "#banner").await.is_displayed().await.unwrap());
    app.stop().await;
    find(&client, "#banner:not([hidden])").await;
    wait_for_text(&client, "#banner", "Reconnecting").await;
    drop(context);
    client.close().await.unwrap();
}

#[tokio::test]
async fn charts_show_tooltips() {
    let (browser, (_context, app, _)) = (Browser::start(), room::serve(Config::default()).await);
    let client = browser.open(Window::default()).await;
    client.goto(&app.url("/gallery")).await.unwrap();
    client
        .execute(
            "const hit = document.querySelector('.chart .hit:nth-of-type(9)'), box = hit.getBoundingClientRect(); \
             hit.dispatchEvent(new PointerEvent('pointermove', \
                { bubbles: true, clientX: box.x + 1, clientY: box.y + 9 }))",
            Vec::new(),
        )
        .await
        .unwrap();
    let tip = text(&client, ".tip").await;
    assert!(tip.contains(" UTC\n") && tip.contains("p99"), "{tip}");
    client.close().await.unwrap();
}
