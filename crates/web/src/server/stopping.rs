//! The end of the server, for responses that are streams.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tokio_util::sync::CancellationToken;

use crate::Problem;
use crate::console::AppContext;

/// Tells a stream when to end: a server that stops waits for running responses, and a stream does not end by itself.
#[derive(Clone, Debug)]
pub struct Stopping(CancellationToken);

impl Stopping {
    /// Waits until the server stops.
    pub async fn requested(&self) {
        self.0.cancelled().await;
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Stopping {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let Some(frame) = parts.extensions.get::<AppContext>() else {
            return Err(Problem::internal("the route of this stream was not registered through `App`"));
        };
        Ok(Self(frame.stopping().clone()))
    }
}
