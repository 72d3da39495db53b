//! The clients of this node, by user.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Client, Hub};
use crate::keys::{SocketId, UserId};

impl Hub {
    /// Adds a connection.
    pub(crate) fn add(&self, client: &Arc<Client>) {
        self.clients.lock().entry(client.user.clone()).or_default().push(Arc::clone(client));
        let open = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        crate::metrics::connections(open);
    }

    /// Removes a connection. `true` if it was the user's last one on this node.
    pub(crate) fn remove(&self, client: &Client) -> bool {
        let mut clients = self.clients.lock();
        let Some(clients_of_user) = clients.get_mut(&client.user) else { return true };
        let before = clients_of_user.len();
        clients_of_user.retain(|other| other.socket != client.socket);
        if clients_of_user.len() < before {
            let open = self.connections.fetch_sub(1, Ordering::Relaxed) - 1;
            crate::metrics::connections(open);
        }
        let last = clients_of_user.is_empty();
        if last {
            clients.remove(&client.user);
        }
        last
    }

    /// The connections of a user on this node.
    pub(crate) fn clients_of(&self, user: &UserId) -> Vec<Arc<Client>> {
        self.clients.lock().get(user).cloned().unwrap_or_default()
    }

    /// Registers a socket of another program.
    pub(crate) fn add_external_socket(&self, user: &UserId, socket: &SocketId) {
        self.external_sockets.lock().entry(user.clone()).or_default().insert(socket.clone());
    }

    /// Removes a socket of another program. `false` if it is not registered on this node.
    pub(crate) fn remove_external_socket(&self, user: &UserId, socket: &SocketId) -> bool {
        let mut external_sockets = self.external_sockets.lock();
        let Some(sockets) = external_sockets.get_mut(user) else { return false };
        let removed = sockets.remove(socket);
        if sockets.is_empty() {
            external_sockets.remove(user);
        }
        removed
    }

    /// The version of the last presence change of a user, as far as this node knows; 0 if it knows none.
    pub(crate) fn version_of(&self, user: &UserId) -> u64 {
        self.versions.lock().get(user).copied().unwrap_or(0)
    }

    /// Remembers the version of a presence change.
    pub(crate) fn set_version(&self, user: &UserId, version: u64) {
        let mut versions = self.versions.lock();
        let known = versions.entry(user.clone()).or_default();
        *known = version.max(*known);
    }

    /// Forgets the version of a user without sockets on this node.
    pub(crate) fn forget_version(&self, user: &UserId) {
        self.versions.lock().remove(user);
    }

    /// Whether a connection of a user on this node has this socket.
    pub(crate) fn is_connected(&self, user: &UserId, socket: &SocketId) -> bool {
        self.clients.lock().get(user).is_some_and(|clients| clients.iter().any(|one| one.socket == *socket))
    }

    /// All users with sockets on this node.
    pub(crate) fn users(&self) -> Vec<UserId> {
        let mut users: HashSet<UserId> = self.clients.lock().keys().cloned().collect();
        users.extend(self.external_sockets.lock().keys().cloned());
        users.into_iter().collect()
    }

    /// How many users have sockets on this node.
    pub(crate) fn count_users(&self) -> u64 {
        let (clients, external_sockets) = (self.clients.lock(), self.external_sockets.lock());
        let others = external_sockets.keys().filter(|user| !clients.contains_key(*user));
        (clients.len() + others.count()) as u64
    }

    /// The sockets of one user on this node.
    pub(crate) fn sockets_of(&self, user: &UserId) -> HashSet<SocketId> {
        let mut sockets = self.external_sockets.lock().get(user).cloned().unwrap_or_default();
        sockets.extend(self.clients_of(user).iter().map(|client| client.socket.clone()));
        sockets
    }

    pub(crate) fn all_clients(&self) -> Vec<Arc<Client>> {
        self.clients.lock().values().flatten().cloned().collect()
    }
}
