//! Full-text search: the same on both databases, and only in what the user can read.

use hob_chat::{BlockAction, Chat, MIGRATIONS};
use hob_database::{Database, Migrations, PerDialect, Query, Read as _, Transaction, sql};
use hob_fixtures::{TestApp, TestContext, every_service};
use hob_web::Service as _;
use serde_json::{Value, json};

use crate::client::Client;
use crate::harness::{NEEDS, done, open, room, say, user};

async fn app(context: &TestContext) -> (Chat, TestApp) {
    let chat = open(context).await;
    let app = TestApp::start(context.context(), chat.routes()).await;
    (chat, app)
}

async fn search(app: &TestApp, who: &str, q: &str) -> Vec<String> {
    let q: String = url::form_urlencoded::byte_serialize(q.as_bytes()).collect();
    contents(&app.get(&format!("/api/v1/chat/users/{who}/search?q={q}")).await.json())
}

fn contents(list: &Value) -> Vec<String> {
    let messages = list["messages"].as_array().unwrap_or_else(|| panic!("{list}"));
    messages.iter().map(|one| one["content"].as_str().unwrap().to_owned()).collect()
}

const TEXTS: [&str; 6] = [
    "Black tea, please.",
    "The tea is black and HOT!",
    "Teapots at https://shop.example/tea-pots?x=1",
    "Grüße aus Köln",
    "Write to anna@shop.example",
    "no milk-tea",
];

every_service! {
    NEEDS;

    async fn messages_are_found_by_words(context: TestContext) {
        let (chat, app) = app(&context).await;
        let id = room(&chat, "r", &["anna", "bert"]).await;
        for text in TEXTS {
            say(&chat, &id, "bert", text).await;
        }
        for (q, found) in [
            ("tea", vec![5, 2, 1, 0]),
            ("TEA black", vec![1, 0]),
            (r#""black tea""#, vec![0]),
            ("tea*", vec![5, 2, 1, 0]),
            ("teap*", vec![2]),
            ("tea -black -shop", vec![5]),
            ("shop.example", vec![4, 2]),
            ("grüße", vec![3]),
            ("milk tea", vec![5]),
            ("coffee", vec![]),
            ("te", vec![]),
        ] {
            let found: Vec<&str> = found.into_iter().map(|index: usize| TEXTS[index]).collect();
            assert_eq!(search(&app, "anna", q).await, found, "{q}");
        }
        let mut anna = Client::connect(&app, &chat, "anna").await;
        let mut after = Value::Null;
        let mut pages = Vec::new();
        for _ in 0..2 {
            let data = json!({ "q": "tea", "conversationId": "r", "limit": 2, "after": after });
            let page = anna.rpc("search", data).await["rpc"]["data"].take();
            pages.push(contents(&page));
            after = page["next"].clone();
        }
        assert_eq!(pages, [[TEXTS[5], TEXTS[2]], [TEXTS[1], TEXTS[0]]]);
        assert!(after.is_null());
        for bad in ["", "-tea", "\"", &"x".repeat(201)] {
            let encoded: String = url::form_urlencoded::byte_serialize(bad.as_bytes()).collect();
            let response = app.get(&format!("/api/v1/chat/users/anna/search?q={encoded}")).await;
            assert_eq!((response.status.as_u16(), response.text().contains("\"q\"")), (422, true), "{}", response.text());
            let error = anna.rpc("search", json!({ "q": bad })).await["error"].take();
            assert_eq!(error["code"], 107, "{error}");
        }
        assert_eq!(anna.rpc("search", json!({ "q": "tea", "after": "x" })).await["error"]["code"], 107);
    }

    async fn search_finds_only_what_the_user_can_read(context: TestContext) {
        let (chat, app) = app(&context).await;
        let id = room(&chat, "r", &["anna", "bert", "carl"]).await;
        let other = room(&chat, "other", &["bert", "carl"]).await;
        say(&chat, &other, "bert", "tea elsewhere").await;
        let first = say(&chat, &id, "bert", "tea one").await;
        let second = say(&chat, &id, "carl", "tea two").await;
        assert_eq!(search(&app, "anna", "tea").await, ["tea two", "tea one"]);
        assert_eq!(search(&app, "carl", "tea").await, ["tea two", "tea one", "tea elsewhere"]);
        assert_eq!(search(&app, "mallory", "tea").await, [""; 0]);
        let one = app.get("/api/v1/chat/users/carl/search?q=tea&conversation_id=other").await.json();
        assert_eq!(contents(&one), ["tea elsewhere"]);

        // An edit and a deletion change the index.
        done(chat.edit(&id, &first.id, &user("bert"), "coffee one").await);
        assert_eq!(search(&app, "anna", "tea").await, ["tea two"]);
        assert_eq!(search(&app, "anna", "coffee").await, ["coffee one"]);
        done(chat.delete(&id, &second.id, &user("carl")).await);
        assert_eq!(search(&app, "anna", "two").await, [""; 0]);

        done(chat.block(&user("anna"), &user("bert"), BlockAction::Block).await);
        assert_eq!(search(&app, "anna", "coffee").await, [""; 0], "blocked");
        done(chat.block(&user("anna"), &user("bert"), BlockAction::Unblock).await);
        done(chat.remove_member(&id, &user("anna"), None).await);
        assert_eq!(search(&app, "anna", "coffee").await, [""; 0], "not a member");
        say(&chat, &id, "bert", "coffee two").await;
        done(chat.add_member(&id, &user("anna"), None).await);
        assert_eq!(search(&app, "anna", "coffee").await, ["coffee one"], "what was said in her absence is hidden");
    }
}

/// The upgrade indexes the messages that are there.
#[tokio::test]
async fn existing_messages_are_indexed_by_the_migration() {
    let (folder, postgres) = (tempfile::tempdir().unwrap(), hob_testkit::Postgres::start());
    let file = folder.path().join("hob.db").to_str().unwrap().to_owned();
    for url in [file, postgres.url()] {
        let address = url.parse().unwrap();
        let last = MIGRATIONS.steps.iter().position(|step| step.name == "0007_search").unwrap();
        let before = Migrations { steps: &MIGRATIONS.steps[..last], ..MIGRATIONS };
        let database = Database::open(&address, &[before]).await.unwrap();
        let old = |tx: Transaction| async move {
            for insert in [
                "INSERT INTO chat_conversation (id, title, created_by, created_at, sequence, newest, changed_at)
                 VALUES ('r', 'Room', 'anna', 1, 2, 2, 1)",
                "INSERT INTO chat_member (conversation, user_id, state, joined_at, read_sequence, delivered_sequence, version)
                 VALUES ('r', 'anna', 'in', 1, 0, 0, 1)",
                "INSERT INTO chat_message (conversation, sequence, number, id, sender, content, sent_at, deleted)
                 VALUES ('r', 1, 1, 'one', 'anna', 'Black tea', 1, FALSE), ('r', 2, 2, 'two', 'anna', '', 1, TRUE)",
            ] {
                tx.execute(sql(insert)).await?;
            }
            Ok::<_, hob_database::Error>(())
        };
        database.write(old).await.unwrap();
        database.close().await;
        let database = Database::open(&address, &[MIGRATIONS]).await.unwrap();
        let count: Query<(u64,)> = sql(PerDialect {
            sqlite: "SELECT count(*) FROM chat_search WHERE chat_search MATCH 'words : (\"black\" AND \"tea\")' AND id = 'one'",
            postgres: "SELECT count(*) FROM chat_message WHERE search @@ to_tsquery('simple', 'black & tea') AND id = 'one'",
        });
        assert_eq!(database.one(count).await.unwrap().0, 1, "{url}");
        database.close().await;
    }
}
