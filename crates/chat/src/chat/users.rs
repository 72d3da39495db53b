//! Users: their connections, presence and unread counts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hob_store::limit::{Algorithm, Decision, Rule};

use crate::Error;
use crate::chat::{Chat, Inner};
use crate::conversation::event::iso;
use crate::conversation::member::{self, Participants};
use crate::database::{self, blocks, conversations, events, members, users};
use crate::error::{Answer, Refusal};
use crate::hub::channel_name::ChannelName;
use crate::hub::node::{NodeInfo, save_last_seen};
use crate::hub::transient::{FeedSnapshot, FeedUpdate};
use crate::hub::{Client, ControlCommand};
use crate::keys::{ConversationId, Incarnation, Keys, SocketId, UserId};
use crate::session::protocol::Disconnect;
use crate::store::presence::{Known, Presence, PresenceChange};
use crate::store::unread::{CountScope, UnreadCount};

impl Chat {
    /// Registers a connection of a user on this node and in Redis.
    pub(crate) async fn connect(&self, client: &Arc<Client>) -> Answer<()> {
        let Inner { hub, database, .. } = &*self.inner;
        if !self.check_connect_rate(&client.user).await {
            return Ok(Err(Refusal::RateLimited { retry_after: Duration::from_secs(10) }));
        }
        // The client is registered before the blocks are read, so that a block that is added at the same time reloads
        // them.
        hub.add(client);
        let registered = async {
            client.reload_blocks(database).await?;
            if let Err(refusal) = self.check_revocation(client).await? {
                return Ok(Err(refusal));
            }
            match self.open_socket(&client.user, &client.socket).await {
                Ok(PresenceChange::LimitReached) => {
                    Ok(Err(Refusal::LimitExceeded { what: "connections", max: Keys::SOCKETS_MAX_LEN }))
                }
                Ok(_) => Ok(Ok(())),
                Err(error) => {
                    // Delivery within the node works without Redis. The next incarnation restores all sockets.
                    if !error.is_reported() {
                        tracing::warn!(%error, "failed to write the presence of a connection to Redis");
                    }
                    hub.node.invalidate();
                    Ok(Ok(()))
                }
            }
        };
        let registered = registered.await;
        if !matches!(registered, Ok(Ok(()))) {
            // Also in Redis: the node may have restored the sockets of its clients meanwhile.
            self.disconnect(client).await;
        }
        registered
    }

    /// Counts a new connection of a user as open. If Redis does not know the user, it may have lost the user's sockets on
    /// other nodes. Then [`confirm_sockets`](Self::confirm_sockets) counts the connection when they are restored, so
    /// that the user is not announced twice.
    async fn open_socket(&self, user: &UserId, socket: &SocketId) -> Result<PresenceChange, Error> {
        let Inner { hub, presences, .. } = &*self.inner;
        let _lock = self.lock_sockets(user).await;
        let (node, version) = (hub.node.incarnation(), hub.version_of(user));
        let mut change = if version > 0 {
            // All of them: Redis may have lost the others.
            let sockets: Vec<SocketId> = hub.sockets_of(user).into_iter().collect();
            presences.join(&node, user, &sockets, Known::Version(version)).await?
        } else {
            presences.join(&node, user, std::slice::from_ref(socket), Known::Ask).await?
        };
        if change == PresenceChange::NotFound {
            self.check_for_loss(Instant::now()).await?;
            if hub.node.is_recovering() {
                hub.recent_sockets.add(user, socket, hub.node.lease() / 2);
                return Ok(PresenceChange::NotFound);
            }
            change = presences.join(&node, user, std::slice::from_ref(socket), Known::Nothing).await?;
        }
        self.note_change(user, socket, &change);
        Ok(change)
    }

    /// Remembers a change of a socket, to find out later whether Redis has lost it.
    fn note_change(&self, user: &UserId, socket: &SocketId, change: &PresenceChange) {
        if let PresenceChange::Changed { version } | PresenceChange::Unchanged { version } = change {
            self.inner.hub.set_version(user, *version);
            self.inner.hub.recent_sockets.add(user, socket, Duration::ZERO);
        }
    }

    /// Removes a connection.
    pub(crate) async fn disconnect(&self, client: &Client) {
        let hub = &self.inner.hub;
        hub.remove(client);
        if let Err(error) = self.close_socket(&client.user, &client.socket).await
            && !error.is_reported()
        {
            tracing::warn!(%error, "failed to remove a chat connection from Redis");
        }
    }

    /// Counts a socket of this node as closed. If Redis has lost it, it may also have lost sockets of the user on other
    /// nodes. Then the socket is restored, and [`confirm_sockets`](Self::confirm_sockets) closes it when the others are
    /// restored too: the user goes offline with one event, or stays online.
    pub(super) async fn close_socket(
        &self,
        user: &UserId,
        socket: &SocketId,
    ) -> Result<PresenceChange, Error> {
        let _lock = self.lock_sockets(user).await;
        let closed = self.close_locked_socket(user, socket).await;
        // The entries that are left in Redis belong to this incarnation and are removed with it.
        closed.inspect_err(|_| self.inner.hub.node.invalidate())
    }

    /// Counts a socket as closed, unless it was opened again in the meantime.
    pub(super) async fn close_absent_socket(&self, user: &UserId, socket: &SocketId) -> Result<(), Error> {
        let _lock = self.lock_sockets(user).await;
        if !self.inner.hub.sockets_of(user).contains(socket) {
            self.close_locked_socket(user, socket).await?;
        }
        Ok(())
    }

    async fn close_locked_socket(&self, user: &UserId, socket: &SocketId) -> Result<PresenceChange, Error> {
        let Inner { hub, presences, .. } = &*self.inner;
        let (node, version) = (hub.node.incarnation(), hub.version_of(user));
        let Some(change) = presences.leave(user, socket, version).await? else {
            let closed = std::slice::from_ref(socket);
            let change = presences.join(&node, user, closed, Known::Version(version)).await?;
            hub.recent_sockets.add(user, socket, hub.node.lease() / 2);
            self.save_last_seen(user).await;
            return Ok(change);
        };
        self.note_change(user, socket, &change);
        if hub.sockets_of(user).is_empty() {
            hub.forget_version(user);
            presences.unindex(&node, user).await?;
            if !hub.sockets_of(user).is_empty() {
                // The user has reconnected in the meantime, so the index must contain the user.
                presences.index(&node, user).await?;
            }
        }
        if matches!(change, PresenceChange::Changed { .. }) {
            self.save_last_seen(user).await;
        }
        Ok(change)
    }

    async fn check_connect_rate(&self, user: &UserId) -> bool {
        let Inner { rate_limit_store, keys, .. } = &*self.inner;
        let per_minute = format!("{}/1m", self.config().connects_per_minute.max(1));
        let rule = per_minute.parse().and_then(|window| Rule::new(Algorithm::Gcra, vec![window]));
        let Ok(rule) = rule else { return true };
        let taken = rule.take(rate_limit_store, &[keys.connect_rate(user)], 1).await;
        taken.map_or(true, |decision| matches!(decision, Decision::Allowed(_)))
    }

    /// Counts a socket of another program as open (C16). It belongs to this node and is removed when the node dies.
    pub async fn add_user_socket(&self, user: &UserId, socket: &SocketId) -> Result<PresenceChange, Error> {
        let Inner { hub, presences, .. } = &*self.inner;
        let _lock = self.lock_sockets(user).await;
        let known = Known::from_version(hub.version_of(user));
        let sockets = std::slice::from_ref(socket);
        let change = presences.join(&hub.node.incarnation(), user, sockets, known).await;
        // Redis may have the socket, but the caller does not know it.
        let change = change.inspect_err(|_| hub.node.invalidate())?;
        if let PresenceChange::Changed { .. } | PresenceChange::Unchanged { .. } = change {
            hub.add_external_socket(user, socket);
        }
        self.note_change(user, socket, &change);
        Ok(change)
    }

    /// Closes a socket (C16): a connection of a client, on any node, or a socket of another program. With the last one, the
    /// user goes offline.
    pub async fn remove_user_socket(
        &self,
        user: &UserId,
        socket: &SocketId,
    ) -> Result<PresenceChange, Error> {
        let Inner { hub, presences, .. } = &*self.inner;
        if hub.sockets_of(user).contains(socket) {
            return self.close_socket_here(user, socket).await;
        }
        let owner = presences.owner_of(&[(user.clone(), socket.clone())]).await?.pop().flatten();
        if owner.is_some() {
            let command = ControlCommand::CloseSockets { user: user.clone(), socket: Some(socket.clone()) };
            hub.control.broadcast(&hub.node, command).await?;
        }
        // No live node has it any more. A node that is dead may have left it.
        let _lock = self.lock_sockets(user).await;
        let change = presences.leave(user, socket, 0).await?.unwrap_or(PresenceChange::NotFound);
        let Some(owner) = owner else { return Ok(change) };
        if change == PresenceChange::NotFound {
            return self.change_of(user).await;
        }
        if matches!(change, PresenceChange::Changed { .. }) {
            self.save_last_seen(user).await;
        }
        let remaining = presences.owners(std::slice::from_ref(user)).await?.pop().unwrap_or_default();
        if let Ok(owner) = Incarnation::new(owner)
            && !remaining.contains(&owner)
        {
            presences.unindex(&owner, user).await?;
        }
        Ok(change)
    }

    /// Disconnects a user on all nodes.
    pub async fn disconnect_user(&self, user: &UserId) -> Result<(), Error> {
        let hub = &self.inner.hub;
        self.close_sockets_here(user, None).await?;
        let command = ControlCommand::CloseSockets { user: user.clone(), socket: None };
        hub.control.broadcast(&hub.node, command).await
    }

    /// Closes the sockets of a user on this node, or one of them.
    pub(super) async fn close_sockets_here(
        &self,
        user: &UserId,
        socket: Option<&SocketId>,
    ) -> Result<(), Error> {
        for open in self.inner.hub.sockets_of(user) {
            if socket.is_none_or(|socket| *socket == open) {
                self.close_socket_here(user, &open).await?;
            }
        }
        Ok(())
    }

    /// Closes a socket of this node. It counts as closed at once: the session of a client ends later.
    async fn close_socket_here(&self, user: &UserId, socket: &SocketId) -> Result<PresenceChange, Error> {
        let hub = &self.inner.hub;
        hub.remove_external_socket(user, socket);
        for client in hub.clients_of(user).iter().filter(|client| client.socket == *socket) {
            hub.remove(client);
            client.queue.close(Disconnect::FORCED);
        }
        self.close_socket(user, socket).await
    }

    /// The change that another node has made when it closed a socket of a user.
    async fn change_of(&self, user: &UserId) -> Result<PresenceChange, Error> {
        let presence = self.inner.presences.of(std::slice::from_ref(user)).await?.pop();
        Ok(match presence {
            Some(Presence { online: false, version, .. }) => PresenceChange::Changed { version },
            Some(Presence { version, .. }) => PresenceChange::Unchanged { version },
            None => PresenceChange::NotFound,
        })
    }

    /// The presence of these users, in their order.
    pub async fn presence(&self, users: &[UserId]) -> Result<Vec<Presence>, Error> {
        let mut presences = self.inner.presences.of(users).await?;
        for presence in presences.iter_mut().filter(|presence| presence.last_seen.is_none()) {
            // Redis may have lost it.
            if let Some(seen) = users::last_seen(&self.inner.database, &presence.user_id).await? {
                let seen = iso(seen);
                self.inner.presences.restore_last_seen(&presence.user_id, &seen).await?;
                presence.last_seen = Some(seen);
            }
        }
        Ok(presences)
    }

    /// Whether a user is online (C16).
    pub async fn is_user_online(&self, user: &UserId) -> Result<bool, Error> {
        let presences = self.inner.presences.of(std::slice::from_ref(user)).await?;
        Ok(presences.first().is_some_and(|presence| presence.online))
    }

    /// The open sockets of a user, on all nodes.
    pub async fn sockets(&self, user: &UserId) -> Result<Vec<SocketId>, Error> {
        Ok(self.inner.presences.sockets(std::slice::from_ref(user)).await?.pop().unwrap_or_default())
    }

    /// The sockets of the online members of a conversation, as a member sees them.
    pub(crate) async fn online_members(
        &self,
        id: &ConversationId,
        viewer: &UserId,
    ) -> Answer<Vec<(UserId, Vec<SocketId>)>> {
        let Inner { database, presences, .. } = &*self.inner;
        if let Err(refusal) = member::check_member(database, id, viewer).await? {
            return Ok(Err(refusal));
        }
        let hidden = blocks::hidden_from(database, viewer).await?;
        let mut users = self.participants(id).await?;
        users.retain(|user| !hidden.contains(user));
        let sockets = presences.sockets(&users).await?;
        let online_members = users.into_iter().zip(sockets).filter(|(_, sockets)| !sockets.is_empty());
        Ok(Ok(online_members.collect()))
    }

    /// The members of a conversation, from the database. A cache for other programs that has other members is replaced
    /// (C13).
    pub async fn participants(&self, id: &ConversationId) -> Result<Vec<UserId>, Error> {
        Ok(self.participants_since(id, i64::MAX as u64).await?.now)
    }

    /// The members of a conversation now, and at every event from one on.
    pub(crate) async fn participants_since(
        &self,
        id: &ConversationId,
        since: u64,
    ) -> Result<Participants, Error> {
        let Inner { database, participants, .. } = &*self.inner;
        // Before the database: members that are cached later must not look outdated.
        let cached = participants.get(id).await;
        let read = database.read(|snapshot| async move {
            let conversation = conversations::get(&snapshot, id).await?;
            let changes = events::membership_changes_after(&snapshot, id, since).await?;
            Ok::<_, Error>((conversation, members::users(&snapshot, id).await?, changes))
        });
        let (conversation, users, changes) = read.await?;
        let is_current = match &cached {
            Ok(cached) => cached.as_ref() == Some(&users),
            // There is nothing to replace while Redis is unavailable.
            Err(_) => true,
        };
        if let Some(conversation) = conversation
            && !is_current
            && let Err(error) = participants.fill(id, conversation.sequence, &users).await
        {
            tracing::debug!(%error, "failed to fill the participant cache");
        }
        Ok(Participants { now: users, changes })
    }

    /// The unread counts of a user and their total, from the database (C8 C9). The counters in Redis are written again,
    /// because Redis may have gone back in time.
    pub async fn unread(&self, user: &UserId) -> Result<(Vec<UnreadCount>, u64), Error> {
        let counts = database::unread::of_user(&self.inner.database, user).await?;
        if !counts.is_empty() {
            self.inner.hub.broker.enqueue(self.inner.unread.write_call(user, &counts, CountScope::Full));
        }
        let total = counts.iter().map(|count| count.unread).sum();
        Ok((counts.into_iter().map(UnreadCount::from).collect(), total))
    }

    /// The state that a feed starts with.
    pub(crate) async fn feed_snapshot(&self, user: &UserId) -> Result<FeedSnapshot, Error> {
        let (unread, total) = self.unread(user).await?;
        let contacts = members::contacts(&self.inner.database, user, crate::hub::MAX_CONTACTS).await?;
        let hidden = blocks::hidden_from(&self.inner.database, user).await?;
        let presences = self.inner.presences.of(&contacts).await?;
        let online = presences.into_iter().filter(|one| one.online && !hidden.contains(&one.user_id));
        let online = online.map(|presence| presence.user_id).collect();
        Ok(FeedSnapshot { unread, total, online })
    }

    /// The live nodes and their load.
    pub async fn nodes(&self) -> Result<Vec<NodeInfo>, Error> {
        self.inner.hub.node.loads().await
    }

    pub(crate) fn notify_feed(&self, user: &UserId, update: &FeedUpdate<'_>) {
        let update = update.json();
        self.inner.hub.publish_transient_here(&ChannelName::Feed(user.clone()), user, &update);
        self.inner.hub.broker.enqueue(self.inner.hub.broker.feed_call(user, &update));
    }

    /// Saves in the database that a user was online until now. Presence does not wait for a database that is unavailable.
    async fn save_last_seen(&self, user: &UserId) {
        save_last_seen(&self.inner.database, std::slice::from_ref(user)).await;
    }
}
