//! The limits of frames and channels, and errors that name their field.

use hob_chat::{Chat, Config};
use hob_fixtures::{Layout, TestApp, TestContext};
use hob_service::Period;
use hob_web::Service as _;
use serde_json::{Value, json};

use crate::client::Client;
use crate::harness::{NEEDS, config, done, room, start, user};

async fn app(config: Config) -> (TestContext, Chat, TestApp) {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let chat = start(context.context(), config).await;
    let app = TestApp::start(context.context(), chat.routes()).await;
    (context, chat, app)
}

#[tokio::test]
async fn frame_that_is_too_large_gets_a_close_frame() {
    let (_context, chat, app) = app(config()).await;
    for bytes in [65_537, 300_000, 2_000_000] {
        let mut anna = Client::connect(&app, &chat, "anna").await;
        // The server may close the connection before it has read everything.
        anna.try_send("x".repeat(bytes)).await;
        let (code, reason) = anna.close_frame().await;
        assert_eq!((code, reason.as_str()), (1009, "frame too large: at most 65536 bytes"), "{bytes}");
    }
}

#[tokio::test]
async fn frame_with_too_many_commands_gets_a_close_frame() {
    let (_context, chat, app) = app(config()).await;
    let mut anna = Client::connect(&app, &chat, "anna").await;
    let command = |id: usize| json!({ "id": id, "ping": {} }).to_string();
    anna.send((1_000..1_256).map(command).collect::<Vec<_>>().join("\n")).await;
    assert_eq!(anna.flush().await.len(), 256);
    anna.send((2_000..2_257).map(command).collect::<Vec<_>>().join("\n")).await;
    let (code, reason) = anna.close_frame().await;
    assert_eq!((code, reason.as_str()), (3501, "bad request: a frame must have 1 to 256 commands"));
}

#[tokio::test]
async fn array_is_not_a_command() {
    let quick = Config { ping_interval: Period::from_millis(100), ..config() };
    let (_context, chat, app) = app(quick).await;
    for frame in ["[]", " []", "[0]", "[[]]"] {
        let mut anna = Client::connect(&app, &chat, "anna").await;
        anna.send(frame).await;
        let (code, reason) = anna.close_frame().await;
        assert_eq!((code, reason.as_str()), (3501, "bad request: expected an object"), "{frame}");
    }
}

#[tokio::test]
async fn invalid_publication_is_reported_by_field() {
    let (_context, chat, app) = app(config()).await;
    room(&chat, "r", &["anna"]).await;
    let mut anna = Client::connect(&app, &chat, "anna").await;
    let publish = |data: Value| json!({ "publish": { "channel": "conv:r", "data": data } });
    let rpc = |method: &str, data: Value| json!({ "rpc": { "method": method, "data": data } });
    for (command, expected) in [
        (publish(json!({ "content": 1 })), "bad request: data: content: invalid type: integer `1`"),
        (publish(json!({ "clientId": "1" })), "bad request: content: must not be empty"),
        (publish(json!({ "content": "x", "clientId": 1 })), "bad request: data: clientId: invalid type"),
        (publish(json!(5)), "bad request: data: "),
        (publish(json!(["x"])), "bad request: data: expected an object"),
        (publish(json!("")), "bad request: content: "),
        (rpc("send", json!(["r", "hi"])), "bad request: data: expected an object"),
        (
            rpc("send", json!({ "conversationId": "total", "content": "x" })),
            "bad request: data: conversationId: ",
        ),
        (
            rpc("send", json!({ "conversationId": "r", "content": "x", "clientId": "" })),
            "bad request: clientId: ",
        ),
        (rpc("read", json!({ "conversationId": "r", "sequence": -1 })), "bad request: data: sequence: "),
        (rpc("typing", json!({ "conversationId": "r" })), "bad request: data: missing field `typing`"),
        (rpc("block", json!({ "userId": "" })), "bad request: data: userId: "),
        (rpc("block", json!({ "userId": "anna" })), "bad request: userId: "),
    ] {
        let reply = anna.call(command.clone()).await;
        let message = reply["error"]["message"].as_str().unwrap_or_default();
        assert!(message.starts_with(expected), "{command} got {reply}");
        assert_eq!(reply["error"]["code"], 107, "{command}");
    }
}

/// A subscription that the server has ended does not count.
#[tokio::test]
async fn channels_of_removed_members_are_free_again() {
    let (_context, chat, app) = app(Config { channels_per_connection: 2, ..config() }).await;
    let mut anna = Client::connect(&app, &chat, "anna").await;
    for n in 0..5 {
        let id = room(&chat, &format!("r{n}"), &["bert", "anna"]).await;
        let reply = anna.subscribe(&format!("conv:r{n}")).await;
        assert!(reply["subscribe"].is_object(), "{n}: {reply}");
        done(chat.remove_member(&id, &user("anna"), None).await);
        anna.push_where(|push| push["unsubscribe"]["code"] == 2000).await;
    }
}
