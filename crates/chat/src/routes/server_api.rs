//! Centrifugo's server API for back ends, under `/centrifugo/api`. Clients of that API, such as `cent` for Python, work unmodified.
//!
//! It is off unless `[chat] api_key` is set. A request that was understood is answered with status 200 and a `result` or an
//! `error`, or, if the client asks for it, with a status that names the error.

mod commands;
mod error;

use std::collections::BTreeMap;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, StreamExt as _};
use hob_web::{Access, ApiKeyCheck, Audited, Json, Path, Problem, Routes};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use self::error::{ApiError, Failure};
use crate::Chat;
use crate::session::protocol;

/// The header with which a client asks for a status that names the error.
const ERROR_MODE: &str = "x-centrifugo-error-mode";
/// The most commands of a batch.
const MAX_BATCH: usize = 1_000;
/// How many commands of a parallel batch, or channels of a broadcast, are executed at a time.
const CONCURRENCY: usize = 32;

pub(super) fn routes() -> Routes<Chat> {
    Routes::new().action(Access::Public, Audited::No, "/centrifugo/api/{method}", call)
}

/// Executes a command of the server API.
async fn call(
    State(chat): State<Chat>,
    check: ApiKeyCheck,
    Path(method): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let Some(key) = &chat.inner.api_key else {
        return Err(Problem::new(StatusCode::NOT_FOUND, "The server API is off. Set [chat] api_key."));
    };
    check.check(given_key(&headers), key)?;
    if method == "batch" {
        return Ok(Json(batch(&chat, &body).await?).into_response());
    }
    match commands::run(&chat, &method, &body).await {
        Ok(result) => Ok(Json(Reply { result: Some(result), error: None }).into_response()),
        Err(Failure::Unknown) => Err(Problem::not_found("method")),
        Err(Failure::Malformed(reason)) => Err(Problem::bad_request(reason)),
        Err(Failure::Refused(error)) if headers.get(ERROR_MODE).is_some_and(|mode| mode == "transport") => {
            Ok((error.status(), Json(error)).into_response())
        }
        Err(Failure::Refused(error)) => Ok(Json(Reply { result: None, error: Some(error) }).into_response()),
    }
}

/// The key in `X-API-Key`, or else in `Authorization: apikey …`.
fn given_key(headers: &HeaderMap) -> Option<&str> {
    if let Some(key) = headers.get("x-api-key") {
        return key.to_str().ok();
    }
    let (scheme, key) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("apikey").then(|| key.trim())
}

#[derive(Serialize)]
struct Reply {
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ApiError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Batch {
    #[serde(default)]
    commands: Vec<BTreeMap<String, Box<RawValue>>>,
    #[serde(default)]
    parallel: bool,
}

#[derive(Serialize)]
struct BatchReply {
    replies: Vec<BatchItem>,
}

/// The reply to one command of a batch: its result under the name of the method, or an error.
#[derive(Serialize)]
#[serde(untagged)]
enum BatchItem {
    Done(BTreeMap<String, Box<RawValue>>),
    Refused { error: ApiError },
}

async fn batch(chat: &Chat, body: &[u8]) -> Result<BatchReply, Problem> {
    let Batch { commands, parallel } = protocol::parse(body).map_err(Problem::bad_request)?;
    if commands.len() > MAX_BATCH {
        return Err(Problem::bad_request(format!("commands: at most {MAX_BATCH}")));
    }
    let concurrency = if parallel { CONCURRENCY } else { 1 };
    let replies = stream::iter(commands).map(|command| batch_item(chat, command)).buffered(concurrency);
    Ok(BatchReply { replies: replies.collect().await })
}

async fn batch_item(chat: &Chat, command: BTreeMap<String, Box<RawValue>>) -> BatchItem {
    let mut methods = command.into_iter();
    let done = match (methods.next(), methods.next()) {
        (Some((method, request)), None) => {
            let done = commands::run(chat, &method, request.get().as_bytes()).await;
            done.map(|result| BTreeMap::from([(method, result)]))
        }
        _ => Err(Failure::Malformed("a command must have exactly one method".to_owned())),
    };
    match done {
        Ok(done) => BatchItem::Done(done),
        Err(failure) => BatchItem::Refused { error: failure.into_error() },
    }
}
