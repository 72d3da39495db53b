//! The chat page in a real browser.

use std::time::Duration;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::Html;
use axum::routing::get;
use hob_chat::{Attachment, Config, ReactionAction};
use hob_fixtures::{Layout, TestApp, TestContext};
use hob_testkit::page::{fill, find, press, text, wait_for_text};
use hob_testkit::{Browser, JavaScript, LIMIT, Window, wait_for};
use hob_web::Service as _;

use crate::harness::{NEEDS, config, done, message, open, room, say, start, user};

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
        find(window, "#chat[data-live]").await;
    }
    find(&anna, "[data-person=bert][data-online]").await;

    let field = find(&anna, "#content").await;
    field.send_keys("The soup is ready").await.unwrap();
    // With more input until it is seen, because it expires after five seconds.
    wait_for("anna to be typing", LIMIT, async || {
        field.send_keys("!").await.unwrap();
        text(&bert, "#typing").await.contains("anna is typing")
    })
    .await;
    field.send_keys("\u{e007}").await.unwrap();
    wait_for_text(&bert, "#messages", "The soup is ready").await;
    wait_for_text(&anna, "#messages", "The soup is ready").await;
    wait_for("typing to stop", LIMIT, async || text(&bert, "#typing").await.is_empty()).await;

    say(&chat, &other, "bert", "A robin sits on the spade").await;
    wait_for_text(&anna, "[data-room=garden] [data-unread]", "1").await;
    press(&anna, "[data-room=garden]").await;
    wait_for("the open conversation to be read", LIMIT, async || {
        chat.unread(&user("anna")).await.unwrap().1 == 0
    })
    .await;
    find(&anna, "[data-room=garden] [data-unread][hidden]").await;
    find(&anna, "#mark-read[hidden]").await;
    anna.goto(&app.url("/chat?as=anna&conversation=kitchen")).await.unwrap();
    find(&anna, "[data-person=bert][data-online]").await;

    bert.close().await.unwrap();
    find(&anna, "[data-person=bert]:not([data-online])").await;
    anna.close().await.unwrap();
}

/// Holds the messages back that a page loads, until `release` is called.
const HOLD_MESSAGES: &str = r#"
    const released = new Promise((resolve) => (window.release = resolve));
    const { rpc, newSubscription } = Centrifuge.prototype;
    Centrifuge.prototype.rpc = async function (method, data) {
      const reply = await rpc.call(this, method, data);
      if (method !== "messages") return reply;
      window.held = true;
      await released;
      return reply;
    };
    Centrifuge.prototype.newSubscription = function (...options) {
      const subscription = newSubscription.apply(this, options);
      subscription.on("publication", ({ data }) => (window.arrived ||= data.type === "message"));
      return subscription;
    };
"#;

async fn is_true(window: &hob_testkit::fantoccini::Client, script: &str) -> bool {
    window.execute(script, Vec::new()).await.is_ok_and(|value| value == true)
}

/// The page in `examples/chat`, with its back end and the JavaScript SDK.
#[tokio::test(flavor = "multi_thread")]
async fn example_page_chats() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let port = hob_testkit::Port::reserve();
    let site = format!("http://127.0.0.1:{}", port.number());
    let chat = start(context.context(), Config { origins: vec![site.clone()], ..config() }).await;
    let app = TestApp::start(context.context(), chat.routes()).await;
    let mut node = tokio::process::Command::new("node");
    node.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/chat/server.mjs")).kill_on_drop(true);
    node.env("PORT", port.number().to_string()).env("HOB_URL", app.url("").trim_end_matches('/'));
    node.env("NODE_PATH", hob_testkit::node_modules());
    let _back_end = node.spawn().unwrap();
    wait_for("the back end to listen", LIMIT, async || {
        tokio::net::TcpStream::connect(("127.0.0.1", port.number())).await.is_ok()
    })
    .await;
    let browser = Browser::start();
    let (anna, bert) = (browser.open(Window::default()).await, browser.open(Window::default()).await);
    for (window, who) in [(&anna, "anna"), (&bert, "bert")] {
        window.goto(&site).await.unwrap();
        fill(window, "#join input", &format!("{who}\u{e007}")).await;
        wait_for_text(window, "#online", who).await;
    }
    wait_for_text(&anna, "#online", "anna, bert").await;
    let field = find(&anna, "#send input").await;
    // With more input until it is seen, because it expires after five seconds.
    wait_for("anna to be typing", LIMIT, async || {
        field.send_keys("!").await.unwrap();
        text(&bert, "#typing").await.contains("anna typing")
    })
    .await;
    field.send_keys("Hello\u{e007}").await.unwrap();
    wait_for_text(&bert, "#messages", "!Hello").await;
    wait_for_text(&anna, "#messages", "!Hello").await;
    assert_eq!(text(&anna, "#typing").await, "", "one's own typing is not shown");
    press(&bert, "#messages button").await;
    wait_for_text(&anna, "#messages button", "👍 1").await;
    find(&bert, "#messages button[aria-pressed=true]").await;
    // A page that is opened later loads the messages.
    let carl = browser.open(Window::default()).await;
    carl.goto(&site).await.unwrap();
    fill(&carl, "#join input", "carl\u{e007}").await;
    wait_for_text(&carl, "#messages", "anna: !").await;
    wait_for_text(&carl, "#messages button", "👍 1").await;
    wait_for_text(&anna, "#online", "anna, bert, carl").await;
    // A message that arrives after the server has read the messages, and before its reply.
    carl.goto(&site).await.unwrap();
    carl.execute(HOLD_MESSAGES, Vec::new()).await.unwrap();
    fill(&carl, "#join input", "carl\u{e007}").await;
    wait_for("the messages to be held back", LIMIT, async || is_true(&carl, "return window.held").await)
        .await;
    fill(&anna, "#send input", "In between\u{e007}").await;
    wait_for("the message to arrive", LIMIT, async || is_true(&carl, "return window.arrived").await).await;
    carl.execute("release()", Vec::new()).await.unwrap();
    wait_for_text(&carl, "#messages", "anna: In between").await;
    wait_for_text(&carl, "#messages", "anna: !").await;
    for window in [anna, bert, carl] {
        window.close().await.unwrap();
    }
}

/// Reactions, replies, mentions and attachments, as the server renders them and as they change.
#[tokio::test(flavor = "multi_thread")]
async fn page_shows_what_belongs_to_a_message() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let chat = open(&context).await;
    let app = TestApp::start(context.context(), chat.routes()).await;
    let id = room(&chat, "kitchen", &["anna", "bert"]).await;
    let browser = Browser::start();
    let window = browser.open(Window::default()).await;
    window.goto(&app.url("/chat?as=anna&conversation=kitchen")).await.unwrap();
    find(&window, "#chat[data-live]").await;
    let mut new = message(&id, "bert", "Who has the ladle?");
    new.mentions = vec![user("anna")];
    let (url, name) = ("https://files.example/ladle.png".to_owned(), "<i>ladle</i>.png".to_owned());
    new.attachments = vec![Attachment { url, name, media_type: "image/png".to_owned(), size: Some(2_048) }];
    let question = done(chat.send(&new).await);
    let item = format!("#m-{}", question.id);
    let (thumb, file) =
        (format!("{item} .chat-reaction"), format!("{item} .chat-file[href^='https://files']"));
    // The same page again: rendered by the server.
    for turn in 1..=2 {
        wait_for_text(&window, &file, "<i>ladle</i>.png image/png, 2 KiB").await;
        find(&window, &format!("{item}.mentioned")).await;
        press(&window, &format!("{item} .chat-add")).await;
        wait_for_text(&window, &format!("{thumb}[aria-pressed=true] span"), "1").await;
        done(chat.react(&id, &question.id, &user("bert"), "👍", ReactionAction::Add).await);
        wait_for_text(&window, &format!("{thumb} span"), "2").await;
        press(&window, &thumb).await;
        wait_for_text(&window, &format!("{thumb}[aria-pressed=false] span"), "1").await;
        press(&window, &format!("{item} .chat-reply")).await;
        wait_for_text(&window, "#replying", "bert: Who has the ladle?").await;
        fill(&window, "#content", "Second drawer\u{e007}").await;
        wait_for_text(&window, "#messages .own .chat-quote", "bert Who has the ladle?").await;
        wait_for_text(&window, &format!("{item} .chat-replies"), ["1 reply", "2 replies"][turn - 1]).await;
        done(chat.react(&id, &question.id, &user("bert"), "👍", ReactionAction::Remove).await);
        find(&window, &format!("{item} .chat-reactions:not(:has(.chat-reaction))")).await;
        window.goto(&app.url("/chat?as=anna&conversation=kitchen")).await.unwrap();
        find(&window, "#chat[data-live]").await;
    }
    wait_for_text(&window, &format!("{item} .chat-replies"), "2 replies").await;
    window.close().await.unwrap();
    // Without JavaScript, the same buttons are forms.
    let window = browser.open(Window { scripts: JavaScript::Off, ..Window::default() }).await;
    window.goto(&app.url("/chat?as=anna&conversation=kitchen")).await.unwrap();
    press(&window, &format!("{item} .chat-add")).await;
    wait_for_text(&window, &format!("{thumb}[aria-pressed=true] span"), "1").await;
    press(&window, &thumb).await;
    find(&window, &format!("{item} .chat-reactions:not(:has(.chat-reaction))")).await;
    press(&window, &format!("{item} .chat-reply")).await;
    wait_for_text(&window, "#replying", "bert: Who has the ladle?").await;
    fill(&window, "#content", "Third drawer\u{e007}").await;
    wait_for_text(&window, &format!("{item} .chat-replies"), "3 replies").await;
    window.close().await.unwrap();
}

/// The address of another site with a page that uses the JavaScript SDK.
async fn another_site() -> String {
    let script = std::fs::read_to_string(hob_testkit::node_modules().join("centrifuge/dist/centrifuge.js"));
    let script = script.unwrap();
    let page = get(async || Html(include_str!("sdk/transports.html")));
    let script = get(async move || ([(CONTENT_TYPE, "text/javascript")], script));
    let router = Router::new().route("/", page).route("/centrifuge.js", script);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let site = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
    site
}

/// A browser asks the server before it sends requests of a page of another site.
#[tokio::test(flavor = "multi_thread")]
async fn page_of_a_configured_site_uses_every_transport() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let (site, unknown) = (another_site().await, another_site().await);
    let chat = start(context.context(), Config { origins: vec![site.clone()], ..config() }).await;
    let app = TestApp::start(context.context(), chat.routes()).await;
    let id = room(&chat, "r", &["anna", "bert"]).await;
    let browser = Browser::start();
    let window = browser.open(Window::default()).await;
    let token = chat.issue_token(&user("anna"), Duration::from_secs(600)).unwrap();
    let page = |site: &str, transport: &str| {
        format!("{site}/?server={}&transport={transport}&token={token}", app.url("").trim_end_matches('/'))
    };
    for transport in ["http_stream", "sse"] {
        window.goto(&page(&site, transport)).await.unwrap();
        wait_for_text(&window, "#log", "subscribed").await;
        wait_for_text(&window, "#log", &format!("sent over {transport}")).await;
        say(&chat, &id, "bert", &format!("received over {transport}")).await;
        wait_for_text(&window, "#log", &format!("received over {transport}")).await;
        window.goto(&page(&unknown, transport)).await.unwrap();
        wait_for_text(&window, "#log", "error: ").await;
        assert!(!text(&window, "#log").await.contains("subscribed"));
    }
    window.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn page_works_without_javascript() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let chat = open(&context).await;
    let app = TestApp::start(context.context(), chat.routes()).await;
    let id = room(&chat, "kitchen", &["anna", "bert"]).await;
    say(&chat, &id, "bert", "<b>Who has the ladle?</b>").await;
    let browser = Browser::start();
    let window = browser.open(Window { scripts: JavaScript::Off, ..Window::default() }).await;
    window.goto(&app.url("/chat?as=anna")).await.unwrap();
    press(&window, "[data-room=kitchen]").await;
    wait_for_text(&window, "#messages", "<b>Who has the ladle?</b>").await;
    let unread = async |who: &str| chat.unread(&user(who)).await.unwrap().1;
    assert_eq!(unread("anna").await, 1, "opening a page changes nothing");
    press(&window, "#mark-read button").await;
    wait_for("the message to be read", LIMIT, async || unread("anna").await == 0).await;
    wait_for_text(&window, "#messages", "<b>Who has the ladle?</b>").await;
    let exact = find(&window, "#messages time").await.attr("title").await.unwrap();
    assert!(exact.as_deref().is_some_and(|exact| exact.ends_with(" UTC")), "{exact:?}");
    fill(&window, "#content", "Second drawer\u{e007}").await;
    wait_for_text(&window, "#messages", "Second drawer").await;
    assert_eq!(unread("bert").await, 1);
    window.goto(&app.url("/chat/operator")).await.unwrap();
    wait_for_text(&window, "#load", "Room kitchen").await;
    window.close().await.unwrap();
}
