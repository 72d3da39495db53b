//! The API: quotas that any script can share, plans, and runs.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use hob_records::UnixMs;
use hob_web::{Access, Changes, Json, List, Paging, Path, Problem, Query, Routes, Time};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::definition::{Plan, PlanName};
use crate::error::Error;
use crate::forecast::{self, Forecast};
use crate::item::{ItemFacts, ItemState};
use crate::pages;
use crate::pipelines::{Pipelines, StoredPlan};
use crate::quota::{Answer, Ask, Gauge, Lesson, Limits, QuotaName};
use crate::retry::Class;
use crate::run::{Run, RunId, RunState, Wish};

impl Pipelines {
    /// The API and the pages. Pages that are open hear of changes through `changes`.
    pub fn routes(&self, changes: &Changes) -> Routes {
        self.tell_through(changes);
        let (read, write) = (|| Access::read("pipelines"), || Access::write("pipelines"));
        let api = Routes::new()
            .api(read(), routes!(list_quotas))
            .api(read(), routes!(get_quota))
            .api(write(), routes!(put_quota))
            .api(write(), routes!(reserve))
            .api(write(), routes!(commit))
            .api(write(), routes!(release))
            .api(read(), routes!(list_plans))
            .api(write(), routes!(put_plan))
            .api(write(), routes!(start_run))
            .api(read(), routes!(list_runs))
            .api(read(), routes!(get_run))
            .api(write(), routes!(pause))
            .api(write(), routes!(resume))
            .api(write(), routes!(cancel))
            .api(write(), routes!(archive))
            .api(write(), routes!(replay))
            .api(read(), routes!(list_items))
            .api(read(), routes!(list_failed))
            .api(read(), routes!(get_forecast));
        api.merge(pages::routes()).with_state(self.clone())
    }
}

/// A quota, and how full it is.
#[derive(Serialize, ToSchema)]
#[schema(as = Quota)]
pub(crate) struct QuotaView {
    name: String,
    /// As they were written: `5/1m, 50/1h`.
    windows: String,
    /// Calls that stay unused in every window.
    buffer: u32,
    /// Calls that are under way.
    in_flight: u32,
    /// The API refuses until then.
    blocked_until: Option<Time>,
    usage: Vec<WindowView>,
}

/// How full a window is.
#[derive(Serialize, ToSchema)]
#[schema(as = QuotaWindow)]
struct WindowView {
    limit: u32,
    /// The limit without the buffer.
    usable: u32,
    seconds: u64,
    used: u32,
    left: u32,
    /// When one more call fits.
    fits_at: Time,
}

/// What a quota allows.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct QuotaWish {
    /// Rolling windows: `5000/1h`, or `5/1m, 50/1h, 125/1d`.
    #[schema(max_length = 200, example = "5000/1h")]
    windows: String,
    /// Calls that stay unused in every window.
    #[serde(default)]
    buffer: u32,
}

/// Calls to be reserved.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ReserveWish {
    /// The caller's name of the reservation; asking again under it gives the same calls. Made up if not given.
    #[schema(max_length = 64)]
    id: Option<String>,
    /// 1 if not said.
    calls: Option<u32>,
    /// Whom turns are counted for when several wait.
    #[schema(max_length = 250)]
    run: Option<String>,
    /// The share against others, 1 to 1000; 1 if not said.
    weight: Option<u32>,
    /// The answers have come by then; 60 if not said.
    #[schema(minimum = 1, maximum = 3600)]
    hold_seconds: Option<u64>,
}

/// Yes, or when to come again.
#[derive(Serialize, ToSchema)]
struct ReserveAnswer {
    granted: bool,
    id: String,
    /// A call that is not committed counts as answered then.
    until: Option<Time>,
    /// Nothing fits earlier.
    at: Option<Time>,
    /// The same from now.
    wait_ms: Option<u64>,
}

/// Calls that were made.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CommitWish {
    #[schema(max_length = 64)]
    id: String,
    /// How many of the reserved calls; all if not said. The others are given back.
    made: Option<u32>,
    /// `Retry-After` of a refusal by the API.
    retry_after_seconds: Option<u64>,
}

/// A reservation that is not needed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ReleaseWish {
    #[schema(max_length = 64)]
    id: String,
}

/// A pipeline.
#[derive(Serialize, ToSchema)]
#[schema(as = Pipeline)]
struct PlanView {
    name: String,
    /// The plan in TOML.
    toml: String,
    updated_at: Time,
}

/// A pipeline to be kept: in TOML, or the same as an object.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PlanWish {
    #[schema(max_length = 262144)]
    toml: Option<String>,
    #[schema(value_type = Option<Object>)]
    plan: Option<toml::Table>,
    /// Only check it, and say what it would cost.
    #[serde(default)]
    dry_run: bool,
}

/// What was kept, or would be.
#[derive(Serialize, ToSchema)]
struct PlanAnswer {
    name: String,
    kept: bool,
    /// Items that the source names, where that is known before it is asked.
    items: Option<u64>,
    /// Calls for them, without what they lead to.
    calls: Option<u64>,
    /// How long the quota makes those calls last.
    seconds: Option<u64>,
}

/// A run to be started.
#[derive(Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
struct RunWish {
    /// Its id; made of the time if not given. Under an id that exists that run is the answer.
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
    /// What keeps it from going on.
    trouble: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    items: Option<ItemCounts>,
}

/// Items by state.
#[derive(Serialize, ToSchema)]
struct ItemCounts {
    waiting: u64,
    claimed: u64,
    done: u64,
    quarantined: u64,
}

#[derive(Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
struct ReplayWish {
    /// Only items of this class.
    class: Option<Class>,
}

#[derive(Serialize, ToSchema)]
struct Replayed {
    items: u64,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ItemFilter {
    /// `waiting`, `claimed`, `done` or `quarantined`.
    state: Option<String>,
    #[param(max_length = 2048)]
    after: Option<String>,
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u16>,
}

/// What is left of a run.
#[derive(Serialize, ToSchema)]
#[schema(as = PipelineForecast)]
struct ForecastView {
    calls_least: u64,
    calls_expected: u64,
    calls_most: u64,
    /// Where it can be said.
    seconds_least: Option<u64>,
    seconds_expected: Option<u64>,
    seconds_most: Option<u64>,
    done_at: Option<Time>,
}

/// All quotas, and how full they are.
#[utoipa::path(get, path = "/api/v1/quota", responses((status = 200, body = Vec<QuotaView>)))]
async fn list_quotas(State(pipelines): State<Pipelines>) -> Result<Json<Vec<QuotaView>>, Problem> {
    let mut views = Vec::new();
    for definition in pipelines.quotas().all().await? {
        views.push(pipelines.quotas().look(&definition.name).await?.into());
    }
    Ok(Json(views))
}

/// A quota, and how full it is.
#[utoipa::path(get, path = "/api/v1/quota/{name}", params(("name" = String, Path, max_length = 64)),
    responses((status = 200, body = QuotaView)))]
async fn get_quota(
    State(pipelines): State<Pipelines>,
    Path(name): Path<String>,
) -> Result<Json<QuotaView>, Problem> {
    Ok(Json(pipelines.quotas().look(&quota_name(&name)?).await?.into()))
}

/// Makes a quota, or changes what it allows.
#[utoipa::path(put, path = "/api/v1/quota/{name}", params(("name" = String, Path, max_length = 64)),
    request_body = QuotaWish, responses((status = 200, body = QuotaView)))]
async fn put_quota(
    State(pipelines): State<Pipelines>,
    Path(name): Path<String>,
    Json(wish): Json<QuotaWish>,
) -> Result<Json<QuotaView>, Problem> {
    let name: QuotaName = name.parse().map_err(Problem::from)?;
    let limits = Limits::parse(&wish.windows, wish.buffer)?;
    pipelines.quotas().define(&name, &limits).await?;
    Ok(Json(pipelines.quotas().look(&name).await?.into()))
}

/// Reserves calls. They are in the call log before this says yes.
#[utoipa::path(post, path = "/api/v1/quota/{name}/reserve", params(("name" = String, Path, max_length = 64)),
    request_body = ReserveWish, responses((status = 200, body = ReserveAnswer)))]
async fn reserve(
    State(pipelines): State<Pipelines>,
    Path(name): Path<String>,
    Json(wish): Json<ReserveWish>,
) -> Result<Json<ReserveAnswer>, Problem> {
    let ask = Ask {
        id: wish.id.unwrap_or_else(|| format!("{:032x}", rand::random::<u128>())),
        calls: wish.calls.unwrap_or(1),
        run: wish.run.unwrap_or_else(|| "api".to_owned()),
        weight: wish.weight.unwrap_or(1),
        hold: Duration::from_secs(wish.hold_seconds.unwrap_or(60)),
    };
    let answer = pipelines.quotas().reserve(&quota_name(&name)?, &ask).await?;
    pipelines.tell();
    let id = ask.id;
    Ok(Json(match answer {
        Answer::Granted(reservation) => {
            let until = Some(Time(reservation.until));
            ReserveAnswer { granted: true, id, until, at: None, wait_ms: None }
        }
        Answer::Wait { at, after } => {
            let wait_ms = u64::try_from(after.as_millis()).ok();
            ReserveAnswer { granted: false, id, until: None, at: Some(Time(at)), wait_ms }
        }
    }))
}

/// Settles a reservation: the calls were made.
#[utoipa::path(post, path = "/api/v1/quota/{name}/commit", params(("name" = String, Path, max_length = 64)),
    request_body = CommitWish, responses((status = 204)))]
async fn commit(
    State(pipelines): State<Pipelines>,
    Path(name): Path<String>,
    Json(wish): Json<CommitWish>,
) -> Result<StatusCode, Problem> {
    let blocked_for = wish.retry_after_seconds.map(|seconds| Duration::from_secs(seconds.min(7 * 86_400)));
    let lesson = Lesson { blocked_for, counted: None };
    settle(&pipelines, &name, &wish.id, wish.made.unwrap_or(u32::MAX), lesson).await
}

/// Gives a reservation back: no call was made.
#[utoipa::path(post, path = "/api/v1/quota/{name}/release", params(("name" = String, Path, max_length = 64)),
    request_body = ReleaseWish, responses((status = 204)))]
async fn release(
    State(pipelines): State<Pipelines>,
    Path(name): Path<String>,
    Json(wish): Json<ReleaseWish>,
) -> Result<StatusCode, Problem> {
    settle(&pipelines, &name, &wish.id, 0, Lesson::default()).await
}

async fn settle(
    pipelines: &Pipelines,
    name: &str,
    id: &str,
    made: u32,
    lesson: Lesson,
) -> Result<StatusCode, Problem> {
    let reservation = pipelines.quotas().reservation(&quota_name(name)?, id).await?;
    pipelines.quotas().settle(&reservation, made, lesson).await?;
    pipelines.tell();
    Ok(StatusCode::NO_CONTENT)
}

/// All pipelines.
#[utoipa::path(get, path = "/api/v1/pipelines", responses((status = 200, body = Vec<PlanView>)))]
async fn list_plans(State(pipelines): State<Pipelines>) -> Result<Json<Vec<PlanView>>, Problem> {
    let view = |plan: StoredPlan| {
        let StoredPlan { name, text, updated_at } = plan;
        PlanView { name: name.to_string(), toml: text, updated_at: Time(updated_at) }
    };
    Ok(Json(pipelines.plans().await?.into_iter().map(view).collect()))
}

/// Keeps a pipeline, or changes the one of that name; runs go on with the plan that they began with.
#[utoipa::path(post, path = "/api/v1/pipelines", request_body = PlanWish,
    responses((status = 200, body = PlanAnswer), (status = 201, body = PlanAnswer)))]
async fn put_plan(
    State(pipelines): State<Pipelines>,
    Json(wish): Json<PlanWish>,
) -> Result<(StatusCode, Json<PlanAnswer>), Problem> {
    let text = match (wish.toml, wish.plan) {
        (Some(text), None) => text,
        (None, Some(plan)) => {
            toml::to_string(&plan).map_err(|error| Problem::invalid("plan", error.to_string()))?
        }
        _ => return Err(Problem::invalid("toml", "either toml or plan")),
    };
    let plan = if wish.dry_run {
        Plan::parse(&text).map_err(Error::from)?
    } else {
        pipelines.put_plan(&text).await?
    };
    let cost = pipelines.cost(&plan).await?;
    pipelines.tell();
    let answer = PlanAnswer {
        name: plan.name.to_string(),
        kept: !wish.dry_run,
        items: cost.items,
        calls: cost.calls,
        seconds: cost.duration.map(|duration| duration.as_secs()),
    };
    Ok((if wish.dry_run { StatusCode::OK } else { StatusCode::CREATED }, Json(answer)))
}

/// Starts a run.
#[utoipa::path(post, path = "/api/v1/pipelines/{id}/runs", params(("id" = String, Path, max_length = 64)),
    request_body = RunWish, responses((status = 201, body = RunView)))]
async fn start_run(
    State(pipelines): State<Pipelines>,
    Path(id): Path<String>,
    Json(wish): Json<RunWish>,
) -> Result<(StatusCode, Json<RunView>), Problem> {
    let run = wish.id.map(|id| id.parse::<RunId>()).transpose()?;
    let run = pipelines.start_run(&plan_name(&id)?, run).await?;
    pipelines.tell();
    Ok((StatusCode::CREATED, Json(run.into())))
}

/// Runs, newest first.
#[utoipa::path(get, path = "/api/v1/pipelines/runs", params(Paging), responses((status = 200, body = List<RunView>)))]
async fn list_runs(
    State(pipelines): State<Pipelines>,
    Query(paging): Query<Paging>,
) -> Result<Json<List<RunView>>, Problem> {
    let page = pipelines.runs(&paging.request()?).await?;
    Ok(Json(page.map(RunView::from).into()))
}

/// A run, and how far it is.
#[utoipa::path(get, path = "/api/v1/pipelines/runs/{id}", params(("id" = String, Path, max_length = 250)),
    responses((status = 200, body = RunView)))]
async fn get_run(
    State(pipelines): State<Pipelines>,
    Path(id): Path<String>,
) -> Result<Json<RunView>, Problem> {
    let id = run_id(&id)?;
    let (run, progress) = (pipelines.run(&id).await?, pipelines.progress(&id).await?);
    let items = Some(ItemCounts {
        waiting: progress.of(ItemState::Waiting),
        claimed: progress.of(ItemState::Claimed),
        done: progress.of(ItemState::Done),
        quarantined: progress.of(ItemState::Quarantined),
    });
    Ok(Json(RunView { items, ..run.into() }))
}

/// Pauses a run.
#[utoipa::path(post, path = "/api/v1/pipelines/runs/{id}/pause", params(("id" = String, Path, max_length = 250)),
    responses((status = 200, body = RunView)))]
async fn pause(pipelines: State<Pipelines>, id: Path<String>) -> Result<Json<RunView>, Problem> {
    change(&pipelines, &id.0, Wish::Pause).await
}

/// Lets a paused run go on.
#[utoipa::path(post, path = "/api/v1/pipelines/runs/{id}/resume", params(("id" = String, Path, max_length = 250)),
    responses((status = 200, body = RunView)))]
async fn resume(pipelines: State<Pipelines>, id: Path<String>) -> Result<Json<RunView>, Problem> {
    change(&pipelines, &id.0, Wish::Resume).await
}

/// Ends a run for good.
#[utoipa::path(post, path = "/api/v1/pipelines/runs/{id}/cancel", params(("id" = String, Path, max_length = 250)),
    responses((status = 200, body = RunView)))]
async fn cancel(pipelines: State<Pipelines>, id: Path<String>) -> Result<Json<RunView>, Problem> {
    change(&pipelines, &id.0, Wish::Cancel).await
}

/// Puts a run that is over out of sight.
#[utoipa::path(post, path = "/api/v1/pipelines/runs/{id}/archive", params(("id" = String, Path, max_length = 250)),
    responses((status = 200, body = RunView)))]
async fn archive(pipelines: State<Pipelines>, id: Path<String>) -> Result<Json<RunView>, Problem> {
    change(&pipelines, &id.0, Wish::Archive).await
}

async fn change(pipelines: &Pipelines, id: &str, wish: Wish) -> Result<Json<RunView>, Problem> {
    Ok(Json(pipelines.wish(&run_id(id)?, wish).await?.into()))
}

/// Lets items that were set aside be tried again.
#[utoipa::path(post, path = "/api/v1/pipelines/runs/{id}/replay", params(("id" = String, Path, max_length = 250)),
    request_body = ReplayWish, responses((status = 200, body = Replayed)))]
async fn replay(
    State(pipelines): State<Pipelines>,
    Path(id): Path<String>,
    Json(wish): Json<ReplayWish>,
) -> Result<Json<Replayed>, Problem> {
    Ok(Json(Replayed { items: pipelines.replay(&run_id(&id)?, wish.class).await? }))
}

/// Items of a run.
#[utoipa::path(get, path = "/api/v1/pipelines/runs/{id}/items",
    params(("id" = String, Path, max_length = 250), ItemFilter), responses((status = 200, body = List<ItemFacts>)))]
async fn list_items(
    State(pipelines): State<Pipelines>,
    Path(id): Path<String>,
    Query(filter): Query<ItemFilter>,
) -> Result<Json<List<ItemFacts>>, Problem> {
    let state = filter.state.map(|state| state.parse::<ItemState>()).transpose();
    let state = state.map_err(|reason| Problem::invalid("state", reason))?;
    let paging = Paging { after: filter.after, limit: filter.limit };
    let page = pipelines.items(&run_id(&id)?, state, None, &paging.request()?).await?;
    Ok(Json(page.into()))
}

/// Items of a run that were set aside.
#[utoipa::path(get, path = "/api/v1/pipelines/runs/{id}/failed",
    params(("id" = String, Path, max_length = 250), Paging), responses((status = 200, body = List<ItemFacts>)))]
async fn list_failed(
    State(pipelines): State<Pipelines>,
    Path(id): Path<String>,
    Query(paging): Query<Paging>,
) -> Result<Json<List<ItemFacts>>, Problem> {
    let page = pipelines.items(&run_id(&id)?, Some(ItemState::Quarantined), None, &paging.request()?).await?;
    Ok(Json(page.into()))
}

/// When a run will be done, as far as one can say.
#[utoipa::path(get, path = "/api/v1/pipelines/runs/{id}/forecast", params(("id" = String, Path, max_length = 250)),
    responses((status = 200, body = ForecastView)))]
async fn get_forecast(
    State(pipelines): State<Pipelines>,
    Path(id): Path<String>,
) -> Result<Json<ForecastView>, Problem> {
    Ok(Json(pipelines.forecast(&run_id(&id)?).await?.into()))
}

/// A name that cannot be is one that nothing has.
fn quota_name(name: &str) -> Result<QuotaName, Problem> {
    name.parse().map_err(|_| Problem::not_found("quota"))
}

fn plan_name(name: &str) -> Result<PlanName, Problem> {
    name.parse().map_err(|_| Problem::not_found("pipeline"))
}

pub(crate) fn run_id(id: &str) -> Result<RunId, Problem> {
    id.parse().map_err(|_| Problem::not_found("run"))
}

impl From<Gauge> for QuotaView {
    fn from(gauge: Gauge) -> Self {
        let usage = gauge.windows.iter().map(|window| WindowView {
            limit: window.limit,
            usable: window.usable,
            seconds: window.period.as_secs(),
            used: window.used,
            left: window.left(),
            fits_at: Time(window.fits_at),
        });
        Self {
            name: gauge.definition.name.to_string(),
            windows: gauge.definition.limits.to_string(),
            buffer: gauge.definition.limits.buffer(),
            in_flight: gauge.in_flight,
            blocked_until: gauge.blocked_until.map(Time),
            usage: usage.collect(),
        }
    }
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
        }
    }
}

impl From<Forecast> for ForecastView {
    fn from(forecast: Forecast) -> Self {
        let Forecast { calls: forecast::Bounds { least, expected, most }, duration, done_at } = forecast;
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

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error {
            Error::Hot(error) => error.into(),
            Error::Records(error) => error.into(),
            Error::Unknown { what, .. } => Problem::not_found(what),
            Error::Unfit { field, reason } => Problem::invalid(field, reason),
            Error::Plan(bad) => Problem::invalid(bad.field, format!("line {}: {}", bad.line, bad.reason)),
            Error::Refused(reason) => Problem::conflict(reason),
            error @ (Error::Log(_) | Error::Unsteady) => {
                tracing::warn!(%error, "a quota did not answer");
                Problem::unavailable("The quota cannot be asked right now. Nothing was spent.")
            }
            error @ (Error::File { .. } | Error::Sink(_) | Error::Secret(_) | Error::Keys(_)) => {
                Problem::internal(error)
            }
        }
    }
}
