//! Who is connected to this node, by user.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Hub, Peer};
use crate::keys::{SocketId, UserId};

impl Hub {
    /// Adds a connection.
    pub(crate) fn add(&self, peer: &Arc<Peer>) {
        self.peers.lock().entry(peer.user.clone()).or_default().push(Arc::clone(peer));
        let open = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        crate::metrics::connections(open);
    }

    /// Takes a connection away; whether it was the user's last one on this node.
    pub(crate) fn remove(&self, peer: &Peer) -> bool {
        let mut peers = self.peers.lock();
        let Some(own) = peers.get_mut(&peer.user) else { return true };
        let before = own.len();
        own.retain(|other| other.socket != peer.socket);
        if own.len() < before {
            let open = self.connections.fetch_sub(1, Ordering::Relaxed) - 1;
            crate::metrics::connections(open);
        }
        let last = own.is_empty();
        if last {
            peers.remove(&peer.user);
        }
        last
    }

    /// The connections of a user on this node.
    pub(crate) fn peers_of(&self, user: &UserId) -> Vec<Arc<Peer>> {
        self.peers.lock().get(user).cloned().unwrap_or_default()
    }

    /// Answers for a socket that another program holds.
    pub(crate) fn hold(&self, user: &UserId, socket: &SocketId) {
        self.held.lock().entry(user.clone()).or_default().insert(socket.clone());
    }

    /// Does not answer for it any more.
    pub(crate) fn release(&self, user: &UserId, socket: &SocketId) {
        let mut held = self.held.lock();
        if let Some(sockets) = held.get_mut(user) {
            sockets.remove(socket);
            if sockets.is_empty() {
                held.remove(user);
            }
        }
    }

    /// All users with sockets on this node.
    pub(crate) fn users(&self) -> Vec<UserId> {
        let mut users: HashSet<UserId> = self.peers.lock().keys().cloned().collect();
        users.extend(self.held.lock().keys().cloned());
        users.into_iter().collect()
    }

    /// The sockets of one user on this node.
    pub(crate) fn sockets_of(&self, user: &UserId) -> HashSet<SocketId> {
        let mut sockets = self.held.lock().get(user).cloned().unwrap_or_default();
        sockets.extend(self.peers_of(user).iter().map(|peer| peer.socket.clone()));
        sockets
    }

    pub(crate) fn everybody(&self) -> Vec<Arc<Peer>> {
        self.peers.lock().values().flatten().cloned().collect()
    }
}
