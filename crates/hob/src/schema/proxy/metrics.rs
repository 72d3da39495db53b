//! The metrics of a proxy over HTTP.

use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Request, Response, StatusCode};
use axum::response::IntoResponse as _;
use hob_net::{Client, Handler, Server, ServerLimits};
use hob_schema_proxy::Totals;
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

/// Serves `/metrics`, until the future is dropped. Without a listener, waits for that.
pub(super) async fn serve(listener: Option<TcpListener>, totals: Totals) {
    let Some(listener) = listener else { return std::future::pending().await };
    Server::new(LIMITS, None).serve(&Metrics(totals), &listener, &CancellationToken::new()).await;
}

#[derive(Clone)]
struct Metrics(Totals);

impl Handler for Metrics {
    type Guard = ();
    type ConnectionState = ();
    type Body = Body;

    fn on_connect(&self) {}

    fn on_ready(&self, _: Client) {}

    async fn handle(&self, request: Request<Incoming>, (): &()) -> Response<Body> {
        if request.uri().path() != "/metrics" {
            return (StatusCode::NOT_FOUND, "the metrics are at /metrics\n").into_response();
        }
        ([(CONTENT_TYPE, "text/plain; version=0.0.4")], self.0.metrics()).into_response()
    }
}
