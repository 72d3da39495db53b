//! Plans: `/api/v1/load/plans`.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use hob_web::{Json, List, Paging, Path, Problem, Query, Time};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::load::Load;
use crate::plan::cache::CachedGroup;
use crate::plan::catalog::{EditOutcome, PlanEntry, PlanId};
use crate::plan::{Files, Format, Written};

/// A plan in a list.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LoadPlanItem)]
pub(super) struct PlanItem {
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
pub(super) struct PlanView {
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
pub(super) struct PlanBody {
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

/// Plans, newest first.
#[utoipa::path(get, path = "/api/v1/load/plans", params(Paging), responses((status = 200, body = List<PlanItem>)))]
pub(super) async fn list_plans(
    State(tests): State<Load>,
    Query(paging): Query<Paging>,
) -> Result<Json<List<PlanItem>>, Problem> {
    let page = tests.plans(&paging.request()?).await?;
    Ok(Json(page.map(PlanItem::from).into()))
}

/// Adds a plan. A wrong one is refused with its line and field.
#[utoipa::path(post, path = "/api/v1/load/plans", request_body = PlanBody,
    responses((status = 201, body = PlanView)))]
pub(super) async fn add_plan(
    State(tests): State<Load>,
    Json(body): Json<PlanBody>,
) -> Result<impl IntoResponse, Problem> {
    let id = tests.add_plan(&body.written(Files::default())).await?;
    Ok((StatusCode::CREATED, Json(plan_view(&tests, id).await?)))
}

/// A plan in its newest version.
#[utoipa::path(get, path = "/api/v1/load/plans/{id}", params(("id" = i64, Path)),
    responses((status = 200, body = PlanView)))]
pub(super) async fn show_plan(
    State(tests): State<Load>,
    Path(id): Path<i64>,
) -> Result<Json<PlanView>, Problem> {
    Ok(Json(plan_view(&tests, PlanId(id)).await?))
}

/// Makes a new version of a plan.
#[utoipa::path(put, path = "/api/v1/load/plans/{id}", params(("id" = i64, Path)), request_body = PlanBody,
    responses((status = 200, body = PlanView)))]
pub(super) async fn edit_plan(
    State(tests): State<Load>,
    Path(id): Path<i64>,
    Json(body): Json<PlanBody>,
) -> Result<Json<PlanView>, Problem> {
    let before = tests.plan(PlanId(id)).await?.ok_or_else(|| Problem::not_found("plan"))?;
    let seen = body.version;
    match tests.edit_plan(PlanId(id), seen, &body.written(before.files)).await? {
        EditOutcome::Saved(_) => Ok(Json(plan_view(&tests, PlanId(id)).await?)),
        EditOutcome::Conflict(version) => {
            Err(Problem::conflict(format!("The plan has the version {version} by now.")))
        }
        EditOutcome::NotFound => Err(Problem::not_found("plan")),
    }
}

/// Deletes a plan. Its runs stay.
#[utoipa::path(delete, path = "/api/v1/load/plans/{id}", params(("id" = i64, Path)),
    responses((status = 204)))]
pub(super) async fn delete_plan(
    State(tests): State<Load>,
    Path(id): Path<i64>,
) -> Result<StatusCode, Problem> {
    let deleted = tests.delete_plan(PlanId(id)).await?;
    if deleted { Ok(StatusCode::NO_CONTENT) } else { Err(Problem::not_found("plan")) }
}

async fn plan_view(tests: &Load, id: PlanId) -> Result<PlanView, Problem> {
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
