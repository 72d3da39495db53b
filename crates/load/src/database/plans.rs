//! Plans in the database. A version never changes; an edit makes a new one.

use hob_database::{
    Database, Keyset, Kind, Page, PageRequest, Query, Read, Transaction, UnixMs, column, from_row, sql,
};

use crate::Error;
use crate::plan::{Files, Format, Written};

/// A plan, whatever its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlanId(pub i64);

column!(PlanId(i64));
column!(Format as text);

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
    /// The newest.
    pub version: u32,
    pub created_at: UnixMs,
    pub updated_at: UnixMs,
}

from_row!(PlanEntry { id, name, version, created_at, updated_at });

struct VersionRow {
    format: Format,
    source: String,
    created_at: UnixMs,
}

from_row!(VersionRow { format, source, created_at });

/// What became of an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edited {
    /// It is this version now.
    Version(u32),
    /// Somebody else has edited it since; this is the version now.
    Outdated(u32),
    /// There is no such plan.
    Gone,
}

const BY_ID: Keyset = Keyset::descending(&[("id", Kind::Int)]);

pub(crate) async fn add(database: &Database, plan: &Written) -> Result<PlanId, Error> {
    let name = &plan.read()?.name;
    let id = database
        .write(|tx| async move {
            let (id,): (i64,) = tx.one(sql("SELECT COALESCE(MAX(id), 0) + 1 FROM load_plan")).await?;
            let entry = sql("INSERT INTO load_plan (id, name, version, created_at, updated_at, deleted)
                             VALUES ($1, $2, 1, $3, $3, $4)");
            tx.execute(entry.bind(id).bind(name).bind(tx.now()).bind(false)).await?;
            insert_version(&tx, PlanId(id), 1, plan).await?;
            Ok::<_, hob_database::Error>(PlanId(id))
        })
        .await?;
    Ok(id)
}

/// Makes a new version of the one that the caller has seen, if it says which.
pub(crate) async fn edit(
    database: &Database,
    id: PlanId,
    seen: Option<u32>,
    plan: &Written,
) -> Result<Edited, Error> {
    let name = &plan.read()?.name;
    let edited = database
        .write(|tx| async move {
            let Some(entry) = tx.optional(by_id(id)).await? else { return Ok(Edited::Gone) };
            if seen.is_some_and(|seen| seen != entry.version) {
                return Ok(Edited::Outdated(entry.version));
            }
            let version = entry.version + 1;
            let change = sql("UPDATE load_plan SET name = $2, version = $3, updated_at = $4 WHERE id = $1");
            tx.execute(change.bind(id).bind(name).bind(version).bind(tx.now())).await?;
            insert_version(&tx, id, version, plan).await?;
            Ok::<_, hob_database::Error>(Edited::Version(version))
        })
        .await?;
    Ok(edited)
}

/// Takes a plan out of the lists. Its versions stay, for the runs that were made with them.
pub(crate) async fn delete(database: &Database, id: PlanId) -> Result<bool, Error> {
    let change = sql("UPDATE load_plan SET deleted = $2 WHERE id = $1 AND deleted = $3");
    Ok(database.execute(change.bind(id).bind(true).bind(false)).await? == 1)
}

pub(crate) fn by_id(id: PlanId) -> Query<PlanEntry> {
    sql("SELECT id, name, version, created_at, updated_at FROM load_plan WHERE id = $1 AND deleted = $2")
        .bind(id)
        .bind(false)
}

pub(crate) async fn page(database: &Database, request: &PageRequest) -> Result<Page<PlanEntry>, Error> {
    let list = sql("SELECT id, name, version, created_at, updated_at FROM load_plan WHERE deleted = $1");
    Ok(database.page(list.bind(false), &BY_ID, request).await?)
}

/// One version of a plan as it was written, and when.
pub(crate) async fn version(
    database: &Database,
    id: PlanId,
    version: u32,
) -> Result<Option<(Written, UnixMs)>, Error> {
    let text =
        sql("SELECT format, source, created_at FROM load_plan_version WHERE plan_id = $1 AND version = $2");
    let files = sql("SELECT name, content FROM load_plan_file WHERE plan_id = $1 AND version = $2");
    let Some(row): Option<VersionRow> = database.optional(text.bind(id).bind(version)).await? else {
        return Ok(None);
    };
    let files: Vec<(String, String)> = database.all(files.bind(id).bind(version)).await?;
    let files = Files::new(files.into_iter().collect());
    Ok(Some((Written { source: row.source, format: row.format, files }, row.created_at)))
}

/// The versions of a plan, newest first.
pub(crate) fn versions(id: PlanId) -> Query<(u32, UnixMs)> {
    sql("SELECT version, created_at FROM load_plan_version WHERE plan_id = $1 ORDER BY version DESC LIMIT 100")
        .bind(id)
}

async fn insert_version(
    tx: &Transaction,
    id: PlanId,
    version: u32,
    plan: &Written,
) -> Result<(), hob_database::Error> {
    let text = sql(
        "INSERT INTO load_plan_version (plan_id, version, format, source, created_at) VALUES ($1, $2, $3, $4, $5)",
    );
    let text = text.bind(id).bind(version).bind(plan.format).bind(plan.source.as_str());
    tx.execute(text.bind(tx.now())).await?;
    let file = |(name, content): (&str, &str)| (id, version, name.to_owned(), content.to_owned());
    let files: Vec<_> = plan.files.iter().map(file).collect();
    tx.insert_all("INSERT INTO load_plan_file (plan_id, version, name, content)", files, "").await?;
    Ok(())
}
