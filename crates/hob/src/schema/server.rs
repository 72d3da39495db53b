//! `hob schema audit` without the address of a Redis: a server audits its own.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use hob_schema::{Catalog, Schema};
use hob_schema_audit::{AuditReport, Progress};
use tokio::time::Instant;

use super::{Bar, layout};
use crate::pages::{AuditProgress, AuditRequest, AuditView, SchemasView};
use crate::remote::Remote;

/// How often the progress is read.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The schemas of the server, and an audit that has ended after the start of this call.
pub(super) async fn audit(server: &Remote) -> Result<(Catalog, AuditReport)> {
    let declared: SchemasView = server.get(&["schemas"]).await?;
    let parse = |(file, source): (&str, &str)| Schema::parse(file, source).map_err(anyhow::Error::from);
    let schemas = declared.schemas.iter().map(|schema| parse((&schema.file, &schema.source)));
    let schemas = schemas.collect::<Result<Vec<_>>>().context("the schemas of the server")?;
    let catalog = Catalog::new(schemas, layout(declared.tagged))?;
    let (begin, bar) = (Instant::now(), Bar::new());
    let report = loop {
        // Any node may answer, and each has its own audit: all that are younger than this call will do.
        let max_age_ms = u64::try_from(begin.elapsed().as_millis()).ok();
        let view: AuditView = server.post(&["schemas", "audit"], &AuditRequest { max_age_ms }).await?;
        match (view.state, view.report) {
            (AuditProgress::Failed, _) => bail!("the audit failed: {}", view.error.unwrap_or_default()),
            (AuditProgress::Complete, Some(report)) => break report,
            (AuditProgress::Complete, None) => bail!("the server sent no report"),
            (AuditProgress::Running, _) => {}
        }
        let node = String::new();
        bar.show(&Progress { node, keys: view.checked_keys, expected: view.expected_keys });
        tokio::time::sleep(POLL_INTERVAL).await;
    };
    bar.clear();
    Ok((catalog, serde_json::from_value(report).context("the report of the server")?))
}
