//! The HTTP API for other services, and the WebSocket endpoint.

mod conversations;
mod erasure;
mod feed;
mod messages;
mod reactions;
mod server_api;
mod users;
mod view;
mod webhooks;

use std::time::Duration;

use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Extension, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hob_net::SocketWriter;
use hob_web::{Access, Credential, Origin, Problem, Routes};
use serde::Deserialize;

use crate::keys::{ConversationId, UserId};
use crate::session::protocol::Format;
use crate::session::websocket;
use crate::{Chat, Error, Refusal};

const READ: Access = Access::read("chat");
const WRITE: Access = Access::write("chat");

pub(crate) fn routes() -> Routes<Chat> {
    let api = conversations::routes()
        .merge(messages::routes())
        .merge(reactions::routes())
        .merge(erasure::routes())
        .merge(users::routes())
        .merge(feed::routes())
        .merge(webhooks::routes());
    api.merge(server_api::routes()).socket(Access::Public, "/connection/websocket", connect)
}

/// The sub-protocols of the WebSocket.
const PROTOBUF: &str = "centrifuge-protobuf";
const JSON: &str = "centrifuge-json";

/// How a client that cannot choose a sub-protocol chooses the encoding.
#[derive(Deserialize)]
struct Encoding {
    format: Option<String>,
    cf_protocol: Option<String>,
}

impl Encoding {
    fn format(&self) -> Format {
        let named = [&self.format, &self.cf_protocol].into_iter().flatten().any(|name| name == "protobuf");
        if named { Format::Protobuf } else { Format::Json }
    }
}

/// The WebSocket endpoint for Centrifugo clients. The first command carries the token.
async fn connect(
    State(chat): State<Chat>,
    origin: Origin,
    credential: Credential,
    Query(encoding): Query<Encoding>,
    writer: Option<Extension<SocketWriter>>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let config = chat.config();
    if let Origin::Elsewhere(site) = &origin
        && !config.origins.iter().any(|known| known.trim_end_matches('/').eq_ignore_ascii_case(site))
    {
        return Problem::forbidden("Pages of this origin may not connect. Add it to [chat] origins.")
            .into_response();
    }
    if chat.inner.hub.load().connections >= u64::from(config.max_connections) {
        return Problem::unavailable("This node has reached [chat] max_connections.").into_response();
    }
    let max = config.max_frame_bytes as usize;
    let writer = writer.map(|Extension(writer)| writer);
    let upgrade = upgrade.protocols([PROTOBUF, JSON]);
    let is_protobuf = upgrade.selected_protocol().is_some_and(|protocol| protocol == PROTOBUF);
    let format = if is_protobuf { Format::Protobuf } else { encoding.format() };
    upgrade
        // Small, because each idle connection has one. It grows with the frame.
        .read_buffer_size(1024)
        .write_buffer_size(4 * 1024)
        .max_write_buffer_size(1024 * 1024)
        .max_message_size(max)
        .max_frame_size(max)
        .on_upgrade(move |socket| websocket::serve(chat, format, credential, writer, socket))
}

pub(crate) fn conversation_id(id: &str) -> Result<ConversationId, Problem> {
    ConversationId::new(id).map_err(|error| Problem::invalid("id", error.to_string()))
}

pub(crate) fn user_id(field: &str, id: &str) -> Result<UserId, Problem> {
    UserId::new(id).map_err(|error| Problem::invalid(field, error.to_string()))
}

/// The database stores sequences up to 2⁶³ − 1.
pub(crate) fn sequence_number(field: &str, sequence_number: u64) -> Result<u64, Problem> {
    if i64::try_from(sequence_number).is_ok() {
        Ok(sequence_number)
    } else {
        Err(Problem::invalid(field, "not a valid sequence"))
    }
}

/// The value, or the problem for a refusal.
pub(crate) fn ok_or_problem<T>(answer: crate::Answer<T>) -> Result<T, Problem> {
    answer?.map_err(|refusal| {
        let message = refusal.to_string();
        match refusal {
            Refusal::ConversationNotFound => Problem::not_found("conversation"),
            Refusal::MessageNotFound => Problem::not_found("message"),
            Refusal::NotMember
            | Refusal::NotSender
            | Refusal::Blocked
            | Refusal::TokenRevoked
            | Refusal::Banned => Problem::forbidden(message),
            Refusal::AlreadyExists => Problem::conflict(message),
            Refusal::RateLimited { retry_after } => {
                Problem::too_many(message, retry_after.max(Duration::from_secs(1)))
            }
            Refusal::LimitExceeded { .. } => Problem::new(StatusCode::UNPROCESSABLE_ENTITY, message),
            Refusal::InvalidField { field, reason } => Problem::invalid(field, reason),
        }
    })
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error {
            Error::Database(error) => error.into(),
            Error::Store(error) => error.into(),
            Error::Unconfirmed => Self::unavailable(
                "The change is saved, but not every node has confirmed it. Repeat the request.",
            ),
            error => Self::internal(error),
        }
    }
}
