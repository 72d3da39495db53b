//! Changes of who may see what. They are acknowledged once every live node has carried them out, or its lease has
//! ended; a node without its lease looks into the database before each delivery.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use hob_store::Store;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::Error;
use crate::hub::node::Node;
use crate::keys::{ConversationId, Incarnation, Keys, UserId};

/// What every node has to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do")]
pub(crate) enum ControlCommand {
    /// Take a user out of a conversation.
    #[serde(rename = "remove")]
    RemoveMember { conversation: ConversationId, user: UserId },
    /// Look up again whom these users have blocked.
    #[serde(rename = "blocks")]
    ReloadBlocks { users: [UserId; 2] },
}

/// An order on its way.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ControlMessage {
    pub(crate) id: String,
    /// Where the confirmation goes.
    pub(crate) origin: Incarnation,
    #[serde(flatten)]
    pub(crate) command: ControlCommand,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Confirmation {
    pub(crate) id: String,
    pub(crate) incarnation: String,
}

/// The orders that this node waits for.
#[derive(Debug)]
pub(crate) struct Control {
    store: Store,
    keys: Keys,
    origin: Incarnation,
    confirmed: Mutex<HashMap<String, HashSet<String>>>,
    changed: Notify,
}

/// An order is told again after this long: its message, or the confirmation, may be lost.
const RETRY_INTERVAL: Duration = Duration::from_millis(300);

impl Control {
    pub(crate) fn new(store: &Store, keys: &Keys, origin: &Incarnation) -> Self {
        let (store, keys, origin) = (store.clone(), keys.clone(), origin.clone());
        Self { store, keys, origin, confirmed: Mutex::default(), changed: Notify::new() }
    }

    /// The channel on which confirmations come.
    pub(crate) fn channel(&self) -> String {
        self.keys.confirmations_channel(&self.origin)
    }

    /// Has every other live node carry out an order, which this one has already.
    pub(crate) async fn broadcast(&self, node: &Node, command: ControlCommand) -> Result<(), Error> {
        let id = format!("{:032x}", rand::random::<u128>());
        let broadcast = ControlMessage { id: id.clone(), origin: self.origin.clone(), command };
        self.confirmed.lock().insert(id.clone(), HashSet::new());
        let outcome = self.wait(node, &broadcast).await;
        self.confirmed.lock().remove(&id);
        outcome
    }

    async fn wait(&self, node: &Node, broadcast: &ControlMessage) -> Result<(), Error> {
        let deadline = tokio::time::Instant::now() + node.lease() * 3;
        let payload = serde_json::to_vec(broadcast)?;
        loop {
            // A node whose lease has ended is not among them, and one that joins later reads the database.
            let others = node.others().await?;
            let missing = |confirmed: &HashSet<String>| others.iter().any(|other| !confirmed.contains(other));
            if !self.confirmed.lock().get(&broadcast.id).is_some_and(missing) {
                return Ok(());
            }
            self.store.bus().publish(self.keys.orders_channel(), &payload).await?;
            let again = tokio::time::Instant::now() + RETRY_INTERVAL;
            loop {
                let changed = self.changed.notified();
                if !self.confirmed.lock().get(&broadcast.id).is_some_and(missing) {
                    return Ok(());
                }
                if tokio::time::timeout_at(again, changed).await.is_err() {
                    break;
                }
            }
            if tokio::time::Instant::now() > deadline {
                return Err(Error::Unconfirmed);
            }
        }
    }

    /// Confirms that this node has carried out an order.
    pub(crate) async fn confirm(&self, node: &Node, broadcast: &ControlMessage) -> Result<(), Error> {
        let incarnation = node.incarnation().to_string();
        let confirmation = serde_json::to_vec(&Confirmation { id: broadcast.id.clone(), incarnation })?;
        self.store.bus().publish(self.keys.confirmations_channel(&broadcast.origin), confirmation).await?;
        Ok(())
    }

    /// Takes note of another node's confirmation.
    pub(crate) fn confirmed(&self, confirmation: Confirmation) {
        if let Some(confirmed) = self.confirmed.lock().get_mut(&confirmation.id) {
            confirmed.insert(confirmation.incarnation);
        }
        self.changed.notify_waiters();
    }

    pub(crate) fn is_own(&self, broadcast: &ControlMessage) -> bool {
        broadcast.origin == self.origin
    }
}
