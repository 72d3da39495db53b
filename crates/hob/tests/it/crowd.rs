//! Clients of the chat that stay whatever happens: they come back through any door that is open, and recover.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

/// Where clients may connect at the moment.
pub(crate) type Doors = Arc<Mutex<Vec<SocketAddr>>>;
/// The messages that a client holds, by offset.
pub(crate) type Held = Arc<Mutex<BTreeMap<u64, String>>>;

/// One client of one conversation.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) token: String,
    pub(crate) channel: String,
    pub(crate) held: Held,
}

impl Client {
    /// Stays subscribed, and comes back from the offset that it has seen last.
    pub(crate) async fn stay(self, doors: Doors, mut turn: usize) {
        loop {
            turn += 1;
            let door = {
                let doors = doors.lock().unwrap();
                doors.get(turn % doors.len().max(1)).copied()
            };
            if let Some(door) = door {
                let _ = self.listen(door).await;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Listens through one door until it closes.
    pub(crate) async fn listen(&self, door: SocketAddr) -> Option<()> {
        let url = format!("ws://{door}/connection/websocket");
        let (mut socket, _) = tokio_tungstenite::connect_async(url).await.ok()?;
        let offset = self.held.lock().unwrap().keys().last().copied().unwrap_or(0);
        let subscribe = json!({ "channel": self.channel, "recover": true, "offset": offset });
        let connect = json!({ "id": 1, "connect": { "token": self.token } });
        let hello = format!("{connect}\n{}", json!({ "id": 2, "subscribe": subscribe }));
        socket.send(Message::text(hello)).await.ok()?;
        while let Some(Ok(Message::Text(text))) = socket.next().await {
            for line in text.split('\n') {
                let frame: Value = serde_json::from_str(line).unwrap();
                if frame == json!({}) {
                    socket.send(Message::text("{}")).await.ok()?;
                }
                if frame["error"].is_object() || frame["push"]["unsubscribe"].is_object() {
                    return None;
                }
                let recovered = frame["subscribe"]["publications"].as_array();
                for publication in recovered.into_iter().flatten().chain([&frame["push"]["pub"]]) {
                    self.take(publication);
                }
            }
        }
        Some(())
    }

    fn take(&self, publication: &Value) {
        if publication["data"]["type"] == "message" {
            let offset = publication["offset"].as_u64().unwrap();
            let content = publication["data"]["message"]["content"].as_str().unwrap();
            let mut held = self.held.lock().unwrap();
            let last = held.keys().last().copied().unwrap_or(0);
            assert!(last < offset, "{offset} came twice, or after {last}");
            held.insert(offset, content.to_owned());
        }
    }
}
