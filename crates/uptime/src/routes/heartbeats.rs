//! The URLs that jobs call. The token authorizes the call. GET and POST both work, so that any tool can call.

use axum::extract::State;
use hob_web::{Path, Problem};

use crate::monitor::heartbeat::HeartbeatSignal;
use crate::uptime::Uptime;

/// Report that the job has succeeded.
#[utoipa::path(method(get, post), path = "/heartbeat/{token}", params(("token" = String, Path, max_length = 64)),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn done(
    State(uptime): State<Uptime>,
    Path(token): Path<String>,
) -> Result<&'static str, Problem> {
    receive(&uptime, token, HeartbeatSignal::Succeeded).await
}

/// Report that the job has started, so that its duration is known.
#[utoipa::path(method(get, post), path = "/heartbeat/{token}/start", params(("token" = String, Path, max_length = 64)),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn began(
    State(uptime): State<Uptime>,
    Path(token): Path<String>,
) -> Result<&'static str, Problem> {
    receive(&uptime, token, HeartbeatSignal::Started).await
}

/// Report that the job has failed.
#[utoipa::path(method(get, post), path = "/heartbeat/{token}/fail", params(("token" = String, Path, max_length = 64)),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn failed(
    State(uptime): State<Uptime>,
    Path(token): Path<String>,
) -> Result<&'static str, Problem> {
    receive(&uptime, token, HeartbeatSignal::Failed).await
}

async fn receive(uptime: &Uptime, token: String, signal: HeartbeatSignal) -> Result<&'static str, Problem> {
    if uptime.record_signal(&token.into(), signal).await? {
        Ok("ok\n")
    } else {
        Err(Problem::not_found("heartbeat"))
    }
}
