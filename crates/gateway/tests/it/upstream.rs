//! An upstream service and a proxy in front of it, for the tests.

use hob_web::Service as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::extract::ws::WebSocketUpgrade;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::Response;
use axum::routing::{any, get};
use bytes::Bytes;
use futures_util::StreamExt as _;
use hob_fixtures::{Layout, TestContext};
use hob_gateway::{Config, Gateway};
use hob_service::{Live, Period, ServiceContext};
use hob_testkit::LIMIT;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;

use crate::kit::NEEDS;

/// More than the buffers of a connection hold.
pub(crate) const LARGE_BYTES: usize = 64 << 20;

/// A service that echoes, streams, speaks WebSocket, or is slow.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    hits: Arc<AtomicU32>,
    serving: tokio::task::JoinHandle<()>,
}

impl Upstream {
    pub(crate) async fn start() -> Self {
        let hits = Arc::new(AtomicU32::new(0));
        let app = Router::new()
            .route("/headers", any(headers))
            .route("/echo", any(async |body: Body| Response::new(body)))
            .route("/length", any(async |body: Bytes| body.len().to_string()))
            .route("/stream", get(stream))
            .route("/large", get(async || vec![b'x'; LARGE_BYTES]))
            .route("/slow", any(async || tokio::time::sleep(LIMIT).await))
            .route("/status/404", any(async || StatusCode::NOT_FOUND))
            .route("/socket", any(socket))
            .fallback(async || "hello")
            .layer(axum::middleware::from_fn_with_state(Arc::clone(&hits), count));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, hits, serving }
    }

    pub(crate) fn hits(&self) -> u32 {
        self.hits.load(Ordering::SeqCst)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn count(
    State(hits): State<Arc<AtomicU32>>,
    request: Request<Body>,
    next: axum::middleware::Next,
) -> Response {
    hits.fetch_add(1, Ordering::SeqCst);
    next.run(request).await
}

/// The headers of the request, one per line.
async fn headers(headers: HeaderMap) -> String {
    let line = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        format!("{name}: {}\n", value.to_str().unwrap())
    };
    headers.iter().map(line).collect()
}

/// Three parts without an end.
async fn stream() -> Body {
    let parts = ["one", "two", "three"].map(|part| Ok::<_, std::io::Error>(Bytes::from(part)));
    Body::from_stream(futures_util::stream::iter(parts).chain(futures_util::stream::pending()))
}

async fn socket(upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(async |mut socket| {
        while let Some(Ok(message)) = socket.next().await {
            if socket.send(message).await.is_err() {
                return;
            }
        }
    })
}

/// A gateway in front of some upstreams, and a client.
pub(crate) struct TestProxy {
    pub(crate) context: TestContext,
    pub(crate) gateway: Gateway,
    pub(crate) address: SocketAddr,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl TestProxy {
    pub(crate) async fn start(upstreams: &[SocketAddr], more: &str) -> Self {
        let upstreams: Vec<String> = upstreams.iter().map(|address| format!("http://{address}")).collect();
        Self::with_urls(&upstreams.iter().map(String::as_str).collect::<Vec<_>>(), more).await
    }

    pub(crate) async fn with_urls(upstreams: &[&str], more: &str) -> Self {
        let toml = format!("listen = \"127.0.0.1:0\"\nupstream = {upstreams:?}\n{more}");
        let mut config: Config = toml::from_str(&toml).unwrap();
        if !more.contains("store_timeout") {
            // On a busy machine a slow store must not make requests pass.
            config.store_timeout = Period::from_secs(LIMIT.as_secs());
        }
        Self::with_config(Live::fixed(config)).await
    }

    pub(crate) async fn with_config(config: Live<Config>) -> Self {
        let context = TestContext::embedded(NEEDS, Layout::Plain).await;
        let node = context.context().clone();
        Self::on_node(context, &node, config).await
    }

    pub(crate) async fn on_node(context: TestContext, node: &ServiceContext, config: Live<Config>) -> Self {
        let gateway = Gateway::open(node, config).await.unwrap();
        gateway.start(&hob_web::Changes::detached(node));
        let address = gateway.address().unwrap();
        let client =
            Client::builder(TokioExecutor::new()).pool_idle_timeout(Duration::from_secs(60)).build_http();
        Self { context, gateway, address, client }
    }

    pub(crate) async fn send(
        &self,
        request: http::request::Builder,
        body: &str,
    ) -> http::Response<hyper::body::Incoming> {
        let request = request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap();
        tokio::time::timeout(LIMIT, self.client.request(request)).await.unwrap().unwrap()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, HeaderMap, String) {
        let response = self.send(Request::get(self.url(path)), "").await;
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (head.status, head.headers, String::from_utf8(body.to_vec()).unwrap())
    }
}
