//! The tables `load_plan`, `load_plan_version` and `load_plan_file`.

use hob_database::{
    Database, Error, Keyset, Page, PageRequest, Read, Transaction, UnixMs, ValueKind, from_row, sql,
};

use super::Result;
use crate::plan::catalog::{PlanEntry, PlanId};
use crate::plan::{PlanFiles, PlanSource};

const NEWEST_FIRST: Keyset = Keyset::descending(&[("id", ValueKind::Int)]);

struct VersionRow {
    format: String,
    source: String,
    created_at: UnixMs,
}

from_row!(VersionRow { format, source, created_at });

pub(crate) async fn next_id(tx: &Transaction) -> Result<PlanId> {
    let (id,): (PlanId,) = tx.one(sql("SELECT COALESCE(MAX(id), 0) + 1 FROM load_plan")).await?;
    Ok(id)
}

pub(crate) async fn insert(tx: &Transaction, id: PlanId, name: &str) -> Result<()> {
    let insert = sql("INSERT INTO load_plan (id, name, version, created_at, updated_at, deleted)
                      VALUES ($1, $2, 1, $3, $3, $4)");
    tx.execute(insert.bind(id).bind(name).bind(tx.now()).bind(false)).await?;
    Ok(())
}

pub(crate) async fn insert_version(
    tx: &Transaction,
    id: PlanId,
    version: u32,
    plan: &PlanSource,
) -> Result<()> {
    let insert = sql(
        "INSERT INTO load_plan_version (plan_id, version, format, source, created_at) VALUES ($1, $2, $3, $4, $5)",
    );
    let insert = insert.bind(id).bind(version).bind(plan.format.to_string()).bind(plan.source.as_str());
    tx.execute(insert.bind(tx.now())).await?;
    let file = |(name, content): (&str, &str)| (id, version, name.to_owned(), content.to_owned());
    let files: Vec<_> = plan.files.iter().map(file).collect();
    tx.insert_all("INSERT INTO load_plan_file (plan_id, version, name, content)", files, "").await?;
    Ok(())
}

pub(crate) async fn set_version(tx: &Transaction, id: PlanId, name: &str, version: u32) -> Result<()> {
    let update = sql("UPDATE load_plan SET name = $2, version = $3, updated_at = $4 WHERE id = $1");
    tx.execute(update.bind(id).bind(name).bind(version).bind(tx.now())).await?;
    Ok(())
}

/// Hides a plan. Its versions stay for the runs that used them.
pub(crate) async fn mark_deleted(database: &Database, id: PlanId) -> Result<bool> {
    let update = sql("UPDATE load_plan SET deleted = $2 WHERE id = $1 AND deleted = $3");
    Ok(database.execute(update.bind(id).bind(true).bind(false)).await? == 1)
}

pub(crate) async fn find(source: &impl Read, id: PlanId) -> Result<Option<PlanEntry>> {
    let select =
        sql("SELECT id, name, version, created_at, updated_at FROM load_plan WHERE id = $1 AND deleted = $2");
    source.optional(select.bind(id).bind(false)).await
}

pub(crate) async fn page(database: &Database, request: &PageRequest) -> Result<Page<PlanEntry>> {
    let select = sql("SELECT id, name, version, created_at, updated_at FROM load_plan WHERE deleted = $1");
    database.page(select.bind(false), &NEWEST_FIRST, request).await
}

/// The source of one version, and when it was saved.
pub(crate) async fn version(
    database: &Database,
    id: PlanId,
    version: u32,
) -> Result<Option<(PlanSource, UnixMs)>> {
    let text =
        sql("SELECT format, source, created_at FROM load_plan_version WHERE plan_id = $1 AND version = $2");
    let Some(row): Option<VersionRow> = database.optional(text.bind(id).bind(version)).await? else {
        return Ok(None);
    };
    let files = sql("SELECT name, content FROM load_plan_file WHERE plan_id = $1 AND version = $2");
    let files: Vec<(String, String)> = database.all(files.bind(id).bind(version)).await?;
    let files = PlanFiles::new(files.into_iter().collect());
    let format = row.format.parse().map_err(|_| Error::Column {
        column: "format".to_owned(),
        expected: "toml or json",
        found: row.format,
    })?;
    Ok(Some((PlanSource { source: row.source, format, files }, row.created_at)))
}

/// The numbers and times of the newest versions, newest first.
pub(crate) async fn versions(database: &Database, id: PlanId) -> Result<Vec<(u32, UnixMs)>> {
    let select = sql("SELECT version, created_at FROM load_plan_version WHERE plan_id = $1
                      ORDER BY version DESC LIMIT 100");
    database.all(select.bind(id)).await
}
