//! Messages as a reader sees them: with their reactions and the number of replies.

use std::collections::HashMap;

use hob_database::Read;
use serde::Serialize;

use crate::Error;
use crate::conversation::message::Message;
use crate::conversation::reaction::ReactionCount;
use crate::database::{messages, reactions};
use crate::keys::{ConversationId, UserId};

/// A message, and what has been added to it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedMessage {
    #[serde(flatten)]
    pub message: Message,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reactions: Vec<ReactionCount>,
    /// The replies in the thread that this message starts.
    #[serde(skip_serializing_if = "is_zero")]
    pub reply_count: u64,
}

/// Messages of one conversation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MessagePage {
    pub messages: Vec<ListedMessage>,
    /// The event up to which reactions and replies are counted.
    pub offset: u64,
}

/// One thread: its first message, and some of its replies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Thread {
    /// Missing if the reader cannot see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<ListedMessage>,
    #[serde(flatten)]
    pub replies: MessagePage,
}

/// The user who reads messages. `None` is the server, which sees everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    pub(crate) user: Option<&'a UserId>,
    /// The same user, if what was said in their absence is hidden from them.
    pub(crate) absent: Option<&'a UserId>,
}

/// Adds the reactions and the number of replies to messages, in their order.
pub(crate) async fn list(
    database: &impl Read,
    reader: Reader<'_>,
    messages: Vec<Message>,
) -> Result<Vec<ListedMessage>, Error> {
    let mut conversations: HashMap<ConversationId, Vec<usize>> = HashMap::new();
    for (index, message) in messages.iter().enumerate() {
        conversations.entry(message.conversation_id.clone()).or_default().push(index);
    }
    let into_listed = |message| ListedMessage { message, reactions: Vec::new(), reply_count: 0 };
    let mut listed: Vec<ListedMessage> = messages.into_iter().map(into_listed).collect();
    for (conversation, indexes) in conversations {
        add_counts(database, reader, &conversation, &indexes, &mut listed).await?;
    }
    Ok(listed)
}

async fn add_counts(
    database: &impl Read,
    reader: Reader<'_>,
    conversation: &ConversationId,
    indexes: &[usize],
    listed: &mut [ListedMessage],
) -> Result<(), Error> {
    let sequences: Vec<u64> = indexes.iter().map(|index| listed[*index].message.sequence).collect();
    let mut found: HashMap<u64, Vec<ReactionCount>> = HashMap::new();
    for counted in reactions::counts(database, conversation, reader.user, &sequences).await? {
        let count = ReactionCount { emoji: counted.emoji, count: counted.count, own: counted.own > 0 };
        found.entry(counted.sequence).or_default().push(count);
    }
    let threads: Vec<String> = indexes.iter().map(|index| listed[*index].message.id.clone()).collect();
    let threads = threads.iter().map(String::as_str);
    let replies =
        messages::count_replies(database, conversation, reader.user, reader.absent, threads).await?;
    for index in indexes {
        let one = &mut listed[*index];
        one.reactions = found.remove(&one.message.sequence).unwrap_or_default();
        one.reply_count = replies.get(&one.message.id).copied().unwrap_or(0);
    }
    Ok(())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
