//! `chat_token_revocation`: until when the tokens of a user are revoked.

use hob_database::{Query, Read, Transaction, UnixMs, sql};

use crate::Error;
use crate::keys::UserId;

/// Revokes the tokens that were issued up to now, and returns that time.
pub(crate) async fn revoke(tx: &Transaction, user: &UserId) -> Result<UnixMs, Error> {
    let revoke = sql("INSERT INTO chat_token_revocation (user_id, revoked_at, number)
         VALUES ($1, $2, (SELECT COALESCE(MAX(number), 0) + 1 FROM chat_token_revocation))
         ON CONFLICT (user_id) DO UPDATE SET revoked_at = $2, number = excluded.number");
    tx.execute(revoke.bind(user).bind(tx.now())).await?;
    Ok(tx.now())
}

/// Until when the tokens of a user are revoked.
pub(crate) async fn revoked_until(database: &impl Read, user: &UserId) -> Result<Option<UnixMs>, Error> {
    let until: Query<(UnixMs,)> = sql("SELECT revoked_at FROM chat_token_revocation WHERE user_id = $1");
    Ok(database.optional(until.bind(user)).await?.map(|(until,)| until))
}

/// The revocations after a number, in order: the number, the user, and until when the tokens are revoked.
pub(crate) async fn after(
    database: &impl Read,
    number: u64,
    limit: u16,
) -> Result<Vec<(u64, UserId, UnixMs)>, Error> {
    let list = sql("SELECT number, user_id, revoked_at FROM chat_token_revocation WHERE number > $1
                    ORDER BY number LIMIT $2");
    Ok(database.all(list.bind(number).bind(i64::from(limit))).await?)
}
