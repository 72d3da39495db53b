//! The URLs that jobs call. Whoever knows the token may; the method does not matter, so that any tool can.

use axum::extract::State;
use hob_web::{Path, Problem};

use crate::monitor::heartbeat::Signal;
use crate::uptime::Uptime;

const LONGEST_TOKEN: usize = 64;

/// The job is done, and went well.
#[utoipa::path(method(get, post), path = "/heartbeat/{token}", params(("token" = String, Path, max_length = 64)),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn done(
    State(uptime): State<Uptime>,
    Path(token): Path<String>,
) -> Result<&'static str, Problem> {
    hear(&uptime, &token, Signal::Done).await
}

/// The job begins: how long it takes will be known.
#[utoipa::path(method(get, post), path = "/heartbeat/{token}/start", params(("token" = String, Path, max_length = 64)),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn began(
    State(uptime): State<Uptime>,
    Path(token): Path<String>,
) -> Result<&'static str, Problem> {
    hear(&uptime, &token, Signal::Began).await
}

/// The job is over, and failed.
#[utoipa::path(method(get, post), path = "/heartbeat/{token}/fail", params(("token" = String, Path, max_length = 64)),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn failed(
    State(uptime): State<Uptime>,
    Path(token): Path<String>,
) -> Result<&'static str, Problem> {
    hear(&uptime, &token, Signal::Failed).await
}

async fn hear(uptime: &Uptime, token: &str, signal: Signal) -> Result<&'static str, Problem> {
    if token.len() <= LONGEST_TOKEN && uptime.signal(token, signal).await? {
        Ok("ok\n")
    } else {
        Err(Problem::not_found("heartbeat"))
    }
}
