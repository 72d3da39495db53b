//! Messages that expire are deleted like others, on every node and in every count.

use hob_chat::{Chat, Config, MessageRange};
use hob_fixtures::{TestApp, TestContext, every_service};
use hob_service::Period;
use hob_testkit::{LIMIT, wait_for};
use hob_web::Service as _;
use serde_json::{Value, json};

use crate::client::Client;
use crate::harness::{NEEDS, config, conversation, done, get, keys, message, room, say, start, user};

async fn app(context: &TestContext) -> (Chat, TestApp) {
    let soon = Config { expiry_interval: Period::from_millis(20), ..config() };
    let chat = start(context.context(), soon).await;
    let app = TestApp::start(context.context(), chat.routes()).await;
    (chat, app)
}

async fn contents(chat: &Chat, id: &str) -> Vec<String> {
    let messages = done(chat.messages(&conversation(id), None, MessageRange::Newest, 500).await);
    messages.into_iter().map(|message| message.content).collect()
}

every_service! {
    NEEDS;

    async fn expired_messages_are_deleted(context: TestContext) {
        let (chat, app) = app(&context).await;
        let (id, kept) = (room(&chat, "r", &["anna", "bert"]).await, room(&chat, "kept", &["anna", "bert"]).await);
        let mut anna = Client::connect(&app, &chat, "anna").await;
        anna.subscribe("conv:r").await;
        let first = say(&chat, &id, "bert", "first").await;
        for n in 0..60 {
            say(&chat, &id, "bert", &n.to_string()).await;
        }
        let mut mention = message(&id, "bert", "last");
        mention.mentions = vec![user("anna")];
        done(chat.send(&mention).await);
        say(&chat, &kept, "bert", "kept").await;
        assert_eq!(chat.unread(&user("anna")).await.unwrap().1, 63);
        // Earlier messages expire too.
        let put = json!({ "user_id": "anna", "message_ttl": 1 });
        let response = app.put("/api/v1/chat/conversations/r/expiry", &put).await;
        assert_eq!(response.status, 204, "{}", response.text());
        let push = anna.push_where(|push| push["pub"]["data"]["type"] == "expiry").await;
        assert_eq!(push["pub"]["data"], json!({ "type": "expiry", "messageTtl": 1 }));
        let first_offset = push["pub"]["offset"].as_u64().unwrap() + 1;
        for offset in first_offset..first_offset + 62 {
            let push = anna.push_where(|push| push["pub"]["data"]["type"] == "deleted").await;
            assert_eq!((&push["pub"]["offset"], &push["pub"]["data"]["message"]["content"]), (&json!(offset), &json!("")));
        }
        assert_eq!((contents(&chat, "r").await, contents(&chat, "kept").await), (vec![], vec!["kept".to_owned()]));
        let (counts, total) = chat.unread(&user("anna")).await.unwrap();
        assert_eq!((total, counts.iter().map(|count| count.mentions).sum::<u64>()), (1, 0));
        wait_for("the counters in Redis", LIMIT, async || {
            get(&context, &keys(&context).unread_total(&user("anna"))).await.as_deref() == Some("1")
        })
        .await;
        let history = anna.call(json!({ "history": { "channel": "conv:r", "limit": 100 } })).await;
        assert!(!history.to_string().contains("first"), "the text is erased from the events: {history}");
        assert_eq!(app.get("/api/v1/chat/users/anna/search?q=first").await.json::<Value>()["messages"], json!([]));
        let reply = anna.rpc("thread", json!({ "conversationId": "r", "messageId": first.id })).await;
        assert_eq!(reply["error"]["code"], 404, "{reply}");

        // New messages expire as well, until expiry is switched off.
        say(&chat, &id, "bert", "new").await;
        anna.push_where(|push| push["pub"]["data"]["type"] == "deleted").await;
        let off = anna.rpc("expire", json!({ "conversationId": "r", "messageTtl": null })).await;
        assert_eq!(off["rpc"]["data"], json!({}), "{off}");
        let stays = say(&chat, &id, "bert", "stays").await;
        let shown: Value = app.get("/api/v1/chat/conversations/r").await.json();
        assert!(shown["message_ttl"].is_null(), "{shown}");
        // If another one expires meanwhile, the cleaner has had its turn.
        done(chat.set_message_ttl(&kept, &user("anna"), Some(1)).await);
        wait_for("another conversation to be cleaned", LIMIT, async || contents(&chat, "kept").await.is_empty()).await;
        assert_eq!(contents(&chat, "r").await, [stays.content]);
    }

    async fn only_members_set_the_expiry(context: TestContext) {
        let (chat, app) = app(&context).await;
        room(&chat, "r", &["anna"]).await;
        for (who, ttl, status) in [("mallory", 60, 403), ("anna", 0, 422), ("anna", 400_000_000, 422), ("anna", 3600, 204)] {
            let body = json!({ "user_id": who, "message_ttl": ttl });
            let response = app.put("/api/v1/chat/conversations/r/expiry", &body).await;
            assert_eq!(response.status.as_u16(), status, "{who} {ttl}: {}", response.text());
        }
        let shown: Value = app.get("/api/v1/chat/conversations/r").await.json();
        assert_eq!(shown["message_ttl"], 3600, "{shown}");
        say(&chat, &conversation("r"), "anna", "fresh").await;
        assert_eq!(contents(&chat, "r").await, ["fresh"]);
    }
}
