//! Plans: `/api/v1/load/plans`.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use hob_web::{AuditDetail, Json, List, Paging, Path, Problem, Query, Time};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::generator::DryRun;
use crate::load::{DryRunOutcome, Load};
use crate::plan::cache::CachedGroup;
use crate::plan::catalog::{EditOutcome, PlanEntry, PlanId};
use crate::plan::{Format, PlanFiles, PlanSource};

/// A plan in a list.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LoadPlanItem)]
pub(super) struct PlanItem {
    id: i64,
    name: String,
    /// The newest version.
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
pub(super) struct PlanView {
    id: i64,
    name: String,
    version: u32,
    format: Format,
    source: String,
    /// The files that the source refers to, with their content.
    files: BTreeMap<String, String>,
    run_types: Vec<RunTypeView>,
}

/// A run type of a plan.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LoadRunType)]
struct RunTypeView {
    name: String,
    groups: Vec<GroupView>,
}

/// A group of steps.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LoadPlanGroup)]
struct GroupView {
    plan_version: u32,
    name: String,
    steps: Vec<String>,
}

impl From<CachedGroup> for GroupView {
    fn from(CachedGroup { plan_version, name, steps }: CachedGroup) -> Self {
        Self { plan_version, name, steps }
    }
}

/// A plan to save.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LoadPlanBody)]
pub(super) struct PlanBody {
    /// The plan as TOML or JSON, as described in the guide.
    #[schema(max_length = 262_144)]
    source: String,
    /// TOML by default.
    format: Option<Format>,
    /// The files that the plan refers to, with their content; at most 16. Without this field, the files of the previous
    /// version are kept.
    #[schema(value_type = Option<BTreeMap<String, hob_web::Text524288>>)]
    files: Option<BTreeMap<String, String>>,
    /// The version that was edited. If it is not the newest, nothing is changed and the answer is 409.
    #[schema(maximum = 4_294_967_295i64)]
    version: Option<u32>,
}

impl PlanBody {
    fn into_source(self, files: PlanFiles) -> PlanSource {
        let files = self.files.map_or(files, PlanFiles::new);
        PlanSource { source: self.source, format: self.format.unwrap_or(Format::Toml), files }
    }
}

/// A plan to run once.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LoadDryRunBody)]
pub(super) struct DryRunBody {
    /// The plan as TOML or JSON, as described in the guide.
    #[schema(max_length = 262_144)]
    source: String,
    /// TOML by default.
    format: Option<Format>,
    /// The files that the plan refers to, with their content; at most 16.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, hob_web::Text524288>)]
    files: BTreeMap<String, String>,
    /// By default the first run type of the plan.
    #[schema(max_length = 128)]
    run_type: Option<String>,
}

/// List plans, newest first.
#[utoipa::path(get, path = "/api/v1/load/plans", params(Paging), responses((status = 200, body = List<PlanItem>)))]
pub(super) async fn list_plans(
    State(load): State<Load>,
    Query(paging): Query<Paging>,
) -> Result<Json<List<PlanItem>>, Problem> {
    let page = load.plans(&paging.request()?).await?;
    Ok(Json(page.map(PlanItem::from).into()))
}

/// Add a plan. The answer to an invalid plan names the line and the field.
#[utoipa::path(post, path = "/api/v1/load/plans", request_body = PlanBody,
    responses((status = 201, body = PlanView)))]
pub(super) async fn add_plan(
    State(load): State<Load>,
    Json(body): Json<PlanBody>,
) -> Result<impl IntoResponse, Problem> {
    let id = load.add_plan(&body.into_source(PlanFiles::default())).await?;
    Ok((StatusCode::CREATED, AuditDetail::Of(id.to_string()), Json(plan_view(&load, id).await?)))
}

/// Send the requests of a plan once, with one user and without think times, for at most 20 seconds, and return what
/// happened. Nothing is saved. The targets must be allowed as for a run.
#[utoipa::path(post, path = "/api/v1/load/plans/dry-run", request_body = DryRunBody,
    responses((status = 200, body = DryRun)))]
pub(super) async fn dry_run(
    State(load): State<Load>,
    Json(body): Json<DryRunBody>,
) -> Result<(AuditDetail, Json<DryRun>), Problem> {
    let format = body.format.unwrap_or(Format::Toml);
    let plan = PlanSource { source: body.source, format, files: PlanFiles::new(body.files) };
    let result = run_once(&load, &plan, body.run_type.as_deref()).await?;
    Ok((AuditDetail::Of(result.plan.clone()), Json(result)))
}

pub(crate) async fn run_once(
    load: &Load,
    plan: &PlanSource,
    run_type: Option<&str>,
) -> Result<DryRun, Problem> {
    match load.dry_run(plan, run_type).await? {
        DryRunOutcome::Done(result) => Ok(result),
        DryRunOutcome::RunTypeNotFound => Err(Problem::invalid("run_type", "the plan has no such run type")),
        DryRunOutcome::Busy => {
            Err(Problem::too_many("Too many dry runs at the same time.", Duration::from_secs(1)))
        }
    }
}

/// Get the newest version of a plan.
#[utoipa::path(get, path = "/api/v1/load/plans/{id}", params(("id" = i64, Path, maximum = 9_223_372_036_854_775_807i64)),
    responses((status = 200, body = PlanView)))]
pub(super) async fn show_plan(
    State(load): State<Load>,
    Path(id): Path<i64>,
) -> Result<Json<PlanView>, Problem> {
    Ok(Json(plan_view(&load, PlanId(id)).await?))
}

/// Save a new version of a plan.
#[utoipa::path(put, path = "/api/v1/load/plans/{id}", params(("id" = i64, Path, maximum = 9_223_372_036_854_775_807i64)), request_body = PlanBody,
    responses((status = 200, body = PlanView)))]
pub(super) async fn edit_plan(
    State(load): State<Load>,
    Path(id): Path<i64>,
    Json(body): Json<PlanBody>,
) -> Result<Json<PlanView>, Problem> {
    let before = load.plan(PlanId(id)).await?.ok_or_else(|| Problem::not_found("plan"))?;
    let expected = body.version;
    match load.edit_plan(PlanId(id), expected, &body.into_source(before.files)).await? {
        EditOutcome::Saved(_) => Ok(Json(plan_view(&load, PlanId(id)).await?)),
        EditOutcome::Conflict(version) => Err(Problem::conflict(format!(
            "The plan was edited in the meantime; its newest version is {version}."
        ))),
        EditOutcome::NotFound => Err(Problem::not_found("plan")),
    }
}

/// Delete a plan. Its runs are kept.
#[utoipa::path(delete, path = "/api/v1/load/plans/{id}", params(("id" = i64, Path, maximum = 9_223_372_036_854_775_807i64)),
    responses((status = 204)))]
pub(super) async fn delete_plan(
    State(load): State<Load>,
    Path(id): Path<i64>,
) -> Result<StatusCode, Problem> {
    let deleted = load.delete_plan(PlanId(id)).await?;
    if deleted { Ok(StatusCode::NO_CONTENT) } else { Err(Problem::not_found("plan")) }
}

async fn plan_view(load: &Load, id: PlanId) -> Result<PlanView, Problem> {
    let plan = load.plan(id).await?.ok_or_else(|| Problem::not_found("plan"))?;
    let parsed = plan.read().map_err(crate::Error::from)?;
    let mut run_types = Vec::new();
    for run_type in parsed.run_types {
        let groups = load.cache().groups(id, &run_type.name).await?;
        let groups = groups.into_iter().map(GroupView::from).collect();
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
