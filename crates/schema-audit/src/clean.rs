//! Deletes the keys of a declared family, or adds missing TTLs. It is a dry run unless `apply` is set.

use std::time::Duration;

use futures_util::{TryStreamExt, pin_mut};
use hob_schema::{Catalog, FamilyId, format_count};
use hob_store::Store;
use serde::Serialize;

use crate::batch::{Batch, decode};
use crate::display::{display_key, family_name};
use crate::error::Error;
use crate::scan::{Pace, Progress, db_size, pages};

const MAX_EXAMPLES: usize = 10;

/// What to do with the keys of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanAction {
    /// Delete them.
    Delete,
    /// Delete keys that no client has read or written for this long.
    DeleteIdle(Duration),
    /// Set the longest TTL that the family allows on keys without a TTL.
    RepairTtl,
}

/// How to clean.
#[derive(Clone, Copy, Debug)]
pub struct CleanOptions {
    pub action: CleanAction,
    pub pace: Pace,
    /// Otherwise keys are only counted.
    pub apply: bool,
}

/// What was changed, or would be.
#[derive(Clone, Debug, Serialize)]
pub struct CleanReport {
    pub family: String,
    pub applied: bool,
    /// Keys of the family that were found.
    pub seen: u64,
    /// Keys that were changed, or that a run without dry run would change.
    pub changed: u64,
    pub examples: Vec<String>,
}

impl CleanReport {
    pub fn text(&self) -> String {
        let (seen, changed) = (format_count(self.seen), format_count(self.changed));
        let verb = if self.applied { "changed" } else { "would change" };
        let hint = if self.applied { "" } else { " (dry run; add --apply to change them)" };
        let examples: String = self.examples.iter().map(|key| format!("    {key}\n")).collect();
        format!("{}: {verb} {changed} of {seen} keys{hint}\n{examples}", self.family)
    }
}

/// Cleans a family of the catalog, named `schema.family`, on every master of the store.
pub async fn clean(
    store: &Store,
    catalog: &Catalog,
    family: &str,
    options: CleanOptions,
    progress: &mut (dyn FnMut(&Progress) + Send),
) -> Result<CleanReport, Error> {
    let id = find_family(catalog, family)?;
    if options.action == CleanAction::RepairTtl && !catalog.family(id).ttl.rule.required() {
        return Err(Error::TtlNotRequired(family.to_owned()));
    }
    let mut report = CleanReport {
        family: family_name(catalog, id),
        applied: options.apply,
        seen: 0,
        changed: 0,
        examples: Vec::new(),
    };
    let glob = catalog.spaces()[id.schema].glob(id.family);
    for master in store.masters().await.map_err(Error::Connect)? {
        let expected = db_size(&master).await?;
        let scanned = pages(&master, options.pace, Some(glob.clone())).await;
        pin_mut!(scanned);
        while let Some(page) = scanned.try_next().await? {
            // The glob can match other families too: `unread:*:*` also matches the totals.
            let keys: Vec<Vec<u8>> = page
                .into_iter()
                .filter(|key| catalog.find(key).is_some_and(|found| found.family == id))
                .collect();
            report.seen += keys.len() as u64;
            let affected = affected_keys(&master, keys, options.action).await?;
            if options.apply {
                change_keys(&master, catalog, id, &affected, options.action).await?;
            }
            report.changed += affected.len() as u64;
            let room = MAX_EXAMPLES - report.examples.len();
            report.examples.extend(affected.iter().take(room).map(|key| display_key(key)));
            progress(&Progress { node: master.name().to_owned(), keys: report.seen, expected });
        }
    }
    Ok(report)
}

/// `chat.typing`, or `typing` where only one schema has it.
fn find_family(catalog: &Catalog, name: &str) -> Result<FamilyId, Error> {
    let found: Vec<FamilyId> = catalog
        .families()
        .filter(|(id, family)| family.name == name || family_name(catalog, *id) == name)
        .map(|(id, _)| id)
        .collect();
    match found.as_slice() {
        [id] => Ok(*id),
        [] => Err(Error::UnknownFamily(name.to_owned())),
        _ => Err(Error::AmbiguousFamily(name.to_owned())),
    }
}

/// The keys that the action applies to.
async fn affected_keys(
    master: &Store,
    keys: Vec<Vec<u8>>,
    action: CleanAction,
) -> Result<Vec<Vec<u8>>, Error> {
    let mut batch = Batch::with_capacity(keys.len());
    for key in &keys {
        match action {
            CleanAction::Delete => return Ok(keys),
            CleanAction::RepairTtl => batch.cmd("PTTL").arg(key),
            CleanAction::DeleteIdle(_) => batch.cmd("OBJECT").arg("IDLETIME").arg(key),
        };
    }
    let replies = batch.execute(master).await.map_err(|error| match error {
        // The embedded engine has no idle times, and Redis has none under an LFU policy.
        Error::Command { command: "OBJECT", source: source @ hob_store::Error::Refused { .. } } => {
            Error::NoIdleTimes(source)
        }
        error => error,
    })?;
    let numbers = replies.into_iter().map(|reply| decode::<Option<i64>>(reply).flatten());
    let is_affected = |number: Option<i64>| match action {
        CleanAction::Delete => true,
        CleanAction::RepairTtl => number == Some(-1),
        CleanAction::DeleteIdle(idle) => number
            .and_then(|seconds| u64::try_from(seconds).ok())
            .is_some_and(|seconds| seconds >= idle.as_secs()),
    };
    Ok(keys.into_iter().zip(numbers).filter(|(_, number)| is_affected(*number)).map(|(key, _)| key).collect())
}

/// Sends one command per key, since the keys of a page lie in different slots.
async fn change_keys(
    master: &Store,
    catalog: &Catalog,
    id: FamilyId,
    keys: &[Vec<u8>],
    action: CleanAction,
) -> Result<(), Error> {
    let longest = catalog.family(id).ttl.rule.longest().unwrap_or_default();
    let longest_ms = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
    let mut batch = Batch::with_capacity(keys.len());
    for key in keys {
        match action {
            CleanAction::RepairTtl => batch.cmd("PEXPIRE").arg(key).arg(longest_ms),
            CleanAction::Delete | CleanAction::DeleteIdle(_) => batch.cmd("UNLINK").arg(key),
        };
    }
    batch.execute(master).await.map(drop)
}
