//! Export of the data of a user, record by record.

use std::collections::VecDeque;

use futures_util::stream::{self, Stream};
use serde::Serialize;

use super::Chat;
use super::erasure::PAGE;
use crate::Error;
use crate::conversation::event::{Timestamp, iso};
use crate::conversation::member::{MemberStatus, Membership};
use crate::database::{blocks, conversations, erasures, members, messages, reactions, users};
use crate::keys::{ConversationId, UserId};
use crate::{Attachment, Message};

/// A record of an export.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ExportRecord {
    User {
        user_id: UserId,
        #[serde(skip_serializing_if = "Option::is_none")]
        last_seen: Option<String>,
        banned: bool,
    },
    /// A user that the user has blocked.
    Block {
        user_id: UserId,
    },
    /// A conversation in which the user is or was a member.
    Membership {
        conversation_id: ConversationId,
        title: String,
        member: bool,
        read_sequence: u64,
    },
    /// A message of the user that is not deleted.
    Message {
        id: String,
        conversation_id: ConversationId,
        sequence: u64,
        timestamp: Timestamp,
        content: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        edited_at: Option<Timestamp>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reply_to: Option<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        mentions: Vec<UserId>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<Attachment>,
    },
    Reaction {
        conversation_id: ConversationId,
        sequence: u64,
        emoji: String,
        timestamp: Timestamp,
    },
    /// The export is complete.
    End,
}

/// What is exported next.
#[derive(Debug)]
enum Position {
    Start,
    /// The conversation after this one.
    After(String),
    Messages(ConversationId, u64),
    Reactions(ConversationId, u64),
    Ended,
}

impl Chat {
    /// The data of a user. Pages are read when the reader has taken the records before.
    pub fn export_user(&self, user: &UserId) -> impl Stream<Item = Result<ExportRecord, Error>> + use<> {
        let start = (self.clone(), user.clone(), Position::Start, VecDeque::new());
        stream::try_unfold(start, |(chat, user, mut position, mut records)| async move {
            while records.is_empty() {
                if matches!(position, Position::Ended) {
                    return Ok(None);
                }
                (records, position) = chat.export_page(&user, position).await?;
            }
            let record = records.pop_front();
            Ok(record.map(|record| (record, (chat, user, position, records))))
        })
    }

    async fn export_page(
        &self,
        user: &UserId,
        position: Position,
    ) -> Result<(VecDeque<ExportRecord>, Position), Error> {
        let database = &self.inner.database;
        let mut records = VecDeque::new();
        let next = match position {
            Position::Start => {
                let last_seen = users::last_seen(database, user).await?.map(iso);
                let banned = self.is_banned(user).await?;
                records.push_back(ExportRecord::User { user_id: user.clone(), last_seen, banned });
                let blocked = blocks::list(database, user).await?;
                records.extend(blocked.into_iter().map(|user_id| ExportRecord::Block { user_id }));
                Position::After(String::new())
            }
            Position::After(after) => {
                match erasures::conversations_after(database, user, &after, 1).await?.pop() {
                    Some(id) => {
                        records.extend(self.export_membership(user, &id).await?);
                        Position::Messages(id, 0)
                    }
                    None => {
                        records.push_back(ExportRecord::End);
                        Position::Ended
                    }
                }
            }
            Position::Messages(id, after) => {
                let page = messages::of_sender_after(database, &id, user, after, PAGE).await?;
                let last = page.last().map(|message| message.sequence);
                records.extend(page.into_iter().map(ExportRecord::from));
                match last {
                    Some(last) => Position::Messages(id, last),
                    None => Position::Reactions(id, 0),
                }
            }
            Position::Reactions(id, after) => {
                // All reactions to a message are in one page: a page is larger than their number.
                let mut page = reactions::of_user_after(database, &id, user, after, PAGE).await?;
                let last = page.last().map(|(sequence, ..)| *sequence);
                if page.len() == usize::from(PAGE) {
                    page.retain(|(sequence, ..)| Some(*sequence) != last);
                }
                let read = page.last().map(|(sequence, ..)| *sequence);
                records.extend(page.into_iter().map(|(sequence, emoji, at)| ExportRecord::Reaction {
                    conversation_id: id.clone(),
                    sequence,
                    emoji,
                    timestamp: Timestamp(at),
                }));
                match read {
                    Some(read) => Position::Reactions(id, read),
                    None => Position::After(id.to_string()),
                }
            }
            Position::Ended => Position::Ended,
        };
        Ok((records, next))
    }

    async fn export_membership(
        &self,
        user: &UserId,
        id: &ConversationId,
    ) -> Result<Option<ExportRecord>, Error> {
        let database = &self.inner.database;
        let conversation = conversations::get(database, id).await?;
        let membership = members::membership(database, id, user).await?;
        Ok(conversation.zip(membership).map(|(conversation, Membership { state, read_sequence, .. })| {
            let (conversation_id, title) = (conversation.id, conversation.title);
            let member = state == MemberStatus::Joined;
            ExportRecord::Membership { conversation_id, title, member, read_sequence }
        }))
    }
}

impl From<Message> for ExportRecord {
    fn from(message: Message) -> Self {
        Self::Message {
            id: message.id,
            conversation_id: message.conversation_id,
            sequence: message.sequence,
            timestamp: message.timestamp,
            content: message.content,
            edited_at: message.edited_at,
            reply_to: message.reply_to,
            mentions: message.mentions.0,
            attachments: message.attachments.0,
        }
    }
}
