//! The newest messages of a conversation in the store (C7). The list is served only when it is certain to hold
//! every message of its range, as of the conversation's very last event.

use hob_store::mend::{self, Kind};
use hob_store::{Call, Reply, Script, Store};

use crate::Error;
use crate::conversation::message::{Message, Span};
use crate::keys::{ConversationId, Keys};

static FILL: Script = Script::new(include_str!("recent/fill.lua"));
static FOLLOW: Script = Script::new(include_str!("recent/update.lua"));
static READ: Script = Script::new(include_str!("recent/read.lua"));

/// What an event means for the list.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Effect<'a> {
    Message(&'a Message),
    /// A message was edited or deleted.
    Change,
    /// Nothing that the list shows.
    Other,
}

/// The newest messages in the store.
#[derive(Clone, Debug)]
pub(crate) struct Recent {
    store: Store,
    keys: Keys,
}

/// How many messages are kept.
pub(crate) const MOST: u16 = Keys::RECENT_MAX_LEN as u16;

impl Recent {
    pub(crate) fn new(store: &Store, keys: &Keys) -> Self {
        Self { store: store.clone(), keys: keys.clone() }
    }

    /// Keeps the newest messages, oldest first, as they were read at an event of the conversation.
    pub(crate) async fn fill(
        &self,
        conversation: &ConversationId,
        sequence: u64,
        messages: &[Message],
    ) -> Result<(), Error> {
        let whole = messages.len() < usize::from(MOST);
        let mut call =
            FILL.on(&self.list_keys(conversation)).arg(sequence).arg(u8::from(whole)).arg(ttl_ms());
        for message in messages.iter().rev() {
            call = call.arg(serde_json::to_string(message)?);
        }
        self.run(conversation, call).await.map(drop)
    }

    /// The call that follows the conversation by one event.
    pub(crate) fn follow_call(
        &self,
        conversation: &ConversationId,
        sequence: u64,
        effect: Effect<'_>,
    ) -> Result<Call, Error> {
        let (word, message) = match effect {
            Effect::Message(message) => ("message", serde_json::to_string(message)?),
            Effect::Change => ("change", String::new()),
            Effect::Other => ("other", String::new()),
        };
        let call = FOLLOW.on(&self.list_keys(conversation)).arg(sequence).arg(word).arg(message);
        Ok(call.arg(MOST).arg(ttl_ms()))
    }

    /// A page of messages, oldest first, if the list is certain to hold all of it.
    pub(crate) async fn page(
        &self,
        conversation: &ConversationId,
        sequence: u64,
        from: Span,
        limit: u16,
    ) -> Result<Option<Vec<Message>>, Error> {
        let call = READ.on(&self.list_keys(conversation)).arg(sequence).arg(MOST);
        let mut reply = self.run(conversation, call).await?;
        if reply.word() != "messages" {
            return Ok(None);
        }
        let whole = reply.next::<u8>()? == 1;
        let mut messages = Vec::with_capacity(reply.left());
        while reply.left() > 0 {
            let message: Message = serde_json::from_slice(&reply.next::<Vec<u8>>()?)?;
            messages.push(message);
        }
        messages.reverse();
        Ok(cut(messages, whole, from, limit.into()))
    }

    async fn run(&self, conversation: &ConversationId, call: Call) -> Result<Reply, Error> {
        let [list, range] = self.list_keys(conversation);
        Ok(mend::run(&self.store, call, &[(list, Kind::List), (range, Kind::Hash)]).await?)
    }

    fn list_keys(&self, conversation: &ConversationId) -> [hob_schema::Key; 2] {
        [self.keys.recent(conversation), self.keys.recent_range(conversation)]
    }
}

/// The page, if all of it is among the messages; `whole` says that there are no others.
fn cut(mut messages: Vec<Message>, whole: bool, from: Span, limit: usize) -> Option<Vec<Message>> {
    match from {
        Span::Newest | Span::Before(_) => {
            if let Span::Before(sequence) = from {
                messages.retain(|message| message.sequence < sequence);
            }
            let covered = whole || messages.len() >= limit;
            covered.then(|| messages.split_off(messages.len().saturating_sub(limit)))
        }
        Span::After(sequence) => {
            let oldest = messages.first().map_or(u64::MAX, |message| message.sequence);
            let covered = whole || oldest <= sequence.saturating_add(1);
            messages.retain(|message| message.sequence > sequence);
            messages.truncate(limit);
            covered.then_some(messages)
        }
    }
}

fn ttl_ms() -> u64 {
    Keys::RECENT_TTL_MAX.as_millis() as u64
}
