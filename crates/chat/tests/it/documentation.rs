//! The guide: its steps work, and the documented publications are those that the server sends.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use hob_chat::{Chat, ReactionAction, ReceiptKind, TypingState};
use hob_fixtures::{Layout, TestApp, TestContext};
use hob_testkit::LIMIT;
use hob_web::Service as _;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::client::Client;
use crate::harness::{NEEDS, done, message, open, room, user};

const GUIDE: &str = include_str!("../../../../docs/chat.md");

/// The code blocks of the guide in a language.
fn blocks(language: &str) -> Vec<&'static str> {
    let start = format!("```{language}\n");
    GUIDE.split(start.as_str()).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// The fields and types of a value.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), shape(value))).collect(),
        Value::Array(items) => items.first().map(shape).into_iter().collect(),
        Value::String(_) => json!("string"),
        Value::Number(_) => json!("number"),
        Value::Bool(_) => json!("boolean"),
        Value::Null => Value::Null,
    }
}

/// The shape of each kind of publication; that of a feed's snapshot is under `snapshot`.
type Shapes = BTreeMap<String, Value>;

fn add_shape(shapes: &mut Shapes, data: &Value) {
    let kind = data["type"].as_str().unwrap_or("snapshot").to_owned();
    let mut found = shape(data);
    if data["type"].is_string() {
        found["type"] = data["type"].clone();
    }
    shapes.entry(kind).or_insert(found);
}

#[tokio::test]
async fn documented_publications_are_sent() {
    let mut documented = Shapes::new();
    for block in blocks("json") {
        add_shape(
            &mut documented,
            &serde_json::from_str(block).unwrap_or_else(|error| panic!("{error}: {block}")),
        );
    }
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let chat = open(&context).await;
    let app = TestApp::start(context.context(), chat.routes()).await;
    room(&chat, "lobby", &["anna", "bert", "dora"]).await;
    let _dora = Client::connect(&app, &chat, "dora").await;
    let mut bert = Client::connect(&app, &chat, "bert").await;
    let mut sent = Shapes::new();
    add_shape(&mut sent, &bert.subscribe("user:bert").await["subscribe"]["data"]);
    bert.subscribe("conv:lobby").await;
    change_everything(&chat).await;
    let _anna = Client::connect(&app, &chat, "anna").await;
    while sent.len() < documented.len() {
        let push = bert.push_where(|push| push["pub"]["data"].is_object()).await;
        add_shape(&mut sent, &push["pub"]["data"]);
    }
    assert_eq!(sent, documented);
    let all = [
        "deleted",
        "edited",
        "expiry",
        "joined",
        "left",
        "membership",
        "message",
        "presence",
        "reacted",
        "receipt",
        "renamed",
        "snapshot",
        "typing",
        "unreacted",
        "unread",
    ];
    assert_eq!(sent.keys().collect::<Vec<_>>(), all);
}

async fn change_everything(chat: &Chat) {
    let (id, anna, carl) = (crate::harness::conversation("lobby"), user("anna"), user("carl"));
    done(chat.typing(&id, &anna, TypingState::Typing).await);
    let mut new = message(&id, "anna", "Hello");
    new.client_id = Some("a1".to_owned());
    let sent = done(chat.send(&new).await);
    done(chat.edit(&id, &sent.id, &anna, "Hello!").await);
    for action in [ReactionAction::Add, ReactionAction::Remove] {
        done(chat.react(&id, &sent.id, &user("dora"), "👍", action).await);
    }
    done(chat.record_receipt(&id, &anna, sent.sequence, ReceiptKind::Read).await);
    done(chat.delete(&id, &sent.id, &anna).await);
    done(chat.add_member(&id, &carl, None).await);
    done(chat.remove_member(&id, &carl, None).await);
    done(chat.rename(&id, &anna, "Lobby").await);
    done(chat.set_message_ttl(&id, &anna, Some(86_400)).await);
    room(chat, "other", &["anna", "bert"]).await;
}

/// The steps of the quick start, in their order.
#[tokio::test]
async fn quick_start_works() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let chat = open(&context).await;
    let app = TestApp::start(context.context(), chat.routes()).await;
    let mut token = None;
    let steps: Vec<&str> = blocks("sh")[0].lines().filter(|line| line.starts_with("curl ")).collect();
    assert_eq!(steps.len(), 5);
    for step in steps {
        let path = step.strip_prefix("curl -s $api").unwrap().split(' ').next().unwrap();
        let path = format!("/api/v1/chat{path}");
        let response = match step.split('\'').nth(1) {
            Some(body) => app.post(&path, &serde_json::from_str::<Value>(body).unwrap()).await,
            None => app.get(&path).await,
        };
        assert!(response.status.is_success(), "{step}: {}", response.text());
        if path.ends_with("/token") {
            token = response.json::<Value>()["token"].as_str().map(str::to_owned);
        }
    }
    let [page, node, ..] = blocks("js")[..] else { panic!("the guide has two blocks of JavaScript") };
    let class = node.split("const centrifuge").next().unwrap().lines().skip(1).collect::<Vec<_>>().join("\n");
    let page = page.lines().skip(1).collect::<Vec<_>>().join("\n");
    let url = app.url("").replace("http:", "ws:");
    let script = format!(
        "const {{ Centrifuge }} = require('centrifuge');\nconst WebSocket = require('ws');\n{class}\n\
         globalThis.WebSocket = OrderedWebSocket;\nconst token = process.argv[2];\n\
         (async () => {{\n{}\n}})();",
        page.replace("ws://127.0.0.1:7070", url.trim_end_matches('/')),
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.js");
    std::fs::write(&file, script).unwrap();
    let mut node = tokio::process::Command::new("node");
    node.arg(file).arg(token.expect("a token")).env("NODE_PATH", hob_testkit::node_modules());
    let mut node = node.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(node.stdout.take().unwrap()).lines();
    let printed = async {
        let mut text = String::new();
        while !text.contains("clientId: 'b1'") {
            text.push_str(&lines.next_line().await.unwrap().expect("the program is still running"));
        }
        text
    };
    let printed = tokio::time::timeout(LIMIT.max(Duration::from_secs(30)), printed).await.expect("in time");
    assert!(printed.contains("load the newest messages"), "{printed}");
}
