//! The chat page over HTTP.

use axum::http::{HeaderName, Method};
use hob_chat::Chat;
use hob_fixtures::{Layout, TestApp, TestContext};
use hob_service::{Live, SecretRef};
use hob_web::{Config, NewToken, Service as _, TokenCreation, Tokens};

use crate::harness::{NEEDS, open, room, say, user};

const PAGE: &str = "/chat?as=anna&conversation=kitchen";

async fn unread(chat: &Chat) -> u64 {
    chat.unread(&user("anna")).await.unwrap().1
}

#[tokio::test]
async fn messages_are_read_by_a_form_and_not_by_a_link() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let chat = open(&context).await;
    let mut app = TestApp::start(&context, chat.routes()).await;
    let id = room(&chat, "kitchen", &["bert", "anna"]).await;
    let message = say(&chat, &id, "bert", "The soup is ready").await;
    for method in [Method::GET, Method::HEAD] {
        assert_eq!(app.request(method, PAGE, None).await.status, 200);
        assert_eq!(unread(&chat).await, 1, "a page of another site can send this request");
    }
    let page = app.get(PAGE).await.text();
    assert!(page.contains(r#"action="/chat/read""#), "{page}");
    // A message that the page does not show stays unread.
    say(&chat, &id, "bert", "Bring bowls").await;
    let sequence = message.sequence.to_string();
    let fields = [("user", "anna"), ("conversation", "kitchen"), ("sequence", &*sequence)];

    let site = HeaderName::from_static("sec-fetch-site");
    app.use_header(site.clone(), "cross-site");
    assert_eq!(app.submit("/chat/read", &fields).await.status, 403);
    assert_eq!(unread(&chat).await, 2);

    app.use_header(site, "same-origin");
    let done = app.submit("/chat/read", &fields).await;
    assert_eq!((done.status.as_u16(), done.header("location")), (303, PAGE));
    assert_eq!(unread(&chat).await, 1);
    for (sequence, status) in [("x", 422), ("-1", 422), ("9223372036854775808", 422), ("1000", 303)] {
        let fields = [("user", "anna"), ("conversation", "kitchen"), ("sequence", sequence)];
        assert_eq!(app.submit("/chat/read", &fields).await.status, status, "{sequence}");
    }
    assert_eq!(unread(&chat).await, 0);
    let page = app.get(PAGE).await.text();
    assert!(page.contains(r#"id="mark-read" method="post" action="/chat/read" hidden"#), "{page}");
}

#[tokio::test]
async fn viewer_cannot_mark_messages_as_read() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let chat = open(&context).await;
    let id = room(&chat, "kitchen", &["bert", "anna"]).await;
    say(&chat, &id, "bert", "The soup is ready").await;
    let folder = tempfile::tempdir().unwrap();
    let admin = folder.path().join("admin");
    std::fs::write(&admin, "correct horse battery staple").unwrap();
    let config = Config { admin_token: Some(SecretRef::File(admin)), ..Config::default() };
    let mut app = TestApp::start_with_config(&context, Live::fixed(config), |_| chat.routes()).await;
    let new = NewToken { name: "viewer".to_owned(), scopes: "chat:read".parse().unwrap(), expires_at: None };
    let created = Tokens::new(&context.database).create(&new, "a test").await.unwrap();
    let TokenCreation::Created { text, .. } = created else { panic!("no token") };
    app.use_token(&text);
    let page = app.get(PAGE).await;
    assert_eq!(page.status, 200);
    assert!(!page.text().contains("/chat/read"), "{}", page.text());
    let fields = [("user", "anna"), ("conversation", "kitchen"), ("sequence", "9")];
    assert_eq!(app.submit("/chat/read", &fields).await.status, 403);
    assert_eq!(unread(&chat).await, 1);
}
