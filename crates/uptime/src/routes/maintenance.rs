//! The API of maintenance windows.

use axum::extract::State;
use axum::http::StatusCode;
use hob_web::{AuditDetail, Json, List, Path, Problem};

use super::invalid;
use crate::database::maintenance;
use crate::monitor::maintenance::{Maintenance, MaintenanceSpec};
use crate::uptime::Uptime;

/// List maintenance windows, the latest first. Windows that ended more than 90 days ago may be missing.
#[utoipa::path(get, path = "/api/v1/uptime/maintenance", operation_id = "list_maintenance", responses((status = 200, body = List<Maintenance>)))]
pub(super) async fn list(State(uptime): State<Uptime>) -> Result<Json<List<Maintenance>>, Problem> {
    Ok(Json(List { items: maintenance::all(uptime.database()).await?, next: None }))
}

/// Add a maintenance window.
#[utoipa::path(post, path = "/api/v1/uptime/maintenance", operation_id = "add_maintenance", request_body = MaintenanceSpec,
    responses((status = 201, body = Maintenance)))]
pub(super) async fn add(
    State(uptime): State<Uptime>,
    Json(spec): Json<MaintenanceSpec>,
) -> Result<(StatusCode, AuditDetail, Json<Maintenance>), Problem> {
    spec.validate(&uptime.monitors()).map_err(invalid)?;
    let window = uptime.add_window(&spec).await?;
    Ok((StatusCode::CREATED, AuditDetail::Of(window.id.clone()), Json(window)))
}

/// Remove a maintenance window.
#[utoipa::path(delete, path = "/api/v1/uptime/maintenance/{id}", operation_id = "remove_maintenance", params(("id" = String, Path, max_length = 64)),
    responses((status = 204)))]
pub(super) async fn remove(
    State(uptime): State<Uptime>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    if !uptime.remove_window(&id).await? {
        return Err(Problem::not_found("maintenance window"));
    }
    Ok(StatusCode::NO_CONTENT)
}
