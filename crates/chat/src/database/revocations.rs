//! `chat_token_revocation`: until when the tokens of a user are revoked.

use hob_database::{Query, Read, Transaction, UnixMs, sql};

use crate::Error;
use crate::keys::UserId;

/// All tokens of a banned user are revoked, whenever they are issued.
pub(crate) const FOREVER: UnixMs = UnixMs(i64::MAX);

/// Revokes the tokens that were issued up to a time, and returns the time up to which they are revoked now.
pub(crate) async fn revoke(tx: &Transaction, user: &UserId, until: UnixMs) -> Result<UnixMs, Error> {
    let revoke: Query<(UnixMs,)> = sql("INSERT INTO chat_token_revocation (user_id, revoked_at, number)
         VALUES ($1, $2, (SELECT COALESCE(MAX(number), 0) + 1 FROM chat_token_revocation))
         ON CONFLICT (user_id) DO UPDATE SET number = excluded.number,
             revoked_at = CASE WHEN chat_token_revocation.revoked_at < $2 THEN $2
                               ELSE chat_token_revocation.revoked_at END
         RETURNING revoked_at");
    Ok(tx.one(revoke.bind(user).bind(until)).await?.0)
}

/// Ends a ban: only tokens that were issued up to now stay revoked. `false` if the user is not banned.
pub(crate) async fn unban(tx: &Transaction, user: &UserId) -> Result<bool, Error> {
    let unban =
        sql("UPDATE chat_token_revocation SET revoked_at = $2 WHERE user_id = $1 AND revoked_at = $3");
    Ok(tx.execute(unban.bind(user).bind(tx.now()).bind(FOREVER)).await? > 0)
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
