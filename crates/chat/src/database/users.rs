//! `chat_last_seen`: when a user was last online.

use hob_database::{Query, Read, Transaction, UnixMs, sql};

use crate::Error;
use crate::keys::UserId;

pub(crate) async fn last_seen(database: &impl Read, user: &UserId) -> Result<Option<UnixMs>, Error> {
    let seen: Query<(UnixMs,)> = sql("SELECT seen_at FROM chat_last_seen WHERE user_id = $1");
    Ok(database.optional(seen.bind(user)).await?.map(|(seen,)| seen))
}

/// Sets the time to now. It never moves backwards.
pub(crate) async fn set_last_seen(tx: &Transaction, user: &UserId) -> Result<(), Error> {
    let seen = sql("INSERT INTO chat_last_seen (user_id, seen_at) VALUES ($1, $2)
         ON CONFLICT (user_id) DO UPDATE SET seen_at = $2 WHERE chat_last_seen.seen_at < $2");
    Ok(tx.execute(seen.bind(user).bind(tx.now())).await.map(drop)?)
}
