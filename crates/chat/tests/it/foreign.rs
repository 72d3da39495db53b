//! Whatever another client writes into a key of the chat, other users and conversations are not affected, and the key is
//! repaired.

use hob_chat::keys::SocketId;
use hob_chat::{Config, MessageRange, TypingState};
use hob_fixtures::{Exception, ForeignClient, Layout, TestApp, TestContext};
use hob_schema::Shard;
use hob_testkit::{LIMIT, wait_for};
use hob_web::Service as _;
use serde_json::{Value, json};

use crate::client::Client;
use crate::harness::{NEEDS, done, keys, message, room, short_lease, start, user};
use crate::namespaces::with_namespaces;

/// Subscribes, publishes and asks for the presence. Returns the reply with the history.
async fn use_channel(client: &mut Client, channel: &str) -> Value {
    client.subscribe(channel).await;
    client.call(json!({ "publish": { "channel": channel, "data": "hello" } })).await;
    client.call(json!({ "presence": { "channel": channel } })).await;
    client.call(json!({ "history": { "channel": channel, "limit": 1, "reverse": true } })).await
}

async fn other_users_are_not_affected(context: TestContext) {
    let config = Config { node_lease: short_lease().node_lease, ..with_namespaces() };
    let chat = start(context.context(), config).await;
    let app = TestApp::start(context.context(), chat.routes()).await;
    let (victim, other, carl) = (user("victim"), user("other"), user("carl"));
    let ours = room(&chat, "victim-room", &["victim", "other"]).await;
    let theirs = room(&chat, "other-room", &["other", "carl"]).await;
    let sockets = ["victim-1", "other-1"].map(|id| SocketId::new(id).unwrap());
    // The channels always have a subscriber.
    let subscriber = tokio::sync::Mutex::new(None);
    let work = async |what: &str| {
        // The user and the conversation of the key may be affected, until the key is repaired.
        let _ = chat.remove_user_socket(&victim, &sockets[0]).await;
        let _ = chat.add_user_socket(&victim, &sockets[0]).await;
        let _ = chat.send(&message(&ours, "other", "for the victim")).await;
        let _ = chat.messages(&ours, Some(&victim), MessageRange::Newest, 10).await;
        let _ = chat.participants(&ours).await;
        let _ = chat.unread(&victim).await;
        let _ = chat.typing(&ours, &victim, TypingState::Typing).await;
        let _ = chat.typists(&ours, &other).await;
        let _ = chat.check_message_rate(&victim, 1).await;
        // A change of members sets their floor.
        let _ = chat.add_member(&ours, &carl, None).await;
        let _ = chat.remove_member(&ours, &carl, None).await;
        let mut client = Client::connect(&app, &chat, "carl").await;
        use_channel(&mut client, "news:victim").await;

        let fails = |error: &dyn std::fmt::Display| -> ! { panic!("after {what}: {error}") };
        chat.add_user_socket(&other, &sockets[1]).await.unwrap_or_else(|error| fails(&error));
        let presence =
            chat.presence(&[victim.clone(), other.clone()]).await.unwrap_or_else(|error| fails(&error));
        assert!(presence[1].online, "{what}: {presence:?}");
        done(chat.send(&message(&theirs, "carl", "hello")).await);
        let newest = done(chat.messages(&theirs, Some(&other), MessageRange::Newest, 1).await);
        assert_eq!(newest[0].content, "hello", "{what}");
        let members = chat.participants(&theirs).await.unwrap_or_else(|error| fails(&error));
        assert_eq!(members, [carl.clone(), other.clone()], "{what}");
        let (counts, _) = chat.unread(&other).await.unwrap_or_else(|error| fails(&error));
        assert!(counts.iter().any(|count| count.conversation_id == theirs && count.unread > 0), "{what}");
        done(chat.typing(&theirs, &carl, TypingState::Typing).await);
        assert_eq!(done(chat.typists(&theirs, &other).await), std::slice::from_ref(&carl), "{what}");
        let history = use_channel(&mut client, "news:other").await;
        assert_eq!(history["history"]["publications"][0]["data"], "hello", "{what}: {history}");
        chat.nodes().await.unwrap_or_else(|error| fails(&error));
        assert_eq!(app.get("/chat/operator").await.status, 200, "{what}");
        *subscriber.lock().await = Some(client);
    };
    let exceptions = [
        // Only until a dead node is swept.
        ("nodes_dead", Exception::Momentary(keys(context.context()).nodes_dead(Shard::default()))),
        // With another algorithm of the message limit.
        ("message_pace", Exception::Unused),
        // Only for clients over WebSocket.
        ("connect_rate", Exception::Unused),
        // Only for back ends that publish with an idempotency key.
        ("publish_once", Exception::Unused),
    ];
    ForeignClient::new(&context, "victim", exceptions).overwrite_each_family(&work).await;
    wait_for("the node to be alive", LIMIT, async || chat.nodes().await.is_ok_and(|nodes| nodes.len() == 1))
        .await;
    work("all").await;
}

/// C1 C2 C4 C5 C6 C7 C8 C9 C12 C13
#[tokio::test(flavor = "multi_thread")]
async fn other_users_are_not_affected_by_foreign_values_on_the_embedded_engine() {
    other_users_are_not_affected(TestContext::embedded(NEEDS, Layout::Plain).await).await;
}

/// C1 C2 C4 C5 C6 C7 C8 C9 C12 C13
#[tokio::test(flavor = "multi_thread")]
async fn other_users_are_not_affected_by_foreign_values_on_redis() {
    other_users_are_not_affected(TestContext::redis(NEEDS).await).await;
}
