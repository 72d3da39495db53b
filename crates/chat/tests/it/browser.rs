//! The chat page in a real browser.

use hob_fixtures::{Layout, TestApp, TestContext};
use hob_testkit::fantoccini::{Client, Locator};
use hob_testkit::{Browser, LIMIT, Scripts, Window, wait_for};
use hob_web::Service as _;

use crate::world::{NEEDS, open, room, say, user};

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

#[tokio::test(flavor = "multi_thread")]
async fn two_windows_chat_with_each_other() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let chat = open(&context).await;
    let app = TestApp::start(context.context(), chat.routes()).await;
    room(&chat, "kitchen", &["anna", "bert"]).await;
    let other = room(&chat, "garden", &["anna", "bert"]).await;
    let browser = Browser::start();
    let (anna, bert) = (browser.open(Window::default()).await, browser.open(Window::default()).await);
    for (window, who) in [(&anna, "anna"), (&bert, "bert")] {
        window.goto(&app.url(&format!("/chat?as={who}&conversation=kitchen"))).await.unwrap();
        wait_for("the page to be live", LIMIT, async || {
            window.find(Locator::Css("#chat[data-live]")).await.is_ok()
        })
        .await;
    }
    wait_for("anna to see bert online", LIMIT, async || {
        anna.find(Locator::Css("[data-person=bert][data-online]")).await.is_ok()
    })
    .await;

    let field = anna.find(Locator::Css("#content")).await.unwrap();
    field.send_keys("The soup is ready").await.unwrap();
    shows(&bert, "#typing", "anna is typing").await;
    field.send_keys("\u{e007}").await.unwrap();
    shows(&bert, "#messages", "The soup is ready").await;
    shows(&anna, "#messages", "The soup is ready").await;
    wait_for("typing to stop", LIMIT, async || text(&bert, "#typing").await.is_empty()).await;

    say(&chat, &other, "bert", "A robin sits on the spade").await;
    shows(&anna, "[data-room=garden] [data-unread]", "1").await;

    bert.close().await.unwrap();
    wait_for("anna to see bert offline", LIMIT, async || {
        anna.find(Locator::Css("[data-person=bert]:not([data-online])")).await.is_ok()
    })
    .await;
    anna.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn page_works_without_javascript() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let chat = open(&context).await;
    let app = TestApp::start(context.context(), chat.routes()).await;
    let id = room(&chat, "kitchen", &["anna", "bert"]).await;
    say(&chat, &id, "bert", "<b>Who has the ladle?</b>").await;
    let browser = Browser::start();
    let window = browser.open(Window { scripts: Scripts::Off, ..Window::default() }).await;
    window.goto(&app.url("/chat?as=anna")).await.unwrap();
    window.find(Locator::Css("[data-room=kitchen]")).await.unwrap().click().await.unwrap();
    shows(&window, "#messages", "<b>Who has the ladle?</b>").await;
    window.find(Locator::Css("#content")).await.unwrap().send_keys("Second drawer\u{e007}").await.unwrap();
    shows(&window, "#messages", "Second drawer").await;
    let (_, unread) = chat.unread(&user("bert")).await.unwrap();
    assert_eq!(unread, 1);
    window.goto(&app.url("/chat/operator")).await.unwrap();
    shows(&window, "#load", "Room kitchen").await;
    window.close().await.unwrap();
}
