//! The cache of a conversation's newest messages (C7). It is used only if it certainly contains the whole page, up to
//! the conversation's last event.

use hob_store::repair::{self, KeyType, STORED};
use hob_store::{Call, Reply, Script, Store, cmd};

use crate::Error;
use crate::conversation::message::{Message, MessageRange};
use crate::keys::{ConversationId, Keys};

static FILL: Script = Script::with(&[STORED], include_str!("recent/fill.lua"));
static UPDATE: Script = Script::with(&[STORED], include_str!("recent/update.lua"));
static READ: Script = Script::new(include_str!("recent/read.lua"));

/// How an event changes the cache.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CacheUpdate<'a> {
    Append(&'a Message),
    /// A message was edited.
    Replace(&'a Message),
    /// A message was deleted.
    Remove(&'a Message),
    /// The event does not change the messages.
    Advance,
}

/// The cache of recent messages in Redis.
#[derive(Clone, Debug)]
pub(crate) struct RecentMessages {
    store: Store,
    keys: Keys,
}

/// The most cached messages.
pub(crate) const MAX_RECENT: u16 = Keys::RECENT_MAX_LEN as u16;

impl RecentMessages {
    pub(crate) fn new(store: &Store, keys: &Keys) -> Self {
        Self { store: store.clone(), keys: keys.clone() }
    }

    /// Fills the cache with the newest messages, oldest first, at a sequence of the conversation.
    pub(crate) async fn fill(
        &self,
        conversation: &ConversationId,
        sequence: u64,
        messages: &[Message],
    ) -> Result<(), Error> {
        self.run(conversation, self.fill_call(conversation, sequence, messages)?).await.map(drop)
    }

    /// The call that fills the cache.
    pub(crate) fn fill_call(
        &self,
        conversation: &ConversationId,
        sequence: u64,
        messages: &[Message],
    ) -> Result<Call, Error> {
        let complete = messages.len() < usize::from(MAX_RECENT);
        let mut call =
            FILL.on(&self.list_keys(conversation)).arg(sequence).arg(u8::from(complete)).arg(ttl_ms());
        for message in messages.iter().rev() {
            call = call.arg(serde_json::to_string(message)?);
        }
        Ok(call)
    }

    /// The call that applies one event to the cache.
    pub(crate) fn update_call(
        &self,
        conversation: &ConversationId,
        sequence: u64,
        update: CacheUpdate<'_>,
    ) -> Result<Call, Error> {
        let (action, message) = match update {
            CacheUpdate::Append(message) => ("append", Some(message)),
            CacheUpdate::Replace(message) => ("replace", Some(message)),
            CacheUpdate::Remove(message) => ("remove", Some(message)),
            CacheUpdate::Advance => ("advance", None),
        };
        let json = message.map(serde_json::to_string).transpose()?.unwrap_or_default();
        // The id is the first field.
        let start = message.map(|message| format!(r#"{{"id":"{}""#, message.id)).unwrap_or_default();
        let call = UPDATE.on(&self.list_keys(conversation)).arg(sequence).arg(action).arg(json).arg(start);
        Ok(call.arg(MAX_RECENT).arg(ttl_ms()))
    }

    /// A page of messages, oldest first, if the cache certainly contains all of it.
    pub(crate) async fn page(
        &self,
        conversation: &ConversationId,
        sequence: u64,
        range: MessageRange,
        limit: u16,
    ) -> Result<Option<Vec<Message>>, Error> {
        let call = READ.on(&self.list_keys(conversation)).arg(sequence).arg(MAX_RECENT);
        let reply = self.run(conversation, call).await?;
        if reply.word() != "messages" {
            return Ok(None);
        }
        let Some((messages, complete)) = read_messages(reply) else {
            // Another client has changed the cache. It is filled again from the database.
            let [list, range] = self.list_keys(conversation);
            repair::report("chat", list.as_bytes());
            self.store.run::<u64>(cmd("DEL").arg(list).arg(range).take()).await?;
            return Ok(None);
        };
        Ok(page_of(messages, complete, range, limit.into()))
    }

    async fn run(&self, conversation: &ConversationId, call: Call) -> Result<Reply, Error> {
        let [list, range] = self.list_keys(conversation);
        Ok(repair::run(&self.store, call, &[(list, KeyType::List), (range, KeyType::Hash)]).await?)
    }

    fn list_keys(&self, conversation: &ConversationId) -> [hob_store::Key; 2] {
        [self.keys.recent(conversation), self.keys.recent_range(conversation)]
    }
}

/// The cached messages, oldest first, and whether these are all; `None` if they cannot be read.
fn read_messages(mut reply: Reply) -> Option<(Vec<Message>, bool)> {
    let complete = reply.next::<u8>().ok()? == 1;
    let mut messages = Vec::with_capacity(reply.left());
    while reply.left() > 0 {
        messages.push(serde_json::from_slice(&reply.next::<Vec<u8>>().ok()?).ok()?);
    }
    messages.reverse();
    Some((messages, complete))
}

/// The page, if these messages contain all of it. `complete` means that the conversation has no other messages.
fn page_of(
    mut messages: Vec<Message>,
    complete: bool,
    range: MessageRange,
    limit: usize,
) -> Option<Vec<Message>> {
    match range {
        MessageRange::Newest | MessageRange::Before(_) => {
            if let MessageRange::Before(sequence) = range {
                messages.retain(|message| message.sequence < sequence);
            }
            let covered = complete || messages.len() >= limit;
            covered.then(|| messages.split_off(messages.len().saturating_sub(limit)))
        }
        MessageRange::After(sequence) => {
            let oldest = messages.first().map_or(u64::MAX, |message| message.sequence);
            let covered = complete || oldest <= sequence.saturating_add(1);
            messages.retain(|message| message.sequence > sequence);
            messages.truncate(limit);
            covered.then_some(messages)
        }
    }
}

fn ttl_ms() -> u64 {
    Keys::RECENT_TTL_MAX.as_millis() as u64
}
