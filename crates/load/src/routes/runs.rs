//! Runs: `/api/v1/load/runs`, and the actions on one.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use hob_web::{Json, List, Paging, Path, Problem, Query, Time};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{find_run, parse_run_id};
use crate::keys::TestId;
use crate::load::{Load, QueueOutcome, RunRequest};
use crate::plan::catalog::PlanId;
use crate::run::item::{RunFigures, RunItem};
use crate::run::lifecycle::Transition;
use crate::run::{PublicStatus, Run, RunState};

/// A new run.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = LoadRunBody)]
pub(super) struct RunBody {
    /// The first run type of the plan by default.
    #[schema(max_length = 100)]
    run_type: Option<String>,
    /// A run with a higher priority starts first; 0 by default.
    #[schema(minimum = -1000, maximum = 1000)]
    priority: i32,
    /// The highest number of concurrent users.
    #[schema(minimum = 1, maximum = 4_294_967_295i64)]
    max_users: Option<u32>,
    /// The number of nodes that generate load; 1 by default.
    #[schema(minimum = 1, maximum = 64)]
    runners: Option<u32>,
}

/// A run.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LoadRun)]
pub(super) struct RunView {
    id: String,
    plan_id: i64,
    plan_name: String,
    plan_version: u32,
    run_type: String,
    state: RunState,
    /// The state as the public key `test:status` has it, there in upper case.
    status: PublicStatus,
    priority: i32,
    max_users: Option<u32>,
    /// The requested number of runners.
    runners: u32,
    /// The number of runners that joined. A run does not wait longer than `gather_timeout` for the others.
    runners_joined: u32,
    /// The key figures of the report, once the run has ended.
    figures: Option<RunFigures>,
    /// The node that coordinates the run.
    coordinator: Option<String>,
    message: String,
    queued_at: Time,
    started_at: Option<Time>,
    ended_at: Option<Time>,
}

impl From<RunItem> for RunView {
    fn from(item: RunItem) -> Self {
        let run = item.run;
        Self {
            id: run.id.to_string(),
            plan_id: run.plan_id.0,
            plan_name: item.plan_name,
            plan_version: run.plan_version,
            run_type: run.run_type,
            state: run.state,
            status: run.state.public_status(),
            priority: run.priority,
            max_users: run.max_users,
            runners: run.runners,
            runners_joined: item.runners_joined,
            figures: item.figures,
            coordinator: run.holder,
            message: run.message,
            queued_at: run.queued_at.into(),
            started_at: run.start_at.map(Time::from),
            ended_at: run.ended_at.map(Time::from),
        }
    }
}

/// Queue a run of a plan.
#[utoipa::path(post, path = "/api/v1/load/plans/{id}/runs", params(("id" = i64, Path, maximum = 9_223_372_036_854_775_807i64)), request_body = RunBody,
    responses((status = 202, body = RunView)))]
pub(super) async fn add_run(
    State(load): State<Load>,
    Path(id): Path<i64>,
    Json(body): Json<RunBody>,
) -> Result<impl IntoResponse, Problem> {
    let request = RunRequest {
        run_type: body.run_type,
        priority: body.priority,
        max_users: body.max_users,
        runners: body.runners,
    };
    let run = queue_run(&load, PlanId(id), &request).await?;
    Ok((StatusCode::ACCEPTED, Json(view(&load, &run.id).await?)))
}

/// Checks a request and queues the run.
pub(crate) async fn queue_run(load: &Load, plan: PlanId, request: &RunRequest) -> Result<Run, Problem> {
    if !(-1000..=1000).contains(&request.priority) {
        return Err(Problem::invalid("priority", "must be between -1000 and 1000"));
    }
    if request.max_users == Some(0) {
        return Err(Problem::invalid("max_users", "must be at least 1"));
    }
    if request.runners.is_some_and(|runners| !(1..=64).contains(&runners)) {
        return Err(Problem::invalid("runners", "must be between 1 and 64"));
    }
    match load.queue_run(plan, request).await? {
        QueueOutcome::Queued(id) => find_run(load, &id).await,
        QueueOutcome::PlanNotFound => Err(Problem::not_found("plan")),
        QueueOutcome::RunTypeNotFound => Err(Problem::invalid("run_type", "the plan has no such run type")),
    }
}

/// A filter for runs.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct RunFilter {
    /// Only runs of this plan.
    #[param(maximum = 9_223_372_036_854_775_807i64)]
    plan: Option<i64>,
}

/// List runs, newest first.
#[utoipa::path(get, path = "/api/v1/load/runs", params(RunFilter, Paging), responses((status = 200, body = List<RunView>)))]
pub(super) async fn list_runs(
    State(load): State<Load>,
    Query(filter): Query<RunFilter>,
    Query(paging): Query<Paging>,
) -> Result<Json<List<RunView>>, Problem> {
    let page = load.run_items(filter.plan.map(PlanId), &paging.request()?).await?;
    Ok(Json(page.map(RunView::from).into()))
}

/// Get a run.
#[utoipa::path(get, path = "/api/v1/load/runs/{id}", params(("id" = String, Path, max_length = 128)),
    responses((status = 200, body = RunView)))]
pub(super) async fn show_run(
    State(load): State<Load>,
    Path(id): Path<String>,
) -> Result<Json<RunView>, Problem> {
    Ok(Json(view(&load, &parse_run_id(&id)?).await?))
}

async fn view(load: &Load, id: &TestId) -> Result<RunView, Problem> {
    let item = load.run_item(id).await?.ok_or_else(|| Problem::not_found("run"))?;
    Ok(item.into())
}

/// Cancel a run. Its requests stop within a second.
#[utoipa::path(post, path = "/api/v1/load/runs/{id}/cancel", params(("id" = String, Path, max_length = 128)),
    responses((status = 200, body = RunView)))]
pub(super) async fn cancel_run(
    State(load): State<Load>,
    Path(id): Path<String>,
) -> Result<Json<RunView>, Problem> {
    let run = apply_action(&load, &parse_run_id(&id)?, RunAction::Cancel).await?;
    Ok(Json(view(&load, &run.id).await?))
}

/// Pause a run. Its requests stop within a second.
#[utoipa::path(post, path = "/api/v1/load/runs/{id}/pause", params(("id" = String, Path, max_length = 128)),
    responses((status = 200, body = RunView)))]
pub(super) async fn pause_run(
    State(load): State<Load>,
    Path(id): Path<String>,
) -> Result<Json<RunView>, Problem> {
    let run = apply_action(&load, &parse_run_id(&id)?, RunAction::Pause).await?;
    Ok(Json(view(&load, &run.id).await?))
}

/// Resume a paused run.
#[utoipa::path(post, path = "/api/v1/load/runs/{id}/resume", params(("id" = String, Path, max_length = 128)),
    responses((status = 200, body = RunView)))]
pub(super) async fn resume_run(
    State(load): State<Load>,
    Path(id): Path<String>,
) -> Result<Json<RunView>, Problem> {
    let run = apply_action(&load, &parse_run_id(&id)?, RunAction::Resume).await?;
    Ok(Json(view(&load, &run.id).await?))
}

/// An action on a run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RunAction {
    Pause,
    Resume,
    Cancel,
}

pub(crate) async fn apply_action(load: &Load, id: &TestId, action: RunAction) -> Result<Run, Problem> {
    let transition = match action {
        RunAction::Pause => load.pause(id).await?,
        RunAction::Resume => load.resume(id).await?,
        RunAction::Cancel => load.cancel(id).await?,
    };
    match transition {
        Transition::Applied(_) => find_run(load, id).await,
        Transition::Rejected(state) => Err(Problem::conflict(format!("The run is {state}."))),
        Transition::Gone => Err(Problem::not_found("run")),
    }
}
