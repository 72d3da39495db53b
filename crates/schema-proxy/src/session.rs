//! What the proxy remembers about a connection.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::judge::is_word;
use crate::rules::SessionCommand;

/// Longer names are cut.
const MAX_NAME: usize = 100;

/// The state of a connection, as its commands have set it.
#[derive(Debug)]
pub(crate) struct Session {
    peer: SocketAddr,
    /// The address, and the name if the client has set one.
    pub(crate) client: Arc<str>,
    pub(crate) database: u32,
    transaction: Option<TransactionKeys>,
}

#[derive(Clone, Copy, Debug, Default)]
struct TransactionKeys {
    slot: Option<u16>,
}

impl Session {
    pub(crate) fn new(peer: SocketAddr) -> Session {
        Session { peer, client: peer.to_string().into(), database: 0, transaction: None }
    }

    /// Applies a command that the server will probably accept.
    pub(crate) fn apply(&mut self, command: SessionCommand, words: &[&[u8]]) {
        match command {
            SessionCommand::Multi => self.transaction = Some(TransactionKeys::default()),
            SessionCommand::EndTransaction => self.transaction = None,
            SessionCommand::Reset => *self = Session::new(self.peer),
            SessionCommand::Select => {
                let database = words.get(1).and_then(|word| std::str::from_utf8(word).ok()?.parse().ok());
                self.database = database.unwrap_or(self.database);
            }
            SessionCommand::Hello => {
                if let Some(at) = words.iter().position(|word| is_word(word, "setname")) {
                    self.name(words.get(at + 1).copied());
                }
            }
            SessionCommand::Client => {
                if words.get(1).is_some_and(|word| is_word(word, "setname")) {
                    self.name(words.get(2).copied());
                }
            }
            SessionCommand::Cluster => {}
        }
    }

    fn name(&mut self, name: Option<&[u8]>) {
        let name = String::from_utf8_lossy(name.unwrap_or_default());
        let name: String = name.chars().filter(|char| !char.is_control()).take(MAX_NAME).collect();
        self.client =
            if name.is_empty() { self.peer.to_string() } else { format!("{} {name}", self.peer) }.into();
    }

    pub(crate) fn in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// The slot of the earlier keys of the current transaction.
    pub(crate) fn transaction_slot(&self) -> Option<u16> {
        self.transaction?.slot
    }

    pub(crate) fn set_transaction_slot(&mut self, slot: Option<u16>) {
        if let Some(transaction) = &mut self.transaction {
            transaction.slot = slot;
        }
    }
}
