//! WebSocket clients of the chat: members, who reconnect and recover, and visitors.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use super::{Counts, NAME, Room};
use crate::world::World;

/// A server pings every two seconds; a client that gets nothing for this long reconnects, as SDKs do.
const SILENCE: Duration = Duration::from_secs(8);

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// A member of a conversation.
pub(super) struct Member {
    pub(super) world: Arc<World>,
    pub(super) room: Arc<Room>,
    pub(super) number: usize,
    pub(super) token: String,
    pub(super) counts: Arc<Counts>,
}

impl Member {
    /// Connects to one node after the other, and recovers from the last offset each time.
    pub(super) async fn stay_connected(self) {
        let mut attempt = self.number;
        loop {
            let node = &self.world.nodes[attempt % self.world.nodes.len()];
            let _ = self.listen(node.api).await;
            attempt += 1;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Receives messages over one connection until it ends.
    async fn listen(&self, address: SocketAddr) -> Option<()> {
        let mut socket = connect(address, &self.token).await?;
        let offset = self.room.ledger().position(self.number);
        let channel = format!("conv:{}", self.room.name);
        let subscribe = json!({ "channel": channel, "recover": true, "offset": offset });
        socket.send(Message::text(json!({ "id": 2, "subscribe": subscribe }).to_string())).await.ok()?;
        self.counts.connections.fetch_add(1, Ordering::Relaxed);
        loop {
            for frame in frames(&mut socket).await? {
                if frame["error"].is_object() || frame["push"]["unsubscribe"].is_object() {
                    return None;
                }
                let recovered = frame["subscribe"]["publications"].as_array();
                for publication in recovered.into_iter().flatten().chain([&frame["push"]["pub"]]) {
                    self.receive(publication);
                }
            }
        }
    }

    fn receive(&self, publication: &Value) {
        if publication["data"]["type"] == "message" {
            let offset = publication["offset"].as_u64().unwrap_or(0);
            let content = publication["data"]["message"]["content"].as_str().unwrap_or_default();
            let received = self.room.ledger().receive(self.number, offset, content);
            if let Err(what) = received {
                self.world.violations.add(NAME, format!("{}: {what}", self.room.name));
            }
        }
    }
}

/// Connects as a user, stays, and leaves without a word, as a browser whose page is closed.
pub(super) async fn visit(address: SocketAddr, token: &str, stay: Duration) -> Option<()> {
    let mut socket = connect(address, token).await?;
    let _ = timeout(stay, async { while frames(&mut socket).await.is_some() {} }).await;
    Some(())
}

/// A connection whose first command was accepted.
async fn connect(address: SocketAddr, token: &str) -> Option<Socket> {
    let url = format!("ws://{address}/connection/websocket");
    let (mut socket, _) = timeout(SILENCE, tokio_tungstenite::connect_async(url)).await.ok()?.ok()?;
    socket.send(Message::text(json!({ "id": 1, "connect": { "token": token } }).to_string())).await.ok()?;
    let accepted = frames(&mut socket).await?.iter().any(|frame| frame["connect"].is_object());
    accepted.then_some(socket)
}

/// The parts of the next message. Answers pings. `None` when the connection has ended or is silent.
async fn frames(socket: &mut Socket) -> Option<Vec<Value>> {
    let Message::Text(text) = timeout(SILENCE, socket.next()).await.ok()??.ok()? else {
        return Some(Vec::new());
    };
    let frames: Vec<Value> = text.split('\n').filter_map(|line| serde_json::from_str(line).ok()).collect();
    if frames.iter().any(|frame| *frame == json!({})) {
        socket.send(Message::text("{}")).await.ok()?;
    }
    Some(frames)
}
