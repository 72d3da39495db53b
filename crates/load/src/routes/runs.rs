//! Runs: `/api/v1/load/runs`, and what can be done to one.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use hob_web::{Json, List, Paging, Path, Problem, Query, Time};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{find, run_id};
use crate::keys::TestId;
use crate::load::{Accepted, Load, Wish};
use crate::plan::catalog::PlanId;
use crate::run::lifecycle::Transition;
use crate::run::{Run, State as RunState};

/// What a new run shall be.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = LoadRunBody)]
pub(super) struct RunBody {
    /// The plan's first kind, if not said.
    #[schema(max_length = 100)]
    run_type: Option<String>,
    /// Higher goes first; 0 if not said.
    #[schema(minimum = -1000, maximum = 1000)]
    priority: i32,
    /// The most users at a time.
    #[schema(minimum = 1)]
    max_users: Option<u32>,
    /// On how many nodes; 1 if not said.
    #[schema(minimum = 1, maximum = 64)]
    runners: Option<u32>,
}

/// A run.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LoadRun)]
pub(super) struct RunView {
    id: String,
    plan_id: i64,
    plan_version: u32,
    run_type: String,
    state: RunState,
    /// The state as the public key `test:status` knows it.
    status: &'static str,
    priority: i32,
    max_users: Option<u32>,
    runners: u32,
    /// The node that conducts it.
    conductor: Option<String>,
    message: String,
    queued_at: Time,
    started_at: Option<Time>,
    ended_at: Option<Time>,
}

impl From<Run> for RunView {
    fn from(run: Run) -> Self {
        Self {
            id: run.id.to_string(),
            plan_id: run.plan_id.0,
            plan_version: run.plan_version,
            run_type: run.run_type,
            state: run.state,
            status: run.state.public(),
            priority: run.priority,
            max_users: run.max_users,
            runners: run.runners,
            conductor: run.holder,
            message: run.message,
            queued_at: run.queued_at.into(),
            started_at: run.start_at.map(Time::from),
            ended_at: run.ended_at.map(Time::from),
        }
    }
}

/// Queues a run of a plan.
#[utoipa::path(post, path = "/api/v1/load/plans/{id}/runs", params(("id" = i64, Path)), request_body = RunBody,
    responses((status = 202, body = RunView)))]
pub(super) async fn add_run(
    State(tests): State<Load>,
    Path(id): Path<i64>,
    Json(body): Json<RunBody>,
) -> Result<impl IntoResponse, Problem> {
    let wish = Wish {
        run_type: body.run_type,
        priority: body.priority,
        max_users: body.max_users,
        runners: body.runners,
    };
    let run = queue(&tests, PlanId(id), &wish).await?;
    Ok((StatusCode::ACCEPTED, Json(RunView::from(run))))
}

/// Queues a run; what is wrong with the wish is named.
pub(crate) async fn queue(tests: &Load, plan: PlanId, wish: &Wish) -> Result<Run, Problem> {
    if !(-1000..=1000).contains(&wish.priority) {
        return Err(Problem::invalid("priority", "between -1000 and 1000"));
    }
    if wish.max_users == Some(0) {
        return Err(Problem::invalid("max_users", "at least 1"));
    }
    if wish.runners.is_some_and(|runners| !(1..=64).contains(&runners)) {
        return Err(Problem::invalid("runners", "between 1 and 64"));
    }
    match tests.queue_run(plan, wish).await? {
        Accepted::Run(id) => find(tests, &id).await,
        Accepted::NoPlan => Err(Problem::not_found("plan")),
        Accepted::NoRunType => Err(Problem::invalid("run_type", "the plan has no such kind of run")),
    }
}

/// Which runs.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct RunsOf {
    /// Of this plan only.
    plan: Option<i64>,
}

/// Runs, newest first.
#[utoipa::path(get, path = "/api/v1/load/runs", params(RunsOf, Paging), responses((status = 200, body = List<RunView>)))]
pub(super) async fn list_runs(
    State(tests): State<Load>,
    Query(of): Query<RunsOf>,
    Query(paging): Query<Paging>,
) -> Result<Json<List<RunView>>, Problem> {
    let page = tests.runs(of.plan.map(PlanId), &paging.request()?).await?;
    Ok(Json(page.map(RunView::from).into()))
}

/// A run.
#[utoipa::path(get, path = "/api/v1/load/runs/{id}", params(("id" = String, Path, max_length = 128)),
    responses((status = 200, body = RunView)))]
pub(super) async fn show_run(
    State(tests): State<Load>,
    Path(id): Path<String>,
) -> Result<Json<RunView>, Problem> {
    Ok(Json(find(&tests, &run_id(&id)?).await?.into()))
}

/// Cancels a run; its traffic stops within a second.
#[utoipa::path(post, path = "/api/v1/load/runs/{id}/cancel", params(("id" = String, Path, max_length = 128)),
    responses((status = 200, body = RunView)))]
pub(super) async fn cancel_run(
    State(tests): State<Load>,
    Path(id): Path<String>,
) -> Result<Json<RunView>, Problem> {
    act(&tests, &run_id(&id)?, Act::Cancel).await.map(|run| Json(run.into()))
}

/// Holds a run up; its traffic stops within a second.
#[utoipa::path(post, path = "/api/v1/load/runs/{id}/pause", params(("id" = String, Path, max_length = 128)),
    responses((status = 200, body = RunView)))]
pub(super) async fn pause_run(
    State(tests): State<Load>,
    Path(id): Path<String>,
) -> Result<Json<RunView>, Problem> {
    act(&tests, &run_id(&id)?, Act::Pause).await.map(|run| Json(run.into()))
}

/// Lets a paused run go on.
#[utoipa::path(post, path = "/api/v1/load/runs/{id}/resume", params(("id" = String, Path, max_length = 128)),
    responses((status = 200, body = RunView)))]
pub(super) async fn resume_run(
    State(tests): State<Load>,
    Path(id): Path<String>,
) -> Result<Json<RunView>, Problem> {
    act(&tests, &run_id(&id)?, Act::Resume).await.map(|run| Json(run.into()))
}

/// What can be done to a run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Pause,
    Resume,
    Cancel,
}

pub(crate) async fn act(tests: &Load, id: &TestId, act: Act) -> Result<Run, Problem> {
    let changed = match act {
        Act::Pause => tests.pause(id).await?,
        Act::Resume => tests.resume(id).await?,
        Act::Cancel => tests.cancel(id).await?,
    };
    match changed {
        Transition::Applied(_) => find(tests, id).await,
        Transition::Rejected(state) => Err(Problem::conflict(format!("The run is {state}."))),
        Transition::Gone => Err(Problem::not_found("run")),
    }
}
