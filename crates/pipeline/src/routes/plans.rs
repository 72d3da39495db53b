//! Pipelines as they are kept: in TOML, or the same as an object.

use axum::extract::State;
use axum::http::StatusCode;
use hob_web::{Access, Json, Problem, Routes, Time};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::error::Error;
use crate::pipeline::Pipelines;
use crate::plan::{Plan, StoredPlan};

pub(super) fn routes() -> Routes<Pipelines> {
    let (read, write) = (|| Access::read("pipelines"), || Access::write("pipelines"));
    Routes::new().api(read(), routes!(list_plans)).api(write(), routes!(put_plan))
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
#[schema(as = PipelineRequest)]
struct PlanRequest {
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
#[schema(as = PipelineResponse)]
struct PlanResponse {
    name: String,
    kept: bool,
    /// Items that the source names, where that is known before it is asked.
    items: Option<u64>,
    /// Calls for them, without what they lead to.
    calls: Option<u64>,
    /// How long the quota makes those calls last.
    seconds: Option<u64>,
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
#[utoipa::path(post, path = "/api/v1/pipelines", request_body = PlanRequest,
    responses((status = 200, body = PlanResponse), (status = 201, body = PlanResponse)))]
async fn put_plan(
    State(pipelines): State<Pipelines>,
    Json(request): Json<PlanRequest>,
) -> Result<(StatusCode, Json<PlanResponse>), Problem> {
    let text = match (request.toml, request.plan) {
        (Some(text), None) => text,
        (None, Some(plan)) => {
            toml::to_string(&plan).map_err(|error| Problem::invalid("plan", error.to_string()))?
        }
        _ => return Err(Problem::invalid("toml", "either toml or plan")),
    };
    let plan = if request.dry_run {
        Plan::parse(&text).map_err(Error::from)?
    } else {
        pipelines.put_plan(&text).await?
    };
    let cost = pipelines.cost(&plan).await?;
    pipelines.notify_pages();
    let answer = PlanResponse {
        name: plan.name.to_string(),
        kept: !request.dry_run,
        items: cost.items,
        calls: cost.calls,
        seconds: cost.duration.map(|duration| duration.as_secs()),
    };
    Ok((if request.dry_run { StatusCode::OK } else { StatusCode::CREATED }, Json(answer)))
}
