//! The API of incidents.

#![allow(unused_qualifications, reason = "in code that utoipa derives")]

use axum::extract::State;
use axum::http::StatusCode;
use hob_web::{AuditDetail, Caller, Json, List, Paging, Path, Problem, Query};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::monitor_id;
use super::view::{IncidentView, NoteView, UpdateView};
use crate::database::{incidents, updates};
use crate::incident::{
    self, AcknowledgeOutcome, AnnotateOutcome, Filter, MAX_NOTE_BYTES, MAX_NOTES, MAX_UPDATE_BYTES,
    MAX_UPDATES, Note, PublishOutcome, Update, UpdateStatus,
};
use crate::uptime::Uptime;

/// Filters of the list of incidents.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct IncidentQuery {
    /// Only open incidents.
    #[serde(default)]
    open: bool,
    /// Only incidents of this monitor; `open` is then ignored.
    #[param(max_length = 128)]
    monitor: Option<String>,
}

/// List incidents, the newest first.
#[utoipa::path(get, path = "/api/v1/uptime/incidents", operation_id = "list_incidents", params(IncidentQuery, Paging),
    responses((status = 200, body = List<IncidentView>)))]
pub(super) async fn list(
    State(uptime): State<Uptime>,
    Query(query): Query<IncidentQuery>,
    Query(paging): Query<Paging>,
) -> Result<Json<List<IncidentView>>, Problem> {
    let filter = match &query.monitor {
        Some(id) => Filter::Of(monitor_id(id)?),
        None if query.open => Filter::Open,
        None => Filter::All,
    };
    let page = incidents::page(uptime.database(), &filter, &paging.request()?).await?;
    Ok(Json(List::from(page.map(|incident| IncidentView::new(incident, Vec::new(), Vec::new())))))
}

/// Get an incident with its notes and updates.
#[utoipa::path(get, path = "/api/v1/uptime/incidents/{id}", operation_id = "show_incident", params(("id" = String, Path, max_length = 64)),
    responses((status = 200, body = IncidentView)))]
pub(super) async fn show(
    State(uptime): State<Uptime>,
    Path(id): Path<String>,
) -> Result<Json<IncidentView>, Problem> {
    let incident = incidents::by_id(uptime.database(), &id).await?;
    let incident = incident.ok_or_else(|| Problem::not_found("incident"))?;
    let notes = incidents::notes(uptime.database(), &id).await?;
    let updates = updates::of_one(uptime.database(), &id).await?;
    Ok(Json(IncidentView::new(incident, notes, updates)))
}

/// Acknowledge an incident: no more reminders are sent. Idempotent.
#[utoipa::path(post, path = "/api/v1/uptime/incidents/{id}/acknowledge", operation_id = "acknowledge_incident",
    params(("id" = String, Path, max_length = 64)), responses((status = 200, body = IncidentView)))]
pub(super) async fn acknowledge(
    State(uptime): State<Uptime>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<(AuditDetail, Json<IncidentView>), Problem> {
    match incident::acknowledge(uptime.database(), &id, caller.name()).await? {
        AcknowledgeOutcome::Acknowledged(incident) => {
            uptime.notify_pages(Some(&incident.monitor_id));
            Ok((AuditDetail::Of(id), Json(IncidentView::new(*incident, Vec::new(), Vec::new()))))
        }
        AcknowledgeOutcome::Already(incident) => {
            Ok((AuditDetail::Unchanged, Json(IncidentView::new(*incident, Vec::new(), Vec::new()))))
        }
        AcknowledgeOutcome::NotFound => Err(Problem::not_found("incident")),
    }
}

/// A note to add.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewNote {
    #[schema(min_length = 1, max_length = 4000)]
    text: String,
}

/// Add a note to an incident.
#[utoipa::path(post, path = "/api/v1/uptime/incidents/{id}/notes", operation_id = "annotate_incident", params(("id" = String, Path, max_length = 64)),
    request_body = NewNote, responses((status = 201, body = NoteView)))]
pub(super) async fn annotate(
    State(uptime): State<Uptime>,
    caller: Caller,
    Path(id): Path<String>,
    Json(note): Json<NewNote>,
) -> Result<(StatusCode, Json<NoteView>), Problem> {
    let note = add_note(&uptime, &caller, &id, &note.text).await?;
    Ok((StatusCode::CREATED, Json(NoteView::new(note))))
}

/// Adds a note for a request of the API or a page.
pub(crate) async fn add_note(
    uptime: &Uptime,
    caller: &Caller,
    id: &str,
    text: &str,
) -> Result<Note, Problem> {
    let text = text.trim();
    if text.is_empty() || text.len() > MAX_NOTE_BYTES {
        return Err(Problem::invalid("text", format!("must have 1 to {MAX_NOTE_BYTES} bytes")));
    }
    match incident::annotate(uptime.database(), id, caller.name(), text).await? {
        AnnotateOutcome::Added(note) => {
            uptime.notify_pages(None);
            Ok(note)
        }
        AnnotateOutcome::NotFound => Err(Problem::not_found("incident")),
        AnnotateOutcome::LimitReached => {
            Err(Problem::conflict(format!("The limit of {MAX_NOTES} notes has been reached.")))
        }
    }
}

/// An update to publish.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewUpdate {
    status: UpdateStatus,
    #[schema(min_length = 1, max_length = 4000)]
    text: String,
}

/// Publish an update of an incident on the status pages, in their feeds, and to their subscribers.
#[utoipa::path(post, path = "/api/v1/uptime/incidents/{id}/updates", operation_id = "publish_update", params(("id" = String, Path, max_length = 64)),
    request_body = NewUpdate, responses((status = 201, body = UpdateView)))]
pub(super) async fn publish(
    State(uptime): State<Uptime>,
    caller: Caller,
    Path(id): Path<String>,
    Json(update): Json<NewUpdate>,
) -> Result<(StatusCode, Json<UpdateView>), Problem> {
    let update = publish_update(&uptime, &caller, &id, (update.status, &update.text)).await?;
    Ok((StatusCode::CREATED, Json(UpdateView::new(update))))
}

/// Publishes an update for a request of the API or a page.
pub(crate) async fn publish_update(
    uptime: &Uptime,
    caller: &Caller,
    id: &str,
    (status, text): (UpdateStatus, &str),
) -> Result<Update, Problem> {
    let text = text.trim();
    if text.is_empty() || text.len() > MAX_UPDATE_BYTES {
        return Err(Problem::invalid("text", format!("must have 1 to {MAX_UPDATE_BYTES} bytes")));
    }
    let unknown = || Problem::not_found("incident");
    let incident = incidents::by_id(uptime.database(), id).await?.ok_or_else(unknown)?;
    let monitor = uptime.monitor(&incident.monitor_id).await?;
    let published =
        incident::publish(uptime.database(), monitor.as_deref(), id, caller.name(), (status, text)).await?;
    match published {
        PublishOutcome::Published(update) => {
            uptime.inner.status.invalidate();
            uptime.notify_pages(None);
            Ok(update)
        }
        PublishOutcome::NotFound => Err(unknown()),
        PublishOutcome::LimitReached => {
            Err(Problem::conflict(format!("The limit of {MAX_UPDATES} updates has been reached.")))
        }
    }
}
