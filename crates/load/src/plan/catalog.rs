//! The saved plans. A version never changes; an edit adds one.

use hob_database::{Database, UnixMs, column, from_row};

use super::PlanSource;
use crate::Error;
use crate::database::plans;

/// Identifies a plan in all its versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlanId(pub i64);

column!(PlanId(i64));

impl std::fmt::Display for PlanId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A plan in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanEntry {
    pub id: PlanId,
    pub name: String,
    /// The newest version.
    pub version: u32,
    pub created_at: UnixMs,
    pub updated_at: UnixMs,
}

from_row!(PlanEntry { id, name, version, created_at, updated_at });

/// The result of an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditOutcome {
    /// Saved as this version.
    Saved(u32),
    /// The plan was edited in the meantime; this is its newest version.
    Conflict(u32),
    NotFound,
}

pub(crate) async fn add(database: &Database, plan: &PlanSource) -> Result<PlanId, Error> {
    let name = &plan.read()?.name;
    let id = database
        .write(|tx| async move {
            let id = plans::next_id(&tx).await?;
            plans::insert(&tx, id, name).await?;
            plans::insert_version(&tx, id, 1, plan).await?;
            Ok::<_, hob_database::Error>(id)
        })
        .await?;
    Ok(id)
}

/// Adds a version. If `expected` is given, the version is added only if `expected` is the newest version.
pub(crate) async fn edit(
    database: &Database,
    id: PlanId,
    expected: Option<u32>,
    plan: &PlanSource,
) -> Result<EditOutcome, Error> {
    let name = &plan.read()?.name;
    let outcome = database
        .write(|tx| async move {
            let Some(entry) = plans::find(&tx, id).await? else { return Ok(EditOutcome::NotFound) };
            if expected.is_some_and(|expected| expected != entry.version) {
                return Ok(EditOutcome::Conflict(entry.version));
            }
            let version = entry.version + 1;
            plans::set_version(&tx, id, name, version).await?;
            plans::insert_version(&tx, id, version, plan).await?;
            Ok::<_, hob_database::Error>(EditOutcome::Saved(version))
        })
        .await?;
    Ok(outcome)
}
