//! The URLs that jobs call. Whoever knows the token may; the method does not matter, so that any tool can.

use axum::extract::State;
use hob_web::{Path, Problem};

use crate::monitor::heartbeat::HeartbeatSignal;
use crate::uptime::Uptime;

const MAX_TOKEN_BYTES: usize = 64;

/// The job is done, and went well.
#[utoipa::path(method(get, post), path = "/heartbeat/{token}", params(("token" = String, Path, max_length = 64)),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn done(
    State(uptime): State<Uptime>,
    Path(token): Path<String>,
) -> Result<&'static str, Problem> {
    receive(&uptime, &token, HeartbeatSignal::Succeeded).await
}

/// The job begins: how long it takes will be known.
#[utoipa::path(method(get, post), path = "/heartbeat/{token}/start", params(("token" = String, Path, max_length = 64)),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn began(
    State(uptime): State<Uptime>,
    Path(token): Path<String>,
) -> Result<&'static str, Problem> {
    receive(&uptime, &token, HeartbeatSignal::Started).await
}

/// The job is over, and failed.
#[utoipa::path(method(get, post), path = "/heartbeat/{token}/fail", params(("token" = String, Path, max_length = 64)),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn failed(
    State(uptime): State<Uptime>,
    Path(token): Path<String>,
) -> Result<&'static str, Problem> {
    receive(&uptime, &token, HeartbeatSignal::Failed).await
}

async fn receive(uptime: &Uptime, token: &str, signal: HeartbeatSignal) -> Result<&'static str, Problem> {
    if token.len() <= MAX_TOKEN_BYTES && uptime.record_signal(token, signal).await? {
        Ok("ok\n")
    } else {
        Err(Problem::not_found("heartbeat"))
    }
}
