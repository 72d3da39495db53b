//! Reactions: counted, listed, published as events, and hidden by blocks.

use hob_chat::{BlockAction, Chat, MessageRange, ReactionAction, Refusal};
use hob_fixtures::{TestApp, TestContext, every_service};
use hob_web::Service as _;
use serde_json::{Value, json};

use crate::client::Client;
use crate::harness::{NEEDS, conversation, done, open, room, say, user};

async fn app(context: &TestContext) -> (Chat, TestApp) {
    let chat = open(context).await;
    let app = TestApp::start(context.context(), chat.routes()).await;
    room(&chat, "r", &["anna", "bert", "carl"]).await;
    (chat, app)
}

async fn react(chat: &Chat, message: &str, who: &str, emoji: &str, action: ReactionAction) -> bool {
    done(chat.react(&conversation("r"), message, &user(who), emoji, action).await)
}

/// The reactions to the newest message, as a user sees them: emoji, count, own.
async fn counts(chat: &Chat, who: &str) -> Vec<(String, u64, bool)> {
    let page = chat.list_messages(&conversation("r"), Some(&user(who)), MessageRange::Newest, 1).await;
    let reactions = done(page).messages.remove(0).reactions;
    reactions.into_iter().map(|one| (one.emoji, one.count, one.own)).collect()
}

fn counted(emoji: &str, count: u64, own: bool) -> (String, u64, bool) {
    (emoji.to_owned(), count, own)
}

every_service! {
    NEEDS;

    async fn reactions_are_counted_once_per_user(context: TestContext) {
        let (chat, app) = app(&context).await;
        let mut bert = Client::connect(&app, &chat, "bert").await;
        let mut carl = Client::connect(&app, &chat, "carl").await;
        carl.subscribe("conv:r").await;
        let message = say(&chat, &conversation("r"), "anna", "Tea?").await;
        let request = json!({ "conversationId": "r", "messageId": message.id, "emoji": "👍" });
        for _ in 0..2 {
            assert_eq!(bert.rpc("react", request.clone()).await["rpc"]["data"], json!({}), "idempotent");
        }
        let path = format!("/api/v1/chat/conversations/r/messages/{}/reactions", message.id);
        for (who, emoji) in [("anna", "👍"), ("anna", "🎉"), ("anna", "🎉")] {
            let response = app.post(&path, &json!({ "user_id": who, "emoji": emoji })).await;
            assert_eq!(response.status, 204, "{}", response.text());
        }
        assert_eq!(counts(&chat, "bert").await, [counted("👍", 2, true), counted("🎉", 1, false)]);

        // Each change is one event with the next offset.
        let expected = [("bert", "👍"), ("anna", "👍"), ("anna", "🎉")];
        for ((who, emoji), offset) in expected.into_iter().zip(message.sequence + 1..) {
            let push = carl.push_where(|push| push["pub"]["data"]["type"] == "reacted").await;
            let data = json!({ "type": "reacted", "messageId": message.id, "sequence": message.sequence, "userId": who, "emoji": emoji });
            assert_eq!((&push["pub"]["data"], &push["pub"]["offset"]), (&data, &offset.into()));
        }
        let listed: Value = app.get(&format!("{path}?limit=2")).await.json();
        let who = |listed: &Value| {
            let all = listed["reactions"].as_array().unwrap().iter();
            all.map(|one| format!("{}{}", one["emoji"].as_str().unwrap(), one["user_id"].as_str().unwrap())).collect::<Vec<_>>()
        };
        assert_eq!(who(&listed), ["🎉anna", "👍anna"]);
        let next = listed["next"].as_str().unwrap();
        assert_eq!(who(&app.get(&format!("{path}?limit=2&after={next}")).await.json()), ["👍bert"]);
        let only = carl.rpc("reactions", json!({ "conversationId": "r", "messageId": message.id, "emoji": "🎉" })).await;
        assert_eq!(only["rpc"]["data"]["reactions"][0]["userId"], "anna", "{only}");
        assert_eq!(only["rpc"]["data"]["reactions"].as_array().unwrap().len(), 1);

        for _ in 0..2 {
            assert_eq!(bert.rpc("unreact", request.clone()).await["rpc"]["data"], json!({}));
        }
        let push = carl.push_where(|push| push["pub"]["data"]["type"] == "unreacted").await;
        assert_eq!(push["pub"]["offset"], message.sequence + 4, "a repeated call takes no offset");
        assert_eq!(counts(&chat, "bert").await, [counted("👍", 1, false), counted("🎉", 1, false)]);

        // A client that was away recovers the same events.
        let mut desk = Client::connect(&app, &chat, "carl").await;
        let reply = desk.recover("conv:r", message.sequence, &json!("")).await["subscribe"].take();
        let kinds: Vec<&str> = reply["publications"].as_array().unwrap().iter().map(|one| one["data"]["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["reacted", "reacted", "reacted", "unreacted"], "{reply}");

        // With the message, its reactions are deleted.
        done(chat.delete(&conversation("r"), &message.id, &user("anna")).await);
        assert_eq!(app.get(&path).await.status, 404);
        assert_eq!(bert.rpc("react", request).await["error"]["code"], 404, "a deleted message");
    }

    async fn block_hides_reactions(context: TestContext) {
        let (chat, app) = app(&context).await;
        let (by_anna, mut carl) = (say(&chat, &conversation("r"), "anna", "Tea?").await, Client::connect(&app, &chat, "carl").await);
        carl.subscribe("conv:r").await;
        react(&chat, &by_anna.id, "bert", "👍", ReactionAction::Add).await;
        carl.push_where(|push| push["pub"]["data"]["type"] == "reacted").await;
        done(chat.block(&user("carl"), &user("bert"), BlockAction::Block).await);
        assert_eq!(counts(&chat, "carl").await, []);
        assert_eq!(counts(&chat, "anna").await, [counted("👍", 1, false)]);
        let path = format!("/api/v1/chat/conversations/r/messages/{}/reactions", by_anna.id);
        assert_eq!(app.get(&format!("{path}?user_id=carl")).await.json::<Value>()["reactions"], json!([]));
        react(&chat, &by_anna.id, "bert", "🎉", ReactionAction::Add).await;
        react(&chat, &by_anna.id, "anna", "🎉", ReactionAction::Add).await;
        let push = carl.push_where(|push| push["pub"]["data"]["type"] == "reacted").await;
        assert_eq!(push["pub"]["data"]["userId"], "anna");
        // Nor can a blocked user react to a message that it cannot see.
        let by_bert = say(&chat, &conversation("r"), "bert", "Coffee").await;
        let reacted = chat.react(&conversation("r"), &by_bert.id, &user("carl"), "👍", ReactionAction::Add).await;
        assert_eq!(reacted.unwrap(), Err(Refusal::MessageNotFound));
    }

    async fn reactions_are_limited_and_only_of_readers(context: TestContext) {
        let (chat, app) = app(&context).await;
        let id = conversation("r");
        let message = say(&chat, &id, "anna", "Tea?").await;
        let path = format!("/api/v1/chat/conversations/r/messages/{}/reactions", message.id);
        for bad in ["", "two words", "\u{7}", &"x".repeat(65)] {
            let response = app.post(&path, &json!({ "user_id": "bert", "emoji": bad })).await;
            assert_eq!((response.status.as_u16(), response.text().contains("emoji")), (422, true), "{bad:?}: {}", response.text());
        }
        for n in 0..10 {
            react(&chat, &message.id, "bert", &format!("b{n}"), ReactionAction::Add).await;
            react(&chat, &message.id, "carl", &format!("c{n}"), ReactionAction::Add).await;
        }
        let before = chat.conversation(&id).await.unwrap().unwrap().sequence;
        let more = chat.react(&id, &message.id, &user("bert"), "c1", ReactionAction::Add).await.unwrap();
        assert_eq!(more, Err(Refusal::LimitExceeded { what: "reactions of a user to a message", max: 10 }));
        let more = chat.react(&id, &message.id, &user("anna"), "new", ReactionAction::Add).await.unwrap();
        assert_eq!(more, Err(Refusal::LimitExceeded { what: "different reactions to a message", max: 20 }));
        assert_eq!(chat.conversation(&id).await.unwrap().unwrap().sequence, before, "a refusal takes no number");
        assert!(react(&chat, &message.id, "anna", "c1", ReactionAction::Add).await, "one that others have");
        let outsider = chat.react(&id, &message.id, &user("mallory"), "👍", ReactionAction::Add).await.unwrap();
        assert_eq!(outsider, Err(Refusal::NotMember));
        // What was said in the absence of a member stays hidden.
        done(chat.remove_member(&id, &user("bert"), None).await);
        let missed = say(&chat, &id, "anna", "Bert is out").await;
        done(chat.add_member(&id, &user("bert"), None).await);
        let hidden = chat.react(&id, &missed.id, &user("bert"), "👍", ReactionAction::Add).await.unwrap();
        assert_eq!(hidden, Err(Refusal::MessageNotFound));
    }
}
