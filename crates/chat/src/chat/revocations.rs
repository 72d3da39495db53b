//! Revoked tokens and banned users: their connections are closed on every node.

use std::time::Duration;

use hob_database::{Transaction, UnixMs};
use hob_service::Task;

use crate::chat::Chat;
use crate::database::revocations::{self, FOREVER};
use crate::hub::Client;
use crate::keys::UserId;
use crate::session::protocol::Disconnect;
use crate::{Answer, Error, Refusal};

/// How often a node reads new revocations. A message between the nodes would be faster, but could be lost.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
const PAGE: u16 = 500;

impl Chat {
    /// Revokes all tokens of a user that were issued up to now, and closes the connections that use them: on this node at
    /// once, on others within five seconds.
    pub async fn revoke_tokens(&self, user: &UserId) -> Result<(), Error> {
        let revoke = |tx: Transaction| async move { revocations::revoke(&tx, user, tx.now()).await };
        let until = self.inner.database.write(revoke).await?;
        self.close_revoked(user, until);
        Ok(())
    }

    /// Closes the connections of a user and refuses new ones, with any token, until [`unban`](Self::unban).
    pub async fn ban(&self, user: &UserId) -> Result<(), Error> {
        let ban = |tx: Transaction| async move { revocations::revoke(&tx, user, FOREVER).await };
        let until = self.inner.database.write(ban).await?;
        self.close_revoked(user, until);
        Ok(())
    }

    /// Lets a user connect again, with a new token. `false` if the user is not banned.
    pub async fn unban(&self, user: &UserId) -> Result<bool, Error> {
        let unban = |tx: Transaction| async move { revocations::unban(&tx, user).await };
        self.inner.database.write(unban).await
    }

    /// Whether a user is banned.
    pub async fn is_banned(&self, user: &UserId) -> Result<bool, Error> {
        Ok(revocations::revoked_until(&self.inner.database, user).await? == Some(FOREVER))
    }

    /// Refuses a client whose token is revoked. The client is already in the hub, so that a revocation at the same time
    /// also closes it.
    pub(crate) async fn check_revocation(&self, client: &Client) -> Answer<()> {
        let until = revocations::revoked_until(&self.inner.database, &client.user).await?;
        Ok(match until {
            Some(FOREVER) => Err(Refusal::Banned),
            Some(until) if client.token_issued_at() <= until => Err(Refusal::TokenRevoked),
            _ => Ok(()),
        })
    }

    fn close_revoked(&self, user: &UserId, until: UnixMs) {
        let reason = if until == FOREVER { Disconnect::PERMISSION_DENIED } else { Disconnect::EXPIRED };
        for client in self.inner.hub.clients_of(user) {
            if client.token_issued_at() <= until {
                client.queue.close(reason.clone());
            }
        }
    }

    /// Closes connections whose tokens were revoked on other nodes.
    pub(super) async fn watch_revocations(self, task: Task) {
        let mut last = 0;
        loop {
            // A client that connects later is checked when it connects.
            let applied = match self.inner.hub.load().connections {
                0 => Ok(()),
                _ => self.apply_revocations(&mut last).await,
            };
            match applied {
                Ok(()) => task.heartbeat(),
                Err(error) => tracing::warn!(%error, "failed to read token revocations, retrying"),
            }
            if !task.pause(CHECK_INTERVAL).await {
                return;
            }
        }
    }

    async fn apply_revocations(&self, last: &mut u64) -> Result<(), Error> {
        loop {
            let page = revocations::after(&self.inner.database, *last, PAGE).await?;
            let is_last = page.len() < usize::from(PAGE);
            for (number, user, until) in page {
                self.close_revoked(&user, until);
                *last = number;
            }
            if is_last {
                return Ok(());
            }
        }
    }
}
