//! Talking: what members do in conversations. Each change is in the database before it is acknowledged; then this
//! node's subscribers are told, and the other nodes.

use std::time::{Duration, Instant};

use hob_database::{Page, PageRequest};
use hob_store::limit::{Algorithm, Decision, Quota};

use crate::Error;
use crate::chat::{Chat, Inner};
use crate::conversation::block::{self, Wish};
use crate::conversation::event::Event;
use crate::conversation::member::{self, Member, Progress, Receipt, State};
use crate::conversation::message::{self, Message, NewMessage, Span};
use crate::conversation::{self, Conversation, Listed, NewConversation};
use crate::database::{blocks, conversations, events, members, messages};
use crate::error::{Answer, Refusal};
use crate::hub::Order;
use crate::hub::channel_name::Channel;
use crate::hub::transient::{News, Passing};
use crate::keys::{ConversationId, UserId};
use crate::store::recent::{self, Effect};
use crate::store::typing;

/// The most messages or events of one answer.
pub(crate) const MOST: u16 = 500;

impl Chat {
    /// Opens a conversation.
    pub async fn open_conversation(&self, new: &NewConversation) -> Answer<Conversation> {
        let opened = conversation::open(&self.inner.database, new).await?;
        if opened.is_ok() {
            let news = News::Membership { conversation_id: &new.id, member: true };
            for user in new.members.iter().chain([&new.created_by]) {
                self.tell_feed(user, &news);
            }
        }
        Ok(opened)
    }

    pub async fn conversation(&self, id: &ConversationId) -> Result<Option<Conversation>, Error> {
        conversations::get(&self.inner.database, id).await
    }

    /// All conversations, those that changed last first; for operators.
    pub async fn conversations(&self, page: &PageRequest) -> Result<Page<Conversation>, Error> {
        conversations::list(&self.inner.database, page).await
    }

    /// The conversations that a user is in, those that changed last first.
    pub async fn conversations_of(&self, user: &UserId, page: &PageRequest) -> Result<Page<Listed>, Error> {
        conversations::list_of_user(&self.inner.database, user, page).await
    }

    pub async fn rename(&self, id: &ConversationId, by: &UserId, title: &str) -> Answer<()> {
        let _turn = self.turn(id).await;
        let renamed = conversation::rename(&self.inner.database, id, by, title).await?;
        self.spread(id, renamed, Effect::Other).await
    }

    /// Members by id, after one of them.
    pub async fn members(&self, id: &ConversationId, after: &str, limit: u16) -> Result<Vec<Member>, Error> {
        members::list(&self.inner.database, id, after, limit.min(MOST)).await
    }

    /// Adds a member.
    pub async fn add_member(&self, id: &ConversationId, user: &UserId, by: Option<&UserId>) -> Answer<()> {
        let added = {
            let _turn = self.turn(id).await;
            let added = member::add(&self.inner.database, id, user, by).await?;
            self.spread_membership(id, added).await?
        };
        if added.is_ok() {
            self.tell_feed(user, &News::Membership { conversation_id: id, member: true });
        }
        Ok(added)
    }

    /// Removes a member. When this answers, the user is told nothing more of the conversation, on any node.
    pub async fn remove_member(&self, id: &ConversationId, user: &UserId, by: Option<&UserId>) -> Answer<()> {
        let order = Order::Remove { conversation: id.clone(), user: user.clone() };
        let removed = {
            let _turn = self.turn(id).await;
            let removed = member::remove(&self.inner.database, id, user, by).await?;
            // Before the event is told: it is not for the one who left.
            self.inner.hub.obey(&order).await?;
            self.spread_membership(id, removed).await?
        };
        // Also where there was nothing to remove: an earlier call may have had no confirmation.
        let was_member = matches!(&removed, Ok(())) || self.has_left(id, user).await?;
        if was_member {
            self.inner.hub.orders.dispatch(&self.inner.hub.node, order).await?;
        }
        if removed.is_ok() {
            self.tell_feed(user, &News::Membership { conversation_id: id, member: false });
        }
        Ok(removed)
    }

    async fn has_left(&self, id: &ConversationId, user: &UserId) -> Result<bool, Error> {
        let standing = members::membership(&self.inner.database, id, user).await?;
        Ok(standing.is_some_and(|standing| standing.state == State::Out))
    }

    /// Sends a message: when this answers `Ok(Ok(…))`, it is in the database.
    pub async fn send(&self, new: &NewMessage) -> Answer<Message> {
        if let Err(refusal) = message::check(&new.content, new.client_id.as_deref()) {
            return Ok(Err(refusal));
        }
        // A repetition is answered without counting, and without anything being locked: it sends nothing.
        if let Some(message) = message::sent_before(&self.inner.database, new).await? {
            return Ok(Ok(message));
        }
        if let Decision::Denied { retry_after, .. } = self.take_message(&new.sender, 1).await {
            return Ok(Err(Refusal::TooOften { retry_after }));
        }
        let _turn = self.turn(&new.conversation).await;
        let (message, event) = match message::send(&self.inner.database, new).await? {
            Ok(sent) => sent,
            Err(Refusal::Taken) => {
                let before = message::sent_before(&self.inner.database, new).await?;
                return Ok(before.ok_or(Refusal::Taken));
            }
            Err(refusal) => return Ok(Err(refusal)),
        };
        self.inner.hub.count_message();
        self.stop_typing(&new.conversation, &new.sender).await;
        self.tell(&new.conversation, &event, Effect::Message(&message)).await;
        Ok(Ok(message))
    }

    /// Gives a message new content.
    pub async fn edit(
        &self,
        id: &ConversationId,
        message: &str,
        by: &UserId,
        content: &str,
    ) -> Answer<Message> {
        let _turn = self.turn(id).await;
        match message::edit(&self.inner.database, id, message, by, content).await? {
            Ok((message, event)) => {
                self.tell(id, &event, Effect::Change).await;
                Ok(Ok(message))
            }
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// Deletes a message.
    pub async fn delete(&self, id: &ConversationId, message: &str, by: &UserId) -> Answer<Message> {
        let _turn = self.turn(id).await;
        match message::delete(&self.inner.database, id, message, by).await? {
            Ok((message, event)) => {
                self.tell(id, &event, Effect::Change).await;
                Ok(Ok(message))
            }
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// Messages in order. The store answers where it is certain to have them all.
    pub async fn messages(
        &self,
        id: &ConversationId,
        viewer: Option<&UserId>,
        span: Span,
        limit: u16,
    ) -> Answer<Vec<Message>> {
        let database = &self.inner.database;
        let limit = limit.clamp(1, MOST);
        let sequence = match viewer {
            Some(viewer) => match member::permit(database, id, viewer).await? {
                Ok(standing) => standing.sequence,
                Err(refusal) => return Ok(Err(refusal)),
            },
            None => match self.conversation(id).await? {
                Some(conversation) => conversation.sequence,
                None => return Ok(Err(Refusal::NoConversation)),
            },
        };
        // A cache that does not answer is no reason not to.
        let kept = self.inner.recent.page(id, sequence, span, limit).await.unwrap_or_default();
        let mut messages = match kept {
            Some(messages) => messages,
            None => self.messages_from_database(id, span, limit).await?,
        };
        if let Some(viewer) = viewer {
            let hidden = blocks::hidden_from(database, viewer).await?;
            messages.retain(|message| !hidden.contains(&message.sender_id));
        }
        Ok(Ok(messages))
    }

    async fn messages_from_database(
        &self,
        id: &ConversationId,
        span: Span,
        limit: u16,
    ) -> Result<Vec<Message>, Error> {
        let database = &self.inner.database;
        if span == Span::Newest {
            let read = database.read(|snapshot| async move {
                let sequence = conversations::get(&snapshot, id).await?.map_or(0, |found| found.sequence);
                let newest = messages::page(&snapshot, id, Span::Newest, recent::MOST).await?;
                Ok::<_, Error>((sequence, newest))
            });
            let (sequence, newest) = read.await?;
            if let Err(error) = self.inner.recent.fill(id, sequence, &newest).await {
                tracing::debug!(%error, "the newest messages are not kept in the store");
            }
            if limit <= recent::MOST {
                let from = newest.len().saturating_sub(limit.into());
                return Ok(newest[from..].to_vec());
            }
        }
        messages::page(database, id, span, limit).await
    }

    /// Events after a sequence, or before it, as a member sees them; and the sequence of the last one.
    pub(crate) async fn events(
        &self,
        id: &ConversationId,
        viewer: &UserId,
        span: Span,
        limit: u16,
    ) -> Answer<(Vec<Event>, u64)> {
        let database = &self.inner.database;
        let sequence = match member::permit(database, id, viewer).await? {
            Ok(standing) => standing.sequence,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let mut events = match span {
            Span::After(after) => events::after(database, id, after, limit).await?,
            Span::Before(before) => events::before(database, id, before, limit).await?,
            Span::Newest => events::before(database, id, i64::MAX as u64, limit).await?,
        };
        let hidden = blocks::hidden_from(database, viewer).await?;
        events.retain(|event| !hidden.contains(&event.actor));
        Ok(Ok((events, sequence)))
    }

    /// Says that a member has read, or was delivered, everything up to a sequence.
    pub async fn progress(
        &self,
        id: &ConversationId,
        user: &UserId,
        up_to: u64,
        progress: Progress,
    ) -> Answer<Receipt> {
        let (receipt, news) = match member::progress(&self.inner.database, id, user, up_to, progress).await? {
            Ok(progressed) => progressed,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if news {
            let Receipt { read_sequence, delivered_sequence } = receipt;
            let passing = Passing::Receipt { user_id: user.clone(), read_sequence, delivered_sequence };
            self.inner.hub.whisper(id, user, &passing.json());
        }
        if news && progress == Progress::Read {
            // The outbox does this too, a moment later; who reads wants to see it now.
            if let Err(error) = self.settle_one(id, user).await {
                tracing::debug!(%error, "unread counts wait for the outbox");
            }
        }
        Ok(Ok(receipt))
    }

    /// Says that a member is typing, or has stopped.
    pub async fn typing(&self, id: &ConversationId, user: &UserId, typist: Typist) -> Answer<()> {
        if let Err(refusal) = member::permit(&self.inner.database, id, user).await? {
            return Ok(Err(refusal));
        }
        let news = match typist {
            // Told every time: it lasts longer now, on the other nodes too.
            Typist::Typing => self.inner.typing.start(id, user).await.map(|_| true)?,
            Typist::Stopped => self.inner.typing.stop(id, user).await?,
        };
        if news {
            self.tell_typing(id, user, typist);
        }
        Ok(Ok(()))
    }

    fn tell_typing(&self, id: &ConversationId, user: &UserId, typist: Typist) {
        let typing = typist == Typist::Typing;
        if let Some(room) = self.inner.hub.room(&Channel::Conversation(id.clone())) {
            room.note_typing(user, typing.then(|| Instant::now() + typing::HOLD));
        }
        let passing = Passing::Typing { user_id: user.clone(), typing };
        self.inner.hub.whisper(id, user, &passing.json());
    }

    /// Who has sent a message has stopped typing it.
    async fn stop_typing(&self, id: &ConversationId, user: &UserId) {
        let room = self.inner.hub.room(&Channel::Conversation(id.clone()));
        if room.is_some_and(|room| room.note_typing(user, None)) {
            let _ = self.inner.typing.stop(id, user).await;
            self.tell_typing(id, user, Typist::Stopped);
        }
    }

    /// Who is typing in a conversation, as a member sees it.
    pub async fn typists(&self, id: &ConversationId, viewer: &UserId) -> Answer<Vec<UserId>> {
        if let Err(refusal) = member::permit(&self.inner.database, id, viewer).await? {
            return Ok(Err(refusal));
        }
        let hidden = blocks::hidden_from(&self.inner.database, viewer).await?;
        let typists = self.inner.typing.who(id).await?.into_iter().map(|(user, _)| user);
        Ok(Ok(typists.filter(|user| user != viewer && !hidden.contains(user)).collect()))
    }

    /// Blocks or unblocks a user. When this answers, nothing more passes between the two, on any node.
    pub async fn block(&self, blocker: &UserId, blocked: &UserId, wish: Wish) -> Answer<bool> {
        let done = block::set(&self.inner.database, blocker, blocked, wish).await?;
        if done.is_ok() {
            let order = Order::Blocks { users: [blocker.clone(), blocked.clone()] };
            self.inner.hub.obey(&order).await?;
            self.inner.hub.orders.dispatch(&self.inner.hub.node, order).await?;
        }
        Ok(done)
    }

    pub async fn blocked_by(&self, user: &UserId) -> Result<Vec<UserId>, Error> {
        blocks::list(&self.inner.database, user).await
    }

    /// Asks whether a user may send so many messages, and counts them if so (C6); a cost of 0 only looks.
    pub async fn take_message(&self, user: &UserId, cost: u32) -> Decision {
        let Inner { quick, keys, .. } = &*self.inner;
        let taken = match self.message_rule() {
            Ok(rule) if rule.algorithm() == Algorithm::FixedCounter => {
                rule.take(quick, &[keys.message_rate(user), keys.message_window(user)], cost).await
            }
            Ok(rule) => rule.take(quick, &[keys.message_pace(user)], cost).await,
            Err(error) => {
                tracing::error!(%error, "the limit of messages cannot be what it is");
                return unlimited();
            }
        };
        taken.unwrap_or_else(|error| {
            tracing::debug!(%error, "the limit of messages was not asked");
            unlimited()
        })
    }

    async fn spread_membership(&self, id: &ConversationId, done: Result<Event, Refusal>) -> Answer<()> {
        if let Ok(event) = &done
            && let Err(error) = self.inner.participants.drop(id, event.sequence).await
        {
            tracing::debug!(%error, "the outbox drops the members");
        }
        self.spread(id, done, Effect::Other).await
    }

    async fn spread(
        &self,
        id: &ConversationId,
        done: Result<Event, Refusal>,
        effect: Effect<'_>,
    ) -> Answer<()> {
        match done {
            Ok(event) => {
                self.tell(id, &event, effect).await;
                Ok(Ok(()))
            }
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// Tells everybody of an event that is in the database.
    async fn tell(&self, id: &ConversationId, event: &Event, effect: Effect<'_>) {
        let Inner { hub, recent, .. } = &*self.inner;
        if let Err(error) = hub.tell(id, event).await {
            tracing::warn!(%error, "subscribers hear of an event later");
        }
        hub.post.event(id, event);
        match recent.follow_call(id, event.sequence, effect) {
            Ok(call) => hub.post.errand(call),
            Err(error) => tracing::error!(%error, "a message is not kept in the store"),
        }
    }
}

/// Whether somebody types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Typist {
    Typing,
    Stopped,
}

fn unlimited() -> Decision {
    let quota = Quota { limit: u32::MAX, remaining: u32::MAX, reset_after: Duration::ZERO };
    Decision::Allowed(quota)
}
