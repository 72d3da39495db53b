//! The results of a run: `/api/v1/load/runs/{id}/{timeline,logs,report}`.

use axum::extract::State;
use hob_load_generator::{TimelinePoint, Totals};
use hob_web::{Json, Path, Problem, Query};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{find_run, parse_run_id};
use crate::load::Load;
use crate::results::report::Report;
use crate::run::logs::{LogLine, LogStream};

const MAX_LINES: u32 = 1000;
const MAX_POINTS: usize = 3600;

/// A part of a timeline.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct TimelineQuery {
    /// The first second to return; 0 by default.
    #[param(maximum = 4_294_967_295i64)]
    from: Option<u32>,
}

/// Get the seconds of a run, merged over its runners; at most 3600 per request.
#[utoipa::path(get, path = "/api/v1/load/runs/{id}/timeline", params(("id" = String, Path, max_length = 128), TimelineQuery),
    responses((status = 200, body = Vec<TimelinePoint>)))]
pub(super) async fn timeline(
    State(load): State<Load>,
    Path(id): Path<String>,
    Query(query): Query<TimelineQuery>,
) -> Result<Json<Vec<TimelinePoint>>, Problem> {
    let run = find_run(&load, &parse_run_id(&id)?).await?;
    let from = query.from.unwrap_or(0);
    let mut totals = Totals::default();
    for second in load.seconds(&run, from, MAX_POINTS).await? {
        totals.add(&second);
    }
    Ok(Json(totals.points().to_vec()))
}

/// A part of a log.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct LogQuery {
    /// Return lines after this number; by default all stored lines.
    #[param(maximum = 9_223_372_036_854_775_807i64)]
    after: Option<u64>,
    /// `all` (the default), or `error` for errors only.
    #[param(max_length = 5, pattern = "^(all|error)$")]
    level: Option<String>,
    /// The highest number of lines; 1000 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// A part of a run's log.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LoadLog)]
pub(super) struct LogView {
    /// The number of the newest line.
    newest: u64,
    /// The number of the first line in `lines`.
    first: u64,
    /// Whether lines after the requested number are no longer stored.
    missed: bool,
    lines: Vec<LogLine>,
}

/// Get the log of a run, oldest line first. It is stored for an hour.
#[utoipa::path(get, path = "/api/v1/load/runs/{id}/logs", params(("id" = String, Path, max_length = 128), LogQuery),
    responses((status = 200, body = LogView)))]
pub(super) async fn logs(
    State(load): State<Load>,
    Path(id): Path<String>,
    Query(query): Query<LogQuery>,
) -> Result<Json<LogView>, Problem> {
    let run = find_run(&load, &parse_run_id(&id)?).await?;
    let stream = match query.level.as_deref() {
        None | Some("all") => LogStream::All,
        Some("error") => LogStream::Errors,
        Some(_) => return Err(Problem::invalid("level", "must be all or error")),
    };
    let (after, limit) = (query.after.unwrap_or(0), query.limit.unwrap_or(MAX_LINES).clamp(1, MAX_LINES));
    let entries = load.logs().read(&run.id, stream, after, limit).await?;
    let missed = after > 0 && entries.missed_after(after);
    let (newest, first) = (entries.newest, entries.first);
    let lines = entries.entries.iter().filter_map(|entry| LogLine::parse(entry)).collect();
    Ok(Json(LogView { newest, first, missed, lines }))
}

/// Get the report of a run. Before the end of the run, it covers the measurements so far.
#[utoipa::path(get, path = "/api/v1/load/runs/{id}/report", params(("id" = String, Path, max_length = 128)),
    responses((status = 200, body = Report)))]
pub(super) async fn report(
    State(load): State<Load>,
    Path(id): Path<String>,
) -> Result<Json<Report>, Problem> {
    let run = find_run(&load, &parse_run_id(&id)?).await?;
    let report = load.report(&run).await?;
    report.map(Json).ok_or_else(|| Problem::not_found("report"))
}
