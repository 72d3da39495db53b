//! Messages of several senders in one transaction.

use std::collections::{BTreeMap, HashMap, HashSet};

use hob_database::{Database, Isolation, Transaction};

use crate::Error;
use crate::conversation::event::{Event, EventPayload};
use crate::conversation::message::{Message, NewMessage};
use crate::conversation::{block, event, outbox};
use crate::database::{blocks, conversations, events, members, mentions, messages};
use crate::error::{Refusal, Rollback};
use crate::keys::{ConversationId, UserId};

/// A message that was sent and its event. `None` if it was not sent: its sender has to be told why, or another message has
/// the same client id.
pub(crate) type Sent = Option<(Message, Event)>;

/// Sends messages that [`check_new`](super::message::check_new) accepted.
pub(crate) async fn send(database: &Database, all: &[&NewMessage]) -> Result<Vec<Sent>, Error> {
    let work = |tx: Transaction| async move { send_in(&tx, all).await };
    match database.write_with(Isolation::ReadCommitted, work).await {
        Ok(sent) => Ok(sent),
        Err(Rollback::Refused(_)) => Ok(vec![None; all.len()]),
        Err(Rollback::Failed(error)) => Err(error),
    }
}

async fn send_in(tx: &Transaction, all: &[&NewMessage]) -> Result<Vec<Sent>, Rollback> {
    let senders: HashSet<&UserId> = all.iter().map(|new| &new.sender).collect();
    let with_blocks = blocks::with_blocks(tx, &senders).await?;
    // In order, so that the transactions of two nodes do not deadlock.
    let mut conversations: BTreeMap<&ConversationId, Vec<usize>> = BTreeMap::new();
    for (index, new) in all.iter().enumerate() {
        conversations.entry(&new.conversation).or_default().push(index);
    }
    let mut sent: BTreeMap<usize, (Message, Event)> = BTreeMap::new();
    for (conversation, indexes) in conversations {
        for (index, message) in number(tx, conversation, &indexes, all, &with_blocks).await? {
            let payload = EventPayload::Message { message: message.clone() }.to_json()?;
            let event = Event { sequence: message.sequence, actor: message.sender_id.clone(), payload };
            sent.insert(index, (message, event));
        }
    }
    let messages: Vec<&Message> = sent.values().map(|(message, _)| message).collect();
    if !messages::insert_all(tx, &messages).await? {
        // Two messages have the same client id.
        return Err(Refusal::AlreadyExists.into());
    }
    mentions::insert_all(tx, messages.iter().copied()).await?;
    for message in &messages {
        outbox::emit_message_created(tx, message)?;
    }
    events::insert_messages(tx, sent.values()).await?;
    Ok((0..all.len()).map(|index| sent.remove(&index)).collect())
}

/// Numbers the messages of one conversation whose senders may send. Locks the conversation, so that its numbers have no
/// gaps.
async fn number(
    tx: &Transaction,
    conversation: &ConversationId,
    indexes: &[usize],
    all: &[&NewMessage],
    with_blocks: &HashSet<UserId>,
) -> Result<Vec<(usize, Message)>, Rollback> {
    let count = indexes.len() as u64;
    let Some((last_sequence, last_number)) = conversations::advance(tx, conversation, count, count).await?
    else {
        return Ok(Vec::new());
    };
    let senders: HashSet<&UserId> = indexes.iter().map(|index| &all[*index].sender).collect();
    let mut may_send = members::among(tx, conversation, &senders).await?;
    for sender in senders.into_iter().filter(|sender| with_blocks.contains(*sender)) {
        if block::all_others_hidden(tx, conversation, sender).await? {
            may_send.remove(sender);
        }
    }
    let references = References::read(tx, conversation, indexes.iter().map(|index| all[*index])).await?;
    let is_accepted = |new: &NewMessage| may_send.contains(&new.sender) && references.has_all(new);
    let accepted: Vec<usize> = indexes.iter().copied().filter(|index| is_accepted(all[*index])).collect();
    let refused = count - accepted.len() as u64;
    if refused > 0 {
        conversations::give_back(tx, conversation, refused).await?;
    }
    let first_sequence = last_sequence - count + 1;
    let first_number = last_number - count + 1;
    let numbered = accepted.into_iter().zip(0..).map(|(index, at)| {
        let next = event::NextSequence { sequence: first_sequence + at, newest: first_number + at };
        (index, Message::new(tx, all[index], next, references.thread(all[index])))
    });
    Ok(numbered.collect())
}

/// What the new messages of a conversation refer to. Plain messages cost no query.
#[derive(Debug, Default)]
struct References {
    /// The threads of the messages that they reply to.
    threads: HashMap<String, String>,
    /// The members that they mention.
    members: HashSet<UserId>,
}

impl References {
    async fn read<'a>(
        tx: &Transaction,
        conversation: &ConversationId,
        all: impl Iterator<Item = &'a NewMessage>,
    ) -> Result<Self, Error> {
        let (mut replied, mut mentioned) = (HashSet::new(), HashSet::new());
        for new in all {
            replied.extend(new.reply_to.as_deref());
            mentioned.extend(&new.mentions);
        }
        let mut references = Self::default();
        if !replied.is_empty() {
            references.threads = messages::threads(tx, conversation, &replied).await?;
        }
        if !mentioned.is_empty() {
            references.members = members::among(tx, conversation, &mentioned).await?;
        }
        Ok(references)
    }

    /// Whether the message that this one replies to exists, and the users that it mentions are members.
    fn has_all(&self, new: &NewMessage) -> bool {
        new.reply_to.as_ref().is_none_or(|id| self.threads.contains_key(id))
            && new.mentions.iter().all(|user| self.members.contains(user))
    }

    fn thread(&self, new: &NewMessage) -> Option<String> {
        self.threads.get(new.reply_to.as_deref()?).cloned()
    }
}
