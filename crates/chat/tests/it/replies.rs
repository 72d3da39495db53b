//! Replies in threads, mentions of members, and attachments.

use futures_util::future::join_all;
use hob_chat::{Attachment, BlockAction, Chat, Config, NewMessage, ReceiptKind, Refusal};
use hob_fixtures::{Layout, TestApp, TestContext, every_service};
use hob_testkit::{LIMIT, wait_for};
use hob_web::Service as _;
use serde_json::{Value, json};

use crate::client::Client;
use crate::harness::{NEEDS, config, conversation, done, message, open, room, say, start, user};

async fn app(context: &TestContext) -> (Chat, TestApp) {
    let chat = open(context).await;
    let app = TestApp::start(context.context(), chat.routes()).await;
    room(&chat, "r", &["anna", "bert", "carl"]).await;
    (chat, app)
}

fn reply(sender: &str, content: &str, to: &str) -> NewMessage {
    NewMessage { reply_to: Some(to.to_owned()), ..message(&conversation("r"), sender, content) }
}

fn mention(sender: &str, content: &str, who: &[&str]) -> NewMessage {
    let mentions = who.iter().map(|who| user(who)).collect();
    NewMessage { mentions, ..message(&conversation("r"), sender, content) }
}

fn contents(list: &Value) -> Vec<&str> {
    list["messages"].as_array().unwrap().iter().map(|one| one["content"].as_str().unwrap()).collect()
}

/// Unread messages and mentions in the conversation.
async fn unread(chat: &Chat, who: &str) -> (u64, u64) {
    let counts = chat.unread(&user(who)).await.unwrap().0;
    let count = counts.iter().find(|count| count.conversation_id.as_str() == "r").unwrap();
    (count.unread, count.mentions)
}

every_service! {
    NEEDS;

    async fn replies_form_a_thread(context: TestContext) {
        let (chat, app) = app(&context).await;
        let id = conversation("r");
        let root = say(&chat, &id, "anna", "Who has the ladle?").await;
        let first = done(chat.send(&reply("bert", "Not me", &root.id)).await);
        say(&chat, &id, "carl", "It rains").await;
        // A reply to a reply belongs to the same thread.
        let second = done(chat.send(&reply("carl", "Second drawer", &first.id)).await);
        assert_eq!((second.reply_to.as_ref(), second.thread_id.as_ref()), (Some(&first.id), Some(&root.id)));
        let list: Value = app.get("/api/v1/chat/conversations/r/messages").await.json();
        let replies: Vec<&Value> = list["messages"].as_array().unwrap().iter().map(|one| &one["reply_count"]).collect();
        assert_eq!(replies, [&json!(2), &Value::Null, &Value::Null, &Value::Null], "{list}");
        assert_eq!(list["offset"], second.sequence);

        let path = format!("/api/v1/chat/conversations/r/messages/{}/thread", first.id);
        let thread: Value = app.get(&format!("{path}?limit=1")).await.json();
        assert_eq!((&thread["root"]["id"], contents(&thread)), (&json!(root.id), vec!["Not me"]), "{thread}");
        let rest: Value = app.get(&format!("{path}?after={}", first.sequence)).await.json();
        assert_eq!(contents(&rest), ["Second drawer"]);

        // A block hides replies and does not count them; a deletion removes them.
        done(chat.block(&user("anna"), &user("bert"), BlockAction::Block).await);
        let mut anna = Client::connect(&app, &chat, "anna").await;
        let mut carl = Client::connect(&app, &chat, "carl").await;
        let request = json!({ "conversationId": "r", "messageId": root.id });
        let seen = anna.rpc("thread", request.clone()).await["rpc"]["data"].take();
        assert_eq!((contents(&seen), &seen["root"]["replyCount"]), (vec!["Second drawer"], &json!(1)), "{seen}");
        let all = carl.rpc("thread", request.clone()).await["rpc"]["data"].take();
        assert_eq!((contents(&all), &all["root"]["replyCount"]), (vec!["Not me", "Second drawer"], &json!(2)), "{all}");
        done(chat.delete(&id, &second.id, &user("carl")).await);
        let after = carl.rpc("thread", request).await["rpc"]["data"].take();
        assert_eq!(contents(&after), ["Not me"]);
        let page = carl.rpc("messages", json!({ "conversationId": "r", "limit": 10 })).await["rpc"]["data"].take();
        assert_eq!(contents(&page), ["Who has the ladle?", "Not me", "It rains"]);
        assert_eq!(page["messages"][0]["replyCount"], 1);
    }

    async fn reply_and_mentions_must_be_of_the_conversation(context: TestContext) {
        let (chat, app) = app(&context).await;
        let other = room(&chat, "other", &["anna"]).await;
        let elsewhere = say(&chat, &other, "anna", "Alone").await;
        let gone = say(&chat, &conversation("r"), "anna", "Gone").await;
        done(chat.delete(&conversation("r"), &gone.id, &user("anna")).await);
        let before = chat.conversation(&conversation("r")).await.unwrap().unwrap().sequence;
        // Sent at the same time, so that some of them share a transaction.
        let bad = [
            reply("bert", "x", &elsewhere.id),
            reply("bert", "x", &gone.id),
            reply("bert", "x", "nothing"),
            mention("bert", "x", &["anna", "mallory"]),
            mention("bert", "x", &["anna", "anna"]),
        ];
        let fine = mention("carl", "fine", &["anna"]);
        let answers = join_all(bad.iter().chain([&fine]).map(|new| chat.send(new))).await;
        let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
        for (answer, field) in answers.iter().zip(["reply_to", "reply_to", "reply_to", "mentions", "mentions"]) {
            assert!(matches!(answer, Err(Refusal::InvalidField { field: found, .. }) if *found == field), "{answer:?}");
        }
        assert_eq!(answers[5].as_ref().unwrap().sequence, before + 1, "refusals take no number");
        let body = json!({ "sender_id": "bert", "content": "x", "mentions": ["mallory"] });
        let response = app.post("/api/v1/chat/conversations/r/messages", &body).await;
        assert_eq!((response.status.as_u16(), response.text().contains("mallory is not a member")), (422, true), "{}", response.text());
        let mut bert = Client::connect(&app, &chat, "bert").await;
        let error = bert.rpc("send", json!({ "conversationId": "r", "content": "x", "replyTo": "nothing" })).await["error"].take();
        assert_eq!((&error["code"], error["message"].as_str().unwrap().contains("replyTo")), (&json!(107), true), "{error}");
    }

    async fn unread_mentions_are_counted(context: TestContext) {
        let (chat, app) = app(&context).await;
        let id = conversation("r");
        let mut anna = Client::connect(&app, &chat, "anna").await;
        let snapshot = anna.subscribe("user:anna").await["subscribe"]["data"].take();
        assert_eq!(snapshot["unread"][0]["mentions"], 0, "{snapshot}");
        let mut last = 0;
        for n in 0..3 {
            say(&chat, &id, "bert", "no mention").await;
            last = done(chat.send(&mention("bert", &format!("mention {n}"), &["anna", "bert"])).await).sequence;
        }
        let push = anna.push_where(|push| push["pub"]["data"]["unread"] == 6).await;
        assert_eq!(push["pub"]["data"]["mentions"], 3, "{push}");
        assert_eq!((unread(&chat, "anna").await, unread(&chat, "carl").await), ((6, 3), (6, 0)));
        assert_eq!(unread(&chat, "bert").await, (0, 0), "one's own messages");
        let http: Value = app.get("/api/v1/chat/users/anna/unread").await.json();
        assert_eq!(http["conversations"][0]["mentions"], 3, "{http}");

        let page: Value = app.get("/api/v1/chat/users/anna/mentions?limit=2").await.json();
        assert_eq!(contents(&page), ["mention 2", "mention 1"], "newest first");
        let next = page["next"].as_str().unwrap();
        assert_eq!(contents(&app.get(&format!("/api/v1/chat/users/anna/mentions?limit=2&after={next}")).await.json()), ["mention 0"]);
        let middle = page["messages"][1]["sequence"].as_u64().unwrap();
        done(chat.record_receipt(&id, &user("anna"), middle, ReceiptKind::Read).await);
        anna.push_where(|push| push["pub"]["data"]["mentions"] == 1).await;
        let found = anna.rpc("mentions", json!({ "unread": true })).await["rpc"]["data"].take();
        assert_eq!((contents(&found), found["messages"][0]["sequence"].as_u64()), (vec!["mention 2"], Some(last)), "{found}");

        // Neither deleted messages count, nor those of blocked users, nor those in an absence.
        let deleted = done(chat.send(&mention("bert", "deleted", &["anna"])).await);
        anna.push_where(|push| push["pub"]["data"]["mentions"] == 2).await;
        done(chat.delete(&id, &deleted.id, &user("bert")).await);
        anna.push_where(|push| push["pub"]["data"]["mentions"] == 1).await;
        done(chat.block(&user("anna"), &user("bert"), BlockAction::Block).await);
        assert_eq!(unread(&chat, "anna").await, (0, 0));
        done(chat.send(&mention("bert", "hidden", &["anna", "carl"])).await);
        wait_for("the mention of another member", LIMIT, async || unread(&chat, "carl").await.1 == 1).await;
        assert_eq!(unread(&chat, "anna").await, (0, 0));
        assert_eq!(contents(&app.get("/api/v1/chat/users/anna/mentions").await.json()), [""; 0]);
        done(chat.block(&user("anna"), &user("bert"), BlockAction::Unblock).await);
        done(chat.remove_member(&id, &user("carl"), None).await);
        assert_eq!(contents(&app.get("/api/v1/chat/users/carl/mentions").await.json()), [""; 0], "not a member");
        done(chat.add_member(&id, &user("carl"), None).await);
        assert_eq!(unread(&chat, "carl").await, (0, 0));
    }

    async fn attachments_are_sent_with_a_message_and_erased_with_it(context: TestContext) {
        let (chat, app) = app(&context).await;
        let mut bert = Client::connect(&app, &chat, "bert").await;
        bert.subscribe("conv:r").await;
        let file = json!({ "url": "https://files.example/tea.png", "name": "tea.png", "media_type": "image/png", "size": 1234 });
        let body = json!({ "sender_id": "anna", "attachments": [file] });
        let sent = app.post("/api/v1/chat/conversations/r/messages", &body).await;
        assert_eq!(sent.status, 201, "a message without a text: {}", sent.text());
        assert_eq!(sent.json::<Value>()["attachments"], json!([file]));
        let push = bert.push_where(|push| push["pub"]["data"]["type"] == "message").await;
        let seen = json!([{ "url": "https://files.example/tea.png", "name": "tea.png", "mediaType": "image/png", "size": 1234 }]);
        assert_eq!(push["pub"]["data"]["message"]["attachments"], seen);
        let id = push["pub"]["data"]["message"]["id"].as_str().unwrap().to_owned();
        let edited = done(chat.edit(&conversation("r"), &id, &user("anna"), "Tea").await);
        assert_eq!(edited.attachments.0.len(), 1, "an edit changes the text only");
        done(chat.delete(&conversation("r"), &id, &user("anna")).await);
        let history = bert.call(json!({ "history": { "channel": "conv:r", "limit": 100 } })).await;
        assert!(!history.to_string().contains("tea.png"), "{history}");
        let attachments = |count: usize| vec![json!({ "url": "https://files.example/a", "name": "a", "mediaType": "text/plain" }); count];
        for (bad, why) in [
            (json!([{ "url": "http://files.example/a", "name": "a", "mediaType": "text/plain" }]), "https"),
            (json!([{ "url": "javascript:alert(1)", "name": "a", "mediaType": "text/plain" }]), "https"),
            (json!([{ "url": "https://files.example/a", "name": "", "mediaType": "text/plain" }]), "name"),
            (json!([{ "url": "https://files.example/a", "name": "a", "mediaType": "text" }]), "media_type"),
            (json!(attachments(9)), "at most 8"),
        ] {
            let error = bert.rpc("send", json!({ "conversationId": "r", "attachments": bad })).await["error"].take();
            assert_eq!((&error["code"], error["message"].as_str().unwrap().contains(why)), (&json!(107), true), "{error}");
        }
        let eight = bert.rpc("send", json!({ "conversationId": "r", "attachments": attachments(8) })).await;
        assert_eq!(eight["rpc"]["data"]["attachments"].as_array().map(Vec::len), Some(8), "{eight}");
    }
}

/// `http_attachments` allows URLs that are not encrypted.
#[tokio::test]
async fn http_attachments_can_be_allowed() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let chat = start(context.context(), Config { http_attachments: true, ..config() }).await;
    let id = room(&chat, "r", &["anna"]).await;
    let file = |url: &str| {
        let (name, media_type) = ("a".to_owned(), "text/plain".to_owned());
        Attachment { url: url.to_owned(), name, media_type, size: None }
    };
    let new = |url: &str| NewMessage { attachments: vec![file(url)], ..message(&id, "anna", "") };
    done(chat.send(&new("http://intranet.example/a")).await);
    assert!(chat.send(&new("ftp://intranet.example/a")).await.unwrap().is_err());
}
