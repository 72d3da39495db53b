//! Subscribers of status pages.

use hob_database::{Database, Read, Transaction, UnixMs, column, from_row, sql};

use super::deliveries;
use crate::error::Result;
use crate::incident::alert::{ChannelId, Notice};
use crate::status::subscriber::Subscriber;
use crate::status::{Language, Slug};

column!(Language as text);
from_row!(Subscriber { id, page, email, token, language, base_url, asked_at, confirmed_at });

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, page, email, token, language, base_url, asked_at, confirmed_at FROM uptime_subscriber ",
            $rest
        )
    };
}

pub(crate) async fn by_id(on: &impl Read, id: &str) -> Result<Option<Subscriber>> {
    Ok(on.optional(sql(select!("WHERE id = $1")).bind(id)).await?)
}

pub(crate) async fn by_email(on: &impl Read, page: &Slug, email: &str) -> Result<Option<Subscriber>> {
    Ok(on.optional(sql(select!("WHERE page = $1 AND email = $2")).bind(page).bind(email)).await?)
}

/// How many there are, confirmed or not.
pub(crate) async fn count(on: &impl Read, page: &Slug) -> Result<u64> {
    let (count,): (u64,) =
        on.one(sql("SELECT count(*) FROM uptime_subscriber WHERE page = $1").bind(page)).await?;
    Ok(count)
}

/// How many have confirmed.
pub(crate) async fn count_confirmed(on: &impl Read, page: &Slug) -> Result<u64> {
    let count = sql("SELECT count(*) FROM uptime_subscriber WHERE page = $1 AND confirmed_at IS NOT NULL");
    let (count,): (u64,) = on.one(count.bind(page)).await?;
    Ok(count)
}

pub(crate) async fn insert(tx: &Transaction, new: &Subscriber) -> Result<()> {
    let insert = sql("INSERT INTO uptime_subscriber (id, page, email, token, language, base_url, asked_at)
                      VALUES ($1, $2, $3, $4, $5, $6, $7)");
    let insert = insert.bind(new.id.as_str()).bind(&new.page).bind(new.email.as_str());
    let insert = insert.bind(new.token.as_str()).bind(new.language).bind(new.base_url.as_str());
    tx.execute(insert.bind(new.asked_at)).await?;
    Ok(())
}

/// Records that another confirmation was sent.
pub(crate) async fn set_asked(tx: &Transaction, id: &str, at: UnixMs) -> Result<()> {
    tx.execute(sql("UPDATE uptime_subscriber SET asked_at = $2 WHERE id = $1").bind(id).bind(at)).await?;
    Ok(())
}

/// Confirms a subscription that was asked for after `since`, or is confirmed already; `false` if there is none.
pub(crate) async fn confirm(
    database: &Database,
    page: &Slug,
    token: &str,
    (since, now): (UnixMs, UnixMs),
) -> Result<bool> {
    let update = sql("UPDATE uptime_subscriber SET confirmed_at = COALESCE(confirmed_at, $4)
                      WHERE page = $1 AND token = $2 AND (confirmed_at IS NOT NULL OR asked_at > $3)");
    Ok(database.execute(update.bind(page).bind(token).bind(since).bind(now)).await? == 1)
}

/// Ends a subscription; `false` if there is none.
pub(crate) async fn delete(database: &Database, page: &Slug, token: &str) -> Result<bool> {
    let delete = sql("DELETE FROM uptime_subscriber WHERE page = $1 AND token = $2");
    Ok(database.execute(delete.bind(page).bind(token)).await? == 1)
}

pub(crate) async fn delete_all_of(tx: &Transaction, page: &Slug) -> Result<()> {
    tx.execute(sql("DELETE FROM uptime_subscriber WHERE page = $1").bind(page)).await?;
    Ok(())
}

/// Deletes subscriptions that were not confirmed in time.
pub(crate) async fn delete_unconfirmed(tx: &Transaction, asked_before: UnixMs) -> Result<()> {
    let delete = sql("DELETE FROM uptime_subscriber WHERE confirmed_at IS NULL AND asked_at < $1");
    tx.execute(delete.bind(asked_before)).await?;
    Ok(())
}

/// Adds a delivery for every confirmed subscriber of a page. Those that are already there stay as they are.
pub(crate) async fn add_deliveries(
    tx: &Transaction,
    page: &Slug,
    about: &str,
    number: u64,
    notice: &Notice,
) -> Result<()> {
    let insert = sql(
        "INSERT INTO uptime_delivery (id, incident_id, channel_id, recipient, kind, number, notice, state, attempts,
                          due_at, held_until, fence, created_at)
         SELECT CAST($1 AS TEXT) || '.' || s.id, $2, $3, s.id, $4, $5, $6, 'waiting', 0, $7, 0, 0, $7
         FROM uptime_subscriber s WHERE s.page = $8 AND s.confirmed_at IS NOT NULL ON CONFLICT DO NOTHING",
    );
    let prefix = format!("{about}.{page}.{number}");
    let insert = insert.bind(prefix).bind(about).bind(ChannelId::of_page(page)).bind(notice.kind());
    let insert = insert.bind(number).bind(notice.to_json()).bind(tx.now()).bind(page);
    if tx.execute(insert).await? > 0 {
        tx.signal(deliveries::ADDED);
    }
    Ok(())
}
