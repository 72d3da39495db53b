//! The HTTP API for other services, and the endpoints of clients.

mod connection;
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

use axum::http::StatusCode;
use hob_web::{Access, Problem, Routes};

use crate::keys::{ConversationId, UserId};
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
    api.merge(server_api::routes()).merge(connection::routes())
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
