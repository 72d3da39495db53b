//! Saved pipelines.

use axum::extract::State;
use axum::http::StatusCode;
use hob_web::{Access, AuditDetail, Audited, Json, Problem, Routes, Time};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::error::Error;
use crate::pipeline::Pipelines;
use crate::plan::{Plan, StoredPlan};
use crate::run::preview::PreviewItem;

pub(super) fn routes() -> Routes<Pipelines> {
    let (read, write) = (|| Access::read("pipelines"), || Access::write("pipelines"));
    Routes::new().api(read(), routes!(list_plans)).write(
        write(),
        Audited::As("pipeline.plan.save"),
        routes!(put_plan),
    )
}

/// A pipeline.
#[derive(Serialize, ToSchema)]
#[schema(as = Pipeline)]
struct PlanView {
    name: String,
    /// The plan in TOML.
    source: String,
    updated_at: Time,
}

/// A pipeline to save, as TOML text or as a JSON object.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = PipelineRequest)]
struct PlanRequest {
    /// The plan in TOML.
    #[schema(max_length = 262144)]
    source: Option<String>,
    /// The plan as a JSON object, instead of `source`.
    #[schema(value_type = Option<Object>)]
    plan: Option<toml::Table>,
    /// Validate the plan, estimate its cost and show its first requests, without saving it or making a call.
    #[serde(default)]
    dry_run: bool,
}

/// The pipeline and its estimated cost.
#[derive(Serialize, ToSchema)]
#[schema(as = PipelineResponse)]
struct PlanResponse {
    name: String,
    /// Whether the pipeline was saved.
    kept: bool,
    /// Number of items in the source; null for a listing.
    items: Option<u64>,
    /// Calls for these items, without the items that follow from them.
    calls: Option<u64>,
    /// How long these calls take under the quota; 0 if it allows them at once.
    seconds: Option<u64>,
    /// Steps that follow from these items and make further calls, whose number is not known before the run.
    following: Vec<String>,
    /// What a run would do with the first items of the source; only in a dry run.
    preview: Vec<PreviewItem>,
}

/// List all pipelines.
#[utoipa::path(get, path = "/api/v1/pipelines", responses((status = 200, body = Vec<PlanView>)))]
async fn list_plans(State(pipelines): State<Pipelines>) -> Result<Json<Vec<PlanView>>, Problem> {
    let view = |plan: StoredPlan| {
        let StoredPlan { name, text, updated_at } = plan;
        PlanView { name: name.to_string(), source: text, updated_at: Time(updated_at) }
    };
    Ok(Json(pipelines.plans().await?.into_iter().map(view).collect()))
}

/// Save a pipeline, or replace the one with the same name. Existing runs keep the plan that they started with.
#[utoipa::path(post, path = "/api/v1/pipelines", request_body = PlanRequest,
    responses((status = 200, body = PlanResponse), (status = 201, body = PlanResponse)))]
async fn put_plan(
    State(pipelines): State<Pipelines>,
    Json(request): Json<PlanRequest>,
) -> Result<(StatusCode, AuditDetail, Json<PlanResponse>), Problem> {
    let text = match (request.source, request.plan) {
        (Some(text), None) => text,
        (None, Some(plan)) => {
            toml::to_string(&plan).map_err(|error| Problem::invalid("plan", error.to_string()))?
        }
        _ => return Err(Problem::invalid("source", "send exactly one of source and plan")),
    };
    let (plan, preview) = if request.dry_run {
        let plan = Plan::parse(&text).map_err(Error::from)?;
        let preview = pipelines.preview(&plan).await?;
        (plan, preview)
    } else {
        (pipelines.put_plan(&text).await?, Vec::new())
    };
    let cost = pipelines.cost(&plan).await?;
    pipelines.notify_pages();
    let answer = PlanResponse {
        name: plan.name.to_string(),
        kept: !request.dry_run,
        items: cost.items,
        calls: cost.calls,
        seconds: cost.duration.map(|duration| duration.as_secs()),
        following: cost.following,
        preview,
    };
    Ok(if request.dry_run {
        (StatusCode::OK, AuditDetail::Unchanged, Json(answer))
    } else {
        (StatusCode::CREATED, AuditDetail::Of(plan.name.to_string()), Json(answer))
    })
}
