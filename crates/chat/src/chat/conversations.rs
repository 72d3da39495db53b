//! The operations of members in conversations. Each change is in the database before it is acknowledged; then it is
//! published to the subscribers of this node and to the other nodes.

use std::time::{Duration, Instant};

use hob_database::{Page, PageRequest};
use hob_store::limit::{Algorithm, Decision, Quota};

use crate::Error;
use crate::chat::{Chat, Inner};
use crate::conversation::block::{self, BlockAction};
use crate::conversation::event::Event;
use crate::conversation::listed::Reader;
use crate::conversation::member::{self, Member, MemberStatus, Membership, Receipt, ReceiptKind};
use crate::conversation::message::{self, Message, MessageRange};
use crate::conversation::{self, Conversation, ConversationSummary, NewConversation};
use crate::database::{blocks, conversations, events, members, messages};
use crate::error::{Answer, Refusal};
use crate::hub::ControlCommand;
use crate::hub::channel_name::ChannelName;
use crate::hub::transient::{FeedUpdate, TransientEvent};
use crate::keys::{ConversationId, UserId};
use crate::store::recent::{self, CacheUpdate};
use crate::store::typing;

/// The maximum number of messages or events in one response.
pub(crate) const MAX_PAGE: u16 = 500;

impl Chat {
    /// Opens a conversation.
    pub async fn open_conversation(&self, new: &NewConversation) -> Answer<Conversation> {
        let opened = conversation::open(&self.inner.database, new).await?;
        if opened.is_ok() {
            let changed = FeedUpdate::Membership { conversation_id: &new.id, member: true };
            for user in new.members.iter().chain([&new.created_by]) {
                self.notify_feed(user, &changed);
            }
            self.watch_contacts(&new.id);
        }
        Ok(opened)
    }

    pub async fn conversation(&self, id: &ConversationId) -> Result<Option<Conversation>, Error> {
        conversations::get(&self.inner.database, id).await
    }

    /// All conversations, most recently changed first.
    pub async fn conversations(&self, page: &PageRequest) -> Result<Page<Conversation>, Error> {
        conversations::list(&self.inner.database, page).await
    }

    /// The conversations of a user, most recently changed first.
    pub async fn conversations_of(
        &self,
        user: &UserId,
        page: &PageRequest,
    ) -> Result<Page<ConversationSummary>, Error> {
        conversations::list_of_user(&self.inner.database, user, page).await
    }

    pub async fn rename(&self, id: &ConversationId, by: &UserId, title: &str) -> Answer<()> {
        let _lock = self.lock_conversation(id).await;
        let renamed = conversation::rename(&self.inner.database, id, by, title).await?;
        self.publish_change(id, renamed, CacheUpdate::Advance).await
    }

    /// A page of members, by id, after a user.
    pub async fn members(&self, id: &ConversationId, after: &str, limit: u16) -> Result<Vec<Member>, Error> {
        members::list(&self.inner.database, id, after, limit.min(MAX_PAGE)).await
    }

    /// Adds a member.
    pub async fn add_member(&self, id: &ConversationId, user: &UserId, by: Option<&UserId>) -> Answer<()> {
        let added = {
            let _lock = self.lock_conversation(id).await;
            let added = member::add(&self.inner.database, id, user, by).await?;
            self.publish_membership_change(id, added).await?
        };
        if added.is_ok() {
            self.notify_feed(user, &FeedUpdate::Membership { conversation_id: id, member: true });
            self.watch_contacts(id);
        }
        Ok(added)
    }

    /// Makes the feeds of new contacts report their presence, on all nodes. A lost message is made up for when the client
    /// subscribes to its feed again.
    fn watch_contacts(&self, id: &ConversationId) {
        let command = ControlCommand::WatchContacts { conversation: id.clone() };
        match self.inner.hub.control.send_call(command.clone()) {
            Ok(call) => self.inner.hub.broker.enqueue(call),
            Err(error) => tracing::debug!(%error, "failed to notify the feeds of new contacts"),
        }
        let chat = self.clone();
        tokio::spawn(async move {
            if let Err(error) = chat.apply(&command).await {
                tracing::debug!(%error, "failed to notify the feeds of new contacts");
            }
        });
    }

    /// Removes a member. When this returns, no node delivers anything of the conversation to the user.
    pub async fn remove_member(&self, id: &ConversationId, user: &UserId, by: Option<&UserId>) -> Answer<()> {
        let command = ControlCommand::RemoveMember { conversation: id.clone(), user: user.clone() };
        let removed = {
            let _lock = self.lock_conversation(id).await;
            let removed = member::remove(&self.inner.database, id, user, by).await?;
            // This happens before the event is published, so that the user who left does not receive it.
            self.apply(&command).await.map_err(|error| unconfirmed(&error))?;
            self.publish_membership_change(id, removed).await?
        };
        // This is done even if there was nothing to remove, because an earlier call may have failed before it was
        // confirmed.
        let was_member = matches!(&removed, Ok(())) || self.has_left(id, user).await?;
        if was_member {
            let confirmed = self.inner.hub.control.broadcast(&self.inner.hub.node, command).await;
            confirmed.map_err(|error| unconfirmed(&error))?;
        }
        if removed.is_ok() {
            self.notify_feed(user, &FeedUpdate::Membership { conversation_id: id, member: false });
        }
        Ok(removed)
    }

    async fn has_left(&self, id: &ConversationId, user: &UserId) -> Result<bool, Error> {
        let membership = members::membership(&self.inner.database, id, user).await?;
        Ok(membership.is_some_and(|membership| membership.state == MemberStatus::Left))
    }

    /// Replaces the content of a message.
    pub async fn edit(
        &self,
        id: &ConversationId,
        message: &str,
        by: &UserId,
        content: &str,
    ) -> Answer<Message> {
        let _lock = self.lock_conversation(id).await;
        match message::edit(&self.inner.database, id, message, by, content).await? {
            Ok((message, event)) => {
                self.publish(id, &event, CacheUpdate::Replace(&message)).await;
                Ok(Ok(message))
            }
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// Deletes a message.
    pub async fn delete(&self, id: &ConversationId, message: &str, by: &UserId) -> Answer<Message> {
        let _lock = self.lock_conversation(id).await;
        match message::delete(&self.inner.database, id, message, by).await? {
            Ok((message, event)) => {
                self.publish(id, &event, CacheUpdate::Remove(&message)).await;
                Ok(Ok(message))
            }
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// Messages in order.
    pub async fn messages(
        &self,
        id: &ConversationId,
        viewer: Option<&UserId>,
        range: MessageRange,
        limit: u16,
    ) -> Answer<Vec<Message>> {
        match self.reader(id, viewer).await? {
            Ok((reader, sequence)) => {
                Ok(Ok(self.read_messages((id, sequence), reader, range, limit).await?))
            }
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// Messages of a conversation whose last event is known, in order. They are read from Redis if the cache certainly contains
    /// the whole page.
    pub(super) async fn read_messages(
        &self,
        (id, sequence): (&ConversationId, u64),
        reader: Reader<'_>,
        range: MessageRange,
        limit: u16,
    ) -> Result<Vec<Message>, Error> {
        let database = &self.inner.database;
        let limit = limit.clamp(1, MAX_PAGE);
        let mut messages = if reader.absent.is_some() {
            messages::page(database, id, range, limit, reader.absent).await?
        } else {
            match self.inner.recent.page(id, sequence, range, limit).await {
                Ok(Some(messages)) => messages,
                Ok(None) => self.messages_from_database(id, range, limit).await?,
                // If the cache fails, the database answers. A second call to the store would fail, too.
                Err(_) => messages::page(database, id, range, limit, None).await?,
            }
        };
        if let Some(viewer) = reader.user {
            let hidden = blocks::hidden_from(database, viewer).await?;
            messages.retain(|message| !hidden.contains(&message.sender_id));
        }
        Ok(messages)
    }

    /// Whether a member does not read what was said in their absence.
    pub(crate) fn hides_absence(&self, membership: &Membership) -> bool {
        membership.hides_absence(self.config().messages_during_absence)
    }

    /// Reads messages, and fills the cache with the newest ones.
    async fn messages_from_database(
        &self,
        id: &ConversationId,
        range: MessageRange,
        limit: u16,
    ) -> Result<Vec<Message>, Error> {
        if range == MessageRange::Newest {
            let (sequence, newest) = self.newest_messages(id).await?;
            if let Err(error) = self.inner.recent.fill(id, sequence, &newest).await {
                tracing::debug!(%error, "failed to fill the cache of recent messages");
            }
            if limit <= recent::MAX_RECENT {
                let from = newest.len().saturating_sub(limit.into());
                return Ok(newest[from..].to_vec());
            }
        }
        messages::page(&self.inner.database, id, range, limit, None).await
    }

    /// The messages that the cache holds, and the sequence of the last event.
    async fn newest_messages(&self, id: &ConversationId) -> Result<(u64, Vec<Message>), Error> {
        let read = self.inner.database.read(|snapshot| async move {
            let sequence = conversations::get(&snapshot, id).await?.map_or(0, |found| found.sequence);
            let newest =
                messages::page(&snapshot, id, MessageRange::Newest, recent::MAX_RECENT, None).await?;
            Ok::<_, Error>((sequence, newest))
        });
        read.await
    }

    /// Fills the cache of recent messages, for other programs. Later changes of this node wait, so that they are applied to
    /// the filled cache.
    pub(super) async fn fill_recent(&self, id: &ConversationId) -> Result<(), Error> {
        let _lock = self.lock_conversation(id).await;
        let (sequence, newest) = self.newest_messages(id).await?;
        let call = self.inner.recent.fill_call(id, sequence, &newest)?;
        self.inner.hub.broker.enqueue(call);
        Ok(())
    }

    /// The events in a range, as a member sees them, and the membership.
    pub(crate) async fn events(
        &self,
        id: &ConversationId,
        viewer: &UserId,
        range: MessageRange,
        limit: u16,
    ) -> Answer<(Vec<Event>, Membership)> {
        let database = &self.inner.database;
        let membership = match member::check_member(database, id, viewer).await? {
            Ok(membership) => membership,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let absent = self.hides_absence(&membership).then_some(viewer);
        let mut events = match range {
            MessageRange::After(after) => events::after(database, id, after, limit, absent).await?,
            MessageRange::Before(before) => events::before(database, id, before, limit, absent).await?,
            MessageRange::Newest => events::before(database, id, i64::MAX as u64, limit, absent).await?,
        };
        let hidden = blocks::hidden_from(database, viewer).await?;
        events.retain(|event| !hidden.contains(&event.actor));
        Ok(Ok((events, membership)))
    }

    /// Records that a member has received or read everything up to a sequence.
    pub async fn record_receipt(
        &self,
        id: &ConversationId,
        user: &UserId,
        up_to: u64,
        kind: ReceiptKind,
    ) -> Answer<Receipt> {
        let (receipt, changed) =
            match member::record_receipt(&self.inner.database, id, user, up_to, kind).await? {
                Ok(progressed) => progressed,
                Err(refusal) => return Ok(Err(refusal)),
            };
        if changed {
            let Receipt { read_sequence, delivered_sequence } = receipt;
            let event = TransientEvent::Receipt { user_id: user.clone(), read_sequence, delivered_sequence };
            self.inner.hub.publish_transient(id, user, &event.json());
        }
        if changed && kind == ReceiptKind::Read {
            // The outbox does the same later. The reader sees the new count at once.
            if let Err(error) = self.recount_member(id, user).await {
                tracing::debug!(%error, "failed to recount unread messages, the outbox relay will do it");
            }
        }
        Ok(Ok(receipt))
    }

    /// Records that a member is typing or has stopped.
    pub async fn typing(&self, id: &ConversationId, user: &UserId, state: TypingState) -> Answer<()> {
        // The database is not needed for a client that is subscribed, so typing works without it.
        let channel = self.inner.hub.channel(&ChannelName::Conversation(id.clone()));
        if !channel.is_some_and(|channel| channel.has_active_subscription(user))
            && let Err(refusal) = member::check_member(&self.inner.database, id, user).await?
        {
            return Ok(Err(refusal));
        }
        let changed = match state {
            // This is published every time, because it extends the typing state on the other nodes.
            TypingState::Typing => self.inner.typing.start(id, user).await.map(|_| true)?,
            TypingState::Stopped => self.inner.typing.stop(id, user).await?,
        };
        if changed {
            self.publish_typing(id, user, state);
        }
        Ok(Ok(()))
    }

    fn publish_typing(&self, id: &ConversationId, user: &UserId, state: TypingState) {
        let typing = state == TypingState::Typing;
        if let Some(channel) = self.inner.hub.channel(&ChannelName::Conversation(id.clone())) {
            channel.set_typing(user, typing.then(|| Instant::now() + typing::TYPING_TTL));
        }
        let event = TransientEvent::Typing { user_id: user.clone(), typing };
        self.inner.hub.publish_typing(id, user, &event.json());
    }

    /// Sending a message ends typing.
    pub(super) async fn stop_typing(&self, id: &ConversationId, user: &UserId) {
        let channel = self.inner.hub.channel(&ChannelName::Conversation(id.clone()));
        if channel.is_some_and(|channel| channel.set_typing(user, None)) {
            let _ = self.inner.typing.stop(id, user).await;
            self.publish_typing(id, user, TypingState::Stopped);
        }
    }

    /// The users who are typing in a conversation, as a member sees them.
    pub async fn typists(&self, id: &ConversationId, viewer: &UserId) -> Answer<Vec<UserId>> {
        if let Err(refusal) = member::check_member(&self.inner.database, id, viewer).await? {
            return Ok(Err(refusal));
        }
        let hidden = blocks::hidden_from(&self.inner.database, viewer).await?;
        let typists = self.inner.typing.list(id).await?.into_iter().map(|(user, _)| user);
        Ok(Ok(typists.filter(|user| user != viewer && !hidden.contains(user)).collect()))
    }

    /// Blocks or unblocks a user. When this returns, no node delivers anything between the two.
    pub async fn block(&self, blocker: &UserId, blocked: &UserId, action: BlockAction) -> Answer<bool> {
        let done = block::set(&self.inner.database, blocker, blocked, action).await?;
        if done.is_ok() {
            let command = ControlCommand::ReloadBlocks { users: [blocker.clone(), blocked.clone()] };
            let confirmed = async {
                self.apply(&command).await?;
                self.inner.hub.control.broadcast(&self.inner.hub.node, command).await
            };
            confirmed.await.map_err(|error| unconfirmed(&error))?;
        }
        Ok(done)
    }

    pub async fn blocked_by(&self, user: &UserId) -> Result<Vec<UserId>, Error> {
        blocks::list(&self.inner.database, user).await
    }

    /// Takes messages from a user's rate limit (C6). A cost of 0 only reads it.
    pub async fn check_message_rate(&self, user: &UserId, cost: u32) -> Decision {
        let Inner { rate_limit_store, keys, .. } = &*self.inner;
        let taken = match self.message_rule() {
            Ok(rule) if rule.algorithm() == Algorithm::FixedCounter => {
                rule.take(rate_limit_store, &[keys.message_rate(user), keys.message_window(user)], cost).await
            }
            Ok(rule) => rule.take(rate_limit_store, &[keys.message_pace(user)], cost).await,
            Err(error) => {
                tracing::error!(%error, "message rate limit is misconfigured, messages are not limited");
                return unlimited();
            }
        };
        taken.unwrap_or_else(|error| {
            tracing::debug!(%error, "failed to check the message rate limit, message accepted");
            unlimited()
        })
    }

    async fn publish_membership_change(
        &self,
        id: &ConversationId,
        done: Result<Event, Refusal>,
    ) -> Answer<()> {
        if let Ok(event) = &done
            && let Err(error) = self.inner.participants.drop(id, event.sequence).await
        {
            tracing::debug!(%error, "failed to clear the participant cache, the outbox relay will do it");
        }
        self.publish_change(id, done, CacheUpdate::Advance).await
    }

    pub(super) async fn publish_change(
        &self,
        id: &ConversationId,
        done: Result<Event, Refusal>,
        effect: CacheUpdate<'_>,
    ) -> Answer<()> {
        match done {
            Ok(event) => {
                self.publish(id, &event, effect).await;
                Ok(Ok(()))
            }
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// Publishes an event that is in the database.
    pub(super) async fn publish(&self, id: &ConversationId, event: &Event, effect: CacheUpdate<'_>) {
        let Inner { hub, recent, .. } = &*self.inner;
        if let Err(error) = hub.publish(id, event).await
            && !error.is_reported()
        {
            tracing::warn!(%error, "failed to deliver a chat event to the clients of this node");
        }
        hub.broker.publish_event(id, event);
        match recent.update_call(id, event.sequence, effect) {
            Ok(call) => hub.broker.update_cache(id, call),
            Err(error) => tracing::error!(%error, "failed to update the cache of recent messages"),
        }
    }
}

/// Whether a user is typing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypingState {
    Typing,
    Stopped,
}

/// The error of a node that could not be notified of a change that is in the database. Its cause alone would read as if
/// nothing had changed.
fn unconfirmed(error: &Error) -> Error {
    if !error.is_reported() {
        tracing::warn!(%error, "failed to notify all chat nodes of a saved change");
    }
    Error::Unconfirmed
}

fn unlimited() -> Decision {
    let quota = Quota { limit: u32::MAX, remaining: u32::MAX, reset_after: Duration::ZERO };
    Decision::Allowed(quota)
}
