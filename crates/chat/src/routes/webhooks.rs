//! The HTTP API for dead letters: events that a webhook did not accept.

use axum::extract::State;
use axum::http::StatusCode;
use hob_web::{Audited, Json, List, Paging, Path, Problem, Query, Routes, Time};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::{READ, WRITE};
use crate::Chat;
use crate::database::deliveries::{self, DeadLetter};
use crate::webhook::Notice;

pub(super) fn routes() -> Routes<Chat> {
    Routes::new()
        .api(READ, routes!(list_dead_letters))
        .write(WRITE, Audited::As("chat.webhook.retry"), routes!(retry_dead_letters))
        .write(WRITE, Audited::As("chat.webhook.retry"), routes!(retry_dead_letter))
        .write(WRITE, Audited::As("chat.webhook.discard"), routes!(delete_dead_letter))
}

/// An event that a webhook did not accept.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ChatDeadLetter)]
struct DeadLetterView {
    /// Also the idempotency key.
    id: String,
    /// The name of the webhook.
    webhook: String,
    /// Such as `message.created`.
    r#type: &'static str,
    attempts: u32,
    /// The last response, or why there was none.
    error: String,
    created_at: Time,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct RetryQuery {
    /// Only the dead letters of this webhook.
    #[param(max_length = 64)]
    webhook: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ChatDeadLettersRetried)]
struct Retried {
    /// How many are sent again.
    retried: u64,
}

/// List the events that webhooks did not accept, the oldest first.
#[utoipa::path(get, path = "/api/v1/chat/webhooks/dead-letters", tag = "chat", params(Paging),
    responses((status = 200, body = List<DeadLetterView>)))]
async fn list_dead_letters(
    State(chat): State<Chat>,
    Query(paging): Query<Paging>,
) -> Result<Json<List<DeadLetterView>>, Problem> {
    let page = deliveries::dead_letters(&chat.inner.database, &paging.request()?).await?;
    Ok(Json(page.map(DeadLetterView::from).into()))
}

/// Send all dead letters again, or those of one webhook.
#[utoipa::path(post, path = "/api/v1/chat/webhooks/dead-letters/retry", tag = "chat", params(RetryQuery),
    responses((status = 200, body = Retried)))]
async fn retry_dead_letters(
    State(chat): State<Chat>,
    Query(query): Query<RetryQuery>,
) -> Result<Json<Retried>, Problem> {
    let mut retried = 0;
    loop {
        match deliveries::retry_all(&chat.inner.database, query.webhook.as_deref()).await? {
            0 => return Ok(Json(Retried { retried })),
            count => retried += count,
        }
    }
}

/// Send a dead letter again.
#[utoipa::path(post, path = "/api/v1/chat/webhooks/dead-letters/{id}/retry", tag = "chat",
    params(("id" = String, Path, max_length = 256)), responses((status = 204)))]
async fn retry_dead_letter(State(chat): State<Chat>, Path(id): Path<String>) -> Result<StatusCode, Problem> {
    found(deliveries::retry(&chat.inner.database, &id).await?)
}

/// Delete a dead letter.
#[utoipa::path(delete, path = "/api/v1/chat/webhooks/dead-letters/{id}", tag = "chat",
    params(("id" = String, Path, max_length = 256)), responses((status = 204)))]
async fn delete_dead_letter(State(chat): State<Chat>, Path(id): Path<String>) -> Result<StatusCode, Problem> {
    found(deliveries::delete(&chat.inner.database, &id).await?)
}

fn found(found: bool) -> Result<StatusCode, Problem> {
    if found { Ok(StatusCode::NO_CONTENT) } else { Err(Problem::not_found("dead letter")) }
}

impl From<DeadLetter> for DeadLetterView {
    fn from(letter: DeadLetter) -> Self {
        let kind = serde_json::from_str::<Notice>(&letter.notice).map_or("unknown", |notice| notice.kind());
        Self {
            id: letter.id,
            webhook: letter.webhook,
            r#type: kind,
            attempts: letter.attempts,
            error: letter.error,
            created_at: letter.created_at.into(),
        }
    }
}
