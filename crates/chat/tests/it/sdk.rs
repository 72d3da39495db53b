//! The Centrifugo SDKs for JavaScript and Python, in JSON and in Protobuf, over every transport: connect, subscribe, publish, use presence and
//! history, get disconnected, and recover.

use hob_web::Service as _;
use std::process::Stdio;
use std::time::Duration;

use hob_chat::Chat;
use hob_fixtures::{TestApp, TestContext};
use hob_testkit::LIMIT;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::client::Client;
use crate::harness::{NEEDS, config, done, open, room, say, start, user};
use crate::proxy::Proxy;

/// More messages than the first reply holds.
const MANY: usize = 600;

/// A program that uses an SDK and prints the received events.
pub(crate) struct Program {
    lines: Lines<BufReader<ChildStdout>>,
    // The program ends when its input ends, or when this is dropped.
    _child: Child,
}

impl Program {
    pub(crate) fn start(mut command: Command, url: &str, token: &str) -> Self {
        let command =
            command.args([url, token]).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        Self { lines: BufReader::new(child.stdout.take().unwrap()).lines(), _child: child }
    }

    pub(crate) async fn next(&mut self) -> Value {
        let line = tokio::time::timeout(LIMIT, self.lines.next_line())
            .await
            .expect("a line arrives in time")
            .unwrap();
        serde_json::from_str(&line.expect("the program is still running")).unwrap()
    }

    /// The value of the next line with this field. Others are skipped.
    pub(crate) async fn value_of(&mut self, field: &str) -> Value {
        loop {
            let mut line = self.next().await;
            assert!(line.get("failed").is_none(), "{line}");
            if line.get(field).is_some() {
                return line[field].take();
            }
        }
    }

    /// Waits for a line in which this field has this value. Others are skipped.
    pub(crate) async fn wait_for(&mut self, field: &str, value: &str) {
        while self.value_of(field).await != value {}
    }
}

/// The client misses so many messages while it is disconnected.
async fn use_everything(mut command: Command, messages: usize) {
    let context = TestContext::embedded(NEEDS, hob_fixtures::Layout::Plain).await;
    let chat = open(&context).await;
    let app = TestApp::start(context.context(), chat.routes()).await;
    let proxy = Proxy::to(app.address()).await;
    // Clients over HTTP send their commands to another node.
    let other = context.another_node().await;
    let other_chat = start(&other, config()).await;
    let other_app = TestApp::start(&other, other_chat.routes()).await;
    command.env("EMULATION", other_app.url("/emulation"));
    let id = room(&chat, "r", &["anna", "bert"]).await;
    let _bert = Client::connect(&app, &chat, "bert").await;
    let token = chat.issue_token(&user("anna"), Duration::from_secs(600)).unwrap();
    let url = format!("ws://{}/connection/websocket", proxy.address());
    let mut anna = Program::start(command, &url, &token);

    assert_eq!(anna.value_of("subscribed").await, json!({ "wasRecovering": false, "recovered": false }));
    assert_eq!(anna.value_of("message").await, "published");
    assert_eq!(anna.value_of("message").await, "called");
    let summary = loop {
        let line = anna.next().await;
        if line.get("sent").is_some() {
            break line;
        }
    };
    let expected = json!({
        "sent": "called", "present": ["anna", "bert"], "stats": [2, 2], "history": ["called", "published"],
    });
    assert_eq!(summary, expected);
    assert_eq!(anna.value_of("errors").await, json!([104, 107, 107]));
    assert_eq!(anna.value_of("feed").await, 0);
    assert_eq!(anna.value_of("refused").await, 103);
    say(&chat, &id, "bert", "unread").await;
    assert_eq!(anna.value_of("message").await, "unread");
    assert_eq!(anna.value_of("update").await, "unread");

    proxy.cut();
    let missed = |n: usize| format!("missed {n} {}", "x".repeat(1_000));
    for n in 0..messages {
        say(&chat, &id, "bert", &missed(n)).await;
    }
    proxy.restore();
    assert_eq!(anna.value_of("subscribed").await, json!({ "wasRecovering": true, "recovered": true }));
    for n in 0..messages {
        assert_eq!(anna.value_of("message").await, missed(n));
    }
    say(&chat, &id, "bert", "live").await;
    assert_eq!(anna.value_of("message").await, "live");
    end(&chat, &id, &mut anna).await;
    other.tasks.stop_token().cancel();
}

/// A removed user is unsubscribed and does not subscribe again.
async fn end(chat: &Chat, id: &hob_chat::keys::ConversationId, anna: &mut Program) {
    done(chat.remove_member(id, &user("anna"), None).await);
    assert_eq!(anna.value_of("unsubscribed").await, 2000);
}

/// A program for Node.js in the folder `sdk`.
pub(crate) fn javascript(program: &str) -> Command {
    let mut node = Command::new("node");
    node.arg(format!("{}/tests/it/sdk/{program}", env!("CARGO_MANIFEST_DIR")));
    node.env("NODE_PATH", hob_testkit::node_modules());
    node
}

/// A program for Python in the folder `sdk`.
pub(crate) fn python(program: &str) -> Command {
    let mut python = Command::new(hob_testkit::python());
    python.env("PYTHONDONTWRITEBYTECODE", "1");
    python.arg(format!("{}/tests/it/sdk/{program}", env!("CARGO_MANIFEST_DIR")));
    python
}

/// The same program with the Protobuf build of its SDK.
pub(crate) fn protobuf(mut program: Command) -> Command {
    program.env("FORMAT", "protobuf");
    program
}

/// The same program with another transport.
fn over(transport: &str, mut program: Command) -> Command {
    program.env("TRANSPORT", transport);
    program
}

#[tokio::test(flavor = "multi_thread")]
async fn javascript_sdk_works_unmodified() {
    use_everything(javascript("client.js"), MANY).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python_sdk_works_unmodified() {
    use_everything(python("client.py"), MANY).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn javascript_sdk_works_in_protobuf() {
    use_everything(protobuf(javascript("client.js")), MANY).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python_sdk_works_in_protobuf() {
    use_everything(protobuf(python("client.py")), MANY).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn javascript_sdk_works_over_http_streaming() {
    use_everything(over("http_stream", javascript("client.js")), MANY).await;
}

/// This SDK (5.7.4) cannot read a Protobuf message that arrives in two parts, so the recovery is a short one.
#[tokio::test(flavor = "multi_thread")]
async fn javascript_sdk_works_over_http_streaming_in_protobuf() {
    use_everything(over("http_stream", protobuf(javascript("client.js"))), 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn javascript_sdk_works_over_server_sent_events() {
    use_everything(over("sse", javascript("client.js")), MANY).await;
}
