//! The API: `/api/v1/load/…`.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use hob_records::UnixMs;
use hob_web::{Access, Json, List, Paging, Path, Problem, Query, Routes, Time};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use crate::cache::CachedGroup;
use crate::keys::TestId;
use crate::load_tests::{Accepted, LoadTests, Wish};
use crate::logs::{Line, Ring};
use crate::plan::{Files, Format, Written};
use crate::plans::{Edited, PlanEntry, PlanId};
use crate::report::Report;
use crate::run::{Run, State as RunState};
use crate::runs::Changed;
use crate::tally::{Point, Tally};
use crate::{live, pages};

/// The scopes of load tests, and the topic of their live pages.
pub(crate) const SERVICE: &str = "load";

const MOST_LINES: u32 = 1000;
const MOST_POINTS: usize = 3600;

impl LoadTests {
    /// Everything that load tests answer.
    #[must_use]
    pub fn routes(&self) -> Routes {
        let (read, write) = (Access::read(SERVICE), Access::write(SERVICE));
        let api = Routes::new()
            .api(read.clone(), routes!(list_plans))
            .api(write.clone(), routes!(add_plan))
            .api(read.clone(), routes!(show_plan))
            .api(write.clone(), routes!(edit_plan))
            .api(write.clone(), routes!(delete_plan))
            .api(write.clone(), routes!(add_run))
            .api(read.clone(), routes!(list_runs))
            .api(read.clone(), routes!(show_run))
            .api(write.clone(), routes!(cancel_run))
            .api(write.clone(), routes!(pause_run))
            .api(write, routes!(resume_run))
            .api(read.clone(), routes!(timeline))
            .api(read.clone(), routes!(logs))
            .api(read.clone(), routes!(report))
            .api(read, routes!(live::watch));
        api.with_state(self.clone()).merge(pages::routes(self))
    }
}

/// A plan in a list.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LoadPlanItem)]
struct PlanItem {
    id: i64,
    name: String,
    /// The newest.
    version: u32,
    created_at: Time,
    updated_at: Time,
}

impl From<PlanEntry> for PlanItem {
    fn from(plan: PlanEntry) -> Self {
        Self {
            id: plan.id.0,
            name: plan.name,
            version: plan.version,
            created_at: plan.created_at.into(),
            updated_at: plan.updated_at.into(),
        }
    }
}

/// A plan with its text.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LoadPlan)]
struct PlanView {
    id: i64,
    name: String,
    version: u32,
    format: Format,
    source: String,
    /// The files that the source names, with what is in them.
    files: BTreeMap<String, String>,
    run_types: Vec<RunTypeView>,
}

/// A kind of run that a plan has.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LoadRunType)]
struct RunTypeView {
    name: String,
    groups: Vec<CachedGroup>,
}

/// A plan to be kept.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LoadPlanBody)]
struct PlanBody {
    /// The plan itself; see the documentation of the language.
    #[schema(max_length = 262_144)]
    source: String,
    /// TOML, if not said.
    format: Option<Format>,
    /// The files that the plan names, with what is in them, 16 at most; those of the version before, if not said.
    files: Option<BTreeMap<String, String>>,
    /// The version that was edited: if the plan has another by now, nothing is changed.
    version: Option<u32>,
}

impl PlanBody {
    fn written(self, files: Files) -> Written {
        let files = self.files.map_or(files, Files::new);
        Written { source: self.source, format: self.format.unwrap_or(Format::Toml), files }
    }
}

/// What a new run shall be.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = LoadRunBody)]
struct RunBody {
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
pub(crate) struct RunView {
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

/// Plans, newest first.
#[utoipa::path(get, path = "/api/v1/load/plans", params(Paging), responses((status = 200, body = List<PlanItem>)))]
async fn list_plans(
    State(tests): State<LoadTests>,
    Query(paging): Query<Paging>,
) -> Result<Json<List<PlanItem>>, Problem> {
    let page = tests.plans(&paging.request()?).await?;
    Ok(Json(page.map(PlanItem::from).into()))
}

/// Adds a plan. A wrong one is refused with its line and field.
#[utoipa::path(post, path = "/api/v1/load/plans", request_body = PlanBody,
    responses((status = 201, body = PlanView)))]
async fn add_plan(
    State(tests): State<LoadTests>,
    Json(body): Json<PlanBody>,
) -> Result<impl IntoResponse, Problem> {
    let id = tests.add_plan(&body.written(Files::default())).await?;
    Ok((StatusCode::CREATED, Json(plan_view(&tests, id).await?)))
}

/// A plan in its newest version.
#[utoipa::path(get, path = "/api/v1/load/plans/{id}", params(("id" = i64, Path)),
    responses((status = 200, body = PlanView)))]
async fn show_plan(State(tests): State<LoadTests>, Path(id): Path<i64>) -> Result<Json<PlanView>, Problem> {
    Ok(Json(plan_view(&tests, PlanId(id)).await?))
}

/// Makes a new version of a plan.
#[utoipa::path(put, path = "/api/v1/load/plans/{id}", params(("id" = i64, Path)), request_body = PlanBody,
    responses((status = 200, body = PlanView)))]
async fn edit_plan(
    State(tests): State<LoadTests>,
    Path(id): Path<i64>,
    Json(body): Json<PlanBody>,
) -> Result<Json<PlanView>, Problem> {
    let before = tests.plan(PlanId(id)).await?.ok_or_else(|| Problem::not_found("plan"))?;
    let seen = body.version;
    match tests.edit_plan(PlanId(id), seen, &body.written(before.files)).await? {
        Edited::Version(_) => Ok(Json(plan_view(&tests, PlanId(id)).await?)),
        Edited::Outdated(version) => {
            Err(Problem::conflict(format!("The plan has the version {version} by now.")))
        }
        Edited::Gone => Err(Problem::not_found("plan")),
    }
}

/// Deletes a plan. Its runs stay.
#[utoipa::path(delete, path = "/api/v1/load/plans/{id}", params(("id" = i64, Path)),
    responses((status = 204)))]
async fn delete_plan(State(tests): State<LoadTests>, Path(id): Path<i64>) -> Result<StatusCode, Problem> {
    let deleted = tests.delete_plan(PlanId(id)).await?;
    if deleted { Ok(StatusCode::NO_CONTENT) } else { Err(Problem::not_found("plan")) }
}

/// Queues a run of a plan.
#[utoipa::path(post, path = "/api/v1/load/plans/{id}/runs", params(("id" = i64, Path)), request_body = RunBody,
    responses((status = 202, body = RunView)))]
async fn add_run(
    State(tests): State<LoadTests>,
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
pub(crate) async fn queue(tests: &LoadTests, plan: PlanId, wish: &Wish) -> Result<Run, Problem> {
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
struct RunsOf {
    /// Of this plan only.
    plan: Option<i64>,
}

/// Runs, newest first.
#[utoipa::path(get, path = "/api/v1/load/runs", params(RunsOf, Paging), responses((status = 200, body = List<RunView>)))]
async fn list_runs(
    State(tests): State<LoadTests>,
    Query(of): Query<RunsOf>,
    Query(paging): Query<Paging>,
) -> Result<Json<List<RunView>>, Problem> {
    let page = tests.runs(of.plan.map(PlanId), &paging.request()?).await?;
    Ok(Json(page.map(RunView::from).into()))
}

/// A run.
#[utoipa::path(get, path = "/api/v1/load/runs/{id}", params(("id" = String, Path, max_length = 128)),
    responses((status = 200, body = RunView)))]
async fn show_run(State(tests): State<LoadTests>, Path(id): Path<String>) -> Result<Json<RunView>, Problem> {
    Ok(Json(find(&tests, &run_id(&id)?).await?.into()))
}

/// Cancels a run; its traffic stops within a second.
#[utoipa::path(post, path = "/api/v1/load/runs/{id}/cancel", params(("id" = String, Path, max_length = 128)),
    responses((status = 200, body = RunView)))]
async fn cancel_run(
    State(tests): State<LoadTests>,
    Path(id): Path<String>,
) -> Result<Json<RunView>, Problem> {
    act(&tests, &run_id(&id)?, Act::Cancel).await.map(|run| Json(run.into()))
}

/// Holds a run up; its traffic stops within a second.
#[utoipa::path(post, path = "/api/v1/load/runs/{id}/pause", params(("id" = String, Path, max_length = 128)),
    responses((status = 200, body = RunView)))]
async fn pause_run(State(tests): State<LoadTests>, Path(id): Path<String>) -> Result<Json<RunView>, Problem> {
    act(&tests, &run_id(&id)?, Act::Pause).await.map(|run| Json(run.into()))
}

/// Lets a paused run go on.
#[utoipa::path(post, path = "/api/v1/load/runs/{id}/resume", params(("id" = String, Path, max_length = 128)),
    responses((status = 200, body = RunView)))]
async fn resume_run(
    State(tests): State<LoadTests>,
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

pub(crate) async fn act(tests: &LoadTests, id: &TestId, act: Act) -> Result<Run, Problem> {
    let changed = match act {
        Act::Pause => tests.pause(id).await?,
        Act::Resume => tests.resume(id).await?,
        Act::Cancel => tests.cancel(id).await?,
    };
    match changed {
        Changed::To(_) => find(tests, id).await,
        Changed::Not(state) => Err(Problem::conflict(format!("The run is {state}."))),
        Changed::Gone => Err(Problem::not_found("run")),
    }
}

/// Which part of a series.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Part {
    /// From this second on; 0 if not said.
    from: Option<u32>,
}

/// What happened in each second of a run, merged over its runners; an hour at most at a time.
#[utoipa::path(get, path = "/api/v1/load/runs/{id}/timeline", params(("id" = String, Path, max_length = 128), Part),
    responses((status = 200, body = Vec<Point>)))]
async fn timeline(
    State(tests): State<LoadTests>,
    Path(id): Path<String>,
    Query(part): Query<Part>,
) -> Result<Json<Vec<Point>>, Problem> {
    let run = find(&tests, &run_id(&id)?).await?;
    let from = part.from.unwrap_or(0);
    let mut tally = Tally::default();
    for second in tests.seconds(&run).await?.iter().filter(|second| second.second >= from).take(MOST_POINTS) {
        tally.add(second);
    }
    Ok(Json(tally.points().to_vec()))
}

/// Which lines.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Lines {
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
struct LogView {
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
async fn logs(
    State(tests): State<LoadTests>,
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
async fn report(State(tests): State<LoadTests>, Path(id): Path<String>) -> Result<Json<Report>, Problem> {
    let run = find(&tests, &run_id(&id)?).await?;
    let report = tests.report(&run).await?;
    report.map(Json).ok_or_else(|| Problem::not_found("report"))
}

pub(crate) fn run_id(text: &str) -> Result<TestId, Problem> {
    TestId::new(text).map_err(|_| Problem::not_found("run"))
}

pub(crate) async fn find(tests: &LoadTests, id: &TestId) -> Result<Run, Problem> {
    tests.run(id).await?.ok_or_else(|| Problem::not_found("run"))
}

async fn plan_view(tests: &LoadTests, id: PlanId) -> Result<PlanView, Problem> {
    let plan = tests.plan(id).await?.ok_or_else(|| Problem::not_found("plan"))?;
    let read = plan.read().map_err(crate::Error::from)?;
    let mut run_types = Vec::new();
    for run_type in read.run_types {
        let groups = tests.cache().groups(id, &run_type.name).await?;
        run_types.push(RunTypeView { name: run_type.name, groups });
    }
    Ok(PlanView {
        id: plan.plan_id,
        name: plan.name,
        version: plan.version,
        format: plan.format,
        source: plan.source,
        files: plan.files.iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect(),
        run_types,
    })
}

/// Now, by this machine's clock, for what is only shown.
pub(crate) fn now() -> UnixMs {
    UnixMs(jiff::Timestamp::now().as_millisecond())
}
