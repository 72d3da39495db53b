//! Proxies: an application that decides who connects, subscribes and publishes, and that answers RPC calls.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use hob_chat::{Chat, Config, Namespace, Proxy};
use hob_fixtures::{Layout, TestApp, TestContext};
use hob_service::config::{Hosts, Live, Secret, SecretEntry, Secrets, SecretsConfig};
use hob_service::{Period, SecretRef, ServiceContext};
use hob_testkit::{LIMIT, wait_for};
use hob_units::unix_time;
use hob_web::Service as _;
use hob_web::webhook::signature;
use serde_json::{Value, json};

use crate::client::Client;
use crate::harness::{NEEDS, config, room, start, user};

const SECRET: &str = "a secret of both sides";

/// An HTTP server that records requests and gives the next answer of each kind; the last one stays.
#[derive(Clone, Default)]
struct Application(Arc<Mutex<Behaviour>>);

#[derive(Default)]
struct Behaviour {
    answers: BTreeMap<&'static str, VecDeque<Answer>>,
    requests: Vec<Request>,
}

#[derive(Clone)]
enum Answer {
    Json(Value),
    Status(u16),
    Text(String),
    Silence,
}

#[derive(Clone, Debug)]
struct Request {
    kind: String,
    headers: HeaderMap,
    text: String,
    body: Value,
}

impl Application {
    fn answer(&self, kind: &'static str, answers: impl IntoIterator<Item = Answer>) {
        self.0.lock().unwrap().answers.insert(kind, answers.into_iter().collect());
    }

    fn grant(&self, kind: &'static str, result: &Value) {
        self.answer(kind, [Answer::Json(json!({ "result": result }))]);
    }

    fn last(&self, kind: &str) -> Request {
        let behaviour = self.0.lock().unwrap();
        let mut requests = behaviour.requests.iter().rev();
        requests.find(|request| request.kind == kind).expect("a request of this kind").clone()
    }

    fn count(&self, kind: &str) -> usize {
        self.0.lock().unwrap().requests.iter().filter(|request| request.kind == kind).count()
    }
}

async fn receive(
    State(application): State<Application>,
    Path(kind): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, String) {
    let answer = {
        let mut behaviour = application.0.lock().unwrap();
        let (text, body) =
            (String::from_utf8(body.to_vec()).unwrap(), serde_json::from_slice(&body).unwrap());
        behaviour.requests.push(Request { kind: kind.clone(), headers, text, body });
        let answers = behaviour.answers.get_mut(kind.as_str()).expect("an answer of this kind");
        if answers.len() > 1 { answers.pop_front().unwrap() } else { answers[0].clone() }
    };
    match answer {
        Answer::Json(json) => (StatusCode::OK, json.to_string()),
        Answer::Text(text) => (StatusCode::OK, text),
        Answer::Status(status) => (StatusCode::from_u16(status).unwrap(), String::new()),
        Answer::Silence => std::future::pending().await,
    }
}

/// A chat and its application.
struct Site {
    _context: TestContext,
    _folder: tempfile::TempDir,
    chat: Chat,
    app: TestApp,
    application: Application,
}

impl Site {
    async fn start(change: impl FnOnce(&mut Config)) -> Self {
        let application = Application::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = |kind: &str| {
            let url = format!("http://{}/{kind}", listener.local_addr().unwrap());
            Some(url.try_into().unwrap())
        };
        let proxy = Proxy {
            secret: "app".parse().unwrap(),
            connect: url("connect"),
            refresh: url("refresh"),
            subscribe: url("subscribe"),
            publish: url("publish"),
            rpc: url("rpc"),
            headers: vec!["x-visitor".to_owned(), "Cookie".to_owned()],
            timeout: Period::from_secs(60),
            max_concurrent: 8,
        };
        let router = Router::new().route("/{kind}", post(receive)).with_state(application.clone());
        tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
        let asked = Namespace {
            proxy_subscribe: true,
            proxy_publish: true,
            presence: true,
            allow_presence_for_subscriber: true,
            ..Namespace::default()
        };
        let mut config = Config { proxy: Some(proxy), ..config() };
        config.namespaces = [("asked".to_owned(), asked)].into();
        change(&mut config);
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("app"), SECRET).unwrap();
        let entry = SecretEntry {
            from: SecretRef::File(folder.path().join("app")),
            services: vec!["chat".to_owned()],
            hosts: Hosts::Listed(vec!["127.0.0.1".parse().unwrap()]),
        };
        let secrets = SecretsConfig::from_iter([("app".parse().unwrap(), entry)]);
        let context = TestContext::embedded(NEEDS, Layout::Plain).await;
        let secrets = Secrets::new(Live::fixed(secrets));
        let service = ServiceContext { secrets, ..context.context().clone() };
        let chat = start(&service, config).await;
        let app = TestApp::start(&service, chat.routes()).await;
        application.grant("connect", &json!({ "user": "anna" }));
        Self { _context: context, _folder: folder, chat, app, application }
    }

    /// A client whose connect command has no token.
    async fn connect(&self) -> (Client, Value) {
        let mut client = Client::open(&self.app).await;
        let data = json!({ "room": 7 });
        let reply = client.call(json!({ "connect": { "name": "js", "version": "5", "data": data } })).await;
        (client, reply)
    }
}

#[tokio::test]
async fn application_admits_a_client_without_a_token() {
    let site = Site::start(|_| {}).await;
    site.application.grant(
        "connect",
        &json!({ "user": "anna", "data": { "hello": 1 }, "channels": ["asked:welcome"], "info": {}, "meta": {} }),
    );
    let (mut anna, reply) = site.connect().await;
    assert_eq!(reply["connect"]["data"], json!({ "hello": 1 }), "{reply}");
    assert_eq!(reply["connect"]["expires"], false);
    let push = anna.push_where(|push| push["subscribe"].is_object()).await;
    assert_eq!(push["channel"], "asked:welcome");
    assert!(site.chat.presence(&[user("anna")]).await.unwrap()[0].online);

    let Request { headers, text, mut body, .. } = site.application.last("connect");
    assert_eq!(body["client"].take(), reply["connect"]["client"]);
    let expected = json!({
        "client": null, "transport": "websocket", "protocol": "json", "encoding": "json",
        "name": "js", "version": "5", "data": { "room": 7 },
    });
    assert_eq!(body, expected);
    let signed = headers["x-hob-signature"].to_str().unwrap();
    let time: u64 = signed[2..].split(',').next().unwrap().parse().unwrap();
    assert_eq!(signed, signature::sign(&Secret::from(SECRET.to_owned()), time, text.as_bytes()));
    assert!(unix_time().as_secs().abs_diff(time) < 600, "{time}");

    // A token is still verified here.
    let mut bert = Client::connect(&site.app, &site.chat, "bert").await;
    bert.call(json!({ "ping": {} })).await;
    assert_eq!(site.application.count("connect"), 1);
}

#[tokio::test]
async fn only_listed_headers_are_passed_on() {
    let mut site = Site::start(|_| {}).await;
    for (name, value) in [("x-visitor", "7"), ("cookie", "session=1"), ("x-other", "no")] {
        site.app.use_header(name.parse().unwrap(), value);
    }
    let connect = ("application/json", br#"{"id":1,"connect":{}}"#.to_vec());
    let response = site.app.send(axum::http::Method::POST, "/connection/http_stream", Some(connect)).await;
    wait_for("the application to be asked", LIMIT, async || site.application.count("connect") == 1).await;
    let Request { headers, body, .. } = site.application.last("connect");
    assert_eq!(body["transport"], "http_stream");
    assert_eq!(
        (&headers["x-visitor"], &headers["cookie"]),
        (&"7".parse().unwrap(), &"session=1".parse().unwrap())
    );
    assert_eq!(headers["content-type"], "application/json");
    assert!(!headers.contains_key("x-other"));
    drop(response);
}

#[tokio::test]
async fn client_is_not_connected_without_a_grant() {
    let site = Site::start(|config| {
        config.proxy.as_mut().unwrap().timeout = Period::from_millis(200);
    })
    .await;
    let application = &site.application;
    for (answer, code) in [
        (Answer::Json(json!({ "disconnect": { "code": 4501, "reason": "banned" } })), 4501),
        (Answer::Json(json!({})), 3004),
        (Answer::Json(json!({ "result": {} })), 3004),
        (Answer::Json(json!({ "result": { "user": "" } })), 3004),
        (Answer::Json(json!({ "result": { "user": "anna", "expire_at": 1 } })), 3005),
        (Answer::Status(500), 3004),
        (Answer::Status(302), 3004),
        (Answer::Text("<html>".to_owned()), 3004),
        (Answer::Text(" ".repeat(600_000)), 3004),
        (Answer::Silence, 3004),
    ] {
        application.answer("connect", [answer]);
        let mut client = Client::open(&site.app).await;
        client.send(r#"{"id":1,"connect":{}}"#).await;
        assert_eq!(client.end().await, code);
    }
    application.answer("connect", [Answer::Json(json!({ "error": { "code": 1000, "message": "no" } }))]);
    let (mut client, reply) = site.connect().await;
    assert_eq!(reply["error"], json!({ "code": 1000, "message": "no" }));
    assert_eq!(client.end().await, 3507);
    assert!(!site.chat.presence(&[user("anna")]).await.unwrap()[0].online);
}

#[tokio::test]
async fn application_decides_on_subscriptions_and_publications() {
    let site = Site::start(|_| {}).await;
    let application = &site.application;
    let (mut anna, _) = site.connect().await;
    application.grant("subscribe", &json!({ "data": { "state": 1 }, "info": { "name": "Anna" } }));
    let subscribe = json!({ "subscribe": { "channel": "asked:a", "data": { "key": 2 } } });
    let reply = anna.call(subscribe).await;
    assert_eq!(reply["subscribe"]["data"], json!({ "state": 1 }), "{reply}");
    let body = application.last("subscribe").body;
    assert_eq!((&body["user"], &body["channel"]), (&json!("anna"), &json!("asked:a")));
    assert_eq!(body["data"], json!({ "key": 2 }));
    let presence = anna.call(json!({ "presence": { "channel": "asked:a" } })).await;
    let clients = presence["presence"]["presence"].as_object().unwrap();
    let info = clients.values().next().expect("a client");
    assert_eq!(info["chan_info"], json!({ "name": "Anna" }), "{presence}");

    application.grant("publish", &json!({ "data": { "text": "checked" } }));
    let publish = json!({ "publish": { "channel": "asked:a", "data": { "text": "raw" } } });
    assert!(anna.call(publish.clone()).await["publish"].is_object());
    let push = anna.push_where(|push| push["pub"].is_object()).await;
    assert_eq!(push["pub"]["data"], json!({ "text": "checked" }));
    assert_eq!(application.last("publish").body["data"], json!({ "text": "raw" }));
    application.grant("publish", &json!({}));
    anna.call(publish.clone()).await;
    let push = anna.push_where(|push| push["pub"].is_object()).await;
    assert_eq!(push["pub"]["data"], json!({ "text": "raw" }), "without other data");

    // Nothing is granted otherwise.
    let refusal = json!({ "error": { "code": 1001, "message": "not today", "temporary": true } });
    for (answer, code) in
        [(Answer::Json(refusal), 1001), (Answer::Status(503), 100), (Answer::Json(json!({})), 100)]
    {
        application.answer("publish", [answer.clone()]);
        application.answer("subscribe", [answer]);
        assert_eq!(anna.call(publish.clone()).await["error"]["code"], code);
        assert_eq!(anna.subscribe("asked:b").await["error"]["code"], code);
    }
    assert_eq!(anna.subscribe("$asked:b").await["error"]["code"], 103, "only with a token");
    application.answer("publish", [Answer::Json(json!({ "disconnect": { "code": 4500, "reason": "x" } }))]);
    anna.send(json!({ "id": 99, "publish": { "channel": "asked:a", "data": 1 } }).to_string()).await;
    assert_eq!(anna.end().await, 4500);
}

#[tokio::test]
async fn application_answers_unknown_methods() {
    let site = Site::start(|_| {}).await;
    room(&site.chat, "r", &["anna"]).await;
    let (mut anna, _) = site.connect().await;
    site.application.grant("rpc", &json!({ "data": { "year": 2026 } }));
    let reply = anna.rpc("get_year", json!({ "calendar": "gregorian" })).await;
    assert_eq!(reply["rpc"]["data"], json!({ "year": 2026 }), "{reply}");
    let body = site.application.last("rpc").body;
    assert_eq!((&body["method"], &body["data"]), (&json!("get_year"), &json!({ "calendar": "gregorian" })));
    site.application.answer("rpc", [Answer::Json(json!({ "error": { "code": 404, "message": "none" } }))]);
    assert_eq!(anna.rpc("other", json!({})).await["error"]["message"], "none");
    // The methods of the chat are not passed on.
    let sent = anna.rpc("send", json!({ "conversationId": "r", "content": "hi" })).await;
    assert_eq!(sent["rpc"]["data"]["content"], "hi", "{sent}");
    assert_eq!(site.application.count("rpc"), 2);
}

#[tokio::test]
async fn connection_ends_when_the_application_does_not_prolong_it() {
    let grace = Period::from_secs(1);
    let site = Site::start(|config| config.token_grace = grace).await;
    let soon = || json!({ "user": "anna", "expire_at": unix_time().as_secs() + 1 });
    let later = json!({ "result": { "expire_at": unix_time().as_secs() + 600 } });

    site.application.grant("connect", &soon());
    site.application.answer("refresh", [Answer::Status(500), Answer::Json(later)]);
    let (mut anna, _) = site.connect().await;
    wait_for("a refresh that is repeated", LIMIT, async || site.application.count("refresh") == 2).await;
    anna.call(json!({ "ping": {} })).await;
    assert_eq!(site.application.last("refresh").body["user"], "anna");

    site.application.grant("connect", &soon());
    site.application.grant("refresh", &json!({ "expired": true }));
    let (mut bert, _) = site.connect().await;
    assert_eq!(bert.end().await, 3005);
    site.application.grant("connect", &soon());
    site.application.answer("refresh", [Answer::Status(500)]);
    let (mut carl, _) = site.connect().await;
    assert_eq!(carl.end().await, 3005, "no answer until the end");
}

#[tokio::test]
async fn requests_to_the_application_are_bounded() {
    let site = Site::start(|_| {}).await;
    let (mut anna, _) = site.connect().await;
    site.application.answer("rpc", [Answer::Silence]);
    let mut waiting = Vec::new();
    for _ in 0..8 {
        let (mut client, _) = site.connect().await;
        client.send(r#"{"id":2,"rpc":{"method":"slow"}}"#).await;
        waiting.push(client);
    }
    wait_for("eight requests", LIMIT, async || site.application.count("rpc") == 8).await;
    let reply = anna.rpc("slow", json!({})).await;
    assert_eq!(reply["error"]["code"], 100, "{reply}");
    assert_eq!(site.application.count("rpc"), 8);
}
