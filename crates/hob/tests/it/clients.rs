//! Chat clients that reconnect to any available node after a disconnect, and recover missed messages.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

/// The addresses of the nodes that currently accept clients.
pub(crate) type Addresses = Arc<Mutex<Vec<SocketAddr>>>;
/// The messages that a client has received, by offset.
pub(crate) type Received = Arc<Mutex<BTreeMap<u64, String>>>;

/// One client of one conversation.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) token: String,
    pub(crate) channel: String,
    pub(crate) received: Received,
}

impl Client {
    /// Stays subscribed: after each disconnect, reconnects and recovers from the last received offset.
    pub(crate) async fn run(self, addresses: Addresses, mut attempt: usize) {
        loop {
            attempt += 1;
            let address = {
                let addresses = addresses.lock().unwrap();
                addresses.get(attempt % addresses.len().max(1)).copied()
            };
            if let Some(address) = address {
                let _ = self.listen(address).await;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Receives messages over one connection until it closes.
    pub(crate) async fn listen(&self, address: SocketAddr) -> Option<()> {
        let url = format!("ws://{address}/connection/websocket");
        let (mut socket, _) = tokio_tungstenite::connect_async(url).await.ok()?;
        let offset = self.received.lock().unwrap().keys().last().copied().unwrap_or(0);
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
                    self.receive(publication);
                }
            }
        }
        Some(())
    }

    fn receive(&self, publication: &Value) {
        if publication["data"]["type"] == "message" {
            let offset = publication["offset"].as_u64().unwrap();
            let content = publication["data"]["message"]["content"].as_str().unwrap();
            let mut received = self.received.lock().unwrap();
            let last = received.keys().last().copied().unwrap_or(0);
            assert!(last < offset, "received offset {offset} after {last}");
            received.insert(offset, content.to_owned());
        }
    }
}
