//! What is deleted in the background: messages that have expired, and the data of users who are deleted.

use hob_database::UnixMs;
use hob_service::Task;

use super::Chat;
use crate::Error;
use crate::conversation::expiry;
use crate::database::conversations;
use crate::error::Answer;
use crate::keys::{ConversationId, UserId};
use crate::store::recent::CacheUpdate;

/// Conversations that are handled in one turn.
const MAX_CONVERSATIONS: u16 = 100;

impl Chat {
    /// Sets after how many seconds the messages of a conversation are deleted. `None`: never.
    pub async fn set_message_ttl(&self, id: &ConversationId, by: &UserId, ttl_s: Option<u64>) -> Answer<()> {
        let _lock = self.lock_conversation(id).await;
        let set = expiry::set(&self.inner.database, id, by, ttl_s).await?;
        self.publish_change(id, set, CacheUpdate::Advance).await
    }

    /// Deletes expired messages and the data of users who are deleted.
    pub(super) async fn clean_up(self, task: Task) {
        let every = self.config().expiry_interval.get();
        loop {
            let go_on = match self.clean_up_once().await {
                // There may be more.
                Ok(true) => !task.is_stopping(),
                Ok(false) => task.pause(every).await,
                Err(error) => {
                    if !error.is_reported() {
                        tracing::warn!(%error, "failed to delete expired messages or users, retrying");
                    }
                    task.pause(every).await
                }
            };
            task.heartbeat();
            if !go_on {
                return;
            }
        }
    }

    /// Whether anything was deleted.
    async fn clean_up_once(&self) -> Result<bool, Error> {
        let expired = self.expire_due().await?;
        Ok(self.erase_next().await? || expired > 0)
    }

    /// Deletes some of the expired messages; returns their number.
    async fn expire_due(&self) -> Result<usize, Error> {
        let mut count = 0;
        let due = conversations::with_expired(&self.inner.database, UnixMs::now(), MAX_CONVERSATIONS).await?;
        for id in due {
            let _lock = self.lock_conversation(&id).await;
            let deleted = expiry::expire(&self.inner.database, &id).await?;
            count += deleted.len();
            for (message, event) in &deleted {
                self.publish(&id, event, CacheUpdate::Remove(message)).await;
            }
        }
        Ok(count)
    }
}
