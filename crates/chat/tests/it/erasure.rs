//! Export and deletion of the data of a user.

use hob_chat::{Attachment, BlockAction, Chat, Config, MessageRange, ReactionAction, ReceiptKind};
use hob_database::{Query, Read as _, sql};
use hob_fixtures::{TestApp, TestContext, every_service};
use hob_service::Period;
use hob_store::cmd;
use hob_testkit::{LIMIT, wait_for};
use hob_web::Service as _;
use serde_json::{Value, json};

use crate::client::Client;
use crate::harness::{
    NEEDS, config, conversation, done, keys, message, room, say, start, start_relay, start_without_relay,
    user,
};

/// The next deletion begins soon.
fn soon() -> Config {
    Config { expiry_interval: Period::from_millis(20), ..config() }
}

async fn app(context: &TestContext) -> (Chat, TestApp) {
    let chat = start(context.context(), soon()).await;
    let app = TestApp::start(context.context(), chat.routes()).await;
    (chat, app)
}

/// `anna` has done everything that leaves traces. Returns the id of a message of hers.
async fn leave_traces(chat: &Chat) -> String {
    let id = room(chat, "r", &["anna", "bert", "carl"]).await;
    room(chat, "second", &["bert", "anna"]).await;
    let asked = say(chat, &id, "bert", "Who has the ladle?").await;
    let mut new = message(&id, "anna", "Second drawer");
    new.client_id = Some("phone-1".to_owned());
    new.reply_to = Some(asked.id.clone());
    new.mentions = vec![user("bert")];
    let (url, name) = ("https://files.example/ladle.png".to_owned(), "ladle.png".to_owned());
    new.attachments = vec![Attachment { url, name, media_type: "image/png".to_owned(), size: None }];
    let sent = done(chat.send(&new).await);
    done(chat.edit(&id, &sent.id, &user("anna"), "Third drawer").await);
    let gone = say(chat, &id, "anna", "gone").await;
    done(chat.delete(&id, &gone.id, &user("anna")).await);
    done(chat.react(&id, &asked.id, &user("anna"), "👍", ReactionAction::Add).await);
    done(chat.react(&id, &sent.id, &user("bert"), "🎉", ReactionAction::Add).await);
    done(chat.block(&user("anna"), &user("mallory"), BlockAction::Block).await);
    done(chat.block(&user("carl"), &user("anna"), BlockAction::Block).await);
    done(chat.record_receipt(&id, &user("anna"), asked.sequence, ReceiptKind::Read).await);
    let mut mention = message(&id, "bert", "for anna");
    mention.mentions = vec![user("anna")];
    done(chat.send(&mention).await);
    sent.id
}

async fn export(app: &TestApp, who: &str) -> Vec<Value> {
    let response = app.post(&format!("/api/v1/chat/users/{who}/export"), &json!({})).await;
    assert_eq!(response.status, 200, "{}", response.text());
    response.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

async fn deleted(app: &TestApp, who: &str) {
    wait_for("the data of a user to be deleted", LIMIT, async || {
        app.get(&format!("/api/v1/chat/users/{who}/deletion")).await.status == 404
    })
    .await;
}

/// Whether a column of a table contains a text.
async fn contains(context: &TestContext, table: &'static str, text: &str) -> bool {
    let count: Query<(u64,)> = sql(table);
    context.database.one(count.bind(format!("%{text}%"))).await.unwrap().0 > 0
}

const TRACES: [&str; 10] = [
    "SELECT count(*) FROM chat_message WHERE sender LIKE $1",
    "SELECT count(*) FROM chat_event WHERE actor LIKE $1",
    "SELECT count(*) FROM chat_event WHERE payload LIKE $1 AND kind NOT IN ('message', 'edited')",
    "SELECT count(*) FROM chat_member WHERE user_id LIKE $1",
    "SELECT count(*) FROM chat_absence WHERE user_id LIKE $1",
    "SELECT count(*) FROM chat_reaction WHERE user_id LIKE $1",
    "SELECT count(*) FROM chat_mention WHERE user_id LIKE $1",
    "SELECT count(*) FROM chat_block WHERE blocker LIKE $1 OR blocked LIKE $1",
    "SELECT count(*) FROM chat_conversation WHERE created_by LIKE $1",
    "SELECT count(*) FROM chat_last_seen WHERE user_id LIKE $1",
];

async fn assert_no_trace(context: &TestContext, who: &str) {
    for table in TRACES {
        assert!(!contains(context, table, who).await, "{table}");
    }
    let keys = keys(context);
    let who = user(who);
    for key in [keys.unread_total(&who), keys.unread_held(&who), keys.last_seen(&who), keys.online(&who)] {
        // The relay may write a count that it has read before.
        wait_for(format_args!("{key:?} to be deleted"), LIMIT, async || {
            let exists = cmd("EXISTS").arg(key.as_bytes()).take();
            context.store.run::<u64>(exists).await.unwrap() == 0
        })
        .await;
    }
}

every_service! {
    NEEDS;

    async fn data_of_a_user_is_exported(context: TestContext) {
        let (chat, app) = app(&context).await;
        leave_traces(&chat).await;
        for n in 0..150 {
            say(&chat, &conversation("second"), "anna", &n.to_string()).await;
        }
        let records = export(&app, "anna").await;
        let of = |kind: &str| records.iter().filter(|record| record["type"] == kind).collect::<Vec<_>>();
        assert_eq!((&records[0]["user_id"], of("block")[0]["user_id"].as_str()), (&json!("anna"), Some("mallory")));
        let memberships: Vec<&Value> = of("membership").iter().map(|one| &one["conversation_id"]).collect();
        assert_eq!(memberships, [&json!("r"), &json!("second")]);
        let messages = of("message");
        assert_eq!(messages.len(), 151, "without the deleted one");
        assert_eq!((&messages[0]["content"], &messages[0]["attachments"][0]["name"]), (&json!("Third drawer"), &json!("ladle.png")));
        assert_eq!(messages[150]["content"], "149");
        assert_eq!(of("reaction")[0]["emoji"], "👍");
        assert_eq!(records.last().unwrap(), &json!({ "type": "end" }));
        assert_eq!(export(&app, "dora").await.len(), 2, "the user and the end");
    }

    async fn deleted_user_leaves_nothing(context: TestContext) {
        let (chat, app) = app(&context).await;
        let mut bert = Client::connect(&app, &chat, "bert").await;
        let mut anna = Client::connect(&app, &chat, "anna").await;
        leave_traces(&chat).await;
        bert.subscribe("conv:r").await;
        assert_eq!(app.delete("/api/v1/chat/users/anna").await.status, 422, "the choice is required");
        let response = app.delete("/api/v1/chat/users/anna?messages=delete").await;
        assert_eq!(response.status, 202, "{}", response.text());
        assert!([3005, 3503].contains(&anna.end().await));
        deleted(&app, "anna").await;
        for kind in ["unreacted", "left", "deleted"] {
            bert.push_where(|push| push["pub"]["data"]["type"] == kind).await;
        }
        let read = done(chat.messages(&conversation("r"), None, MessageRange::Newest, 50).await);
        let read: Vec<&str> = read.iter().map(|message| message.content.as_str()).collect();
        assert_eq!(read, ["Who has the ladle?", "for anna"]);
        assert_no_trace(&context, "anna").await;
        for text in ["Third drawer", "Second drawer", "ladle.png", "phone-1"] {
            for table in ["SELECT count(*) FROM chat_event WHERE payload LIKE $1", "SELECT count(*) FROM chat_message WHERE content LIKE $1"] {
                assert!(!contains(&context, table, text).await, "{text}: {table}");
            }
        }
        // The name is free again.
        done(chat.add_member(&conversation("r"), &user("anna"), None).await);
        assert_eq!(chat.unread(&user("anna")).await.unwrap().1, 0);
        say(&chat, &conversation("r"), "bert", "hello").await;
        wait_for("the new count", LIMIT, async || chat.unread(&user("anna")).await.unwrap().1 == 1).await;
    }

    /// The relay had read a count before the user was deleted, and wrote it afterwards. The event that deletes it comes together
    /// with one to recount all members.
    async fn late_counts_of_a_deleted_user_are_deleted(context: TestContext) {
        let chat = start_without_relay(context.context(), soon()).await;
        let app = TestApp::start(context.context(), chat.routes()).await;
        leave_traces(&chat).await;
        assert_eq!(app.delete("/api/v1/chat/users/anna?messages=delete").await.status, 202);
        deleted(&app, "anna").await;
        let (keys, anna) = (keys(&context), user("anna"));
        let held = cmd("HSET").arg(keys.unread_held(&anna)).arg("total").arg(0).arg("r").arg("9:0:9:0").take();
        let total = cmd("SET").arg(keys.unread_total(&anna)).arg(0).take();
        for late in [held, total] {
            context.test_store().as_outsider(late).await;
        }
        start_relay(context.context(), &chat);
        assert_no_trace(&context, "anna").await;
    }

    async fn messages_of_a_deleted_user_can_stay(context: TestContext) {
        let (chat, app) = app(&context).await;
        let mut bert = Client::connect(&app, &chat, "bert").await;
        let id = leave_traces(&chat).await;
        bert.subscribe("conv:r").await;
        assert_eq!(app.delete("/api/v1/chat/users/anna?messages=anonymize").await.status, 202);
        deleted(&app, "anna").await;
        let push = bert.push_where(|push| push["pub"]["data"]["type"] == "edited").await;
        let renamed = &push["pub"]["data"]["message"];
        assert_eq!((&renamed["id"], &renamed["content"]), (&json!(id), &json!("Third drawer")));
        let pseudonym = renamed["senderId"].as_str().unwrap();
        assert!(pseudonym.starts_with("deleted-"), "{renamed}");
        assert_no_trace(&context, "anna").await;
        let list: Value = app.get("/api/v1/chat/conversations/r/messages?user_id=bert").await.json();
        assert_eq!((&list["messages"][1]["sender_id"], &list["messages"][1]["client_id"]), (&json!(pseudonym), &Value::Null));
        assert_eq!(list["messages"][1]["reactions"], json!([{ "emoji": "🎉", "count": 1, "own": true }]));
        // A block still hides them.
        let hidden: Value = app.get("/api/v1/chat/conversations/r/messages?user_id=carl").await.json();
        assert_eq!(hidden["messages"].as_array().unwrap().len(), 2, "{hidden}");
    }
}
