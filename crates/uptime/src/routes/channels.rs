//! The API of channels.

use axum::extract::State;
use axum::http::StatusCode;
use hob_web::{AuditDetail, Audited, Json, List, Paging, Path, Problem, Query, Routes, Time};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::{READ, WRITE, invalid};
use crate::database::{channels, deliveries};
use crate::incident::alert::channel::{self, MAX_CHANNELS, SaveOutcome};
use crate::incident::alert::delivery::DeliveryState;
use crate::incident::alert::{
    Alerts, Attempt, Channel, ChannelId, ChannelKind, ChannelPatch, ChannelSpec, Delivery, NoticeKind,
};

pub(crate) fn routes() -> Routes<Alerts> {
    Routes::new()
        .api(READ, routes!(list))
        .write(WRITE, Audited::As("uptime.channel.add"), routes!(add))
        .api(READ, routes!(show))
        .write(WRITE, Audited::As("uptime.channel.edit"), routes!(edit))
        .write(WRITE, Audited::As("uptime.channel.remove"), routes!(remove))
        .write(WRITE, Audited::As("uptime.channel.test"), routes!(test))
        .api(READ, routes!(deliveries))
}

/// A channel. `secret` is the name of a secret.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AlertChannel)]
pub(crate) struct ChannelView {
    pub(crate) id: ChannelId,
    name: String,
    kind: ChannelKind,
    #[serde(skip_serializing_if = "String::is_empty")]
    url: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    secret: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    to: Vec<String>,
    created_at: Time,
    changed_at: Time,
}

/// A delivery to a channel, with its attempts.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AlertDelivery)]
struct DeliveryView {
    /// Also the idempotency key.
    id: String,
    incident_id: String,
    kind: NoticeKind,
    number: u32,
    state: DeliveryState,
    /// Time of the next attempt, while it is waiting.
    #[serde(skip_serializing_if = "Option::is_none")]
    due_at: Option<Time>,
    created_at: Time,
    attempts: Vec<AttemptView>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AlertAttempt)]
struct AttemptView {
    number: u32,
    at: Time,
    took_ms: u64,
    delivered: bool,
    /// The response, or why there was none.
    message: String,
}

/// List all channels.
#[utoipa::path(get, path = "/api/v1/uptime/channels", operation_id = "list_channels", responses((status = 200, body = List<ChannelView>)))]
async fn list(State(alerts): State<Alerts>) -> Result<Json<List<ChannelView>>, Problem> {
    // One page: the number of channels is limited.
    let channels = channels::all(alerts.database()).await?;
    Ok(Json(List { items: channels.into_iter().map(ChannelView::from).collect(), next: None }))
}

/// Add a channel.
#[utoipa::path(post, path = "/api/v1/uptime/channels", operation_id = "add_channel", request_body = ChannelSpec,
    responses((status = 201, body = ChannelView)))]
async fn add(
    State(alerts): State<Alerts>,
    Json(spec): Json<ChannelSpec>,
) -> Result<(StatusCode, AuditDetail, Json<ChannelView>), Problem> {
    let added = view(channel::add(&alerts.context, &spec).await?)?;
    Ok((StatusCode::CREATED, AuditDetail::Of(added.id.to_string()), Json(added)))
}

/// Get a channel.
#[utoipa::path(get, path = "/api/v1/uptime/channels/{id}", operation_id = "show_channel", params(("id" = String, Path, max_length = 64)),
    responses((status = 200, body = ChannelView)))]
async fn show(State(alerts): State<Alerts>, Path(id): Path<ChannelId>) -> Result<Json<ChannelView>, Problem> {
    let found = channels::by_id(alerts.database(), &id).await?;
    found.map(|channel| Json(channel.into())).ok_or_else(unknown)
}

/// Change a channel. Omitted fields keep their values. The name stays while monitors refer to it.
#[utoipa::path(patch, path = "/api/v1/uptime/channels/{id}", operation_id = "edit_channel", params(("id" = String, Path, max_length = 64)),
    request_body = ChannelPatch, responses((status = 200, body = ChannelView)))]
async fn edit(
    State(alerts): State<Alerts>,
    Path(id): Path<ChannelId>,
    Json(patch): Json<ChannelPatch>,
) -> Result<Json<ChannelView>, Problem> {
    view(channel::edit(&alerts.context, &id, &patch).await?).map(Json)
}

/// Remove a channel. Its waiting deliveries fail.
#[utoipa::path(delete, path = "/api/v1/uptime/channels/{id}", operation_id = "remove_channel", params(("id" = String, Path, max_length = 64)),
    responses((status = 204)))]
async fn remove(State(alerts): State<Alerts>, Path(id): Path<ChannelId>) -> Result<StatusCode, Problem> {
    if !channels::remove(alerts.database(), &id).await? {
        return Err(unknown());
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Send a test notice now and return the attempt.
#[utoipa::path(post, path = "/api/v1/uptime/channels/{id}/test", operation_id = "test_channel", params(("id" = String, Path, max_length = 64)),
    responses((status = 200, body = AttemptView)))]
async fn test(State(alerts): State<Alerts>, Path(id): Path<ChannelId>) -> Result<Json<AttemptView>, Problem> {
    let attempt = alerts.test(&id).await?.ok_or_else(unknown)?;
    Ok(Json(attempt.into()))
}

/// List the deliveries of a channel, the newest first.
#[utoipa::path(get, path = "/api/v1/uptime/channels/{id}/deliveries", operation_id = "list_deliveries",
    params(("id" = String, Path, max_length = 64)), responses((status = 200, body = List<DeliveryView>)))]
async fn deliveries(
    State(alerts): State<Alerts>,
    Path(id): Path<ChannelId>,
    Query(paging): Query<Paging>,
) -> Result<Json<List<DeliveryView>>, Problem> {
    let page = deliveries::page(alerts.database(), &id, &paging.request()?).await?;
    let ids: Vec<&str> = page.rows.iter().map(|delivery| delivery.id.as_str()).collect();
    let mut attempts = deliveries::attempts(alerts.database(), &ids).await?;
    let page = page.map(|delivery| {
        let own = attempts.extract_if(.., |attempt| attempt.delivery_id == delivery.id);
        let own = own.map(AttemptView::from).collect();
        DeliveryView::new(delivery, own)
    });
    Ok(Json(page.into()))
}

pub(crate) fn view(written: SaveOutcome) -> Result<ChannelView, Problem> {
    match written {
        SaveOutcome::Saved(channel) => Ok((*channel).into()),
        SaveOutcome::Invalid(errors) => Err(invalid(errors)),
        SaveOutcome::NameTaken => Err(Problem::conflict("Another channel has this name.")),
        SaveOutcome::NameInUse(monitors) => Err(Problem::conflict(format!(
            "The name cannot be changed: {}.",
            channel::name_in_use(&monitors)
        ))),
        SaveOutcome::LimitReached => {
            Err(Problem::conflict(format!("The limit of {MAX_CHANNELS} channels has been reached.")))
        }
        SaveOutcome::NotFound => Err(unknown()),
    }
}

pub(crate) fn unknown() -> Problem {
    Problem::not_found("channel")
}

impl From<Channel> for ChannelView {
    fn from(channel: Channel) -> Self {
        let ChannelSpec { name, kind, url, secret, to } = channel.spec;
        Self {
            id: channel.id,
            name,
            kind,
            url,
            secret,
            to,
            created_at: channel.created_at.into(),
            changed_at: channel.changed_at.into(),
        }
    }
}

impl From<Attempt> for AttemptView {
    fn from(attempt: Attempt) -> Self {
        Self {
            number: attempt.number,
            at: attempt.at.into(),
            took_ms: attempt.took_ms,
            delivered: attempt.delivered,
            message: attempt.message,
        }
    }
}

impl DeliveryView {
    fn new(delivery: Delivery, attempts: Vec<AttemptView>) -> Self {
        let waits = delivery.state == DeliveryState::Waiting;
        Self {
            id: delivery.id,
            incident_id: delivery.incident_id,
            kind: delivery.kind,
            number: delivery.number,
            state: delivery.state,
            due_at: waits.then(|| delivery.due_at.into()),
            created_at: delivery.created_at.into(),
            attempts,
        }
    }
}
