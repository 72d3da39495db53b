//! Control commands: changes of permissions and blocks. They are acknowledged when every live node has applied them
//! or its lease has expired; a node without a lease reads the database before each delivery.

use std::collections::HashMap;
use std::time::Duration;

use hob_store::{Call, Store, cmd};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::Notify;

use crate::Error;
use crate::chat::server::ServerSubscription;
use crate::hub::node::Node;
use crate::keys::{ConversationId, Incarnation, Keys, SocketId, UserId};

/// A command for all nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do")]
pub(crate) enum ControlCommand {
    /// Remove a user from a conversation.
    #[serde(rename = "remove")]
    RemoveMember { conversation: ConversationId, user: UserId },
    /// Read again which users these users have blocked.
    #[serde(rename = "blocks")]
    ReloadBlocks { users: [UserId; 2] },
    /// Close the sockets of a user, or one of them.
    #[serde(rename = "close")]
    CloseSockets { user: UserId, socket: Option<SocketId> },
    /// The members of a conversation are contacts of each other now.
    #[serde(rename = "contacts")]
    WatchContacts { conversation: ConversationId },
    /// Subscribe the connections of a user to a channel of a namespace.
    #[serde(rename = "subscribe")]
    Subscribe(ServerSubscription),
    /// End the subscriptions of a user to a channel; to all channels if it is empty.
    #[serde(rename = "unsubscribe")]
    Unsubscribe { user: UserId, client: Option<SocketId>, channel: String },
    /// Close the connections of a user, except some.
    #[serde(rename = "disconnect")]
    Disconnect { user: UserId, client: Option<SocketId>, spared: Vec<SocketId>, code: u16, reason: String },
    /// Set when the connections of a user expire. Without a time, they have expired.
    #[serde(rename = "refresh")]
    Refresh { user: UserId, client: Option<SocketId>, expires_s: Option<i64> },
    /// Confirm with the load of the node, and the channels that match the pattern.
    #[serde(rename = "survey")]
    Survey { pattern: Option<String> },
}

/// A command with the id under which it is confirmed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ControlMessage {
    pub(crate) id: String,
    /// The node that waits for the confirmation.
    pub(crate) origin: Incarnation,
    #[serde(flatten)]
    pub(crate) command: ControlCommand,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Confirmation {
    pub(crate) id: String,
    pub(crate) incarnation: String,
    /// The answer to a survey.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<Box<RawValue>>,
}

/// The confirmations of a command, by incarnation, with their answers.
type Confirmed = HashMap<String, Option<Box<RawValue>>>;

/// The commands that this node has sent and that are not confirmed yet.
#[derive(Debug)]
pub(crate) struct Control {
    store: Store,
    keys: Keys,
    origin: Incarnation,
    confirmed: Mutex<HashMap<String, Confirmed>>,
    changed: Notify,
}

/// When a command is sent again: the message or the confirmation may be lost.
const RETRY_INTERVAL: Duration = Duration::from_millis(300);

impl Control {
    pub(crate) fn new(store: &Store, keys: &Keys, origin: &Incarnation) -> Self {
        let (store, keys, origin) = (store.clone(), keys.clone(), origin.clone());
        Self { store, keys, origin, confirmed: Mutex::default(), changed: Notify::new() }
    }

    /// The channel for confirmations to this node.
    pub(crate) fn channel(&self) -> String {
        self.keys.confirmations_channel(&self.origin)
    }

    /// Makes every other live node apply a command that this node has applied, and waits for the confirmations.
    pub(crate) async fn broadcast(&self, node: &Node, command: ControlCommand) -> Result<(), Error> {
        self.survey(node, command).await.map(drop)
    }

    /// The same, and returns the answers of the other nodes.
    pub(crate) async fn survey(
        &self,
        node: &Node,
        command: ControlCommand,
    ) -> Result<Vec<Box<RawValue>>, Error> {
        let id = format!("{:032x}", rand::random::<u128>());
        let message = ControlMessage { id: id.clone(), origin: self.origin.clone(), command };
        self.confirmed.lock().insert(id.clone(), Confirmed::new());
        let outcome = self.wait(node, &message).await;
        let confirmed = self.confirmed.lock().remove(&id).unwrap_or_default();
        outcome.map(|()| confirmed.into_values().flatten().collect())
    }

    /// The call that sends a command to the other nodes without waiting. It may be lost.
    pub(crate) fn send_call(&self, command: ControlCommand) -> Result<Call, Error> {
        let id = format!("{:032x}", rand::random::<u128>());
        let message = ControlMessage { id, origin: self.origin.clone(), command };
        Ok(cmd("PUBLISH").arg(self.keys.orders_channel()).arg(serde_json::to_vec(&message)?).take().into())
    }

    async fn wait(&self, node: &Node, message: &ControlMessage) -> Result<(), Error> {
        let deadline = tokio::time::Instant::now() + node.lease() * 3;
        let payload = serde_json::to_vec(message)?;
        loop {
            // Nodes whose lease has expired are not listed, and those that join later read the database.
            let others = node.others().await?;
            let missing = |confirmed: &Confirmed| others.iter().any(|other| !confirmed.contains_key(other));
            if !self.confirmed.lock().get(&message.id).is_some_and(missing) {
                return Ok(());
            }
            // After the check: a process that was suspended past the deadline looks once more.
            if tokio::time::Instant::now() > deadline {
                return Err(Error::Unconfirmed);
            }
            self.store.bus().publish(self.keys.orders_channel(), &payload).await?;
            let again = tokio::time::Instant::now() + RETRY_INTERVAL;
            loop {
                let changed = self.changed.notified();
                if !self.confirmed.lock().get(&message.id).is_some_and(missing) {
                    return Ok(());
                }
                if tokio::time::timeout_at(again, changed).await.is_err() {
                    break;
                }
            }
        }
    }

    /// Confirms that this node has applied a command.
    pub(crate) async fn confirm(
        &self,
        node: &Node,
        message: &ControlMessage,
        answer: Option<Box<RawValue>>,
    ) -> Result<(), Error> {
        let incarnation = node.incarnation().to_string();
        let confirmation = Confirmation { id: message.id.clone(), incarnation, answer };
        let confirmation = serde_json::to_vec(&confirmation)?;
        self.store.bus().publish(self.keys.confirmations_channel(&message.origin), confirmation).await?;
        Ok(())
    }

    /// Records another node's confirmation.
    pub(crate) fn confirmed(&self, confirmation: Confirmation) {
        if let Some(confirmed) = self.confirmed.lock().get_mut(&confirmation.id) {
            confirmed.insert(confirmation.incarnation, confirmation.answer);
        }
        self.changed.notify_waiters();
    }

    pub(crate) fn is_own(&self, message: &ControlMessage) -> bool {
        message.origin == self.origin
    }
}
