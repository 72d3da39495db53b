//! `chat_reported_presence`: the presence of users as webhooks have it.

use hob_database::{Query, Read, Transaction, sql};

use crate::Error;
use crate::keys::UserId;

/// Writes the presence of a user; `false` if it is already known, or not newer.
pub(crate) async fn set(tx: &Transaction, user: &UserId, online: bool, version: u64) -> Result<bool, Error> {
    let set = sql("INSERT INTO chat_reported_presence (user_id, online, version) VALUES ($1, $2, $3)
         ON CONFLICT (user_id) DO UPDATE SET online = excluded.online, version = excluded.version
         WHERE chat_reported_presence.version < excluded.version
             AND chat_reported_presence.online <> excluded.online");
    Ok(tx.execute(set.bind(user).bind(online).bind(version)).await? == 1)
}

/// Which of these users are reported as online.
pub(crate) async fn online_among(on: &impl Read, users: &[UserId]) -> Result<Vec<UserId>, Error> {
    let list: Query<(UserId,)> =
        sql("SELECT user_id FROM chat_reported_presence WHERE online AND user_id IN ($1...)");
    Ok(on.all(list.bind_list(users.iter())).await?.into_iter().map(|(user,)| user).collect())
}

/// The users who are reported as online, after one of them, with the versions of the reports.
pub(crate) async fn online_after(
    on: &impl Read,
    after: &str,
    limit: u16,
) -> Result<Vec<(UserId, u64)>, Error> {
    let list = sql("SELECT user_id, version FROM chat_reported_presence
                    WHERE online AND user_id > $1 ORDER BY user_id LIMIT $2");
    Ok(on.all(list.bind(after).bind(limit)).await?)
}
