//! Export and deletion of the data of a user.

use hob_store::{Call, cmd};

use super::{Chat, Inner};
use crate::Error;
use crate::conversation::erasure::{self, Change, ErasedMessages, Erasure};
use crate::database::erasures;
use crate::error::Refusal;
use crate::keys::{ConversationId, UserId};
use crate::store::recent::CacheUpdate;

/// Conversations that are read at a time.
pub(super) const PAGE: u16 = 100;

impl Chat {
    /// Starts the deletion of the data of a user: disconnects the user, revokes the tokens, and deletes the rest in the background.
    pub async fn erase_user(&self, user: &UserId, messages: ErasedMessages) -> Result<Erasure, Error> {
        let erasure = erasure::request(&self.inner.database, user, messages).await?;
        self.revoke_tokens(user).await?;
        Ok(erasure)
    }

    /// The deletion of the data of a user, if it is not complete.
    pub async fn erasure(&self, user: &UserId) -> Result<Option<Erasure>, Error> {
        erasures::get(&self.inner.database, user).await
    }

    /// Completes the oldest deletion. `false` if there is none.
    pub(super) async fn erase_next(&self) -> Result<bool, Error> {
        let Some(erasure) = erasures::first(&self.inner.database).await? else { return Ok(false) };
        self.disconnect_user(&erasure.user_id).await?;
        while let Some((id, change)) = erasure::erase_reaction(&self.inner.database, &erasure).await? {
            self.publish_erasure(&id, vec![change]).await;
        }
        let mut conversations = Vec::new();
        loop {
            let after = conversations.last().map(ConversationId::to_string).unwrap_or_default();
            let page =
                erasures::conversations_after(&self.inner.database, &erasure.user_id, &after, PAGE).await?;
            let is_last = page.len() < usize::from(PAGE);
            for id in &page {
                self.erase_in(id, &erasure).await?;
            }
            conversations.extend(page);
            if is_last {
                break;
            }
        }
        erasure::finish(&self.inner.database, &erasure).await?;
        self.delete_keys(&erasure.user_id, &conversations).await?;
        Ok(true)
    }

    /// Removes a user from a conversation.
    async fn erase_in(&self, id: &ConversationId, erasure: &Erasure) -> Result<(), Error> {
        let database = &self.inner.database;
        match self.remove_member(id, &erasure.user_id, None).await? {
            Ok(()) | Err(Refusal::NotMember | Refusal::ConversationNotFound) => {}
            Err(refusal) => {
                tracing::error!(%refusal, "failed to remove a user who is deleted from a conversation");
            }
        }
        loop {
            let _lock = self.lock_conversation(id).await;
            let Some(changes) = erasure::erase_messages(database, id, erasure).await? else { break };
            self.publish_erasure(id, changes).await;
        }
        let mut after = 0;
        while let Some(last) = erasure::erase_events(database, id, erasure, after).await? {
            after = last;
        }
        Ok(())
    }

    async fn publish_erasure(&self, id: &ConversationId, changes: Vec<Change>) {
        for change in &changes {
            match change {
                Change::Deleted(message, event) => {
                    self.publish(id, event, CacheUpdate::Remove(message)).await;
                }
                Change::Renamed(message, event) => {
                    self.publish(id, event, CacheUpdate::Replace(message)).await;
                }
                Change::Other(event) => self.publish(id, event, CacheUpdate::Advance).await,
            }
        }
    }

    /// Deletes the keys of a user in Redis, who is offline and a member of no conversation.
    async fn delete_keys(&self, user: &UserId, conversations: &[ConversationId]) -> Result<(), Error> {
        let Inner { store, keys, .. } = &*self.inner;
        let mut all = vec![
            keys.unread_held(user),
            keys.unread_total(user),
            keys.online(user),
            keys.last_seen(user),
            keys.presence(user),
            keys.message_rate(user),
            keys.message_window(user),
            keys.message_pace(user),
            keys.connect_rate(user),
        ];
        all.extend(conversations.iter().map(|id| keys.unread(user, id)));
        let calls: Vec<Call> = all.into_iter().map(|key| cmd("DEL").arg(key).take().into()).collect();
        for answer in store.batch(&calls).await {
            answer?;
        }
        Ok(())
    }
}
