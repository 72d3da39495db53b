//! The Centrifugo SDKs for JavaScript and Python on channels of a namespace: publish, history, presence, joins, tokens, and
//! recovery.

use std::time::Duration;

use hob_chat::keys::NamedChannel;
use hob_fixtures::{Layout, TestContext};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::client::Client;
use crate::harness::{NEEDS, user};
use crate::namespaces;
use crate::proxy::Proxy;
use crate::sdk::{Program, javascript, protobuf, python};

async fn use_namespace(mut command: Command) {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let (chat, app) = namespaces::open(context.context()).await;
    let proxy = Proxy::to(app.address()).await;
    let mut bert = Client::connect(&app, &chat, "bert").await;
    bert.subscribe("news:a").await;
    let valid = Duration::from_secs(600);
    let secret = NamedChannel::new("$news:secret").unwrap();
    let secret = chat.issue_subscription_token(&user("anna"), &secret, valid).unwrap();
    command.env("SUBSCRIPTION_TOKEN", secret);
    let url = format!("ws://{}/connection/websocket", proxy.address());
    let mut anna = Program::start(command, &url, &chat.issue_token(&user("anna"), valid).unwrap());

    assert_eq!(anna.value_of("subscribed").await, json!({ "wasRecovering": false, "recovered": false }));
    let mut summary = anna.next().await;
    while summary.get("present").is_none() {
        assert!(summary.get("failed").is_none(), "{summary}");
        summary = anna.next().await;
    }
    let expected = json!({ "present": ["anna", "bert"], "stats": [2, 2], "history": [{ "n": 1 }] });
    assert_eq!(summary, expected);
    assert_eq!(anna.value_of("secret").await, "subscribed");
    let mut carl = Client::connect(&app, &chat, "carl").await;
    carl.subscribe("news:a").await;
    // Her own join may come later than the reply to any of her commands.
    anna.wait_for("join", "carl").await;
    drop(carl);
    anna.wait_for("leave", "carl").await;

    let publish = async |client: &mut Client, n: u64| {
        let data = json!({ "n": n });
        let reply = client.call(json!({ "publish": { "channel": "news:a", "data": data } })).await;
        assert!(reply["publish"].is_object(), "{reply}");
    };
    proxy.cut();
    for n in 2..=4 {
        publish(&mut bert, n).await;
    }
    proxy.restore();
    assert_eq!(anna.value_of("subscribed").await, json!({ "wasRecovering": true, "recovered": true }));
    for n in 2..=4 {
        assert_eq!(anna.value_of("publication").await, json!({ "n": n }));
    }
    // More than the history keeps.
    proxy.cut();
    for n in 5..=11 {
        publish(&mut bert, n).await;
    }
    proxy.restore();
    assert_eq!(anna.value_of("subscribed").await, json!({ "wasRecovering": true, "recovered": false }));
    publish(&mut bert, 12).await;
    let next: Value = anna.value_of("publication").await;
    assert_eq!(next, json!({ "n": 12 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn javascript_sdk_uses_a_namespace() {
    use_namespace(javascript("namespace.js")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python_sdk_uses_a_namespace() {
    use_namespace(python("namespace.py")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn javascript_sdk_uses_a_namespace_in_protobuf() {
    use_namespace(protobuf(javascript("namespace.js"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python_sdk_uses_a_namespace_in_protobuf() {
    use_namespace(protobuf(python("namespace.py"))).await;
}
