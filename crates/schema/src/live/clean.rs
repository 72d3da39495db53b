//! Removing the keys of a declared family, or giving them the TTL they lack: a dry run unless told to apply.

use std::time::Duration;

use futures_util::{TryStreamExt, pin_mut};
use redis::Pipeline;
use redis::aio::ConnectionLike;
use serde::Serialize;

use super::scan::{Pace, Progress, db_size, pages};
use super::tally::{family_name, shown};
use super::target::{Node, connect, failed};
use crate::catalog::{Catalog, FamilyId};
use crate::error::Error;
use crate::units::format_count;

const EXAMPLES: usize = 10;

/// What to do with the keys of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleaning {
    /// Delete them.
    Unlink,
    /// Delete those that nobody read or wrote for so long.
    UnlinkIdle(Duration),
    /// Give those without a TTL the longest that the family allows.
    RepairTtl,
}

/// How to clean.
#[derive(Clone, Copy, Debug)]
pub struct CleanOptions {
    pub cleaning: Cleaning,
    pub pace: Pace,
    /// Without it nothing is changed, only counted.
    pub apply: bool,
}

/// What was done, or would be.
#[derive(Clone, Debug, Serialize)]
pub struct CleanReport {
    pub family: String,
    pub applied: bool,
    /// Keys of the family that were looked at.
    pub seen: u64,
    /// Keys that were changed, or would be.
    pub changed: u64,
    pub examples: Vec<String>,
}

impl CleanReport {
    pub fn text(&self) -> String {
        let (seen, changed) = (format_count(self.seen), format_count(self.changed));
        let verb = if self.applied { "changed" } else { "would change" };
        let hint = if self.applied { "" } else { " (a dry run: nothing was changed)" };
        let examples: String = self.examples.iter().map(|key| format!("    {key}\n")).collect();
        format!("{}: {verb} {changed} of {seen} keys{hint}\n{examples}", self.family)
    }
}

/// Cleans a family of the catalog, named `schema.family`, on the server at `url` or its whole Cluster.
pub async fn clean(
    url: &str,
    catalog: &Catalog,
    family: &str,
    options: CleanOptions,
    progress: &mut (dyn FnMut(&Progress) + Send),
) -> Result<CleanReport, Error> {
    clean_nodes(connect(url).await?, catalog, family, options, progress).await
}

/// Cleans a family on servers that are already connected.
pub async fn clean_nodes<C: ConnectionLike + Clone + Send>(
    nodes: Vec<Node<C>>,
    catalog: &Catalog,
    family: &str,
    options: CleanOptions,
    progress: &mut (dyn FnMut(&Progress) + Send),
) -> Result<CleanReport, Error> {
    let id = find_family(catalog, family)?;
    if options.cleaning == Cleaning::RepairTtl && !catalog.family(id).ttl.rule.required() {
        return Err(Error::Refused(format!("{family} does not need a TTL, so there is none to repair")));
    }
    let mut report = CleanReport {
        family: family_name(catalog, id),
        applied: options.apply,
        seen: 0,
        changed: 0,
        examples: Vec::new(),
    };
    let glob = catalog.spaces()[id.schema].glob(id.family);
    for mut node in nodes {
        let expected = db_size(&mut node.connection).await?;
        let walk = pages(node.connection.clone(), options.pace, Some(glob.clone()));
        pin_mut!(walk);
        while let Some(page) = walk.try_next().await? {
            // The glob is wider than the family: `unread:*:*` also finds the totals.
            let keys: Vec<Vec<u8>> = page
                .into_iter()
                .filter(|key| catalog.find(key).is_some_and(|found| found.family == id))
                .collect();
            report.seen += keys.len() as u64;
            let due = due(&mut node.connection, keys, options.cleaning).await?;
            if options.apply {
                change(&mut node.connection, catalog, id, &due, options.cleaning).await?;
            }
            report.changed += due.len() as u64;
            let room = EXAMPLES - report.examples.len();
            report.examples.extend(due.iter().take(room).map(|key| shown(key)));
            progress(&Progress { node: node.name.clone(), keys: report.seen, expected });
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
        [] => Err(Error::Refused(format!("no family is called {name}"))),
        _ => Err(Error::Refused(format!("several schemas have a family {name}: say schema.{name}"))),
    }
}

/// The keys that the cleaning is about.
async fn due<C: ConnectionLike>(
    connection: &mut C,
    keys: Vec<Vec<u8>>,
    cleaning: Cleaning,
) -> Result<Vec<Vec<u8>>, Error> {
    if keys.is_empty() || cleaning == Cleaning::Unlink {
        return Ok(keys);
    }
    let mut pipe = Pipeline::with_capacity(keys.len());
    for key in &keys {
        match cleaning {
            Cleaning::RepairTtl => pipe.cmd("PTTL").arg(key),
            _ => pipe.cmd("OBJECT").arg("IDLETIME").arg(key),
        };
    }
    let answers: Vec<Option<i64>> =
        pipe.query_async(connection).await.map_err(failed("asking about keys"))?;
    let is_due = |answer: Option<i64>| match cleaning {
        Cleaning::Unlink => true,
        Cleaning::RepairTtl => answer == Some(-1),
        Cleaning::UnlinkIdle(idle) => answer
            .and_then(|seconds| u64::try_from(seconds).ok())
            .is_some_and(|seconds| seconds >= idle.as_secs()),
    };
    Ok(keys.into_iter().zip(answers).filter(|(_, answer)| is_due(*answer)).map(|(key, _)| key).collect())
}

/// One command per key, since the keys of a page lie in different slots.
async fn change<C: ConnectionLike>(
    connection: &mut C,
    catalog: &Catalog,
    id: FamilyId,
    keys: &[Vec<u8>],
    cleaning: Cleaning,
) -> Result<(), Error> {
    if keys.is_empty() {
        return Ok(());
    }
    let longest = catalog.family(id).ttl.rule.longest().unwrap_or_default();
    let longest_ms = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
    let mut pipe = Pipeline::with_capacity(keys.len());
    for key in keys {
        match cleaning {
            Cleaning::RepairTtl => pipe.cmd("PEXPIRE").arg(key).arg(longest_ms).ignore(),
            Cleaning::Unlink | Cleaning::UnlinkIdle(_) => pipe.cmd("UNLINK").arg(key).ignore(),
        };
    }
    pipe.query_async(connection).await.map_err(failed("changing keys"))
}
