//! The API of channels: `/api/v1/uptime/channels`.

use axum::extract::State;
use axum::http::StatusCode;
use hob_records::{PageRequest, UnixMs};
use hob_web::{Access, Json, Path, Problem, Query, Routes};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::channel::{self, Written};
use super::delivery::{self, DeliveryState};
use super::{Alerts, Attempt, Channel, ChannelId, ChannelPatch, ChannelSpec, Delivery, NoticeKind};

const READ: Access = Access::read("uptime");
const WRITE: Access = Access::write("uptime");

pub(super) fn routes() -> Routes<Alerts> {
    Routes::new()
        .api(READ, routes!(list))
        .api(WRITE, routes!(add))
        .api(READ, routes!(show))
        .api(WRITE, routes!(edit))
        .api(WRITE, routes!(remove))
        .api(WRITE, routes!(test))
        .api(READ, routes!(deliveries))
}

/// A channel. Secrets are only named.
#[derive(Debug, Serialize, ToSchema)]
struct ChannelView {
    id: ChannelId,
    #[serde(flatten)]
    spec: ChannelSpec,
    /// ISO 8601.
    created_at: String,
    changed_at: String,
}

#[derive(Debug, Serialize, ToSchema)]
struct ChannelList {
    channels: Vec<ChannelView>,
}

/// A message to a channel, with all its attempts.
#[derive(Debug, Serialize, ToSchema)]
struct DeliveryView {
    /// Sent along as the idempotency key.
    id: String,
    incident_id: String,
    kind: NoticeKind,
    number: u32,
    state: DeliveryState,
    /// When it is tried next, while it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    due_at: Option<String>,
    created_at: String,
    attempts: Vec<AttemptView>,
}

#[derive(Debug, Serialize, ToSchema)]
struct AttemptView {
    number: u32,
    at: String,
    took_ms: u64,
    delivered: bool,
    /// What the other side said, or why it did not.
    message: String,
}

#[derive(Debug, Serialize, ToSchema)]
struct DeliveryList {
    deliveries: Vec<DeliveryView>,
    /// `after` of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
struct Paging {
    /// Where the last page ended.
    after: Option<String>,
    /// How many, at most 500.
    limit: Option<u16>,
}

/// All channels.
#[utoipa::path(get, path = "/api/v1/uptime/channels", responses((status = 200, body = ChannelList)))]
async fn list(State(alerts): State<Alerts>) -> Result<Json<ChannelList>, Problem> {
    let channels = channel::all(alerts.records()).await?;
    Ok(Json(ChannelList { channels: channels.into_iter().map(ChannelView::from).collect() }))
}

/// Adds a channel.
#[utoipa::path(post, path = "/api/v1/uptime/channels", request_body = ChannelSpec,
    responses((status = 201, body = ChannelView)))]
async fn add(
    State(alerts): State<Alerts>,
    Json(spec): Json<ChannelSpec>,
) -> Result<(StatusCode, Json<ChannelView>), Problem> {
    let written = channel::add(alerts.records(), &spec).await?;
    Ok((StatusCode::CREATED, Json(view(written)?)))
}

/// One channel.
#[utoipa::path(get, path = "/api/v1/uptime/channels/{id}", params(("id" = String, Path)),
    responses((status = 200, body = ChannelView)))]
async fn show(State(alerts): State<Alerts>, Path(id): Path<ChannelId>) -> Result<Json<ChannelView>, Problem> {
    let found = channel::by_id(alerts.records(), &id).await?;
    found.map(|channel| Json(channel.into())).ok_or_else(unknown)
}

/// Changes a channel; what is left out stays.
#[utoipa::path(patch, path = "/api/v1/uptime/channels/{id}", params(("id" = String, Path)),
    request_body = ChannelPatch, responses((status = 200, body = ChannelView)))]
async fn edit(
    State(alerts): State<Alerts>,
    Path(id): Path<ChannelId>,
    Json(patch): Json<ChannelPatch>,
) -> Result<Json<ChannelView>, Problem> {
    Ok(Json(view(channel::edit(alerts.records(), &id, &patch).await?)?))
}

/// Removes a channel. What was still to be told through it is given up.
#[utoipa::path(delete, path = "/api/v1/uptime/channels/{id}", params(("id" = String, Path)),
    responses((status = 204)))]
async fn remove(State(alerts): State<Alerts>, Path(id): Path<ChannelId>) -> Result<StatusCode, Problem> {
    if channel::remove(alerts.records(), &id).await? { Ok(StatusCode::NO_CONTENT) } else { Err(unknown()) }
}

/// Sends a test message now, and says how it went.
#[utoipa::path(post, path = "/api/v1/uptime/channels/{id}/test", params(("id" = String, Path)),
    responses((status = 200, body = AttemptView)))]
async fn test(State(alerts): State<Alerts>, Path(id): Path<ChannelId>) -> Result<Json<AttemptView>, Problem> {
    let attempt = alerts.test(&id).await?.ok_or_else(unknown)?;
    Ok(Json(attempt.into()))
}

/// What was told through a channel, the newest first.
#[utoipa::path(get, path = "/api/v1/uptime/channels/{id}/deliveries",
    params(("id" = String, Path)), responses((status = 200, body = DeliveryList)))]
async fn deliveries(
    State(alerts): State<Alerts>,
    Path(id): Path<ChannelId>,
    Query(paging): Query<Paging>,
) -> Result<Json<DeliveryList>, Problem> {
    let request = PageRequest::parse(paging.after.as_deref(), paging.limit)?;
    let page = delivery::page(alerts.records(), &id, &request).await?;
    let ids: Vec<&str> = page.rows.iter().map(|delivery| delivery.id.as_str()).collect();
    let mut attempts = delivery::attempts(alerts.records(), &ids).await?;
    let next = page.next.as_ref().map(ToString::to_string);
    let with_attempts = |delivery: Delivery| {
        let own = attempts.extract_if(.., |attempt| attempt.delivery_id == delivery.id);
        let own = own.map(AttemptView::from).collect();
        DeliveryView::new(delivery, own)
    };
    Ok(Json(DeliveryList { deliveries: page.rows.into_iter().map(with_attempts).collect(), next }))
}

fn view(written: Written) -> Result<ChannelView, Problem> {
    match written {
        Written::Written(channel) => Ok((*channel).into()),
        Written::Invalid(wrong) => {
            let mut wrong = wrong.into_iter();
            let first = wrong.next().map_or_else(
                || Problem::invalid("", "the channel cannot be understood"),
                |wrong| Problem::invalid(wrong.field, wrong.message),
            );
            Err(wrong.fold(first, |problem, wrong| problem.with_field(wrong.field, wrong.message)))
        }
        Written::NameTaken => Err(Problem::conflict("Another channel has this name.")),
        Written::TooMany => Err(Problem::conflict("There are as many channels as there may be.")),
        Written::Unknown => Err(unknown()),
    }
}

fn unknown() -> Problem {
    Problem::not_found("channel")
}

fn iso(time: UnixMs) -> String {
    Timestamp::from_millisecond(time.0).map(|time| time.to_string()).unwrap_or_default()
}

impl From<Channel> for ChannelView {
    fn from(channel: Channel) -> Self {
        Self {
            id: channel.id,
            spec: channel.spec,
            created_at: iso(channel.created_at),
            changed_at: iso(channel.changed_at),
        }
    }
}

impl From<Attempt> for AttemptView {
    fn from(attempt: Attempt) -> Self {
        Self {
            number: attempt.number,
            at: iso(attempt.at),
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
            due_at: waits.then(|| iso(delivery.due_at)),
            created_at: iso(delivery.created_at),
            attempts,
        }
    }
}
