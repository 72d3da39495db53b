//! Maintenance windows: times in which a failure is no news. Checks go on, and incidents are kept, but nobody is told,
//! and the time does not count as downtime.

use hob_database::{Database, Query, Read, UnixMs, from_row, sql};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::{Error, Result};
use crate::monitor::Monitor;
use crate::monitor::check::Invalid;

/// Longer ones are a monitor that should be paused.
const LONGEST_MS: i64 = 31 * 86_400_000;
const MAX_COVERS: usize = 64;
/// Windows that are over are shown for a while.
const KEPT_MS: i64 = 90 * 86_400_000;

/// A time in which a failure is no news.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Maintenance {
    pub id: String,
    #[serde(flatten)]
    pub spec: MaintenanceSpec,
}

/// What a maintenance window is asked to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MaintenanceSpec {
    #[schema(min_length = 1, max_length = 128)]
    pub title: String,
    /// Ids, tags and groups of the monitors that it is for; all monitors if there is none.
    #[serde(default)]
    #[schema(max_items = 64)]
    pub covers: Vec<String>,
    /// Unix milliseconds.
    pub starts_at_ms: i64,
    /// Unix milliseconds, at most 31 days later.
    pub ends_at_ms: i64,
}

struct Row {
    id: String,
    title: String,
    covers: String,
    starts_at: UnixMs,
    ends_at: UnixMs,
}

from_row!(Row { id, title, covers, starts_at, ends_at });

impl Maintenance {
    /// Whether a failure of the monitor at that time is no news.
    #[must_use]
    pub fn covers(&self, monitor: &Monitor, at: UnixMs) -> bool {
        let spec = &self.spec;
        let is_it = |name: &String| {
            name == monitor.id.as_str() || *name == monitor.spec.group || monitor.spec.tags.contains(name)
        };
        (spec.starts_at_ms..spec.ends_at_ms).contains(&at.0)
            && (spec.covers.is_empty() || spec.covers.iter().any(is_it))
    }
}

impl MaintenanceSpec {
    pub fn check(&self) -> Result<(), Vec<Invalid>> {
        let mut wrong = Vec::new();
        if self.title.trim().is_empty() || self.title.len() > 128 {
            wrong.push(Invalid::new("title", "has 1 to 128 bytes"));
        }
        if self.covers.len() > MAX_COVERS || self.covers.iter().any(|name| name.len() > 128) {
            wrong
                .push(Invalid::new("covers", format!("has at most {MAX_COVERS} names of at most 128 bytes")));
        }
        let length_ms = self.ends_at_ms.saturating_sub(self.starts_at_ms);
        if self.starts_at_ms < 0 || !(1..=LONGEST_MS).contains(&length_ms) {
            wrong.push(Invalid::new("ends_at_ms", "is not after the start, or more than 31 days later"));
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }
}

/// The windows that are not long over, the latest first.
pub async fn all(on: &impl Read) -> Result<Vec<Maintenance>> {
    let select: Query<Row> = sql(
        "SELECT id, title, covers, starts_at, ends_at FROM uptime_maintenance ORDER BY starts_at DESC LIMIT 1000",
    );
    on.all(select).await?.into_iter().map(Row::maintenance).collect()
}

pub async fn add(database: &Database, spec: &MaintenanceSpec) -> Result<Maintenance> {
    let id = &format!("w{:012x}", rand::random::<u64>() >> 16);
    let covers = &serde_json::to_string(&spec.covers).unwrap_or_default();
    let add = |tx: hob_database::Transaction| async move {
        let old = sql("DELETE FROM uptime_maintenance WHERE ends_at < $1").bind(UnixMs(tx.now().0 - KEPT_MS));
        tx.execute(old).await?;
        let insert = sql("INSERT INTO uptime_maintenance (id, title, covers, starts_at, ends_at)
                          VALUES ($1, $2, $3, $4, $5)");
        let insert = insert.bind(id.as_str()).bind(spec.title.as_str()).bind(covers.as_str());
        tx.execute(insert.bind(spec.starts_at_ms).bind(spec.ends_at_ms)).await?;
        Ok::<_, hob_database::Error>(())
    };
    database.write(add).await?;
    Ok(Maintenance { id: id.clone(), spec: spec.clone() })
}

/// Removes a window; whether there was one.
pub async fn remove(database: &Database, id: &str) -> Result<bool> {
    Ok(database.execute(sql("DELETE FROM uptime_maintenance WHERE id = $1").bind(id)).await? == 1)
}

impl Row {
    fn maintenance(self) -> Result<Maintenance> {
        let covers = serde_json::from_str(&self.covers);
        let covers =
            covers.map_err(|_| Error::Unreadable(format!("a maintenance window {} of what?", self.id)))?;
        let (starts_at_ms, ends_at_ms) = (self.starts_at.0, self.ends_at.0);
        let spec = MaintenanceSpec { title: self.title, covers, starts_at_ms, ends_at_ms };
        Ok(Maintenance { id: self.id, spec })
    }
}
