//! Typing (C4 C5): start, stop, and expiry.

use hob_chat::TypingState;
use hob_fixtures::{TestApp, every_service};
use hob_store::cmd;
use hob_testkit::{LIMIT, wait_for};
use hob_web::Service as _;
use serde_json::{Value, json};

use crate::client::Client;
use crate::harness::{NEEDS, done, get, keys, open, room, user};

/// The next typing event. Other pushes come in between, such as a join that was delayed.
async fn next_typing(client: &mut Client) -> Value {
    client.push_where(|push| push["pub"]["data"]["type"] == "typing").await["pub"].take()
}

every_service! {
    NEEDS;

    /// C4 C5: the documented flag, and an index instead of KEYS.
    async fn typing_users_are_listed_by_conversation(context: TestContext) {
        let chat = open(&context).await;
        let id = room(&chat, "conv123", &["anna", "bert", "carl"]).await;
        let key = keys(&context).typing(&id, &user("anna"));
        // Started again with each attempt, because a machine that stalls for five seconds lets it expire.
        wait_for("both to be typing", LIMIT, async || {
            for who in ["anna", "bert"] {
                done(chat.typing(&id, &user(who), TypingState::Typing).await);
            }
            let flag = get(&context, &key).await;
            let ttl: i64 = context.store.run(cmd("PTTL").arg(key.as_bytes()).take()).await.unwrap();
            let typists = done(chat.typists(&id, &user("carl")).await);
            let found = flag.as_deref() == Some("1") && ttl > 0 && ttl <= 5_000;
            if found && typists == [user("anna"), user("bert")] { Ok(()) } else { Err((flag, ttl, typists)) }
        })
        .await;
        done(chat.typing(&id, &user("anna"), TypingState::Stopped).await);
        assert_eq!(get(&context, &key).await, None);
        wait_for("only bert to be typing", LIMIT, async || {
            done(chat.typing(&id, &user("bert"), TypingState::Typing).await);
            let typists = done(chat.typists(&id, &user("carl")).await);
            if typists == [user("bert")] { Ok(()) } else { Err(typists) }
        })
        .await;
        assert!(chat.typing(&id, &user("eve"), TypingState::Typing).await.unwrap().is_err());
    }

    /// C4: subscribers are notified when typing stops or expires.
    async fn subscribers_are_notified_when_typing_stops(context: TestContext) {
        let chat = open(&context).await;
        let app = TestApp::start(context.context(), chat.routes()).await;
        room(&chat, "r", &["anna", "bert"]).await;
        let mut anna = Client::connect(&app, &chat, "anna").await;
        anna.subscribe("conv:r").await;
        let mut bert = Client::connect(&app, &chat, "bert").await;
        bert.rpc("typing", json!({ "conversationId": "r", "typing": true })).await;
        let event = |typing: bool| json!({ "data": { "type": "typing", "userId": "bert", "typing": typing } });
        assert_eq!(next_typing(&mut anna).await, event(true));
        bert.rpc("send", json!({ "conversationId": "r", "content": "done" })).await;
        assert_eq!(next_typing(&mut anna).await, event(false));
        anna.messages(1).await;
        bert.rpc("typing", json!({ "conversationId": "r", "typing": true })).await;
        assert_eq!(next_typing(&mut anna).await, event(true));
        drop(bert);
        assert_eq!(next_typing(&mut anna).await, event(false));
    }

    /// A typist's own devices do not receive that its user is typing, on any node.
    async fn typing_is_not_sent_to_the_typist(context: TestContext) {
        let chat = open(&context).await;
        let other = context.another_node().await;
        let there = crate::harness::start(&other, crate::harness::config()).await;
        let (app, app_there) =
            (TestApp::start(context.context(), chat.routes()).await, TestApp::start(&other, there.routes()).await);
        room(&chat, "r", &["anna", "bert"]).await;
        let mut bert = Client::connect(&app, &chat, "bert").await;
        let mut laptop = Client::connect(&app_there, &there, "bert").await;
        let mut anna = Client::connect(&app_there, &there, "anna").await;
        for client in [&mut bert, &mut laptop, &mut anna] {
            client.subscribe("conv:r").await;
        }
        for typing in [true, false] {
            bert.rpc("typing", json!({ "conversationId": "r", "typing": typing })).await;
            assert_eq!(next_typing(&mut anna).await["data"]["typing"], typing);
        }
        bert.rpc("send", json!({ "conversationId": "r", "content": "done" })).await;
        for client in [&mut bert, &mut laptop] {
            let first = client.push_where(|push| push["pub"]["data"]["type"] != Value::Null).await;
            assert_eq!(first["pub"]["data"]["type"], "message", "{first}");
        }
        other.tasks.stop(LIMIT).await;
    }
}
