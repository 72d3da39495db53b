//! Limits the number of concurrent requests and their duration.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;

use crate::Problem;

/// The limits of an app.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    requests: Arc<Semaphore>,
    within: Duration,
}

impl Limits {
    pub(crate) fn new(requests: u32, within: Duration) -> Self {
        Self { requests: Arc::new(Semaphore::new(requests as usize)), within }
    }
}

/// Rejects requests over the limit, and ends slow requests with a timeout. Both limits apply until the head of the
/// response is ready; a streaming body is not limited.
pub(crate) async fn limit(State(limits): State<Limits>, request: Request, next: Next) -> Response {
    let Ok(_permit) = limits.requests.try_acquire() else {
        return Problem::unavailable("Too many concurrent requests.").into_response();
    };
    match tokio::time::timeout(limits.within, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::new(StatusCode::REQUEST_TIMEOUT, "The request took too long.").into_response(),
    }
}
