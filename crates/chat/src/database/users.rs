//! `chat_last_seen`: when a user was last online.

use hob_database::{Query, Read, Transaction, UnixMs, sql};

use crate::Error;
use crate::keys::UserId;

pub(crate) async fn last_seen(database: &impl Read, user: &UserId) -> Result<Option<UnixMs>, Error> {
    let seen: Query<(UnixMs,)> = sql("SELECT seen_at FROM chat_last_seen WHERE user_id = $1");
    Ok(database.optional(seen.bind(user)).await?.map(|(seen,)| seen))
}

/// Sets the time of these users to now. It never moves backwards.
pub(crate) async fn set_last_seen(tx: &Transaction, users: &[UserId]) -> Result<(), Error> {
    let now = tx.now();
    let tail = "ON CONFLICT (user_id) DO UPDATE SET seen_at = excluded.seen_at
                WHERE chat_last_seen.seen_at < excluded.seen_at";
    let mut rows = Vec::with_capacity(users.len());
    for user in users {
        rows.push((user, now));
    }
    tx.insert_all("INSERT INTO chat_last_seen (user_id, seen_at)", rows, tail).await?;
    Ok(())
}
