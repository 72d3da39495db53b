//! The HTTP API for the data of a user: export and deletion.

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use hob_web::{Audited, Json, Path, Problem, Query, Routes};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::{READ, WRITE, user_id};
use crate::conversation::event::Timestamp;
use crate::{Chat, ErasedMessages, Erasure, Error};

pub(super) fn routes() -> Routes<Chat> {
    Routes::new()
        .write(READ, Audited::As("chat.user.export"), routes!(export_user))
        .write(WRITE, Audited::As("chat.user.delete"), routes!(delete_user))
        .api(READ, routes!(get_deletion))
}

/// Export the data of a user as lines of JSON: the user, blocks, memberships, messages and reactions. The last line is
/// `{"type":"end"}`; without it, the export is not complete.
#[utoipa::path(post, path = "/api/v1/chat/users/{id}/export", params(("id" = String, Path, max_length = 128)), tag = "chat",
    responses((status = 200, content_type = "application/x-ndjson", body = String)))]
async fn export_user(State(chat): State<Chat>, Path(id): Path<String>) -> Result<Response, Problem> {
    let records = chat.export_user(&user_id("id", &id)?);
    let lines = records.map(|record| {
        let mut line = serde_json::to_vec(&record?)?;
        line.push(b'\n');
        Ok::<_, Error>(Bytes::from(line))
    });
    let headers = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((headers, Body::from_stream(lines)).into_response())
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MessageFate {
    /// They are deleted.
    Delete,
    /// They stay, under a pseudonym.
    Anonymize,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct UserDeletionQuery {
    /// What happens to the messages of the user.
    #[param(inline)]
    messages: MessageFate,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UserDeletion {
    messages: MessageFate,
    #[schema(value_type = String)]
    requested_at: Timestamp,
}

/// Delete the data of a user. The connections are closed and the tokens revoked at once; the rest is deleted in the background.
#[utoipa::path(delete, path = "/api/v1/chat/users/{id}", tag = "chat",
    params(("id" = String, Path, max_length = 128), UserDeletionQuery), responses((status = 202, body = UserDeletion)))]
async fn delete_user(
    State(chat): State<Chat>,
    Path(id): Path<String>,
    Query(query): Query<UserDeletionQuery>,
) -> Result<(StatusCode, Json<UserDeletion>), Problem> {
    let messages = match query.messages {
        MessageFate::Delete => ErasedMessages::Deleted,
        MessageFate::Anonymize => ErasedMessages::Anonymized,
    };
    let erasure = chat.erase_user(&user_id("id", &id)?, messages).await?;
    Ok((StatusCode::ACCEPTED, Json(erasure.into())))
}

/// Get the deletion of a user that is in progress. 404 when it is complete.
#[utoipa::path(get, path = "/api/v1/chat/users/{id}/deletion", tag = "chat", params(("id" = String, Path, max_length = 128)),
    responses((status = 200, body = UserDeletion)))]
async fn get_deletion(
    State(chat): State<Chat>,
    Path(id): Path<String>,
) -> Result<Json<UserDeletion>, Problem> {
    let erasure = chat.erasure(&user_id("id", &id)?).await?;
    Ok(Json(erasure.ok_or_else(|| Problem::not_found("deletion"))?.into()))
}

impl From<Erasure> for UserDeletion {
    fn from(Erasure { messages, requested_at, .. }: Erasure) -> Self {
        let messages = match messages {
            ErasedMessages::Deleted => MessageFate::Delete,
            ErasedMessages::Anonymized => MessageFate::Anonymize,
        };
        Self { messages, requested_at }
    }
}
