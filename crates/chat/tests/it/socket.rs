//! The client protocol over a real WebSocket.

use hob_web::Service as _;
use std::time::Duration;

use hob_chat::{Chat, Config};
use hob_fixtures::{TestApp, TestContext, every_service};
use hob_service::Period;
use hob_testkit::{LIMIT, wait_for};
use serde_json::{Value, json};

use crate::client::{Client, message_of};
use crate::harness::{NEEDS, config, done, open, room, say, start, user};

async fn app(context: &TestContext) -> (Chat, TestApp) {
    let chat = open(context).await;
    let app = TestApp::start(context.context(), chat.routes()).await;
    (chat, app)
}

every_service! {
    NEEDS;

    async fn message_reaches_all_subscribers_and_the_sender_gets_its_sequence(context: TestContext) {
        let (chat, app) = app(&context).await;
        room(&chat, "r", &["anna", "bert"]).await;
        let mut anna = Client::connect(&app, &chat, "anna").await;
        let mut bert = Client::connect(&app, &chat, "bert").await;
        let subscribed = anna.subscribe("conv:r").await;
        assert_eq!((&subscribed["subscribe"]["offset"], &subscribed["subscribe"]["recoverable"]), (&2.into(), &true.into()));
        bert.subscribe("conv:r").await;
        let sent = anna.rpc("send", json!({ "conversationId": "r", "content": "hello" })).await;
        assert_eq!(sent["rpc"]["data"]["sequence"], 3);
        assert_eq!(bert.messages(1).await, [(3, "hello".to_owned())]);
        assert_eq!(anna.messages(1).await, [(3, "hello".to_owned())]);
        let published = bert.call(json!({ "publish": { "channel": "conv:r", "data": { "content": "hi" } } })).await;
        assert!(published["publish"].is_object(), "{published}");
        assert_eq!(anna.messages(1).await, [(4, "hi".to_owned())]);
    }

    async fn client_recovers_exactly_what_it_missed(context: TestContext) {
        let (chat, app) = app(&context).await;
        let id = room(&chat, "r", &["anna", "bert"]).await;
        let mut anna = Client::connect(&app, &chat, "anna").await;
        let epoch = anna.subscribe("conv:r").await["subscribe"]["epoch"].clone();
        say(&chat, &id, "bert", "seen").await;
        assert_eq!(anna.messages(1).await, [(3, "seen".to_owned())]);
        drop(anna);
        // More messages than the node keeps in memory, so that some come from the database.
        for n in 4..=103 {
            say(&chat, &id, "bert", &n.to_string()).await;
        }
        let mut anna = Client::connect(&app, &chat, "anna").await;
        let recovered = anna.recover("conv:r", 3, &epoch).await["subscribe"].take();
        assert_eq!((&recovered["recovered"], &recovered["offset"]), (&true.into(), &103.into()), "{recovered}");
        let publications: Vec<_> = recovered["publications"].as_array().unwrap().iter().map(message_of).collect();
        let expected: Vec<_> = (4..=103).map(|n: u64| (n, n.to_string())).collect();
        assert_eq!(publications, expected);
        say(&chat, &id, "bert", "live again").await;
        assert_eq!(anna.messages(1).await, [(104, "live again".to_owned())]);
        let mut second = Client::connect(&app, &chat, "anna").await;
        let ahead = second.recover("conv:r", 5_000, &epoch).await["subscribe"].take();
        assert_eq!((&ahead["recovered"], &ahead["was_recovering"]), (&false.into(), &true.into()));
    }

    async fn users_without_permission_get_only_an_error(context: TestContext) {
        let (chat, app) = app(&context).await;
        room(&chat, "r", &["anna"]).await;
        let mut eve = Client::connect(&app, &chat, "eve").await;
        for (command, code) in [
            (json!({ "subscribe": { "channel": "conv:r" } }), 103),
            (json!({ "subscribe": { "channel": "conv:no-such" } }), 103),
            (json!({ "subscribe": { "channel": "user:anna" } }), 103),
            (json!({ "subscribe": { "channel": "elsewhere" } }), 102),
            (json!({ "publish": { "channel": "conv:r", "data": "hi" } }), 103),
            (json!({ "presence": { "channel": "conv:r" } }), 103),
            (json!({ "history": { "channel": "conv:r", "limit": 10 } }), 103),
            (json!({ "rpc": { "method": "send", "data": { "conversationId": "r", "content": "hi" } } }), 103),
            (json!({ "rpc": { "method": "send", "data": { "content": 1 } } }), 107),
            (json!({ "rpc": { "method": "destroy", "data": {} } }), 104),
            (json!({ "sub_refresh": { "channel": "conv:r" } }), 108),
        ] {
            let reply = eve.call(command.clone()).await;
            assert_eq!(reply["error"]["code"], code, "{command} got {reply}");
        }
        assert_eq!(chat.conversation(&crate::harness::conversation("r")).await.unwrap().unwrap().sequence, 1);
    }

    async fn error_names_the_field_and_the_reason(context: TestContext) {
        let (chat, app) = app(&context).await;
        room(&chat, "r", &["anna"]).await;
        let mut anna = Client::connect(&app, &chat, "anna").await;
        let rpc = |method: &str, data: Value| json!({ "rpc": { "method": method, "data": data } });
        for (command, expected) in [
            (json!({ "subscribe": { "channel": "elsewhere" } }), "unknown channel: channel: must be conv:<id>, user:<id>, or in a namespace of the configuration"),
            (json!({ "rpc": { "method": "send" } }), "bad request: missing field `data`"),
            (rpc("send", json!({ "content": "hi" })), "bad request: data: missing field `conversationId`"),
            (rpc("send", json!({ "conversationId": "r", "content": 1 })), "bad request: data: content: invalid type: integer `1`"),
            (rpc("send", json!({ "conversationId": "r", "content": "" })), "bad request: content: "),
            (rpc("edit", json!({ "conversationId": "r", "messageId": "none", "content": "hi" })), "not found: messageId"),
            (rpc("destroy", json!({})), "method not found: use send, "),
        ] {
            let reply = anna.call(command.clone()).await;
            let message = reply["error"]["message"].as_str().unwrap_or_default();
            assert!(message.starts_with(expected), "{command} got {reply}");
        }
    }

    async fn presence_history_and_stats_work(context: TestContext) {
        let (chat, app) = app(&context).await;
        let id = room(&chat, "r", &["anna", "bert", "carl"]).await;
        let mut anna = Client::connect(&app, &chat, "anna").await;
        let mut phone = Client::connect(&app, &chat, "anna").await;
        anna.subscribe("conv:r").await;
        let mut bert = Client::connect(&app, &chat, "bert").await;
        // The event of anna's own connection may arrive first.
        anna.push_where(|push| push["join"]["info"]["user"] == "bert").await;
        let stats = phone.call(json!({ "presence_stats": { "channel": "conv:r" } })).await;
        assert_eq!(stats["presence_stats"], json!({ "num_clients": 3, "num_users": 2 }));
        let presence = phone.call(json!({ "presence": { "channel": "conv:r" } })).await;
        assert_eq!(presence["presence"]["presence"].as_object().unwrap().len(), 3);
        for n in 0..5 {
            say(&chat, &id, "bert", &n.to_string()).await;
        }
        let history = bert.call(json!({ "history": { "channel": "conv:r", "limit": 2, "reverse": true } })).await;
        let newest: Vec<_> = history["history"]["publications"].as_array().unwrap().iter().map(message_of).collect();
        assert_eq!(newest, [(8, "4".to_owned()), (7, "3".to_owned())]);
        assert_eq!(history["history"]["offset"], 8);
        let since = json!({ "channel": "conv:r", "limit": 2, "since": { "offset": 5, "epoch": "" } });
        let after = bert.call(json!({ "history": since })).await;
        assert_eq!(message_of(&after["history"]["publications"][0]), (6, "2".to_owned()));
        drop(bert);
        anna.push_where(|push| push["leave"]["info"]["user"] == "bert").await;
    }

    /// The feed starts with a snapshot, and then sends updates.
    async fn feed_sends_unread_counts_and_presence(context: TestContext) {
        let (chat, app) = app(&context).await;
        let id = room(&chat, "r", &["anna", "bert"]).await;
        say(&chat, &id, "bert", "one").await;
        let mut anna = Client::connect(&app, &chat, "anna").await;
        let snapshot = anna.subscribe("user:anna").await["subscribe"]["data"].take();
        assert_eq!((&snapshot["total"], &snapshot["online"]), (&1.into(), &json!([])), "{snapshot}");
        let bert = Client::connect(&app, &chat, "bert").await;
        let update = anna.push_where(|push| push["pub"]["data"]["type"] == "presence").await;
        assert_eq!((&update["pub"]["data"]["userId"], &update["pub"]["data"]["online"]), (&"bert".into(), &true.into()));
        say(&chat, &id, "bert", "two").await;
        let update = anna.push_where(|push| push["pub"]["data"]["total"] == 2).await;
        assert_eq!((&update["pub"]["data"]["type"], &update["pub"]["data"]["unread"]), (&"unread".into(), &2.into()));
        anna.rpc("read", json!({ "conversationId": "r", "sequence": 4 })).await;
        anna.push_where(|push| push["pub"]["data"]["total"] == 0).await;
        drop(bert);
        anna.push_where(|push| push["pub"]["data"]["online"] == false).await;
        done(chat.remove_member(&id, &user("anna"), None).await);
        let update = anna.push_where(|push| push["pub"]["data"]["type"] == "membership").await;
        assert_eq!(update["pub"]["data"]["member"], false);
    }

    /// C20: receipts for delivered and read messages.
    async fn receipts_are_published_to_the_conversation(context: TestContext) {
        let (chat, app) = app(&context).await;
        let id = room(&chat, "r", &["anna", "bert"]).await;
        let mut anna = Client::connect(&app, &chat, "anna").await;
        anna.subscribe("conv:r").await;
        let mut bert = Client::connect(&app, &chat, "bert").await;
        say(&chat, &id, "anna", "hello").await;
        bert.rpc("delivered", json!({ "conversationId": "r", "sequence": 3 })).await;
        let receipt = anna.push_where(|push| push["pub"]["data"]["type"] == "receipt").await["pub"]["data"].take();
        assert_eq!((&receipt["deliveredSequence"], &receipt["readSequence"]), (&3.into(), &2.into()));
        let read = bert.rpc("read", json!({ "conversationId": "r", "sequence": 99 })).await;
        assert_eq!(read["rpc"]["data"]["readSequence"], 3, "the pointer stops at the last event");
        let receipt = anna.push_where(|push| push["pub"]["data"]["type"] == "receipt").await["pub"]["data"].take();
        assert_eq!((&receipt["userId"], &receipt["readSequence"]), (&"bert".into(), &3.into()));
    }
}

async fn embedded() -> (TestContext, Chat, TestApp) {
    let context = TestContext::embedded(NEEDS, hob_fixtures::Layout::Plain).await;
    let (chat, app) = app(&context).await;
    (context, chat, app)
}

#[tokio::test]
async fn commands_and_replies_are_batched() {
    let (_context, chat, app) = embedded().await;
    room(&chat, "r", &["anna"]).await;
    let mut anna = Client::connect(&app, &chat, "anna").await;
    anna.send("{\"id\":101,\"ping\":{}}\n{\"id\":102,\"subscribe\":{\"channel\":\"conv:r\"}}\n{\"id\":103,\"ping\":{}}")
        .await;
    let replies: Vec<_> = anna.flush().await.into_iter().map(|frame| frame["id"].clone()).collect();
    assert_eq!(replies, [101, 102, 103]);
}

#[tokio::test]
async fn connections_need_a_valid_token() {
    let (_context, chat, app) = embedded().await;
    for (first, code) in [
        (json!({ "id": 1, "connect": { "token": "nonsense" } }), 3500),
        (json!({ "id": 1, "connect": {} }), 3500),
        (json!({ "id": 1, "ping": {} }), 3501),
    ] {
        let mut client = Client::open(&app).await;
        client.send(first.to_string()).await;
        assert_eq!(client.end().await, code, "{first}");
    }
    for (first, expected) in [
        ("not json".to_owned(), "bad request: expected ident"),
        (r#"{"id":1,"ping":{}}"#.to_owned(), "bad request: the first command must be connect"),
        (
            r#"{"id":1,"connect":{"token":5}}"#.to_owned(),
            "bad request: connect.token: invalid type: integer `5`",
        ),
        (r#"{"id":1,"connect":{"token":{"é":5}}}"#.repeat(300), "bad request: "),
        ("\n".to_owned(), "bad request: a frame must have 1 to 256 commands"),
    ] {
        let mut client = Client::open(&app).await;
        client.send(first.as_str()).await;
        let (code, reason) = client.close_frame().await;
        assert!(code == 3501 && reason.starts_with(expected), "{first} got {code} {reason}");
    }

    let mut client = Client::connect(&app, &chat, "anna").await;
    let fresh = chat.issue_token(&user("anna"), Duration::from_secs(900)).unwrap();
    let refreshed = client.call(json!({ "refresh": { "token": fresh } })).await;
    assert!(refreshed["refresh"]["ttl"].as_u64().unwrap() > 600, "{refreshed}");
    let another = chat.issue_token(&user("bert"), Duration::from_secs(900)).unwrap();
    client.send(json!({ "id": 9, "refresh": { "token": another } }).to_string()).await;
    assert_eq!(client.end().await, 3500, "a refresh cannot change the user");
}

#[tokio::test]
async fn slow_client_is_disconnected() {
    let context = TestContext::embedded(NEEDS, hob_fixtures::Layout::Plain).await;
    let chat = start(
        context.context(),
        Config { queue_bytes: 20_000, ping_interval: Period::from_secs(600), ..config() },
    )
    .await;
    let app = TestApp::start(context.context(), chat.routes()).await;
    let id = room(&chat, "r", &["anna", "bert"]).await;
    let mut slow = Client::open_narrow(&app).await.sign_in(&chat, "anna").await;
    slow.subscribe("conv:r").await;
    // Far more than the socket buffers and the queue hold.
    let content = "x".repeat(4_000);
    for _ in 0..4_000 {
        say(&chat, &id, "bert", &content).await;
        if chat.sockets(&user("anna")).await.unwrap().is_empty() {
            break;
        }
    }
    assert_eq!(slow.end().await, 3008);
}

#[tokio::test]
async fn channels_of_a_connection_are_limited() {
    let context = TestContext::embedded(NEEDS, hob_fixtures::Layout::Plain).await;
    let chat = start(context.context(), Config { channels_per_connection: 2, ..config() }).await;
    let app = TestApp::start(context.context(), chat.routes()).await;
    for id in ["a", "b", "c"] {
        room(&chat, id, &["anna"]).await;
    }
    let mut anna = Client::connect(&app, &chat, "anna").await;
    for channel in ["conv:a", "conv:b"] {
        assert!(anna.subscribe(channel).await["subscribe"].is_object());
    }
    assert_eq!(anna.subscribe("conv:c").await["error"]["code"], 106);
    assert_eq!(anna.subscribe("conv:a").await["error"]["code"], 105);
    anna.call(json!({ "unsubscribe": { "channel": "conv:a" } })).await;
    assert!(anna.subscribe("conv:c").await["subscribe"].is_object());
}

/// The server sends the events that do not fit into the reply, then new events, in order and without gaps.
#[tokio::test]
async fn client_recovers_more_than_one_reply_holds() {
    let (_context, chat, app) = embedded().await;
    let id = room(&chat, "r", &["anna", "bert"]).await;
    let content = |n: u64| format!("{n} {}", "x".repeat(2_000));
    for n in 3..=502 {
        say(&chat, &id, "bert", &content(n)).await;
    }
    let mut anna = Client::connect(&app, &chat, "anna").await;
    let reply = anna.recover("conv:r", 2, &json!("")).await["subscribe"].take();
    assert_eq!(reply["recovered"], true);
    let mut received: Vec<_> = reply["publications"].as_array().unwrap().iter().map(message_of).collect();
    assert_eq!(reply["offset"], received.last().unwrap().0, "the rest starts here");
    assert!(received.len() < 250, "one reply is limited: {}", received.len());
    say(&chat, &id, "bert", &content(503)).await;
    received.extend(anna.messages(501 - received.len()).await);
    let expected: Vec<_> = (3..=503).map(|n| (n, content(n))).collect();
    assert!(received == expected, "a message is missing or duplicated");
}

#[tokio::test]
async fn messages_are_edited_and_deleted_and_users_blocked_by_rpc() {
    let (_context, chat, app) = embedded().await;
    room(&chat, "r", &["anna", "bert", "carl"]).await;
    let mut anna = Client::connect(&app, &chat, "anna").await;
    let mut bert = Client::connect(&app, &chat, "bert").await;
    bert.subscribe("conv:r").await;
    let sent = anna.rpc("send", json!({ "conversationId": "r", "content": "helo" })).await;
    let message = &sent["rpc"]["data"]["id"];
    let next_event =
        async |bert: &mut Client| bert.push_where(|push| push["pub"]["offset"].is_u64()).await["pub"].take();
    assert_eq!(next_event(&mut bert).await["data"]["type"], "message");
    anna.rpc("edit", json!({ "conversationId": "r", "messageId": message, "content": "hello" })).await;
    let edited = next_event(&mut bert).await;
    assert_eq!(
        (&edited["data"]["type"], &edited["data"]["message"]["content"]),
        (&"edited".into(), &"hello".into())
    );
    let not_yours = bert.rpc("delete", json!({ "conversationId": "r", "messageId": message })).await;
    assert_eq!(not_yours["error"]["code"], 103, "{not_yours}");
    anna.rpc("delete", json!({ "conversationId": "r", "messageId": message })).await;
    let deleted = next_event(&mut bert).await;
    assert_eq!((&deleted["data"]["type"], &deleted["offset"]), (&"deleted".into(), &6.into()));
    assert!(bert.rpc("block", json!({ "userId": "anna" })).await["rpc"].is_object());
    anna.rpc("send", json!({ "conversationId": "r", "content": "bert?" })).await;
    assert!(bert.rpc("unblock", json!({ "userId": "anna" })).await["rpc"].is_object());
    bert.push_where(|push| push["unsubscribe"]["code"] == 2500).await;
    bert.subscribe("conv:r").await;
    anna.rpc("send", json!({ "conversationId": "r", "content": "bert!" })).await;
    assert_eq!(
        next_event(&mut bert).await["data"]["message"]["content"],
        "bert!",
        "no message is delivered between block and unblock"
    );
}

/// Repeats a command until a rate limit refuses it, and returns how often it was allowed. Limits refill with time, so a
/// fixed number of commands may not reach them on a busy machine.
async fn count_allowed(client: &mut Client, command: &Value) -> usize {
    for allowed in 0..100_000 {
        if client.call(command.clone()).await["error"]["code"] == 111 {
            return allowed;
        }
    }
    panic!("{command} is not limited");
}

/// Each action has its own limit.
#[tokio::test]
async fn rate_limits_are_enforced() {
    let context = TestContext::embedded(NEEDS, hob_fixtures::Layout::Plain).await;
    let limits = Config {
        connects_per_minute: 3,
        max_frame_bytes: 4_096,
        commands_per_second: 20,
        channels_per_connection: 4,
        ..config()
    };
    let chat = start(context.context(), limits).await;
    let app = TestApp::start(context.context(), chat.routes()).await;
    room(&chat, "r", &["anna"]).await;
    let mut anna = Client::connect(&app, &chat, "anna").await;
    let typing = json!({ "conversationId": "r", "typing": true });
    let typing = json!({ "rpc": { "method": "typing", "data": typing } });
    assert!(count_allowed(&mut anna, &typing).await >= 10);
    // Far below the limit for commands. A second subscription is refused for another reason, but counts.
    let subscribe = json!({ "subscribe": { "channel": "conv:r" } });
    assert!(count_allowed(&mut anna, &subscribe).await >= 32);
    assert!(count_allowed(&mut anna, &json!({ "ping": {} })).await > 0);

    anna.send("x".repeat(10_000)).await;
    wait_for("the server to close the connection", LIMIT, async || {
        chat.sockets(&user("anna")).await.unwrap().is_empty()
    })
    .await;
    let mut ends = Vec::new();
    for _ in 0..5 {
        let mut client = Client::open(&app).await;
        let token = chat.issue_token(&user("anna"), Duration::from_secs(60)).unwrap();
        client.send(json!({ "id": 1, "connect": { "token": token } }).to_string()).await;
        ends.push(client.first_or_end().await);
    }
    assert!(ends.contains(&Some(3013)), "{ends:?}");
}
