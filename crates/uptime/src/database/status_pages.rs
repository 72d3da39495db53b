//! Status pages besides the default one.

use hob_database::{Query, Read, Transaction, UnixMs, from_row, sql};

use crate::error::{Error, Result};
use crate::status::password::PasswordHash;
use crate::status::{Slug, StatusPage};

struct Row {
    slug: Slug,
    spec: String,
    password: Option<String>,
    created_at: UnixMs,
    changed_at: UnixMs,
}

from_row!(Row { slug, spec, password, created_at, changed_at });

impl Row {
    /// A password that cannot be read must not open the page, so it is an error.
    fn page(self) -> Result<StatusPage> {
        let unreadable = |what: &str| Error::Unreadable(format!("status page {}: {what}", self.slug));
        let spec = serde_json::from_str(&self.spec).map_err(|error| unreadable(&error.to_string()))?;
        let hash = |text: String| PasswordHash::from_text(&text).ok_or_else(|| unreadable("password"));
        let password = self.password.clone().map(hash).transpose()?;
        let Self { slug, created_at, changed_at, .. } = self;
        Ok(StatusPage { slug, spec, password, created_at, changed_at })
    }
}

/// All pages, by slug.
pub async fn all(on: &impl Read) -> Result<Vec<StatusPage>> {
    let rows: Query<Row> =
        sql("SELECT slug, spec, password, created_at, changed_at FROM uptime_status_page ORDER BY slug");
    on.all(rows).await?.into_iter().map(Row::page).collect()
}

pub async fn by_slug(on: &impl Read, slug: &Slug) -> Result<Option<StatusPage>> {
    let row: Query<Row> =
        sql("SELECT slug, spec, password, created_at, changed_at FROM uptime_status_page WHERE slug = $1");
    on.optional(row.bind(slug)).await?.map(Row::page).transpose()
}

pub(crate) async fn count(on: &impl Read) -> Result<u64> {
    let (count,): (u64,) = on.one(sql("SELECT count(*) FROM uptime_status_page")).await?;
    Ok(count)
}

/// Inserts or replaces a page.
pub(crate) async fn put(tx: &Transaction, page: &StatusPage) -> Result<()> {
    let put = sql("INSERT INTO uptime_status_page (slug, spec, password, created_at, changed_at)
                   VALUES ($1, $2, $3, $4, $5) ON CONFLICT (slug) DO UPDATE
                   SET spec = excluded.spec, password = excluded.password, changed_at = excluded.changed_at");
    let spec = serde_json::to_string(&page.spec);
    let spec = spec.unwrap_or_else(|error| unreachable!("a spec is plain data: {error}"));
    let put = put.bind(&page.slug).bind(spec).bind(page.password.as_ref().map(PasswordHash::to_text));
    tx.execute(put.bind(page.created_at).bind(page.changed_at)).await?;
    Ok(())
}

/// Deletes a page; `false` if there is none with this slug.
pub(crate) async fn delete(tx: &Transaction, slug: &Slug) -> Result<bool> {
    Ok(tx.execute(sql("DELETE FROM uptime_status_page WHERE slug = $1").bind(slug)).await? == 1)
}
