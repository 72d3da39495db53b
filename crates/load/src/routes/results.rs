//! What was measured in a run: `/api/v1/load/runs/{id}/{timeline,logs,report}`.

use axum::extract::State;
use hob_web::{Json, Path, Problem, Query};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{find, run_id};
use crate::load::Load;
use crate::results::report::Report;
use crate::results::totals::{Point, Tally};
use crate::run::logs::{Line, Ring};

const MOST_LINES: u32 = 1000;
const MOST_POINTS: usize = 3600;

/// Which part of a series.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Part {
    /// From this second on; 0 if not said.
    from: Option<u32>,
}

/// What happened in each second of a run, merged over its runners; an hour at most at a time.
#[utoipa::path(get, path = "/api/v1/load/runs/{id}/timeline", params(("id" = String, Path, max_length = 128), Part),
    responses((status = 200, body = Vec<Point>)))]
pub(super) async fn timeline(
    State(tests): State<Load>,
    Path(id): Path<String>,
    Query(part): Query<Part>,
) -> Result<Json<Vec<Point>>, Problem> {
    let run = find(&tests, &run_id(&id)?).await?;
    let from = part.from.unwrap_or(0);
    let mut tally = Tally::default();
    for second in tests.seconds(&run, from, MOST_POINTS).await? {
        tally.add(&second);
    }
    Ok(Json(tally.points().to_vec()))
}

/// Which lines.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Lines {
    /// After the one of this number; all that are kept, if not said.
    after: Option<u64>,
    /// `error` for the errors alone.
    level: Option<String>,
    /// So many at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// A part of a run's log.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LoadLog)]
pub(super) struct LogView {
    /// The number of the newest line of all.
    newest: u64,
    /// The number of the first line below.
    first: u64,
    /// Whether lines after the asked-for number are gone.
    missed: bool,
    lines: Vec<Line>,
}

/// The log of a run, oldest line first. It is kept for an hour.
#[utoipa::path(get, path = "/api/v1/load/runs/{id}/logs", params(("id" = String, Path, max_length = 128), Lines),
    responses((status = 200, body = LogView)))]
pub(super) async fn logs(
    State(tests): State<Load>,
    Path(id): Path<String>,
    Query(lines): Query<Lines>,
) -> Result<Json<LogView>, Problem> {
    let run = find(&tests, &run_id(&id)?).await?;
    let ring = match lines.level.as_deref() {
        None | Some("all") => Ring::All,
        Some("error") => Ring::Errors,
        Some(_) => return Err(Problem::invalid("level", "all, or error")),
    };
    let (after, most) = (lines.after.unwrap_or(0), lines.limit.unwrap_or(MOST_LINES).clamp(1, MOST_LINES));
    let entries = tests.logs().read(&run.id, ring, after, most).await?;
    let missed = after > 0 && entries.missed_after(after);
    let (newest, first) = (entries.newest, entries.first);
    let lines = entries.entries.iter().filter_map(|entry| serde_json::from_slice(entry).ok()).collect();
    Ok(Json(LogView { newest, first, missed, lines }))
}

/// The report of a run; of a run that is not over, what was measured so far.
#[utoipa::path(get, path = "/api/v1/load/runs/{id}/report", params(("id" = String, Path, max_length = 128)),
    responses((status = 200, body = Report)))]
pub(super) async fn report(
    State(tests): State<Load>,
    Path(id): Path<String>,
) -> Result<Json<Report>, Problem> {
    let run = find(&tests, &run_id(&id)?).await?;
    let report = tests.report(&run).await?;
    report.map(Json).ok_or_else(|| Problem::not_found("report"))
}
