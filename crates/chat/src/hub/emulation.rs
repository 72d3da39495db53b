//! Commands of clients that cannot send them over their connection: each is a separate HTTP request, which may reach another
//! node than the one with the connection. That node forwards it over the bus.
//!
//! A request is authenticated by the id of the session, which is random and known only to its client.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hob_service::Task;
use hob_store::{BusEvent, ChannelFilter, Store};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::Error;
use crate::keys::{Incarnation, Keys};

/// How many requests of a session wait until its commands are executed.
const MAX_WAITING: usize = 16;
/// How many requests this node forwards at a time.
const MAX_FORWARDED: usize = 1_024;
/// How long a node waits until the node with the session has answered.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

type Sessions = Mutex<HashMap<String, mpsc::Sender<Bytes>>>;
type Forwarded = Mutex<HashMap<String, oneshot::Sender<Acceptance>>>;

/// The sessions of this node that get commands with separate requests.
#[derive(Debug)]
pub(crate) struct Emulation {
    store: Store,
    keys: Keys,
    /// This process.
    origin: Incarnation,
    sessions: Arc<Sessions>,
    /// The requests that were forwarded and are not answered yet.
    forwarded: Forwarded,
    permits: Semaphore,
}

/// A session that gets commands with separate requests, until it is dropped.
#[derive(Debug)]
pub(crate) struct EmulatedSession {
    id: String,
    node: String,
    frames: mpsc::Receiver<Bytes>,
    sessions: Arc<Sessions>,
}

/// What has become of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Acceptance {
    /// The session executes the commands.
    Accepted,
    /// The session does not exist, or it has ended.
    Unknown,
    /// The session has too many requests that wait.
    Busy,
    /// The node with the session does not answer. The commands may be executed.
    Unreachable,
}

/// A request that waits for its answer, until it is dropped.
struct ForwardedRequest<'a> {
    id: String,
    waiting: &'a Forwarded,
}

impl Drop for ForwardedRequest<'_> {
    fn drop(&mut self) {
        self.waiting.lock().remove(&self.id);
    }
}

/// A message between nodes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
enum EmulationMessage {
    /// Commands for a session of the receiver. The data is in base64.
    Request {
        id: String,
        origin: Incarnation,
        session: String,
        data: String,
    },
    Answer {
        id: String,
        acceptance: Acceptance,
    },
}

impl Emulation {
    pub(crate) fn new(store: &Store, keys: &Keys, origin: Incarnation) -> Self {
        Self {
            store: store.clone(),
            keys: keys.clone(),
            origin,
            sessions: Arc::default(),
            forwarded: Mutex::default(),
            permits: Semaphore::new(MAX_FORWARDED),
        }
    }

    /// Opens a session.
    pub(crate) fn open(&self) -> EmulatedSession {
        let id = random_id();
        let (sender, frames) = mpsc::channel(MAX_WAITING);
        self.sessions.lock().insert(id.clone(), sender);
        let (node, sessions) = (self.origin.to_string(), Arc::clone(&self.sessions));
        EmulatedSession { id, node, frames, sessions }
    }

    /// Gives commands to a session of a node.
    pub(crate) async fn send(&self, node: &str, session: &str, data: Bytes) -> Result<Acceptance, Error> {
        if !is_random_id(node) || !is_random_id(session) {
            return Ok(Acceptance::Unknown);
        }
        let Ok(node) = Incarnation::new(node) else { return Ok(Acceptance::Unknown) };
        if node == self.origin {
            return Ok(self.deliver(session, data));
        }
        let Ok(_permit) = self.permits.try_acquire() else { return Ok(Acceptance::Busy) };
        let (sender, answer) = oneshot::channel();
        let forwarded = ForwardedRequest { id: random_id(), waiting: &self.forwarded };
        self.forwarded.lock().insert(forwarded.id.clone(), sender);
        let (id, origin) = (forwarded.id.clone(), self.origin.clone());
        let (session, data) = (session.to_owned(), STANDARD.encode(data));
        self.publish(&node, &EmulationMessage::Request { id, origin, session, data }).await?;
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, answer).await;
        Ok(answer.ok().and_then(Result::ok).unwrap_or(Acceptance::Unreachable))
    }

    /// Gives commands to a session of this node.
    fn deliver(&self, session: &str, data: Bytes) -> Acceptance {
        let sender = self.sessions.lock().get(session).cloned();
        match sender.map(|sender| sender.try_send(data)) {
            Some(Ok(())) => Acceptance::Accepted,
            Some(Err(mpsc::error::TrySendError::Full(_))) => Acceptance::Busy,
            Some(Err(mpsc::error::TrySendError::Closed(_))) | None => Acceptance::Unknown,
        }
    }

    async fn publish(&self, node: &Incarnation, message: &EmulationMessage) -> Result<(), Error> {
        let payload = serde_json::to_vec(message)?;
        self.store.bus().publish(self.keys.emulation_channel(node), payload).await?;
        Ok(())
    }

    /// Receives requests and answers of other nodes until the task is stopped.
    pub(crate) async fn listen(&self, task: &Task) {
        let channel = ChannelFilter::channel(self.keys.emulation_channel(&self.origin));
        let mut listener = self.store.bus().listen(vec![channel]);
        loop {
            let event = tokio::select! {
                event = listener.next() => event,
                () = task.stop_requested() => return,
            };
            task.heartbeat();
            // Lost messages are those of requests that are not answered: the client repeats its command or reconnects.
            let BusEvent::Message { payload, .. } = event else { continue };
            match serde_json::from_slice(&payload) {
                Ok(EmulationMessage::Request { id, origin, session, data }) => {
                    let data = STANDARD.decode(data).ok();
                    let acceptance =
                        data.map_or(Acceptance::Unknown, |data| self.deliver(&session, data.into()));
                    let answer = EmulationMessage::Answer { id, acceptance };
                    if let Err(error) = self.publish(&origin, &answer).await {
                        tracing::debug!(%error, "failed to answer a forwarded chat request");
                    }
                }
                Ok(EmulationMessage::Answer { id, acceptance }) => {
                    if let Some(waiting) = self.forwarded.lock().remove(&id) {
                        let _ = waiting.send(acceptance);
                    }
                }
                Err(error) => tracing::warn!(%error, "malformed pub/sub message ignored"),
            }
        }
    }
}

impl EmulatedSession {
    /// The id with which the client sends commands.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The node to which requests are forwarded.
    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    /// The commands of the next request. Cancel safe.
    pub(crate) async fn receive(&mut self) -> Bytes {
        match self.frames.recv().await {
            Some(frame) => frame,
            // The sender is in the table as long as this session exists.
            None => std::future::pending().await,
        }
    }
}

impl Drop for EmulatedSession {
    fn drop(&mut self) {
        self.sessions.lock().remove(&self.id);
    }
}

fn random_id() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// Whether this can be the id of a session or of a node. Others are not sent to other nodes.
fn is_random_id(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use hob_fixtures::{Layout, TestStore};

    use super::*;

    #[tokio::test]
    async fn waiting_requests_of_a_session_are_bounded() {
        let test_store = TestStore::embedded(Layout::Plain);
        let (store, keys) = (test_store.store(), Keys::new(test_store.layout()));
        let emulation = Emulation::new(store, &keys, Incarnation::new(random_id()).unwrap());
        let mut session = emulation.open();
        let (node, id) = (session.node().to_owned(), session.id().to_owned());
        let send = async || emulation.send(&node, &id, Bytes::from_static(b"{}")).await.unwrap();
        for _ in 0..MAX_WAITING {
            assert_eq!(send().await, Acceptance::Accepted);
        }
        assert_eq!(send().await, Acceptance::Busy);
        assert_eq!(session.receive().await.as_ref(), b"{}");
        assert_eq!(send().await, Acceptance::Accepted);
        drop(session);
        assert_eq!(send().await, Acceptance::Unknown);
        assert!(emulation.sessions.lock().is_empty());
    }
}
