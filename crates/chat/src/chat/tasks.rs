//! The background tasks of a node.

use std::time::{Duration, Instant};

use hob_service::Task;
use hob_store::{BusEvent, ChannelFilter};
use serde::Deserialize;

use super::server::close_reason;
use super::{Chat, Inner};
use crate::Error;
use crate::hub::channel_name::ChannelName;
use crate::hub::node::Heartbeat;
use crate::hub::transient::{FeedUpdate, TransientEvent};
use crate::hub::{Confirmation, ControlCommand, ControlMessage};
use crate::keys::{SocketId, UserId};
use crate::session::protocol::Disconnect;
use crate::store::presence::{Known, PresenceChange};

/// How many users are restored concurrently.
const RESTORE_BATCH: usize = 64;
/// How often a node looks whether Redis has lost data, if sockets were opened or closed.
const CONFIRM_INTERVAL: Duration = Duration::from_secs(1);
/// How often it looks otherwise.
const IDLE_CONFIRM_INTERVAL: Duration = Duration::from_secs(6);
const TYPING_INTERVAL: Duration = Duration::from_millis(250);
/// The shortest interval between two fills of a conversation's cache.
const FILL_INTERVAL: Duration = Duration::from_millis(250);

impl Chat {
    /// Renews the node's lease. Longer work runs in other tasks, so that the lease does not expire during it.
    pub(super) async fn keep_alive(self, task: Task) {
        let every = self.config().node_lease.get() / 3;
        loop {
            if let Err(error) = self.send_heartbeat().await
                && !error.is_reported()
            {
                tracing::warn!(%error, "failed to renew the lease of this chat node");
            }
            task.heartbeat();
            if !task.pause(every).await {
                return self.leave().await;
            }
        }
    }

    async fn send_heartbeat(&self) -> Result<(), Error> {
        let hub = &self.inner.hub;
        if hub.node.heartbeat().await? == Heartbeat::Rejoined || !hub.node.is_synced() {
            self.inner.recover.notify_one();
        }
        // Remembers the other nodes, in case Redis loses the list.
        hub.node.live().await?;
        if let Some(changes) = self.inner.changes.get() {
            changes.notify("chat");
        }
        hub.node.publish_load(hub.load()).await?;
        hub.node.record_history().await
    }

    /// Finds out whether Redis has lost data, and confirms the presence of the sockets of this node.
    pub(super) async fn confirm(self, task: Task) {
        let every = CONFIRM_INTERVAL.min(self.config().node_lease.get() / 3);
        let mut looked: Option<Instant> = None;
        loop {
            let now = Instant::now();
            if self.inner.hub.recent_sockets.is_due(now)
                || looked.is_none_or(|looked| now - looked >= IDLE_CONFIRM_INTERVAL)
            {
                match self.confirm_once(now).await {
                    Ok(()) => looked = Some(now),
                    Err(error) if error.is_reported() => {}
                    Err(error) => {
                        tracing::warn!(%error, "failed to confirm the presence of chat connections, retrying");
                    }
                }
            }
            task.heartbeat();
            if !task.pause(every).await {
                return;
            }
        }
    }

    /// Looks whether Redis has lost data, and starts to restore it if so. An error means that a part of Redis could not be
    /// looked at.
    pub(super) async fn check_for_loss(&self, since: Instant) -> Result<(), Error> {
        let hub = &self.inner.hub;
        let found = hub.node.detect_data_loss(since).await;
        if found.lost {
            tracing::warn!("Redis lost chat data, rebuilding it");
            self.restore_after_loss().await?;
        }
        found.failed.map_or(Ok(()), Err)
    }

    /// Begins a new incarnation after a data loss. A socket that was closed in the time that Redis lost is open again, under the
    /// current incarnation. The next one restores the sockets that are really open, and the others are swept with this one.
    pub(super) async fn restore_after_loss(&self) -> Result<(), Error> {
        let hub = &self.inner.hub;
        hub.node.invalidate();
        self.inner.rebuild.notify_one();
        // If this fails, the next heartbeat begins the new incarnation.
        hub.node.heartbeat().await?;
        self.inner.recover.notify_one();
        Ok(())
    }

    /// Whether other nodes may not have restored their sockets yet after a data loss. Looks for one, because this node may have
    /// lost its lease with the data, and has not noticed more than that. A part of Redis that does not answer does not count.
    async fn is_recovering(&self) -> bool {
        if let Err(error) = self.check_for_loss(Instant::now()).await {
            tracing::debug!(%error, "failed to look for a data loss");
        }
        self.inner.hub.node.is_recovering()
    }

    /// Looks for a loss, and then confirms the sockets that were changed before. They wait for a look that reaches all
    /// shards: if Redis loses a change later, it loses that look too, or has another server.
    async fn confirm_once(&self, now: Instant) -> Result<(), Error> {
        self.check_for_loss(now).await?;
        let recent_sockets = &self.inner.hub.recent_sockets;
        let recent = recent_sockets.take_due(now);
        let confirmed = self.confirm_sockets(&recent).await;
        if confirmed.is_err() {
            recent.iter().for_each(|(user, socket)| recent_sockets.add(user, socket, Duration::ZERO));
        }
        confirmed
    }

    /// Checks that Redis still has the last changes of these sockets.
    async fn confirm_sockets(&self, recent: &[(UserId, SocketId)]) -> Result<(), Error> {
        let Inner { hub, presences, .. } = &*self.inner;
        let owners = presences.owner_of(recent).await?;
        let users: Vec<UserId> = recent.iter().map(|(user, _)| user.clone()).collect();
        let presence = presences.of(&users).await?;
        for (((user, socket), owner), presence) in recent.iter().zip(owners).zip(presence) {
            match owner {
                None if hub.sockets_of(user).contains(socket) => self.restore_sockets_of(user).await?,
                // The user is online on another node, or Redis has evicted the sockets, but not the state.
                None if presence.online => self.close_absent_socket(user, socket).await?,
                Some(owner) if hub.node.is_own(&owner) && !hub.sockets_of(user).contains(socket) => {
                    self.close_absent_socket(user, socket).await?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Synchronizes a new incarnation, because earlier control commands did not wait for this node.
    pub(super) async fn recover(self, task: Task) {
        let hub = &self.inner.hub;
        while until(&task, self.inner.recover.notified()).await {
            let incarnation = hub.node.incarnation();
            let done = async {
                // Presence does not wait for the database: without it, the sockets would be swept with the old incarnation.
                self.restore_sockets().await?;
                hub.revalidate_all().await?;
                if hub.node.incarnation() == incarnation {
                    hub.node.end_previous().await?;
                }
                Ok::<_, Error>(())
            };
            match done.await {
                Ok(()) => hub.node.mark_synced(&incarnation),
                // The next heartbeat requests the synchronization again.
                Err(error) if error.is_reported() => {}
                Err(error) => {
                    tracing::warn!(%error, "failed to synchronize this chat node with Redis, retrying");
                }
            }
            task.heartbeat();
        }
    }

    /// Rebuilds the data in Redis after a loss, and removes the presence of nodes that no longer exist.
    pub(super) async fn rebuild(self, task: Task) {
        let hub = &self.inner.hub;
        while until(&task, self.inner.rebuild.notified()).await {
            let done = async {
                self.restore_sockets().await?;
                hub.refresh_feeds();
                self.rebuild_unread().await?;
                // After one lease, every live node has renewed its entry.
                if task.pause(hub.node.lease()).await {
                    let users = self.purge_orphans().await?;
                    tracing::info!(users, "presence of users without a live node removed");
                }
                Ok::<_, Error>(())
            };
            if let Err(error) = done.await {
                if !error.is_reported() {
                    tracing::warn!(%error, "failed to rebuild the chat data in Redis, retrying");
                }
                if task.pause(Duration::from_millis(500)).await {
                    self.inner.rebuild.notify_one();
                }
            }
            task.heartbeat();
        }
    }

    /// Sets the users of dead nodes offline.
    pub(super) async fn sweep(self, task: Task) {
        let every = self.config().node_lease.get() / 6;
        while task.pause(every).await {
            let node = &self.inner.hub.node;
            match node.sweep(&self.inner.presences, &self.inner.database).await {
                // Redis may have lost the index of a dead node before that node could restore it.
                Ok(swept) if swept > 0 && node.lost_data_recently() => self.inner.rebuild.notify_one(),
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "failed to remove dead chat nodes, retrying"),
            }
            task.heartbeat();
        }
    }

    /// Writes the sockets of this node to Redis again.
    async fn restore_sockets(&self) -> Result<(), Error> {
        for users in self.inner.hub.users().chunks(RESTORE_BATCH) {
            let joins = users.iter().map(|user| self.restore_sockets_of(user));
            futures_util::future::try_join_all(joins).await?;
        }
        Ok(())
    }

    async fn restore_sockets_of(&self, user: &UserId) -> Result<(), Error> {
        let Inner { hub, presences, .. } = &*self.inner;
        let _lock = self.lock_sockets(user).await;
        let sockets: Vec<SocketId> = hub.sockets_of(user).into_iter().collect();
        if sockets.is_empty() {
            return Ok(());
        }
        let version = hub.version_of(user);
        if version == 0 && self.is_recovering().await {
            // The user connected after the loss. The sockets on other nodes are restored first: see `open_socket`.
            for socket in &sockets {
                hub.recent_sockets.add(user, socket, hub.node.lease() / 2);
            }
            return Ok(());
        }
        // Read under the lock, so that an earlier incarnation never replaces a later one.
        let node = hub.node.incarnation();
        let joined = presences.join(&node, user, &sockets, Known::from_version(version)).await;
        // Redis may execute a call that was not answered at any time, also after the sockets are closed.
        let change = joined.inspect_err(|error| {
            if !error.did_not_happen() {
                hub.node.invalidate();
            }
        })?;
        if let PresenceChange::Changed { version } | PresenceChange::Unchanged { version } = change {
            hub.set_version(user, version);
        }
        Ok(())
    }

    /// Shuts the node down: disconnects its clients and releases the lease, so that other nodes do not have to wait
    /// until it expires.
    async fn leave(self) {
        let hub = &self.inner.hub;
        for client in hub.all_clients() {
            client.queue.close(Disconnect::SHUTDOWN);
        }
        let deadline = Instant::now() + Duration::from_secs(3);
        while hub.load().connections > 0 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if let Err(error) = hub.node.leave().await {
            tracing::debug!(%error, "failed to release the lease of this chat node, it will expire");
        }
    }

    /// Receives control commands, confirmations and presence events.
    pub(super) async fn listen(self, task: Task) {
        let Inner { hub, keys, store, .. } = &*self.inner;
        let mut listener = store.bus().listen(vec![
            ChannelFilter::channel(keys.orders_channel()),
            ChannelFilter::channel(hub.control.channel()),
            ChannelFilter::channel(keys.user_online_channel()),
            ChannelFilter::channel(keys.user_offline_channel()),
        ]);
        loop {
            let event = tokio::select! {
                event = listener.next() => event,
                () = task.stop_requested() => return,
            };
            task.heartbeat();
            match event {
                BusEvent::Message { channel, payload, .. } => self.handle_message(&channel, &payload),
                // Control commands are resent until they are confirmed. Presence is read again.
                BusEvent::Missed => {
                    hub.refresh_feeds();
                    self.inner.presence_reports.compare();
                }
            }
        }
    }

    fn handle_message(&self, channel: &[u8], payload: &[u8]) {
        let Inner { hub, keys, .. } = &*self.inner;
        let online = channel == keys.user_online_channel().as_bytes();
        if online || channel == keys.user_offline_channel().as_bytes() {
            if let Ok(event) = serde_json::from_slice::<PresenceEvent>(payload) {
                let PresenceEvent { user_id, timestamp, version } = &event;
                let update = FeedUpdate::Presence { user_id, online, timestamp, version: *version };
                hub.publish_presence(user_id, online, &update.json());
                self.note_presence(user_id, online, timestamp, *version);
            }
        } else if channel == keys.orders_channel().as_bytes() {
            if let Ok(message) = serde_json::from_slice::<ControlMessage>(payload)
                && !hub.control.is_own(&message)
            {
                let chat = self.clone();
                // Runs in its own task, because a command may query the database and must not delay the next messages.
                tokio::spawn(async move { chat.apply_command(&message).await });
            }
        } else if let Ok(confirmation) = serde_json::from_slice::<Confirmation>(payload) {
            hub.control.confirmed(confirmation);
        }
    }

    async fn apply_command(&self, message: &ControlMessage) {
        let hub = &self.inner.hub;
        let done = async {
            self.apply(&message.command).await?;
            hub.control.confirm(&hub.node, message, self.survey_answer(&message.command)).await
        };
        if let Err(error) = done.await
            && !error.is_reported()
        {
            // The sender retries until the command is confirmed or this node's lease expires.
            tracing::warn!(%error, "failed to apply a control command, its sender retries");
        }
    }

    /// Applies a control command on this node.
    pub(super) async fn apply(&self, command: &ControlCommand) -> Result<(), Error> {
        let hub = &self.inner.hub;
        match command {
            ControlCommand::RemoveMember { conversation, user } => {
                hub.remove_member(conversation, user);
                hub.forget_contacts(user).await?;
            }
            ControlCommand::ReloadBlocks { users } => hub.reload_blocks_of(users).await?,
            ControlCommand::CloseSockets { user, socket } => {
                self.close_sockets_here(user, socket.as_ref()).await?;
            }
            ControlCommand::WatchContacts { conversation } => hub.watch_contacts(conversation).await?,
            ControlCommand::Subscribe(subscription) => self.subscribe_here(subscription).await?,
            ControlCommand::Unsubscribe { user, client, channel } => {
                self.unsubscribe_here(user, client.as_ref(), channel).await;
            }
            ControlCommand::Disconnect { user, client, spared, code, reason } => {
                let reason = close_reason(*code, reason);
                self.disconnect_here(user, client.as_ref(), spared, &reason).await?;
            }
            ControlCommand::Refresh { user, client, expires_s } => {
                self.refresh_here(user, client.as_ref(), *expires_s);
            }
            // The answer is in the confirmation.
            ControlCommand::Survey { .. } => {}
        }
        Ok(())
    }

    /// Fills the caches of recent messages that are missing.
    pub(super) async fn fill_caches(self, task: Task) {
        loop {
            let uncached = tokio::select! {
                uncached = self.inner.hub.broker.uncached() => uncached,
                () = task.stop_requested() => return,
            };
            for conversation in &uncached {
                if let Err(error) = self.fill_recent(conversation).await {
                    tracing::debug!(%error, "failed to fill the cache of recent messages");
                }
            }
            task.heartbeat();
            // If several nodes change a conversation at the same time, its cache can be missing again and again.
            if !task.pause(FILL_INTERVAL).await {
                return;
            }
        }
    }

    /// Publishes that a user stopped typing when the typing state expires.
    pub(super) async fn watch_typing(self, task: Task) {
        let Inner { hub, typing, .. } = &*self.inner;
        while task.pause(TYPING_INTERVAL).await {
            for channel in hub.channels_with_expired_typing(Instant::now()) {
                let ChannelName::Conversation(id) = &channel.name else { continue };
                // If Redis is unavailable, all users whose typing state has expired count as stopped.
                let typists = typing.list(id).await.unwrap_or_default();
                for user_id in channel.expire_typing(Instant::now(), &typists) {
                    let stopped = TransientEvent::Typing { user_id: user_id.clone(), typing: false };
                    channel.publish_typing(&user_id, &stopped.json());
                }
            }
            task.heartbeat();
        }
    }
}

/// Waits for an event. `false` if the task should stop instead.
async fn until(task: &Task, event: impl Future<Output = ()>) -> bool {
    tokio::select! {
        () = event => true,
        () = task.stop_requested() => false,
    }
}

/// The payload of `events:user.online` and `events:user.offline` (C11).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PresenceEvent {
    user_id: UserId,
    timestamp: String,
    version: u64,
}
