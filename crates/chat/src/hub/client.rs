//! A client: one connection of a user.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use hob_database::{Database, UnixMs};
use parking_lot::RwLock;
use tokio::sync::Mutex;

use super::write_queue::WriteQueue;
use crate::Error;
use crate::database::blocks;
use crate::keys::{SocketId, UserId};

/// A connection, its write queue, and the users that are hidden from it.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) socket: SocketId,
    pub(crate) user: UserId,
    pub(crate) queue: WriteQueue,
    /// When its token was issued, in Unix milliseconds; 0 if the token does not say so.
    token_issued_ms: AtomicI64,
    /// When the connection is closed, if a back end has set that. Otherwise its token decides.
    refreshed_until: RwLock<Option<Instant>>,
    /// The users that a block hides. `None` if there are none, which is usual.
    hidden: RwLock<Option<Arc<HashSet<UserId>>>>,
    /// Serializes reloading, so that the latest result stays.
    reloading: Mutex<()>,
}

/// What reloading the blocks of a client has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockChange {
    /// A user was unblocked. The client has missed the events of this user.
    Revealed,
    /// No user was unblocked.
    Other,
}

impl Client {
    pub(crate) fn new(socket: SocketId, user: UserId, queue: WriteQueue) -> Self {
        Self {
            socket,
            user,
            queue,
            token_issued_ms: AtomicI64::default(),
            refreshed_until: RwLock::default(),
            hidden: RwLock::default(),
            reloading: Mutex::default(),
        }
    }

    pub(crate) fn token_issued_at(&self) -> UnixMs {
        UnixMs(self.token_issued_ms.load(Ordering::SeqCst))
    }

    pub(crate) fn set_token_issued_at(&self, at: UnixMs) {
        self.token_issued_ms.store(at.0, Ordering::SeqCst);
    }

    /// When the connection is closed, if a back end has set that.
    pub(crate) fn refreshed_until(&self) -> Option<Instant> {
        *self.refreshed_until.read()
    }

    /// Sets when the connection is closed. `None`: its token decides.
    pub(crate) fn set_refreshed_until(&self, until: Option<Instant>) {
        *self.refreshed_until.write() = until;
    }

    /// Whether a block hides the client and `other` from each other.
    pub(crate) fn hides(&self, other: &UserId) -> bool {
        self.hidden.read().as_ref().is_some_and(|hidden| hidden.contains(other))
    }

    /// Reads the blocks from the database.
    pub(crate) async fn reload_blocks(&self, database: &Database) -> Result<BlockChange, Error> {
        let _one_at_a_time = self.reloading.lock().await;
        let hidden = blocks::hidden_from(database, &self.user).await?;
        let mut held = self.hidden.write();
        let revealed = held.iter().flat_map(|held| held.iter()).any(|user| !hidden.contains(user));
        *held = (!hidden.is_empty()).then(|| Arc::new(hidden));
        Ok(if revealed { BlockChange::Revealed } else { BlockChange::Other })
    }
}
