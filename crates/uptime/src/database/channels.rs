//! Channels.

use hob_database::{Database, Query, Read, Transaction, UnixMs, from_row, sql};

use crate::error::{Error, Result};
use crate::incident::alert::{Channel, ChannelId, ChannelSpec};

struct Row {
    id: ChannelId,
    spec: String,
    created_at: UnixMs,
    changed_at: UnixMs,
}

from_row!(Row { id, spec, created_at, changed_at });

impl Row {
    fn channel(self) -> Result<Channel> {
        // The reason is left out: it may repeat a secret that was entered in place of its name.
        let unreadable = || Error::Unreadable(format!("channel {}", self.id));
        let spec: ChannelSpec = serde_json::from_str(&self.spec).map_err(|_| unreadable())?;
        let target = spec.validate().map_err(|_| unreadable())?;
        Ok(Channel { id: self.id, spec, target, created_at: self.created_at, changed_at: self.changed_at })
    }
}

/// All channels, by name.
pub async fn all(on: &impl Read) -> Result<Vec<Channel>> {
    let rows: Query<Row> = sql("SELECT id, spec, created_at, changed_at FROM uptime_channel ORDER BY name");
    let mut channels = Vec::new();
    for row in on.all(rows).await? {
        // A channel that cannot be read, perhaps of a later version, must not hide the others.
        match row.channel() {
            Ok(channel) => channels.push(channel),
            Err(error) => tracing::error!(%error, "unreadable alert channel skipped"),
        }
    }
    Ok(channels)
}

pub async fn by_id(on: &impl Read, id: &ChannelId) -> Result<Option<Channel>> {
    let row: Query<Row> = sql("SELECT id, spec, created_at, changed_at FROM uptime_channel WHERE id = $1");
    on.optional(row.bind(id)).await?.map(Row::channel).transpose()
}

/// The channels that a monitor refers to.
#[derive(Debug)]
pub(crate) struct ResolvedChannels {
    /// Each once.
    pub(crate) found: Vec<ChannelId>,
    /// What is neither the id nor the name of a channel.
    pub(crate) missing: Vec<String>,
}

/// Finds the channels that have one of these ids or names.
pub(crate) async fn resolve(on: &impl Read, ids_or_names: &[String]) -> Result<ResolvedChannels> {
    let by_id: Query<(ChannelId, String)> = sql("SELECT id, name FROM uptime_channel WHERE id IN ($1...)");
    let by_name: Query<(ChannelId, String)> =
        sql("SELECT id, name FROM uptime_channel WHERE name IN ($1...)");
    let mut rows = on.all(by_id.bind_list(ids_or_names.iter().map(String::as_str))).await?;
    rows.extend(on.all(by_name.bind_list(ids_or_names.iter().map(String::as_str))).await?);
    let is_missing = |text: &&String| !rows.iter().any(|(id, name)| id.as_str() == *text || name == *text);
    let missing = ids_or_names.iter().filter(is_missing).cloned().collect();
    let mut found: Vec<ChannelId> = rows.into_iter().map(|(id, _)| id).collect();
    found.sort_unstable();
    found.dedup();
    Ok(ResolvedChannels { found, missing })
}

pub(crate) async fn count(on: &impl Read) -> Result<u64> {
    let (count,): (u64,) = on.one(sql("SELECT count(*) FROM uptime_channel")).await?;
    Ok(count)
}

pub(crate) async fn insert(tx: &Transaction, id: &ChannelId, spec: &ChannelSpec) -> Result<()> {
    let insert = sql("INSERT INTO uptime_channel (id, name, spec, created_at, changed_at)
                      VALUES ($1, $2, $3, $4, $4)");
    tx.execute(insert.bind(id).bind(spec.name.as_str()).bind(spec.to_json()).bind(tx.now())).await?;
    Ok(())
}

pub(crate) async fn update(tx: &Transaction, id: &ChannelId, spec: &ChannelSpec) -> Result<()> {
    let update = sql("UPDATE uptime_channel SET name = $2, spec = $3, changed_at = $4 WHERE id = $1");
    tx.execute(update.bind(id).bind(spec.name.as_str()).bind(spec.to_json()).bind(tx.now())).await?;
    Ok(())
}

/// Removes a channel; `false` if there is none with this id. Its pending deliveries fail with their next attempt.
pub async fn remove(database: &Database, id: &ChannelId) -> Result<bool> {
    let delete = sql("DELETE FROM uptime_channel WHERE id = $1").bind(id);
    Ok(database.execute(delete).await? == 1)
}
