//! Messages as members read them: with reactions and replies, in threads, and across conversations.

use hob_database::{Page, PageRequest};

use super::conversations::MAX_PAGE;
use super::{Chat, Inner};
use crate::Error;
use crate::config::AbsenceMessages;
use crate::conversation::listed::{self, ListedMessage, MessagePage, Reader, Thread};
use crate::conversation::member;
use crate::conversation::message::{Message, MessageRange};
use crate::conversation::reaction::{self, Reaction, ReactionAction};
use crate::conversation::search::SearchQuery;
use crate::database::{conversations, messages, reactions};
use crate::error::{Answer, Refusal};
use crate::keys::{ConversationId, UserId};
use crate::store::recent::CacheUpdate;

impl Chat {
    /// Adds or removes a reaction. Returns whether anything changed.
    pub async fn react(
        &self,
        id: &ConversationId,
        message: &str,
        by: &UserId,
        emoji: &str,
        action: ReactionAction,
    ) -> Answer<bool> {
        let _lock = self.lock_conversation(id).await;
        let absences = self.config().messages_during_absence;
        let set = reaction::set(&self.inner.database, (id, message), by, emoji, action, absences);
        match set.await? {
            Ok(Some(event)) => {
                self.publish(id, &event, CacheUpdate::Advance).await;
                Ok(Ok(true))
            }
            Ok(None) => Ok(Ok(false)),
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// Messages in order, as [`messages`](Self::messages), with their reactions and the number of replies.
    pub async fn list_messages(
        &self,
        id: &ConversationId,
        viewer: Option<&UserId>,
        range: MessageRange,
        limit: u16,
    ) -> Answer<MessagePage> {
        let (reader, sequence) = match self.reader(id, viewer).await? {
            Ok(found) => found,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let messages = self.read_messages((id, sequence), reader, range, limit).await?;
        Ok(Ok(self.count_additions(id, reader, messages).await?))
    }

    /// The thread of a message: its first message, and the replies after a sequence.
    pub async fn thread(
        &self,
        id: &ConversationId,
        viewer: Option<&UserId>,
        message: &str,
        after: u64,
        limit: u16,
    ) -> Answer<Thread> {
        let database = &self.inner.database;
        let reader = match self.reader(id, viewer).await? {
            Ok((reader, _)) => reader,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let found = messages::get(database, message).await?.filter(|found| found.conversation_id == *id);
        let Some(found) = found else { return Ok(Err(Refusal::MessageNotFound)) };
        let thread = found.thread_id.unwrap_or(found.id);
        let root = messages::readable(database, id, &thread, reader.user, reader.absent).await?;
        let limit = limit.clamp(1, MAX_PAGE);
        let replies =
            messages::replies(database, (id, &thread), after, limit, reader.user, reader.absent).await?;
        if root.is_none() && replies.is_empty() && after == 0 {
            return Ok(Err(Refusal::MessageNotFound));
        }
        let has_root = root.is_some();
        let all = root.into_iter().chain(replies).collect();
        let mut replies = self.count_additions(id, reader, all).await?;
        let root = has_root.then(|| replies.messages.remove(0));
        Ok(Ok(Thread { root, replies }))
    }

    /// A page of the reactions to a message, by emoji and user.
    pub async fn reactions(
        &self,
        id: &ConversationId,
        viewer: Option<&UserId>,
        message: &str,
        emoji: Option<&str>,
        page: &PageRequest,
    ) -> Answer<Page<Reaction>> {
        let reader = match self.reader(id, viewer).await? {
            Ok((reader, _)) => reader,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let database = &self.inner.database;
        match messages::readable(database, id, message, reader.user, reader.absent).await? {
            Some(message) => Ok(Ok(reactions::list(database, &message, reader.user, emoji, page).await?)),
            None => Ok(Err(Refusal::MessageNotFound)),
        }
    }

    /// The messages that mention a user in their conversations, newest first; all, or the unread ones.
    pub async fn mentions(
        &self,
        user: &UserId,
        which: Mentions,
        page: &PageRequest,
    ) -> Result<Page<ListedMessage>, Error> {
        let reader = self.reader_everywhere(user);
        let unread_only = which == Mentions::Unread;
        let found =
            messages::mentioning(&self.inner.database, user, reader.absent, unread_only, page).await?;
        self.listed_page(reader, found).await
    }

    /// The messages that a user can read and that have these words, newest first; in all conversations of the user, or in one.
    pub async fn search(
        &self,
        user: &UserId,
        conversation: Option<&ConversationId>,
        query: &SearchQuery,
        page: &PageRequest,
    ) -> Result<Page<ListedMessage>, Error> {
        let reader = self.reader_everywhere(user);
        let database = &self.inner.database;
        let found = messages::search(database, user, reader.absent, conversation, query, page).await?;
        self.listed_page(reader, found).await
    }

    async fn listed_page(
        &self,
        reader: Reader<'_>,
        page: Page<Message>,
    ) -> Result<Page<ListedMessage>, Error> {
        let rows = listed::list(&self.inner.database, reader, page.rows).await?;
        Ok(Page { rows, next: page.next })
    }

    /// The reader of one conversation, who must be a member, and the last event of the conversation.
    pub(super) async fn reader<'a>(
        &self,
        id: &ConversationId,
        user: Option<&'a UserId>,
    ) -> Answer<(Reader<'a>, u64)> {
        let Some(user) = user else {
            let server = Reader { user: None, absent: None };
            let conversation = self.conversation(id).await?.ok_or(Refusal::ConversationNotFound);
            return Ok(conversation.map(|conversation| (server, conversation.sequence)));
        };
        let membership = member::check_member(&self.inner.database, id, user).await?;
        Ok(membership.map(|membership| {
            let absent = self.hides_absence(&membership).then_some(user);
            (Reader { user: Some(user), absent }, membership.sequence)
        }))
    }

    /// The reader of all conversations of a user.
    fn reader_everywhere<'a>(&self, user: &'a UserId) -> Reader<'a> {
        let hides = self.config().messages_during_absence == AbsenceMessages::Hidden;
        Reader { user: Some(user), absent: hides.then_some(user) }
    }

    /// Counts reactions and replies as of one event.
    async fn count_additions(
        &self,
        id: &ConversationId,
        reader: Reader<'_>,
        messages: Vec<Message>,
    ) -> Result<MessagePage, Error> {
        let Inner { database, .. } = &*self.inner;
        let read = database.read(|snapshot| {
            let messages = messages.clone();
            async move {
                let conversation = conversations::get(&snapshot, id).await?;
                let offset = conversation.map_or(0, |conversation| conversation.sequence);
                let messages = listed::list(&snapshot, reader, messages).await?;
                Ok::<_, Error>(MessagePage { messages, offset })
            }
        });
        read.await
    }
}

/// Which mentions to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mentions {
    All,
    Unread,
}
