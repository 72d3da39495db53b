//! Channels in the database.

use hob_database::{Constraint, Database, Error as DatabaseError, Query, Read, UnixMs, from_row, sql};
use hob_service::ServiceContext;

use super::{Channel, ChannelId, ChannelPatch, ChannelSpec, Means};
use crate::error::{Error, Result};
use crate::monitor::check::Invalid;
use crate::monitor::secrets;

/// How many channels there may be: what is told to all of them is bounded by it.
const MOST: usize = 200;

struct Row {
    id: ChannelId,
    spec: String,
    created_at: UnixMs,
    changed_at: UnixMs,
}

from_row!(Row { id, spec, created_at, changed_at });

/// What became of a wish to add or change a channel.
#[derive(Debug)]
pub enum Written {
    Written(Box<Channel>),
    Invalid(Vec<Invalid>),
    NameTaken,
    TooMany,
    Unknown,
}

impl Row {
    fn channel(self) -> Result<Channel> {
        let unreadable = || Error::Unreadable(format!("a channel {} that cannot be read", self.id));
        let spec: ChannelSpec = serde_json::from_str(&self.spec).map_err(|_| unreadable())?;
        let means = spec.read().map_err(|_| unreadable())?;
        Ok(Channel { id: self.id, spec, means, created_at: self.created_at, changed_at: self.changed_at })
    }
}

/// All channels, by name.
pub async fn all(on: &impl Read) -> Result<Vec<Channel>> {
    let rows: Query<Row> = sql("SELECT id, spec, created_at, changed_at FROM uptime_channel ORDER BY name");
    let mut channels = Vec::new();
    for row in on.all(rows).await? {
        // One that cannot be read, perhaps of a later version, must not hide the others.
        match row.channel() {
            Ok(channel) => channels.push(channel),
            Err(error) => tracing::error!(%error, "a channel is left out"),
        }
    }
    Ok(channels)
}

pub async fn by_id(on: &impl Read, id: &ChannelId) -> Result<Option<Channel>> {
    let row: Query<Row> = sql("SELECT id, spec, created_at, changed_at FROM uptime_channel WHERE id = $1");
    on.optional(row.bind(id)).await?.map(Row::channel).transpose()
}

/// The ids of channels that are called so by id or by name.
pub(crate) async fn named(on: &impl Read, names: &[String]) -> Result<Vec<ChannelId>> {
    let by_id: Query<(ChannelId,)> = sql("SELECT id FROM uptime_channel WHERE id IN ($1...)");
    let by_name: Query<(ChannelId,)> = sql("SELECT id FROM uptime_channel WHERE name IN ($1...)");
    let mut found = on.all(by_id.bind_list(names.iter().map(String::as_str))).await?;
    found.extend(on.all(by_name.bind_list(names.iter().map(String::as_str))).await?);
    let mut ids: Vec<ChannelId> = found.into_iter().map(|(id,)| id).collect();
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

pub async fn add(context: &ServiceContext, spec: &ChannelSpec) -> Result<Written> {
    if let Err(wrong) = spec.read().and_then(|means| secrets::channel(&context.secrets, &means)) {
        return Ok(Written::Invalid(wrong));
    }
    let id = &ChannelId::random();
    let added = context.database.write(|tx| async move {
        let (count,): (u64,) = tx.one(sql("SELECT count(*) FROM uptime_channel")).await?;
        if count >= MOST as u64 {
            return Ok(Written::TooMany);
        }
        let insert = sql("INSERT INTO uptime_channel (id, name, spec, created_at, changed_at)
                          VALUES ($1, $2, $3, $4, $4)");
        let insert = insert.bind(id).bind(spec.name.as_str()).bind(spec.to_json()).bind(tx.now());
        tx.execute(insert).await?;
        written(&tx, id).await
    });
    refuse_taken(added.await)
}

pub async fn edit(context: &ServiceContext, id: &ChannelId, patch: &ChannelPatch) -> Result<Written> {
    let edited = context.database.write(|tx| async move {
        let Some(channel) = by_id(&tx, id).await? else { return Ok(Written::Unknown) };
        let spec = channel.spec.patched(patch.clone());
        // What stays as it is may be saved again, even if its secret has been withdrawn: it is refused when it is used.
        let permit = |means: Means| match means == channel.means {
            true => Ok(()),
            false => secrets::channel(&context.secrets, &means),
        };
        if let Err(wrong) = spec.read().and_then(permit) {
            return Ok(Written::Invalid(wrong));
        }
        let update = sql("UPDATE uptime_channel SET name = $2, spec = $3, changed_at = $4 WHERE id = $1");
        let update = update.bind(id).bind(spec.name.as_str()).bind(spec.to_json()).bind(tx.now());
        tx.execute(update).await?;
        written(&tx, id).await
    });
    refuse_taken(edited.await)
}

/// Says whether it was there. What was still to be told through it is given up with the next attempt.
pub async fn remove(database: &Database, id: &ChannelId) -> Result<bool> {
    let delete = sql("DELETE FROM uptime_channel WHERE id = $1").bind(id);
    Ok(database.execute(delete).await? == 1)
}

async fn written(on: &impl Read, id: &ChannelId) -> Result<Written> {
    Ok(by_id(on, id).await?.map_or(Written::Unknown, |channel| Written::Written(Box::new(channel))))
}

fn refuse_taken(written: Result<Written>) -> Result<Written> {
    match written {
        Err(Error::Database(DatabaseError::Violation { constraint: Constraint::Unique, .. })) => {
            Ok(Written::NameTaken)
        }
        written => written,
    }
}
