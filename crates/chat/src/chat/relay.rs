//! The consumer of the outbox, which runs on the node that relays the outbox. It publishes new messages for other
//! services (C10) and updates the unread counters in Redis (C8 C9). Idempotent.

use std::collections::{BTreeMap, HashSet};

use hob_database::outbox;
use hob_store::{Call, cmd};
use serde::Serialize;

use crate::Error;
use crate::chat::{Chat, Inner};
use crate::conversation::outbox::{COUNTS, MESSAGE_CREATED, MessageCreated, RecountScope};
use crate::database::{self, blocks, conversations, members};
use crate::hub::channel_name::ChannelName;
use crate::hub::transient::FeedUpdate;
use crate::keys::{ConversationId, UserId};
use crate::store::unread::{CountScope, CounterUpdate, NewMessages, UnreadIncrement, UnreadRow};

/// Users whose counters are rebuilt at a time.
const REBUILD_BATCH: u16 = 200;

/// If more counters than these are behind, all are recounted with one query.
const MAX_SINGLE_RECOUNTS: usize = 8;

/// A new message, as it is published for other services (C10).
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MessageCreatedEvent<'a> {
    conversation_id: &'a ConversationId,
    message_id: &'a str,
    sender_id: &'a UserId,
    participant_ids: &'a [UserId],
    event_id: String,
    timestamp: String,
}

impl Chat {
    /// Handles events of the outbox.
    pub(crate) async fn follow_up(&self, events: &[outbox::Event]) -> Result<(), Error> {
        let mut created: BTreeMap<ConversationId, Vec<(u64, MessageCreated)>> = BTreeMap::new();
        let mut counts: BTreeMap<ConversationId, Vec<RecountScope>> = BTreeMap::new();
        for event in events {
            let Ok(conversation) = ConversationId::new(&event.key) else { continue };
            if event.topic == MESSAGE_CREATED.0 {
                let message = (event.number, serde_json::from_str(&event.payload)?);
                created.entry(conversation).or_default().push(message);
            } else if event.topic == COUNTS.0 {
                counts.entry(conversation).or_default().push(serde_json::from_str(&event.payload)?);
            }
        }
        self.publish_message_created(&created).await?;
        for (conversation, messages) in &created {
            self.count_new_messages(conversation, messages.iter().map(|(_, message)| message)).await?;
        }
        for (conversation, scopes) in &counts {
            let mut recounted = HashSet::new();
            if scopes.contains(&RecountScope::AllMembers) {
                recounted = self.recount_all(conversation).await?;
            }
            // A user who is deleted is not among the members.
            for scope in scopes {
                if let RecountScope::Member(user) = scope
                    && recounted.insert(user.clone())
                {
                    self.recount_member(conversation, user).await?;
                }
            }
        }
        Ok(())
    }

    /// Publishes new messages for other services (C10), in the order of their numbers.
    async fn publish_message_created(
        &self,
        created: &BTreeMap<ConversationId, Vec<(u64, MessageCreated)>>,
    ) -> Result<(), Error> {
        let channel = self.inner.keys.message_created_channel();
        let mut calls: BTreeMap<u64, Call> = BTreeMap::new();
        for (conversation, messages) in created {
            let first = messages.iter().map(|(_, message)| message.sequence).min().unwrap_or_default();
            let participants = self.participants_since(conversation, first).await?;
            for (number, message) in messages {
                let text = message_created_json(*number, message, &participants.at(message.sequence))?;
                calls.insert(*number, cmd("PUBLISH").arg(&channel).arg(text).take().into());
            }
        }
        let calls: Vec<Call> = calls.into_values().collect();
        self.inner.store.batch(&calls).await.into_iter().find(Result::is_err).transpose()?;
        Ok(())
    }

    /// The JSON of a new message for other services (C10).
    pub(crate) async fn message_created_json(&self, event: &outbox::Event) -> Result<String, Error> {
        let message: MessageCreated = serde_json::from_str(&event.payload)?;
        let participants = self.participants_since(&message.conversation_id, message.sequence).await?;
        message_created_json(event.number, &message, &participants.at(message.sequence))
    }

    /// Counts new messages for all members of a conversation. A counter that is up to date is incremented, at a cost
    /// that does not depend on the number of unread messages. Every other counter is recounted.
    async fn count_new_messages<'a>(
        &self,
        id: &ConversationId,
        messages: impl Iterator<Item = &'a MessageCreated>,
    ) -> Result<(), Error> {
        let messages: Vec<&MessageCreated> = messages.collect();
        let Some(after) = sequence_before(&messages) else { return self.recount_all(id).await.map(drop) };
        let Inner { database, unread, .. } = &*self.inner;
        let senders = messages.iter().map(|message| &message.sender_id);
        let read = database.read(|snapshot| async move {
            let members = members::versions(&snapshot, id).await?;
            Ok::<_, Error>((members, blocks::involving(&snapshot, senders).await?))
        });
        let (members, blocked) = read.await?;
        let counts = |user: &UserId, sender: &UserId| user != sender && !blocked.contains(user, sender);
        let increments: Vec<UnreadIncrement> = members
            .into_iter()
            .map(|(user_id, version)| {
                let counted = || messages.iter().filter(|message| counts(&user_id, &message.sender_id));
                let mentions = counted().filter(|message| message.mentions.contains(&user_id)).count();
                UnreadIncrement { count: counted().count(), mentions, user_id, version }
            })
            .collect();
        let new = NewMessages { after, last: after + messages.len() as u64 };
        let behind = unread.increment(id, new, &increments).await?;
        if behind.len() > MAX_SINGLE_RECOUNTS {
            return self.recount_all(id).await.map(drop);
        }
        for user in behind {
            self.recount_member(id, user).await?;
        }
        Ok(())
    }

    /// Recounts a conversation for all members, and returns them.
    async fn recount_all(&self, id: &ConversationId) -> Result<HashSet<UserId>, Error> {
        let Inner { database, participants, .. } = &*self.inner;
        let read = database.read(|snapshot| async move {
            let counts = database::unread::in_conversation(&snapshot, id).await?;
            Ok::<_, Error>((conversations::get(&snapshot, id).await?, counts))
        });
        let (conversation, counts) = read.await?;
        if let Some(conversation) = conversation
            && participants.get(id).await?.is_some_and(|cached| !same_members(&cached, &counts))
        {
            // The change itself failed to clear the cache.
            participants.drop(id, conversation.sequence).await?;
        }
        self.write_counts(&counts).await?;
        Ok(counts.into_iter().map(|count| count.user_id).collect())
    }

    /// Recounts a conversation for one user.
    pub(crate) async fn recount_member(&self, id: &ConversationId, user: &UserId) -> Result<(), Error> {
        match database::unread::of_member(&self.inner.database, id, user).await? {
            Some(count) => self.write_counts(&[count]).await,
            None => self.delete_counts(id, user).await,
        }
    }

    /// Deletes the counters of a user who is deleted: nothing in the database counts for the user.
    async fn delete_counts(&self, id: &ConversationId, user: &UserId) -> Result<(), Error> {
        let Inner { database, unread, .. } = &*self.inner;
        if database::unread::of_user(database, user).await?.is_empty() {
            unread.delete(id, user).await?;
        }
        Ok(())
    }

    async fn write_counts(&self, counts: &[UnreadRow]) -> Result<(), Error> {
        let Inner { database, unread, .. } = &*self.inner;
        let written = unread.write_each(counts).await?;
        let mut updates = Vec::with_capacity(counts.len());
        for (count, written) in counts.iter().zip(written) {
            let total = match written {
                CounterUpdate::Written(total) => total,
                CounterUpdate::Missing => unread.rebuild(database, &count.user_id).await?,
            };
            updates.push(self.unread_update_call(count, total));
        }
        for answer in self.inner.store.batch(&updates).await {
            answer?;
        }
        Ok(())
    }

    /// Notifies a user's feed on this node, and returns the call that notifies the other nodes.
    fn unread_update_call(&self, count: &UnreadRow, total: u64) -> Call {
        let UnreadRow { user_id, conversation_id, unread, mentions, stamp, .. } = count;
        let update = FeedUpdate::Unread {
            conversation_id,
            unread: *unread,
            mentions: *mentions,
            total,
            stamp: *stamp,
        };
        let update = update.json();
        self.inner.hub.publish_transient_here(&ChannelName::Feed(user_id.clone()), user_id, &update);
        self.inner.hub.broker.feed_call(user_id, &update)
    }

    /// Rebuilds the unread counters of all users after a data loss. Every node that detects the loss does this, because
    /// a node that started after the loss cannot detect it. Counters with a newer stamp are kept.
    pub(crate) async fn rebuild_unread(&self) -> Result<(), Error> {
        let Inner { database, unread, .. } = &*self.inner;
        let mut after = String::new();
        loop {
            let users = members::all_users(database, &after, REBUILD_BATCH).await?;
            let Some(last) = users.last() else { return Ok(()) };
            let mut written = Vec::with_capacity(users.len());
            for user in &users {
                let counts = database::unread::of_user(database, user).await?;
                unread.write(user, &counts, CountScope::Full).await?;
                written.push((user, counts));
            }
            // A user who was deleted meanwhile has no keys.
            let remaining = members::all_users(database, &after, REBUILD_BATCH).await?;
            for (user, counts) in written.iter().filter(|(user, _)| !remaining.contains(user)) {
                for count in counts {
                    self.delete_counts(&count.conversation_id, user).await?;
                }
            }
            after = last.to_string();
        }
    }
}

fn message_created_json(
    number: u64,
    message: &MessageCreated,
    participant_ids: &[UserId],
) -> Result<String, Error> {
    let MessageCreated { conversation_id, message_id, sender_id, timestamp, .. } = message;
    let (event_id, timestamp) = (number.to_string(), timestamp.to_string());
    let event =
        MessageCreatedEvent { conversation_id, message_id, sender_id, participant_ids, event_id, timestamp };
    Ok(serde_json::to_string(&event)?)
}

/// The event right before these messages, if nothing else happened between them.
fn sequence_before(messages: &[&MessageCreated]) -> Option<u64> {
    let first = messages.first()?.sequence.checked_sub(1)?;
    let follow = |(at, message): (u64, &&MessageCreated)| message.sequence == at;
    (first + 1..).zip(messages).all(follow).then_some(first)
}

fn same_members(cached: &[UserId], counts: &[UnreadRow]) -> bool {
    cached.iter().all(|user| counts.iter().any(|count| count.user_id == *user))
}
