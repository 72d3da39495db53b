//! Clients that wait until a key has something for them: `BLPOP` and all other commands that block.
//!
//! The handler of such a command returns an [`Attempt`]: the reply, if there is one at once, or else a [`Wait`] with the
//! keys to wait for and a closure that tries again. [`Keyspace::touch`](crate::store::Keyspace::touch) records that a
//! key for which a client waits was written. After the command, transaction or script that wrote it,
//! [`Core::serve_blocked`] calls the closures of the clients that wait for the key, in the order in which they began to
//! wait. A client waits in its own task (see [`Pending`]), so that it notices its timeout or the end of its connection.

mod pending;
mod timeout;

pub(crate) use pending::Pending;
pub(crate) use timeout::{timeout_ms, timeout_seconds};

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::engine::Core;
use crate::reply::{CommandResult, Failure, Reply};

/// The maximum number of keys for which one client may wait.
const MAX_KEYS: usize = 10_000;

/// What a blocking command found.
pub(crate) enum Attempt {
    Done(Reply),
    Wait(Wait),
}

impl Attempt {
    /// The reply where a command may not wait.
    pub(crate) fn without_wait(self) -> Reply {
        match self {
            Attempt::Done(reply) => reply,
            Attempt::Wait(wait) => wait.reply_without_wait,
        }
    }
}

/// What a client waits for.
pub(crate) struct Wait {
    pub(crate) keys: Vec<Vec<u8>>,
    /// Unix microseconds; `None`: forever.
    pub(crate) deadline_us: Option<u64>,
    /// The reply where a command may not wait: in a transaction, in a script, or in [`crate::Engine::execute`].
    pub(crate) reply_without_wait: Reply,
    pub(crate) serve: Box<Serve>,
}

/// Tries again with a key that was written. `None`: the key has nothing for this client, which keeps waiting. An error
/// ends the wait as well.
pub(crate) type Serve = dyn FnMut(&mut Core, &[u8]) -> Option<CommandResult> + Send;

/// Identifies a blocked command. One client has at most one, but handles within the process have no client id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockedId(u64);

/// A blocked command, as its session keeps it. The task that waits for the reply takes the receiver; until then, the reply is kept
/// here if the command is served.
#[derive(Clone, Debug)]
pub(crate) struct Ticket {
    id: BlockedId,
    receiver: Arc<Mutex<Option<oneshot::Receiver<Reply>>>>,
    deadline_us: Option<u64>,
    reply_without_wait: Reply,
}

/// All blocked commands.
#[derive(Default)]
pub(crate) struct Blocked {
    next_id: u64,
    commands: HashMap<BlockedId, BlockedCommand>,
}

struct BlockedCommand {
    client: u64,
    wait: Wait,
    sender: oneshot::Sender<Reply>,
}

impl Blocked {
    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    pub(crate) fn is_blocked(&self, client: u64) -> bool {
        self.commands.values().any(|command| command.client == client)
    }
}

impl Core {
    /// Makes a client wait.
    pub(crate) fn block(&mut self, client: u64, mut wait: Wait) -> CommandResult<Ticket> {
        let mut seen = HashSet::new();
        wait.keys.retain(|key| seen.insert(key.clone()));
        if wait.keys.len() > MAX_KEYS {
            return Err(Failure::new("ERR too many keys to wait for"));
        }
        if self.blocked.len() >= self.settings.max_clients {
            return Err(Failure::new("ERR max number of blocked clients reached"));
        }
        self.blocked.next_id += 1;
        let id = BlockedId(self.blocked.next_id);
        for key in &wait.keys {
            self.keys.await_key(key, id);
        }
        let (sender, receiver) = oneshot::channel();
        let ticket = Ticket {
            id,
            receiver: Arc::new(Mutex::new(Some(receiver))),
            deadline_us: wait.deadline_us,
            reply_without_wait: wait.reply_without_wait.clone(),
        };
        self.blocked.commands.insert(id, BlockedCommand { client, wait, sender });
        Ok(ticket)
    }

    /// Ends a wait without a reply.
    fn unblock(&mut self, id: BlockedId) -> Option<BlockedCommand> {
        let command = self.blocked.commands.remove(&id)?;
        for key in &command.wait.keys {
            self.keys.stop_awaiting(key, id);
        }
        Some(command)
    }

    /// Ends the wait of a client with a reply; `false` if it does not wait.
    pub(crate) fn unblock_client(&mut self, client: u64, reply: Reply) -> bool {
        let mut commands = self.blocked.commands.iter();
        let Some(id) = commands.find(|(_, command)| command.client == client).map(|(id, _)| *id) else {
            return false;
        };
        let command = self.unblock(id);
        command.is_some_and(|command| command.sender.send(reply).is_ok())
    }

    /// Serves the clients that wait for the keys that were written since the last call. Serving a client may write
    /// further keys, for which others wait.
    pub(crate) fn serve_blocked(&mut self) {
        loop {
            let written = self.keys.take_written();
            if written.is_empty() {
                return;
            }
            for key in written {
                self.serve_key(&key);
            }
        }
    }

    fn serve_key(&mut self, key: &[u8]) {
        let mut at = 0;
        while let Some(id) = self.keys.awaiting(key, at) {
            if !self.serve(id, key) {
                at += 1;
            }
        }
    }

    /// Tries to serve one client; `false` if it keeps waiting.
    fn serve(&mut self, id: BlockedId, key: &[u8]) -> bool {
        let Some(mut command) = self.blocked.commands.remove(&id) else { return false };
        if command.sender.is_closed() {
            // The client is gone, and its task is about to end the wait.
            self.blocked.commands.insert(id, command);
            return false;
        }
        let result = (command.wait.serve)(self, key);
        self.publish_events();
        self.blocked.commands.insert(id, command);
        let Some(result) = result else { return false };
        if let Err(failure) = &result {
            self.count_rejected(None, failure);
        }
        if let Some(command) = self.unblock(id) {
            // The receiver is gone if the connection was closed at this moment, as if it were closed just afterwards.
            let _ = command.sender.send(result.unwrap_or_else(Reply::from));
        }
        true
    }
}

impl fmt::Debug for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocked").field("commands", &self.commands.len()).finish_non_exhaustive()
    }
}
