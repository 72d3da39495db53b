//! A minimal client of the protocol.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use hob_chat::Chat;
use hob_fixtures::TestApp;
use hob_testkit::LIMIT;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::harness::user;

pub(crate) struct Client {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    next_id: u32,
    waiting: VecDeque<Value>,
    /// The id of the connection, when it has signed in.
    pub(crate) socket_id: String,
    /// The code of the close frame, if one was received.
    pub(crate) closed: Option<u16>,
}

impl Client {
    /// A connection without a token.
    pub(crate) async fn open(app: &TestApp) -> Self {
        let url = app.url("/connection/websocket").replace("http", "ws");
        let (socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
        Self { socket, next_id: 0, waiting: VecDeque::new(), socket_id: String::new(), closed: None }
    }

    /// A connection with a small receive buffer.
    pub(crate) async fn open_narrow(app: &TestApp) -> Self {
        let narrow = tokio::net::TcpSocket::new_v4().unwrap();
        narrow.set_recv_buffer_size(4_096).unwrap();
        let stream = MaybeTlsStream::Plain(narrow.connect(app.address()).await.unwrap());
        let url = app.url("/connection/websocket").replace("http", "ws");
        let (socket, _) = tokio_tungstenite::client_async(url, stream).await.unwrap();
        Self { socket, next_id: 0, waiting: VecDeque::new(), socket_id: String::new(), closed: None }
    }

    /// A connection of a user.
    pub(crate) async fn connect(app: &TestApp, chat: &Chat, id: &str) -> Self {
        Self::open(app).await.sign_in(chat, id).await
    }

    pub(crate) async fn sign_in(self, chat: &Chat, id: &str) -> Self {
        let mut client = self;
        let token = chat.issue_token(&user(id), Duration::from_secs(600)).unwrap();
        let reply = client.call(json!({ "connect": { "token": token } })).await;
        client.socket_id =
            reply["connect"]["client"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned();
        client
    }

    pub(crate) async fn send(&mut self, text: impl Into<String>) {
        self.socket.send(Message::text(text.into())).await.unwrap();
    }

    /// Sends a frame that the server may not read to its end.
    pub(crate) async fn try_send(&mut self, text: impl Into<String>) {
        let _ =
            tokio::time::timeout(Duration::from_secs(1), self.socket.send(Message::text(text.into()))).await;
    }

    /// Sends a command and waits for its reply.
    pub(crate) async fn call(&mut self, mut command: Value) -> Value {
        self.next_id += 1;
        command["id"] = self.next_id.into();
        self.send(command.to_string()).await;
        let id = self.next_id;
        let mut aside = VecDeque::new();
        loop {
            let frame = self.next().await;
            if frame["id"] == id {
                aside.append(&mut self.waiting);
                self.waiting = aside;
                return frame;
            }
            aside.push_back(frame);
        }
    }

    pub(crate) async fn rpc(&mut self, method: &str, data: Value) -> Value {
        self.call(json!({ "rpc": { "method": method, "data": data } })).await
    }

    pub(crate) async fn subscribe(&mut self, channel: &str) -> Value {
        self.call(json!({ "subscribe": { "channel": channel, "join_leave": true } })).await
    }

    pub(crate) async fn recover(&mut self, channel: &str, offset: u64, epoch: &Value) -> Value {
        let request = json!({ "channel": channel, "recover": true, "offset": offset, "epoch": epoch });
        self.call(json!({ "subscribe": request })).await
    }

    /// The next push.
    pub(crate) async fn push(&mut self) -> Value {
        self.next().await["push"].take()
    }

    /// The next push that matches. Others are skipped.
    pub(crate) async fn push_where(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let push = self.push().await;
            if fits(&push) {
                return push;
            }
        }
    }

    /// The contents of the next messages, in order, with their offsets.
    pub(crate) async fn messages(&mut self, count: usize) -> Vec<(u64, String)> {
        let mut messages = Vec::new();
        while messages.len() < count {
            let push = self.push_where(|push| push["pub"]["data"]["type"] == "message").await;
            messages.push(message_of(&push["pub"]));
        }
        messages
    }

    /// All frames before the reply to a ping.
    pub(crate) async fn flush(&mut self) -> Vec<Value> {
        self.call(json!({ "ping": {} })).await;
        self.waiting.drain(..).collect()
    }

    async fn next(&mut self) -> Value {
        loop {
            if let Some(frame) = self.waiting.pop_front() {
                if frame == json!({}) {
                    self.send("{}").await;
                    continue;
                }
                return frame;
            }
            let message =
                tokio::time::timeout(LIMIT, self.socket.next()).await.expect("a frame arrives in time");
            match message.expect("an open connection").unwrap() {
                Message::Text(text) => {
                    let frames = text.split('\n').map(|line| serde_json::from_str(line).unwrap());
                    self.waiting.extend(frames);
                }
                Message::Close(frame) => {
                    self.closed = frame.map(|frame| frame.code.into());
                    panic!("closed with {:?}", self.closed);
                }
                _ => {}
            }
        }
    }

    /// `None` if a frame arrives, or the code with which the server closes the connection.
    pub(crate) async fn first_or_end(&mut self) -> Option<u16> {
        match tokio::time::timeout(LIMIT, self.socket.next())
            .await
            .expect("a frame or the end arrives in time")
        {
            Some(Ok(Message::Close(Some(frame)))) => Some(frame.code.into()),
            Some(Ok(_)) => None,
            other => panic!("neither a frame nor a close: {other:?}"),
        }
    }

    /// Waits until the server closes the connection, and returns the code.
    pub(crate) async fn end(&mut self) -> u16 {
        self.close_frame().await.0
    }

    /// Waits for the close frame, and returns its code and reason.
    pub(crate) async fn close_frame(&mut self) -> (u16, String) {
        loop {
            match tokio::time::timeout(LIMIT, self.socket.next())
                .await
                .expect("the connection is closed in time")
            {
                Some(Ok(Message::Close(Some(frame)))) => {
                    return (frame.code.into(), frame.reason.to_string());
                }
                Some(Ok(_)) => {}
                other => panic!("no close frame: {other:?}"),
            }
        }
    }
}

/// The offset and the content of a message's publication.
pub(crate) fn message_of(publication: &Value) -> (u64, String) {
    let content = publication["data"]["message"]["content"].as_str().unwrap_or_default();
    (publication["offset"].as_u64().unwrap(), content.to_owned())
}
