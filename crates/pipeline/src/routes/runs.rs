//! Runs: start, control, inspect.

use axum::extract::State;
use axum::http::StatusCode;
use hob_database::UnixMs;
use hob_web::{Access, Audited, Json, List, Paging, Path, Problem, Query, Routes, Time};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::run_id;
use crate::pipeline::Pipelines;
use crate::plan::PlanName;
use crate::plan::retry::FailureClass;
use crate::run::forecast::{self, Forecast};
use crate::run::item::{ItemState, ItemSummary};
use crate::run::{Run, RunAction, RunId, RunState};
use crate::sink::Output;

pub(super) fn routes() -> Routes<Pipelines> {
    let (read, write) = (|| Access::read("pipelines"), || Access::write("pipelines"));
    Routes::new()
        .write(write(), Audited::As("pipeline.run.start"), routes!(start_run))
        .api(read(), routes!(list_runs))
        .api(read(), routes!(get_run))
        .write(write(), Audited::As("pipeline.run.pause"), routes!(pause))
        .write(write(), Audited::As("pipeline.run.resume"), routes!(resume))
        .write(write(), Audited::As("pipeline.run.cancel"), routes!(cancel))
        .write(write(), Audited::As("pipeline.run.archive"), routes!(archive))
        .write(write(), Audited::As("pipeline.run.replay"), routes!(replay))
        .api(read(), routes!(list_items))
        .api(read(), routes!(list_failed))
        .api(read(), routes!(get_forecast))
}

/// A run to start.
#[derive(Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = PipelineRunRequest)]
struct RunRequest {
    /// Id of the run; the plan's name and the time by default. If a run of this plan has the id, it is returned.
    #[schema(max_length = 250)]
    id: Option<String>,
}

/// A run.
#[derive(Serialize, ToSchema)]
#[schema(as = PipelineRun)]
struct RunView {
    id: String,
    pipeline: String,
    state: RunState,
    started_at: Time,
    changed_at: Time,
    calls: u64,
    /// Why the run is blocked; null if it is not.
    trouble: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    items: Option<ItemCounts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outputs: Option<Vec<OutputView>>,
}

/// What a sink has received from a run.
#[derive(Serialize, ToSchema)]
#[schema(as = PipelineOutput)]
struct OutputView {
    sink: String,
    /// The JSON Lines file of this run, relative to `pipeline.folder`; null for a table.
    file: Option<String>,
    /// Lines in the file, or rows inserted into or replaced in the table.
    rows: u64,
}

/// Items by state.
#[derive(Serialize, ToSchema)]
#[schema(as = PipelineItemCounts)]
struct ItemCounts {
    waiting: u64,
    claimed: u64,
    done: u64,
    quarantined: u64,
}

#[derive(Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = PipelineReplayRequest)]
struct ReplayRequest {
    /// Only items of this class.
    class: Option<FailureClass>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = PipelineReplayResponse)]
struct ReplayResponse {
    items: u64,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ItemFilter {
    /// `waiting`, `claimed`, `done` or `quarantined`.
    #[param(max_length = 11, pattern = "^(waiting|claimed|done|quarantined)$")]
    state: Option<String>,
    #[param(max_length = 2048)]
    after: Option<String>,
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u16>,
}

/// Estimate of the calls and the time until a run is done.
#[derive(Serialize, ToSchema)]
#[schema(as = PipelineForecast)]
struct ForecastView {
    calls_least: u64,
    calls_expected: u64,
    calls_most: u64,
    /// Null if it cannot be estimated yet.
    seconds_least: Option<u64>,
    seconds_expected: Option<u64>,
    seconds_most: Option<u64>,
    done_at: Option<Time>,
}

/// Start a run.
#[utoipa::path(post, path = "/api/v1/pipelines/{id}/runs", params(("id" = String, Path, max_length = 64)),
    request_body = Option<RunRequest>, responses((status = 201, body = RunView)))]
async fn start_run(
    State(pipelines): State<Pipelines>,
    Path(id): Path<String>,
    request: Option<Json<RunRequest>>,
) -> Result<(StatusCode, Json<RunView>), Problem> {
    let Json(request) = request.unwrap_or_default();
    let run = request.id.map(|id| id.parse::<RunId>()).transpose()?;
    let run = pipelines.start_run(&plan_name(&id)?, run).await?;
    pipelines.notify_pages();
    Ok((StatusCode::CREATED, Json(run.into())))
}

/// List runs, newest first, without archived ones.
#[utoipa::path(get, path = "/api/v1/pipelines/runs", params(Paging), responses((status = 200, body = List<RunView>)))]
async fn list_runs(
    State(pipelines): State<Pipelines>,
    Query(paging): Query<Paging>,
) -> Result<Json<List<RunView>>, Problem> {
    let page = pipelines.runs(&paging.request()?).await?;
    Ok(Json(page.map(RunView::from).into()))
}

/// Get a run with its item counts and outputs.
#[utoipa::path(get, path = "/api/v1/pipelines/runs/{id}", params(("id" = String, Path, max_length = 250)),
    responses((status = 200, body = RunView)))]
async fn get_run(
    State(pipelines): State<Pipelines>,
    Path(id): Path<String>,
) -> Result<Json<RunView>, Problem> {
    let id = run_id(&id)?;
    let (run, progress) = (pipelines.run(&id).await?, pipelines.progress(&id).await?);
    let outputs = Some(pipelines.outputs(&id).await?.into_iter().map(OutputView::from).collect());
    let items = Some(ItemCounts {
        waiting: progress.of(ItemState::Waiting),
        claimed: progress.of(ItemState::Claimed),
        done: progress.of(ItemState::Done),
        quarantined: progress.of(ItemState::Quarantined),
    });
    Ok(Json(RunView { items, outputs, ..run.into() }))
}

/// Pause a run.
#[utoipa::path(post, path = "/api/v1/pipelines/runs/{id}/pause", params(("id" = String, Path, max_length = 250)),
    responses((status = 200, body = RunView)))]
async fn pause(pipelines: State<Pipelines>, id: Path<String>) -> Result<Json<RunView>, Problem> {
    change(&pipelines, &id.0, RunAction::Pause).await
}

/// Resume a paused run.
#[utoipa::path(post, path = "/api/v1/pipelines/runs/{id}/resume", params(("id" = String, Path, max_length = 250)),
    responses((status = 200, body = RunView)))]
async fn resume(pipelines: State<Pipelines>, id: Path<String>) -> Result<Json<RunView>, Problem> {
    change(&pipelines, &id.0, RunAction::Resume).await
}

/// Cancel a run. It cannot be resumed.
#[utoipa::path(post, path = "/api/v1/pipelines/runs/{id}/cancel", params(("id" = String, Path, max_length = 250)),
    responses((status = 200, body = RunView)))]
async fn cancel(pipelines: State<Pipelines>, id: Path<String>) -> Result<Json<RunView>, Problem> {
    change(&pipelines, &id.0, RunAction::Cancel).await
}

/// Archive a completed or cancelled run. It is deleted after `pipeline.keep_archived`.
#[utoipa::path(post, path = "/api/v1/pipelines/runs/{id}/archive", params(("id" = String, Path, max_length = 250)),
    responses((status = 200, body = RunView)))]
async fn archive(pipelines: State<Pipelines>, id: Path<String>) -> Result<Json<RunView>, Problem> {
    change(&pipelines, &id.0, RunAction::Archive).await
}

async fn change(pipelines: &Pipelines, id: &str, action: RunAction) -> Result<Json<RunView>, Problem> {
    Ok(Json(pipelines.apply(&run_id(id)?, action).await?.into()))
}

/// Retry the dead letters of a run.
#[utoipa::path(post, path = "/api/v1/pipelines/runs/{id}/replay", params(("id" = String, Path, max_length = 250)),
    request_body = Option<ReplayRequest>, responses((status = 200, body = ReplayResponse)))]
async fn replay(
    State(pipelines): State<Pipelines>,
    Path(id): Path<String>,
    request: Option<Json<ReplayRequest>>,
) -> Result<Json<ReplayResponse>, Problem> {
    let Json(request) = request.unwrap_or_default();
    Ok(Json(ReplayResponse { items: pipelines.replay(&run_id(&id)?, request.class).await? }))
}

/// List the items of a run.
#[utoipa::path(get, path = "/api/v1/pipelines/runs/{id}/items",
    params(("id" = String, Path, max_length = 250), ItemFilter), responses((status = 200, body = List<ItemSummary>)))]
async fn list_items(
    State(pipelines): State<Pipelines>,
    Path(id): Path<String>,
    Query(filter): Query<ItemFilter>,
) -> Result<Json<List<ItemSummary>>, Problem> {
    let state = filter.state.map(|state| state.parse::<ItemState>()).transpose();
    let state = state.map_err(|error| Problem::invalid("state", error.to_string()))?;
    let paging = Paging { after: filter.after, limit: filter.limit };
    let page = pipelines.items(&run_id(&id)?, state, None, &paging.request()?).await?;
    Ok(Json(page.into()))
}

/// List the dead letters of a run.
#[utoipa::path(get, path = "/api/v1/pipelines/runs/{id}/failed",
    params(("id" = String, Path, max_length = 250), Paging), responses((status = 200, body = List<ItemSummary>)))]
async fn list_failed(
    State(pipelines): State<Pipelines>,
    Path(id): Path<String>,
    Query(paging): Query<Paging>,
) -> Result<Json<List<ItemSummary>>, Problem> {
    let page = pipelines.items(&run_id(&id)?, Some(ItemState::Quarantined), None, &paging.request()?).await?;
    Ok(Json(page.into()))
}

/// Estimate when a run will be done.
#[utoipa::path(get, path = "/api/v1/pipelines/runs/{id}/forecast", params(("id" = String, Path, max_length = 250)),
    responses((status = 200, body = ForecastView)))]
async fn get_forecast(
    State(pipelines): State<Pipelines>,
    Path(id): Path<String>,
) -> Result<Json<ForecastView>, Problem> {
    Ok(Json(pipelines.forecast(&run_id(&id)?).await?.into()))
}

fn plan_name(name: &str) -> Result<PlanName, Problem> {
    name.parse().map_err(|_| Problem::not_found("pipeline"))
}

impl From<Run> for RunView {
    fn from(run: Run) -> Self {
        Self {
            id: run.id.to_string(),
            pipeline: run.plan.to_string(),
            state: run.state,
            started_at: Time(run.started_at),
            changed_at: Time(run.changed_at),
            calls: run.calls,
            trouble: Some(run.trouble).filter(|trouble| !trouble.is_empty()),
            items: None,
            outputs: None,
        }
    }
}

impl From<Output> for OutputView {
    fn from(output: Output) -> Self {
        let Output { sink, file, rows } = output;
        Self { sink, file: Some(file).filter(|file| !file.is_empty()), rows }
    }
}

impl From<Forecast> for ForecastView {
    fn from(forecast: Forecast) -> Self {
        let Forecast { calls: forecast::Estimate { least, expected, most }, duration, done_at } = forecast;
        let seconds = |at: usize| duration.map(|bounds| bounds[at].as_secs());
        Self {
            calls_least: least.round() as u64,
            calls_expected: expected.round() as u64,
            calls_most: most.round() as u64,
            seconds_least: seconds(0),
            seconds_expected: seconds(1),
            seconds_most: seconds(2),
            done_at: done_at.map(|at: UnixMs| Time(at)),
        }
    }
}
