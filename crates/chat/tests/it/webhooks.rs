//! Webhooks: what they receive, failures, dead letters and crashes.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use hob_chat::{BlockAction, Chat, Config, NoticeClass, Webhook};
use hob_database::{Query, Read as _, sql};
use hob_fixtures::{Layout, TestApp, TestContext, every_service};
use hob_service::config::{Hosts, Live, Secret, SecretEntry, Secrets, SecretsConfig};
use hob_service::{Period, SecretRef, ServiceContext};
use hob_testkit::{KillableNode, LIMIT, wait_for};
use hob_web::Service as _;
use hob_web::webhook::signature;
use serde_json::{Value, json};

use crate::client::Client;
use crate::harness::{NEEDS, config, done, room, say, start, user};

const SECRET: &str = "a secret of both sides";

/// The application: an HTTP server that records requests.
struct Receiver {
    url: String,
    state: Arc<Mutex<Received>>,
}

struct Received {
    requests: Vec<Request>,
    status: StatusCode,
    /// Requests that get no response.
    unanswered: usize,
}

#[derive(Clone, Debug)]
struct Request {
    key: String,
    event: String,
    signature: String,
    text: String,
    body: Value,
}

impl Receiver {
    async fn start() -> Self {
        let received = Received { requests: Vec::new(), status: StatusCode::OK, unanswered: 0 };
        let state = Arc::new(Mutex::new(received));
        let router = Router::new().route("/hook", post(receive)).with_state(Arc::clone(&state));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
        Self { url, state }
    }

    fn requests(&self) -> Vec<Request> {
        self.state.lock().unwrap().requests.clone()
    }

    fn set_status(&self, status: StatusCode) {
        self.state.lock().unwrap().status = status;
    }

    /// Waits until this many requests have arrived.
    async fn wait(&self, count: usize) -> Vec<Request> {
        wait_for(format!("{count} requests"), LIMIT, async || {
            let requests = self.requests();
            if requests.len() >= count { Ok(()) } else { Err(requests) }
        })
        .await;
        self.requests()
    }

    async fn find(&self, fits: impl Fn(&Request) -> bool) -> Request {
        wait_for("a request", LIMIT, async || {
            let requests = self.requests();
            if requests.iter().any(&fits) { Ok(()) } else { Err(requests) }
        })
        .await;
        self.requests().into_iter().find(fits).unwrap()
    }
}

async fn receive(State(state): State<Arc<Mutex<Received>>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    let (status, is_answered) = {
        let mut state = state.lock().unwrap();
        state.requests.push(Request {
            key: header("idempotency-key"),
            event: header("x-hob-event"),
            signature: header("x-hob-signature"),
            text: String::from_utf8(body.to_vec()).unwrap(),
            body: serde_json::from_slice(&body).unwrap(),
        });
        let is_answered = state.unanswered == 0;
        state.unanswered = state.unanswered.saturating_sub(1);
        (state.status, is_answered)
    };
    if !is_answered {
        std::future::pending::<()>().await;
    }
    status
}

struct Site {
    context: TestContext,
    receiver: Receiver,
    config: Config,
    folder: tempfile::TempDir,
}

impl Site {
    async fn new(context: TestContext, events: &[NoticeClass]) -> Self {
        let receiver = Receiver::start().await;
        let url = receiver.url.clone().try_into().unwrap();
        let webhook = Webhook { url, secret: "hook".parse().unwrap(), events: events.to_vec() };
        let config = Config {
            webhooks: [("app".to_owned(), webhook)].into(),
            webhook_backoff: Period::from_millis(10),
            webhook_attempts: 3,
            ..config()
        };
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("hook"), SECRET).unwrap();
        Self { context, receiver, config, folder }
    }

    fn with_secrets(&self, context: ServiceContext) -> ServiceContext {
        let entry = SecretEntry {
            from: SecretRef::File(self.folder.path().join("hook")),
            services: vec!["chat".to_owned()],
            hosts: Hosts::Listed(vec!["127.0.0.1".parse().unwrap()]),
        };
        let listed = [("hook".parse().unwrap(), entry)];
        ServiceContext { secrets: Secrets::new(Live::fixed(SecretsConfig::from_iter(listed))), ..context }
    }

    /// Starts a node, and waits until it consumes events.
    async fn start(&self) -> (Chat, TestApp) {
        let context = self.with_secrets(self.context.context().clone());
        let chat = start(&context, self.config.clone()).await;
        self.wait_for_consumers().await;
        let app = TestApp::start(&context, chat.routes()).await;
        (chat, app)
    }

    async fn wait_for_consumers(&self) {
        let wants = |class| self.config.webhooks["app"].events.contains(&class);
        let messages = if wants(NoticeClass::Message) { 2 } else { u64::from(wants(NoticeClass::Offline)) };
        let expected = messages + u64::from(wants(NoticeClass::Presence));
        wait_for("the consumers", LIMIT, async || {
            let count: Query<(u64,)> =
                sql("SELECT count(*) FROM hob_outbox_consumer WHERE name LIKE 'chat.webhooks.%'");
            self.context.database.one(count).await.unwrap().0 == expected
        })
        .await;
    }

    /// Waits until nothing is left to send.
    async fn wait_until_empty(&self) {
        wait_for("all deliveries", LIMIT, async || {
            let left: Query<(String, String)> = sql("SELECT id, state FROM chat_delivery");
            let left = self.context.database.all(left).await.unwrap();
            if left.is_empty() { Ok(()) } else { Err(left) }
        })
        .await;
    }
}

every_service! {
    NEEDS;

    async fn messages_are_sent_with_a_signature(context: TestContext) {
        let site = Site::new(context, &[NoticeClass::Message]).await;
        let (chat, _app) = site.start().await;
        let lobby = room(&chat, "lobby", &["anna", "bert"]).await;
        let message = say(&chat, &lobby, "anna", "Hello").await;
        let created = site.receiver.wait(1).await.remove(0);
        assert_eq!(created.event, "message.created");
        let body = &created.body;
        assert_eq!((&body["type"], &body["id"]), (&json!("message.created"), &json!(created.key)));
        assert_eq!(body["message"]["id"], message.id);
        assert_eq!((&body["message"]["content"], &body["message"]["senderId"]), (&json!("Hello"), &json!("anna")));
        assert_eq!(body["participantIds"], json!(["anna", "bert"]));
        let time = created.signature.split(['=', ',']).nth(1).unwrap().parse().unwrap();
        let expected = signature::sign(&Secret::from(SECRET.to_owned()), time, created.text.as_bytes());
        assert_eq!(created.signature, expected);
        assert!(hob_units::unix_time().as_secs().abs_diff(time) < 300, "the time is signed");

        done(chat.edit(&lobby, &message.id, &user("anna"), "Hello!").await);
        let edited = site.receiver.find(|request| request.event == "message.edited").await;
        assert_eq!(edited.body["message"]["content"], "Hello!");
        done(chat.delete(&lobby, &message.id, &user("anna")).await);
        let deleted = site.receiver.find(|request| request.event == "message.deleted").await;
        assert_eq!((&deleted.body["message"]["content"], &deleted.body["message"]["deleted"]), (&json!(""), &json!(true)));
        site.wait_until_empty().await;
        let mut keys: Vec<String> = site.receiver.requests().into_iter().map(|request| request.key).collect();
        keys.sort();
        assert_eq!(keys, ["app.message.created.1", "app.message.deleted.2", "app.message.edited.1"]);
    }

    async fn offline_members_are_named_without_those_who_cannot_see_the_message(context: TestContext) {
        let site = Site::new(context, &[NoticeClass::Offline]).await;
        let (chat, app) = site.start().await;
        let _bert = Client::connect(&app, &chat, "bert").await;
        let lobby = room(&chat, "lobby", &["anna", "bert", "carl", "dora", "emil"]).await;
        done(chat.block(&user("dora"), &user("anna"), BlockAction::Block).await);
        let message = say(&chat, &lobby, "anna", "Hello").await;
        let request = site.receiver.wait(1).await.remove(0);
        assert_eq!(request.event, "message.offline");
        assert_eq!(request.body["userIds"], json!(["carl", "emil"]));
        assert_eq!(request.body["message"]["id"], message.id);

        let duo = room(&chat, "duo", &["anna", "bert"]).await;
        say(&chat, &duo, "anna", "all members are online").await;
        say(&chat, &lobby, "bert", "Hi").await;
        let requests = site.receiver.wait(2).await;
        assert_eq!(requests[1].body["message"]["content"], "Hi");
        assert_eq!(requests[1].body["userIds"], json!(["anna", "carl", "dora", "emil"]));
        site.wait_until_empty().await;
        assert_eq!(site.receiver.requests().len(), 2);
    }

    async fn presence_is_reported_also_if_no_node_received_the_change(context: TestContext) {
        let site = Site::new(context, &[NoticeClass::Presence]).await;
        // A node was killed after it had set this user offline in Redis.
        let ghost = sql("INSERT INTO chat_reported_presence (user_id, online, version) VALUES ('ghost', TRUE, 7)");
        site.context.database.execute(ghost).await.unwrap();
        let (chat, app) = site.start().await;
        let ghost = site.receiver.find(|request| request.body["userId"] == "ghost").await;
        assert_eq!((&*ghost.event, &ghost.body["version"]), ("user.offline", &json!(8)));

        let anna = Client::connect(&app, &chat, "anna").await;
        let online = site.receiver.find(|request| request.body["userId"] == "anna").await;
        assert_eq!(online.event, "user.online");
        drop(anna);
        let offline = site.receiver.find(|request| request.key.contains("user.offline") && request.body["userId"] == "anna").await;
        assert!(offline.body["version"].as_u64() > online.body["version"].as_u64());
        assert!(offline.body["timestamp"].as_str().unwrap().ends_with('Z'));
        site.wait_until_empty().await;
        assert_eq!(site.receiver.requests().len(), 3, "each change once");
    }

    async fn refused_event_becomes_a_dead_letter_that_can_be_sent_again(context: TestContext) {
        let site = Site::new(context, &[NoticeClass::Message]).await;
        site.receiver.set_status(StatusCode::INTERNAL_SERVER_ERROR);
        let (chat, app) = site.start().await;
        let lobby = room(&chat, "lobby", &["anna", "bert"]).await;
        let message = say(&chat, &lobby, "anna", "a confidential text").await;
        const LETTERS: &str = "/api/v1/chat/webhooks/dead-letters";
        let list = async || -> Vec<Value> {
            let list: Value = app.get(LETTERS).await.json();
            list["items"].as_array().unwrap().clone()
        };
        wait_for("a dead letter", LIMIT, async || list().await.len() == 1).await;
        let letter = list().await.remove(0);
        assert_eq!(letter["id"], "app.message.created.1");
        assert_eq!((&letter["webhook"], &letter["type"]), (&json!("app"), &json!("message.created")));
        assert_eq!((&letter["attempts"], &letter["error"]), (&json!(3), &json!("status 500")));
        assert_eq!(site.receiver.requests().len(), 3, "attempts are bounded");
        let stored: Query<(String,)> = sql("SELECT notice FROM chat_delivery");
        let (stored,) = site.context.database.one(stored).await.unwrap();
        assert!(!stored.contains("confidential"), "{stored}");

        // The content of a deleted message is not sent any more.
        site.receiver.set_status(StatusCode::NO_CONTENT);
        done(chat.delete(&lobby, &message.id, &user("anna")).await);
        site.receiver.find(|request| request.event == "message.deleted").await;
        assert_eq!(app.post(&format!("{LETTERS}/unknown/retry"), &json!({})).await.status, 404);
        assert_eq!(app.post(&format!("{LETTERS}/app.message.created.1/retry"), &json!({})).await.status, 204);
        let requests = site.receiver.wait(5).await;
        assert_eq!(requests[4].key, "app.message.created.1");
        assert_eq!((&requests[4].body["message"]["content"], &requests[4].body["message"]["deleted"]), (&json!(""), &json!(true)));
        site.wait_until_empty().await;

        site.receiver.set_status(StatusCode::NOT_FOUND);
        say(&chat, &lobby, "anna", "one").await;
        say(&chat, &lobby, "anna", "two").await;
        wait_for("dead letters", LIMIT, async || list().await.len() == 2).await;
        assert_eq!(app.delete(&format!("{LETTERS}/app.message.created.2")).await.status, 204);
        site.receiver.set_status(StatusCode::OK);
        let retried: Value = app.post(&format!("{LETTERS}/retry?webhook=other"), &json!({})).await.json();
        assert_eq!(retried["retried"], 0);
        let retried: Value = app.post(&format!("{LETTERS}/retry"), &json!({})).await.json();
        assert_eq!(retried["retried"], 1);
        site.wait_until_empty().await;
        assert_eq!(site.receiver.requests().last().unwrap().body["message"]["content"], "two");
    }

    async fn event_that_a_dead_node_has_sent_is_sent_again_with_the_same_key(context: TestContext) {
        let mut site = Site::new(context, &[NoticeClass::Message]).await;
        site.config.webhook_timeout = Period::from_secs(2);
        site.receiver.state.lock().unwrap().unanswered = 1;
        // A node without webhooks leaves deliveries to the others.
        let other = start(site.context.context(), config()).await;
        let lobby = room(&other, "lobby", &["anna", "bert"]).await;
        let first = site.with_secrets(site.context.another_node().await);
        let settings = site.config.clone();
        let first = KillableNode::start(async move { start(&first, settings).await }).await;
        site.wait_for_consumers().await;
        say(&other, &lobby, "anna", "Hello").await;
        // The application has the event, but the node cannot record it.
        site.receiver.wait(1).await;
        first.kill();

        let second = site.with_secrets(site.context.another_node().await);
        let _second = start(&second, site.config.clone()).await;
        let requests = site.receiver.wait(2).await;
        assert_eq!(requests[1].key, requests[0].key);
        assert_eq!(requests[1].text, requests[0].text);
        site.wait_until_empty().await;
    }
}

/// Without its secret, an event is not sent, and not lost.
#[tokio::test(flavor = "multi_thread")]
async fn event_waits_until_the_secret_is_permitted() {
    let mut site =
        Site::new(TestContext::embedded(NEEDS, Layout::Plain).await, &[NoticeClass::Message]).await;
    site.config.webhook_attempts = 1;
    let context = site.context.context().clone();
    let chat = start(&context, site.config.clone()).await;
    site.wait_for_consumers().await;
    let lobby = room(&chat, "lobby", &["anna"]).await;
    say(&chat, &lobby, "anna", "Hello").await;
    let app = TestApp::start(&context, chat.routes()).await;
    wait_for("a dead letter", LIMIT, async || {
        let list: Value = app.get("/api/v1/chat/webhooks/dead-letters").await.json();
        list["items"][0]["error"]
            .as_str()
            .is_some_and(|error| error.contains("no secret hook under [secrets]"))
    })
    .await;
    assert!(site.receiver.requests().is_empty());
}
