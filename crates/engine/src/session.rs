//! The state of one connection: protocol, authentication, transaction, subscriptions.

use std::collections::BTreeSet;
use std::hash::BuildHasherDefault;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use hob_commands::FnvHasher;
use hob_units::AuthThrottle;
use indexmap::IndexMap;
use tokio::sync::Notify;

use crate::blocked::Ticket;
use crate::engine::Core;
use crate::hub::{MessageSender, SubscriptionKind};
use crate::store::Watch;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Protocol {
    #[default]
    Resp2,
    Resp3,
}

/// Where a connection's commands come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionOrigin {
    /// A handle in this process. Its clones share one connection, so commands must not change its state.
    Handle,
    Socket,
}

#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) id: u64,
    pub(crate) origin: SessionOrigin,
    pub(crate) protocol: Protocol,
    pub(crate) authenticated: bool,
    /// The password that was in force when `authenticated` was set, as [`Core::password_version`] counts it.
    pub(crate) password_version: u64,
    /// Limits the passwords that the address of a TCP client may try.
    pub(crate) throttle: Option<(AuthThrottle, IpAddr)>,
    pub(crate) transaction: Option<Transaction>,
    pub(crate) watches: Vec<Watch>,
    pub(crate) channels: BTreeSet<Bytes>,
    pub(crate) patterns: BTreeSet<Bytes>,
    /// Receives messages for this connection; only for sockets.
    pub(crate) sender: Option<MessageSender>,
    pub(crate) closing: bool,
    /// The command that waits for its reply. The interface waits for it before the next command.
    pub(crate) blocked: Option<Ticket>,
}

/// Commands between MULTI and EXEC.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transaction {
    pub(crate) queue: Vec<Vec<Vec<u8>>>,
    pub(crate) queued_bytes: usize,
    /// Whether one of the commands runs a script.
    pub(crate) runs_lua: bool,
    /// Whether one of the commands may need memory.
    pub(crate) needs_memory: bool,
    /// A command was refused while queueing: EXEC will fail.
    pub(crate) broken: bool,
}

impl Session {
    pub(crate) fn new(
        id: u64,
        origin: SessionOrigin,
        authenticated: bool,
        sender: Option<MessageSender>,
    ) -> Session {
        Session {
            id,
            origin,
            protocol: Protocol::Resp2,
            authenticated,
            password_version: 0,
            throttle: None,
            transaction: None,
            watches: Vec::new(),
            channels: BTreeSet::new(),
            patterns: BTreeSet::new(),
            sender,
            closing: false,
            blocked: None,
        }
    }

    /// Resets the connection: transaction, watches, subscriptions, name.
    pub(crate) fn reset(&mut self, core: &mut Core) {
        self.transaction = None;
        for watch in self.watches.drain(..) {
            core.keys.unwatch(&watch);
        }
        for kind in [SubscriptionKind::Channel, SubscriptionKind::Pattern] {
            let id = self.id;
            for name in std::mem::take(self.names_of(kind)) {
                core.hub.unsubscribe(kind, &name, id);
            }
        }
        core.hub.remove_monitor(self.id);
        if let Some(client) = core.clients.connected.get_mut(&self.id) {
            client.name.clear();
            (client.channels, client.patterns, client.queued) = (0, 0, None);
            client.protocol = Protocol::Resp2;
            client.no_evict = false;
        }
    }

    /// Whether the client may run commands. A new password ends the authentication with the old one.
    pub(crate) fn check_password(&mut self, core: &Core) -> bool {
        if self.origin == SessionOrigin::Socket && self.password_version != core.password_version {
            self.authenticated = false;
        }
        self.authenticated
    }

    pub(crate) fn set_authenticated(&mut self, authenticated: bool, core: &Core) {
        (self.authenticated, self.password_version) = (authenticated, core.password_version);
    }

    pub(crate) fn subscriptions(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    pub(crate) fn names_of(&mut self, kind: SubscriptionKind) -> &mut BTreeSet<Bytes> {
        match kind {
            SubscriptionKind::Channel => &mut self.channels,
            SubscriptionKind::Pattern => &mut self.patterns,
        }
    }

    /// In RESP2 a subscriber may only manage its subscriptions, because replies and messages look alike.
    pub(crate) fn is_resp2_subscriber(&self) -> bool {
        self.protocol == Protocol::Resp2 && self.subscriptions() > 0
    }
}

/// The connections of the listener, as shown by `CLIENT LIST`.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    next_id: u64,
    pub(crate) connected: IndexMap<u64, Client, BuildHasherDefault<FnvHasher>>,
    pub(crate) accepted: u64,
    pub(crate) rejected: u64,
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) address: String,
    pub(crate) local_address: String,
    pub(crate) name: String,
    pub(crate) since_us: u64,
    pub(crate) active_us: u64,
    pub(crate) last_command: &'static str,
    pub(crate) channels: usize,
    pub(crate) patterns: usize,
    /// What waits for EXEC, in a transaction.
    pub(crate) queued: Option<Queued>,
    pub(crate) protocol: Protocol,
    /// As the client's library calls itself.
    pub(crate) library_name: String,
    pub(crate) library_version: String,
    pub(crate) no_evict: bool,
    /// Ends the connection's task.
    pub(crate) kill: Arc<Notify>,
}

/// The commands of a transaction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Queued {
    pub(crate) commands: usize,
    pub(crate) bytes: usize,
}

impl Client {
    pub(crate) fn new(address: String, local_address: String, now_us: u64, kill: Arc<Notify>) -> Client {
        Client {
            address,
            local_address,
            name: String::new(),
            since_us: now_us,
            active_us: now_us,
            last_command: "NULL",
            channels: 0,
            patterns: 0,
            queued: None,
            protocol: Protocol::Resp2,
            library_name: String::new(),
            library_version: String::new(),
            no_evict: false,
            kill,
        }
    }

    pub(crate) fn is_subscribed(&self) -> bool {
        self.channels + self.patterns > 0
    }
}

impl Clients {
    pub(crate) fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(crate) fn add(&mut self, id: u64, client: Client) {
        self.accepted += 1;
        self.connected.insert(id, client);
    }

    pub(crate) fn remove(&mut self, id: u64) {
        self.connected.swap_remove(&id);
    }
}
