//! The Protobuf encoding of the protocol: how a client chooses it, and input that is not valid. The SDK tests use the rest.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use hob_chat::{Chat, Config};
use hob_fixtures::{Layout, TestApp, TestContext};
use hob_service::Period;
use hob_testkit::LIMIT;
use hob_web::Service as _;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::client::Client;
use crate::harness::{NEEDS, config, room, say, start, user};

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// A connection, whose messages the tests encode by hand.
struct ProtobufClient(Socket);

/// A field that has a length: a text, bytes or a message.
fn field(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut length = content.len();
    let mut field = vec![tag << 3 | 2];
    while length > 127 {
        field.push(length as u8 | 128);
        length >>= 7;
    }
    field.push(length as u8);
    field.extend_from_slice(content);
    field
}

/// A command with an id below 128 and one request.
fn command(id: u8, tag: u8, request: &[u8]) -> Vec<u8> {
    let command = [vec![1 << 3, id], field(tag, request)].concat();
    // A length, as before the content of a field.
    field(0, &command).split_off(1)
}

const CONNECT: u8 = 4;
const SUBSCRIBE: u8 = 5;
const PUBLISH: u8 = 7;

impl ProtobufClient {
    async fn connect(app: &TestApp, chat: &Chat, query: &str, protocol: Option<&'static str>) -> Self {
        let url = app.url(&format!("/connection/websocket{query}")).replace("http", "ws");
        let mut request = url.into_client_request().unwrap();
        if let Some(protocol) = protocol {
            request.headers_mut().insert("sec-websocket-protocol", protocol.parse().unwrap());
        }
        let (socket, response) = connect_async(request).await.unwrap();
        let chosen = response.headers().get("sec-websocket-protocol");
        assert_eq!(chosen.map(|chosen| chosen.to_str().unwrap()), protocol);
        let mut client = Self(socket);
        let token = chat.issue_token(&user("anna"), Duration::from_secs(600)).unwrap();
        client.send(command(1, CONNECT, &field(1, token.as_bytes()))).await;
        let reply = client.next().await;
        assert_eq!(&reply[1..3], [1 << 3, 1], "the reply to the first command: {}", reply.escape_ascii());
        client
    }

    async fn send(&mut self, frame: Vec<u8>) {
        self.0.send(Message::binary(frame)).await.unwrap();
    }

    async fn next(&mut self) -> Vec<u8> {
        match tokio::time::timeout(LIMIT, self.0.next()).await.expect("a frame arrives in time") {
            Some(Ok(Message::Binary(frame))) => frame.to_vec(),
            other => panic!("not a binary frame: {other:?}"),
        }
    }

    async fn close_reason(&mut self) -> (u16, String) {
        loop {
            match tokio::time::timeout(LIMIT, self.0.next()).await.expect("it is closed in time") {
                Some(Ok(Message::Close(Some(frame)))) => {
                    return (frame.code.into(), frame.reason.to_string());
                }
                Some(Ok(_)) => {}
                other => panic!("no close frame: {other:?}"),
            }
        }
    }
}

async fn app(config: Config) -> (TestContext, Chat, TestApp) {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let chat = start(context.context(), config).await;
    let app = TestApp::start(context.context(), chat.routes()).await;
    (context, chat, app)
}

fn contains(frame: &[u8], part: &str) -> bool {
    frame.windows(part.len()).any(|window| window == part.as_bytes())
}

#[tokio::test]
async fn client_chooses_protobuf_and_shares_a_channel_with_json() {
    let (_context, chat, app) = app(config()).await;
    let id = room(&chat, "r", &["anna", "bert"]).await;
    let mut bert = Client::connect(&app, &chat, "bert").await;
    bert.subscribe("conv:r").await;
    for (query, protocol) in [
        ("", Some("centrifuge-protobuf")),
        ("?format=protobuf", None),
        ("?cf_protocol=protobuf", None),
        ("?format=protobuf", Some("centrifuge-protobuf")),
    ] {
        let mut anna = ProtobufClient::connect(&app, &chat, query, protocol).await;
        anna.send(command(2, SUBSCRIBE, &field(1, b"conv:r"))).await;
        anna.next().await;
        say(&chat, &id, "bert", "for both").await;
        while !contains(&anna.next().await, r#""content":"for both""#) {}
        assert_eq!(bert.messages(1).await[0].1, "for both");
    }
}

#[tokio::test]
async fn json_is_chosen_by_name_too() {
    let (_context, _chat, app) = app(config()).await;
    let url = app.url("/connection/websocket").replace("http", "ws");
    let mut request = url.into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", "centrifuge-json".parse().unwrap());
    let (_, response) = connect_async(request).await.unwrap();
    assert_eq!(response.headers()["sec-websocket-protocol"], "centrifuge-json");
}

#[tokio::test]
async fn malformed_frame_closes_the_connection() {
    let (_context, chat, app) = app(config()).await;
    let frames = [
        Message::binary(b"\x05\x08\x02".to_vec()),
        Message::binary(b"\xff\xff\xff\xff\x7f".to_vec()),
        Message::binary(Vec::new()),
        Message::binary(vec![0; 257]),
        Message::text(r#"{"id":2,"ping":{}}"#),
    ];
    for frame in frames {
        let mut anna = ProtobufClient::connect(&app, &chat, "?format=protobuf", None).await;
        anna.0.send(frame.clone()).await.unwrap();
        let (code, reason) = anna.close_reason().await;
        assert_eq!(code, 3501, "{frame:?}");
        assert!(reason.starts_with("bad request: "), "{reason}");
    }
}

/// Publications are JSON for all subscribers.
#[tokio::test]
async fn data_that_is_not_json_is_refused() {
    let (_context, chat, app) = app(config()).await;
    room(&chat, "r", &["anna"]).await;
    let mut anna = ProtobufClient::connect(&app, &chat, "?format=protobuf", None).await;
    for data in [&b"\xff\x00"[..], b"", b"{\"content\":", b"text"] {
        let request = [field(1, b"conv:r"), field(2, data)].concat();
        anna.send(command(2, PUBLISH, &request)).await;
        let reply = anna.next().await;
        assert!(contains(&reply, "bad request: data: must be JSON"), "{}", reply.escape_ascii());
    }
}

#[tokio::test]
async fn client_is_pinged_with_an_empty_message() {
    let quick = Config { ping_interval: Period::from_millis(100), ..config() };
    let (_context, chat, app) = app(quick).await;
    let mut anna = ProtobufClient::connect(&app, &chat, "?format=protobuf", None).await;
    for _ in 0..3 {
        assert_eq!(anna.next().await, [0]);
        anna.send(vec![0]).await;
    }
    assert_eq!(anna.next().await, [0]);
    assert_eq!(anna.close_reason().await.0, 3012, "a client that does not answer");
}
