//! Applies a file of monitors, as `hob uptime apply` does.

#![allow(unused_qualifications, reason = "in code that utoipa derives")]

use axum::extract::State;
use hob_web::{AuditDetail, Json, Problem};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{added_monitor, edited_monitor};
use crate::database::{channels, monitors};
use crate::monitor::apply::{Change, Changes, Existing, InvalidFile, Plan, Step, Unlisted};
use crate::uptime::Uptime;

/// A file of monitors.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = MonitorFile)]
pub(super) struct ApplyRequest {
    /// YAML: `monitors:` with a monitor for each id.
    #[schema(max_length = 33_554_432)]
    source: String,
    /// Remove the monitors that the file does not list.
    #[serde(default)]
    prune: bool,
    /// Return the changes without applying them.
    #[serde(default)]
    dry_run: bool,
}

/// Make the monitors match a file, and return the changes. Idempotent: if a request fails halfway, repeat it.
///
/// The errors of an invalid file have the field `source`, and name the line, the column and the field in the file.
#[utoipa::path(post, path = "/api/v1/uptime/apply", request_body = ApplyRequest,
    responses((status = 200, body = Changes)))]
pub(super) async fn apply(
    State(uptime): State<Uptime>,
    Json(request): Json<ApplyRequest>,
) -> Result<(AuditDetail, Json<Changes>), Problem> {
    let unlisted = if request.prune { Unlisted::Remove } else { Unlisted::Keep };
    let database = uptime.database();
    let (monitors, channels) = (monitors::all(database).await?, channels::all(database).await?);
    let secrets = &uptime.inner.context.secrets;
    let existing = Existing { monitors: &monitors, channels: &channels, secrets };
    let plan = Plan::new(&request.source, existing, unlisted).map_err(invalid_file)?;
    let changes = plan.changes();
    if request.dry_run || plan.steps.is_empty() {
        return Ok((AuditDetail::Unchanged, Json(changes)));
    }
    for step in plan.steps {
        match step {
            Step::Add { id, spec } => drop(added_monitor(uptime.add(Some(id), &spec).await?)?),
            Step::Change { id, spec, .. } => drop(edited_monitor(uptime.edit(&id, &spec).await?)?),
            Step::Remove { id, .. } => drop(uptime.remove(&id).await?),
        }
    }
    Ok((AuditDetail::Of(summary(&changes.steps)), Json(changes)))
}

/// The ids for the audit log, which limits the length of an entry: `+ added, ~ changed, - removed`.
fn summary(changes: &[Change]) -> String {
    const SHOWN: usize = 5;
    let id = |change: &Change| match change {
        Change::Add { id, .. } => format!("+ {id}"),
        Change::Change { id, .. } => format!("~ {id}"),
        Change::Remove { id, .. } => format!("- {id}"),
    };
    let shown = changes.iter().take(SHOWN).map(id).collect::<Vec<_>>().join(", ");
    match changes.len().checked_sub(SHOWN) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {more} more"),
    }
}

fn invalid_file(InvalidFile(mistakes): InvalidFile) -> Problem {
    /// A file may have a mistake in every line.
    const SHOWN: usize = 100;
    let mut messages = mistakes.iter().take(SHOWN).map(ToString::to_string);
    let first = Problem::invalid("source", messages.next().unwrap_or_default());
    messages.fold(first, |problem, message| problem.with_field("source", message))
}
