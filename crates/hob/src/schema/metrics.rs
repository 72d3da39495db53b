//! Metrics over HTTP, for `hob schema proxy` and `hob schema watch`.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Request, Response, StatusCode};
use axum::response::IntoResponse as _;
use hob_net::{Client, Handler, Server, ServerLimits};
use hyper::body::Incoming;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// A few monitoring systems, each with short requests.
const LIMITS: ServerLimits = ServerLimits {
    connections: 32,
    streams: 4,
    head_bytes: 16 * 1024,
    header_timeout: Duration::from_secs(30),
    write_timeout: Duration::from_secs(10),
    drain_timeout: Duration::ZERO,
};

/// Opens the port before anything else starts, so that a mistake in the address is found at once.
pub(super) async fn listen(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))
}

/// Serves the text of `metrics` at `/metrics`, until the future is dropped. Without a listener, waits for that.
pub(super) async fn serve<F>(listener: Option<TcpListener>, metrics: F)
where
    F: Fn() -> String + Clone + Send + Sync + 'static,
{
    let Some(listener) = listener else { return std::future::pending().await };
    Server::new(LIMITS, None).serve(&Metrics(metrics), &listener, &CancellationToken::new()).await;
}

#[derive(Clone)]
struct Metrics<F>(F);

impl<F: Fn() -> String + Clone + Send + Sync + 'static> Handler for Metrics<F> {
    type Guard = ();
    type ConnectionState = ();
    type Body = Body;

    fn on_connect(&self) {}

    fn on_ready(&self, _: Client) {}

    async fn handle(&self, request: Request<Incoming>, (): &()) -> Response<Body> {
        if request.uri().path() != "/metrics" {
            return (StatusCode::NOT_FOUND, "the metrics are at /metrics\n").into_response();
        }
        ([(CONTENT_TYPE, "text/plain; version=0.0.4")], (self.0)()).into_response()
    }
}
