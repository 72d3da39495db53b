//! HTTP streaming and server-sent events, with commands over the emulation endpoint, also of another node.

use std::collections::VecDeque;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderName, Method, Response, header};
use hob_chat::{Chat, Config};
use hob_fixtures::{Layout, TestApp, TestContext, every_service};
use hob_service::{Period, ServiceContext};
use hob_testkit::{LIMIT, wait_for};
use hob_web::Service as _;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::{NEEDS, config, open, room, say, start, user};

const STREAM: &str = "/connection/http_stream";

/// A connection whose messages are the lines of a response.
struct Stream {
    body: Body,
    read: String,
    waiting: VecDeque<Value>,
    session: Value,
    node: Value,
}

fn connect_command(chat: &Chat, id: &str) -> Value {
    let token = chat.issue_token(&user(id), Duration::from_secs(600)).unwrap();
    json!({ "id": 1, "connect": { "token": token } })
}

async fn post(app: &TestApp, command: &Value) -> Response<Body> {
    let body = ("application/json", command.to_string().into_bytes());
    let response = app.send(Method::POST, STREAM, Some(body)).await;
    assert_eq!(response.status(), 200);
    response.map(Body::new)
}

impl Stream {
    fn new(response: Response<Body>) -> Self {
        let body = response.into_body();
        Self { body, read: String::new(), waiting: VecDeque::new(), session: Value::Null, node: Value::Null }
    }

    /// Reads the reply to the first command.
    async fn connected(mut self) -> Self {
        let reply = self.next().await.expect("a reply");
        self.session = reply["connect"]["session"].clone();
        self.node = reply["connect"]["node"].clone();
        assert!(self.session.as_str().is_some_and(|id| id.len() == 32), "{reply}");
        self
    }

    /// The next message; `None` at the end of the stream. An event has its message after `data: `.
    async fn next(&mut self) -> Option<Value> {
        while self.waiting.is_empty() {
            let frame =
                tokio::time::timeout(LIMIT, self.body.frame()).await.expect("a message arrives in time");
            let data = frame?.expect("a whole response").into_data().expect("data");
            self.read.push_str(std::str::from_utf8(&data).unwrap());
            while let Some((line, rest)) = self.read.split_once('\n') {
                let line = line.strip_prefix("data: ").unwrap_or(line);
                if !line.is_empty() {
                    self.waiting.push_back(serde_json::from_str(line).unwrap());
                }
                self.read = rest.to_owned();
            }
        }
        self.waiting.pop_front()
    }

    async fn next_where(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self.next().await.expect("the stream goes on");
            if fits(&message) {
                return message;
            }
        }
    }

    /// Sends a command with a request to a node, and waits for its reply.
    async fn call(&mut self, app: &TestApp, command: Value) -> Value {
        assert_eq!(self.emulate(app, &command.to_string()).await, 204);
        self.next_where(|message| message["id"] == command["id"]).await
    }

    async fn emulate(&self, app: &TestApp, data: &str) -> u16 {
        let request = json!({ "session": self.session, "node": self.node, "data": data });
        app.post("/emulation", &request).await.status.as_u16()
    }
}

async fn one(config: Config) -> (TestContext, Chat, TestApp) {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let chat = start(context.context(), config).await;
    let app = TestApp::start(context.context(), chat.routes()).await;
    (context, chat, app)
}

async fn another(context: &TestContext) -> (ServiceContext, TestApp) {
    let other = context.another_node().await;
    let chat = start(&other, config()).await;
    let app = TestApp::start(&other, chat.routes()).await;
    (other, app)
}

every_service! {
    NEEDS;

    async fn commands_reach_the_session_through_any_node(context: TestContext) {
        let chat = open(&context).await;
        let app = TestApp::start(context.context(), chat.routes()).await;
        let (other, other_app) = another(&context).await;
        let id = room(&chat, "r", &["anna", "bert"]).await;
        let mut anna = Stream::new(post(&app, &connect_command(&chat, "anna")).await).connected().await;
        // The other node starts to listen in the background.
        wait_for("the other node to forward", LIMIT, async || anna.emulate(&other_app, "{}").await == 204).await;
        let subscribed = anna.call(&other_app, json!({ "id": 2, "subscribe": { "channel": "conv:r" } })).await;
        assert!(subscribed["subscribe"].is_object(), "{subscribed}");
        let call = json!({ "id": 3, "rpc": { "method": "send", "data": { "conversationId": "r", "content": "a" } } });
        assert_eq!(anna.call(&app, call).await["rpc"]["data"]["content"], "a");
        say(&chat, &id, "bert", "b").await;
        anna.next_where(|message| message["push"]["pub"]["data"]["message"]["content"] == "b").await;
        let two = json!({ "id": 4, "ping": {} }).to_string() + "\n" + &json!({ "id": 5, "ping": {} }).to_string();
        assert_eq!(anna.emulate(&other_app, &two).await, 204);
        anna.next_where(|message| message["id"] == 5).await;

        let wrong = Stream { session: json!("0".repeat(32)), ..Stream::new(post(&app, &json!({})).await) };
        let wrong = Stream { node: anna.node.clone(), ..wrong };
        assert_eq!(wrong.emulate(&app, "{}").await, 404);
        assert_eq!(wrong.emulate(&other_app, "{}").await, 404);
        drop(anna);
        wait_for("the user to be offline", LIMIT, async || {
            !chat.presence(&[user("anna")]).await.unwrap()[0].online
        })
        .await;
        other.tasks.stop_token().cancel();
    }
}

#[tokio::test]
async fn events_have_the_same_messages() {
    let (_context, chat, app) = one(config()).await;
    room(&chat, "r", &["anna"]).await;
    let commands =
        connect_command(&chat, "anna").to_string() + "\n{\"id\":2,\"subscribe\":{\"channel\":\"conv:r\"}}";
    let commands: String = url::form_urlencoded::byte_serialize(commands.as_bytes()).collect();
    let response = app.open(&format!("/connection/sse?cf_connect={commands}")).await.map(Body::new);
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
    let mut anna = Stream::new(response).connected().await;
    assert!(anna.next().await.unwrap()["subscribe"].is_object());
    assert_eq!(anna.call(&app, json!({ "id": 3, "ping": {} })).await, json!({ "id": 3, "ping": {} }));
}

/// Compression would keep messages back until there are enough of them.
#[tokio::test]
async fn stream_is_not_compressed() {
    let (_context, chat, mut app) = one(config()).await;
    app.use_header(header::ACCEPT_ENCODING, "gzip, br");
    let response = post(&app, &connect_command(&chat, "anna")).await;
    assert!(!response.headers().contains_key(header::CONTENT_ENCODING));
    assert_eq!(response.headers()["x-accel-buffering"], "no");
    Stream::new(response).connected().await;
}

#[tokio::test]
async fn reason_of_a_disconnect_is_a_push() {
    let quick = Config { ping_interval: Period::from_millis(100), ..config() };
    let (_context, chat, app) = one(quick).await;
    for (commands, code) in [
        (json!({ "id": 1, "connect": { "token": "wrong" } }), 3500),
        (json!({ "id": 1, "ping": {} }), 3501),
        (json!([]), 3501),
        // Does not answer the ping.
        (connect_command(&chat, "anna"), 3012),
    ] {
        let mut stream = Stream::new(post(&app, &commands).await);
        let end = stream.next_where(|message| message["push"]["disconnect"].is_object()).await;
        assert_eq!(end["push"]["disconnect"]["code"], code, "{commands}");
        assert_eq!(stream.next().await, None, "the stream ends");
    }
    let mut anna = Stream::new(post(&app, &connect_command(&chat, "anna")).await).connected().await;
    for _ in 0..3 {
        anna.next_where(|message| *message == json!({})).await;
        assert_eq!(anna.emulate(&app, "{}").await, 204);
    }
    assert_eq!(anna.emulate(&app, "nonsense").await, 204);
    let end = anna.next_where(|message| message["push"]["disconnect"].is_object()).await;
    assert_eq!(end["push"]["disconnect"]["code"], 3501);
}

#[tokio::test]
async fn slow_client_is_disconnected() {
    let patient = Config { queue_bytes: 20_000, ping_interval: Period::from_secs(600), ..config() };
    let (_context, chat, app) = one(patient).await;
    let id = room(&chat, "r", &["anna", "bert"]).await;
    let narrow = tokio::net::TcpSocket::new_v4().unwrap();
    narrow.set_recv_buffer_size(4_096).unwrap();
    let mut slow = narrow.connect(app.address()).await.unwrap();
    let subscribe = json!({ "id": 2, "subscribe": { "channel": "conv:r" } });
    let commands = format!("{}\n{subscribe}", connect_command(&chat, "anna"));
    let head = format!("POST {STREAM} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", app.address());
    let request = format!("{head}Content-Length: {}\r\n\r\n{commands}", commands.len());
    slow.write_all(request.as_bytes()).await.unwrap();
    let is_open = async || !chat.sockets(&user("anna")).await.unwrap().is_empty();
    wait_for("the connection", LIMIT, &is_open).await;
    // Far more than the socket buffers and the queue hold.
    let content = "x".repeat(4_000);
    for _ in 0..4_000 {
        say(&chat, &id, "bert", &content).await;
        if !is_open().await {
            break;
        }
    }
    let mut received = Vec::new();
    let read = tokio::time::timeout(LIMIT, slow.read_to_end(&mut received)).await;
    read.expect("the stream ends in time").unwrap();
    let received = String::from_utf8(received).unwrap();
    assert!(received.contains(r#"{"push":{"disconnect":{"code":3008,"reason":"slow"}}}"#));
}

/// The server waits for running responses, so a stream has to end.
#[tokio::test]
async fn stream_ends_when_the_server_stops() {
    let (_context, chat, app) = one(config()).await;
    let mut anna = Stream::new(post(&app, &connect_command(&chat, "anna")).await).connected().await;
    let stopped = tokio::spawn(app.stop());
    let end = anna.next_where(|message| message["push"]["disconnect"].is_object()).await;
    assert_eq!(end["push"]["disconnect"]["code"], 3001);
    assert_eq!(anna.next().await, None);
    stopped.await.unwrap();
}

#[tokio::test]
async fn malformed_requests_are_refused() {
    let (_context, chat, app) = one(Config { max_frame_bytes: 4_096, ..config() }).await;
    let anna = Stream::new(post(&app, &connect_command(&chat, "anna")).await).connected().await;
    assert_eq!(anna.emulate(&app, &" ".repeat(4_097)).await, 413);
    assert_eq!(anna.emulate(&app, &"\n".repeat(4_096)).await, 204, "each line break is two bytes of JSON");
    let large = ("application/json", vec![b' '; 4_097]);
    assert_eq!(app.request(Method::POST, STREAM, Some(large)).await.status, 413);
    for (body, status) in [
        (&b""[..], 400),
        (b"[]", 400),
        (b"{}", 404),
        (br#"{"session":7}"#, 400),
        (br#"{"session":"x","node":"../../x","data":"{}"}"#, 404),
        (br#"{"session":"x","node":"","data":"{}"}"#, 404),
    ] {
        let response =
            app.request(Method::POST, "/emulation", Some(("application/json", body.to_vec()))).await;
        assert_eq!(response.status, status, "{}", body.escape_ascii());
    }
    let twice = app.get("/connection/sse?cf_connect=1&cf_connect=2").await;
    assert_eq!(twice.status, 422);
    for body in [&b"\x0a\x05a"[..], b"\xff", b"\x12\x01\xff"] {
        let body = Some(("application/octet-stream", body.to_vec()));
        assert_eq!(app.request(Method::POST, "/emulation", body).await.status, 400);
    }
}

#[tokio::test]
async fn pages_of_other_sites_need_an_origin_of_the_configuration() {
    let origins = vec!["https://shop.example".to_owned()];
    let (_context, chat, mut app) = one(Config { origins, ..config() }).await;
    const ALLOWED: HeaderName = header::ACCESS_CONTROL_ALLOW_ORIGIN;
    app.use_header(header::ORIGIN, "https://evil.example");
    let commands = connect_command(&chat, "anna").to_string();
    let json = |body: &str| Some(("application/json", body.as_bytes().to_vec()));
    for (method, path) in [
        (Method::POST, STREAM),
        (Method::GET, "/connection/sse?cf_connect=%7B%7D"),
        (Method::POST, "/emulation"),
        (Method::OPTIONS, STREAM),
        (Method::OPTIONS, "/emulation"),
    ] {
        let response = app.request(method.clone(), path, json(&commands)).await;
        assert_eq!(response.status, 403, "{method} {path}");
        assert_eq!(response.header(ALLOWED.as_str()), "", "{method} {path}");
    }
    app.forget_headers();
    app.use_header(header::ORIGIN, "https://shop.example");
    let asked = app.request(Method::OPTIONS, STREAM, None).await;
    assert_eq!(asked.status, 204);
    assert_eq!(asked.header(ALLOWED.as_str()), "https://shop.example");
    assert_eq!(asked.header("access-control-allow-headers"), "content-type");
    let response = post(&app, &connect_command(&chat, "anna")).await;
    assert_eq!(response.headers()[ALLOWED], "https://shop.example");
    let mut anna = Stream::new(response).connected().await;
    anna.call(&app, json!({ "id": 2, "ping": {} })).await;
}
