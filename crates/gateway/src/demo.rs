//! The demo: a small shop behind the gateway, a month of traffic that it had before, and bots that send requests to it.

mod past;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{get, post};
use bytes::Bytes;
use hob_admission::{Exactness, RuleConfig};
use hob_service::Task;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use rand::RngExt as _;
use tokio::net::TcpListener;

use crate::Error;
use crate::config::Config;
use crate::gateway::Gateway;

/// The pages of the shop, and how many of [`SHARES`] requests go to each.
const PAGES: [(Method, &str, u32); 7] = [
    (Method::GET, "/", 16),
    (Method::GET, "/api/products", 16),
    (Method::GET, "/api/products/42", 12),
    (Method::POST, "/api/cart", 8),
    (Method::POST, "/api/auth/login", 3),
    (Method::GET, "/api/orders/7", 4),
    (Method::GET, "/old-link", 1),
];
const SHARES: u32 = 60;

/// Each bot has its own address. The last one sends many requests at once and then rests, so that it sometimes exceeds the
/// limits.
const BOTS: u8 = 12;
const BURST: u32 = 150;
const REST: Duration = Duration::from_secs(20);

/// A gateway in front of the shop, instead of the configured one.
pub(crate) async fn config(config: &Config) -> Result<Config, Error> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = TcpListener::bind(any).await.map_err(|source| Error::Listen { address: any, source })?;
    let site = listener.local_addr().map_err(|source| Error::Listen { address: any, source })?;
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, app()).await {
            tracing::warn!(%error, "demo site of the gateway stopped");
        }
    });
    // If the port is in use, any free port is used.
    let free = TcpListener::bind(config.listen).await.is_ok();
    Ok(demo_config(if free { config.listen } else { any }, site))
}

/// Counts the traffic of the last month, unless another demo has counted it in the same Redis, and starts the bots.
pub(crate) async fn start(gateway: &Gateway) -> Result<(), Error> {
    let Some(address) = gateway.address() else { return Ok(()) };
    if gateway.statistics().summary().await?.total == 0 {
        let (endpoints, now_ms) = (gateway.endpoints(), hob_units::unix_ms());
        gateway.replay(past::earlier_days(endpoints, now_ms), past::day(endpoints, now_ms)).await?;
    }
    for bot in 1..=BOTS {
        gateway
            .tasks()
            .spawn_demo(format!("gateway demo bot {bot}"), move |task| run_bot(task, address, bot));
    }
    Ok(())
}

fn demo_config(listen: SocketAddr, site: SocketAddr) -> Config {
    let rule = |name: &str, windows: &str| RuleConfig::new(name, windows);
    Config {
        listen,
        upstream: vec![format!("http://{site}")],
        health_path: "/".to_owned(),
        routes: vec!["/api/products/:id".to_owned(), "/api/orders/:id".to_owned()],
        // The bots send their address as a proxy would.
        trusted_proxies: vec![hob_net::Network::from(IpAddr::V4(Ipv4Addr::LOCALHOST))],
        rules: vec![
            RuleConfig {
                exactness: Exactness::Leased,
                route: Some("/api/*".to_owned()),
                ..rule("api", "10/1s burst 40, 300/1m burst 120")
            },
            RuleConfig {
                algorithm: Some(hob_store::limit::Algorithm::SlidingLog),
                public: true,
                route: Some("/api/auth/login".to_owned()),
                ..rule("login", "20/1m")
            },
            RuleConfig { shadow: true, ..rule("stricter", "5/1s") },
        ],
        ..Config::default()
    }
}

/// A shop in which some pages are slow and some fail now and then.
fn app() -> Router {
    Router::new()
        .route("/", get(async || answer(2, 0.0).await))
        .route("/api/products", get(async || answer(8, 0.01).await))
        .route("/api/products/{id}", get(async || answer(4, 0.02).await))
        .route("/api/cart", post(async || answer(15, 0.03).await))
        .route("/api/auth/login", post(async || answer(40, 0.05).await))
        .route("/api/orders/{id}", get(async || answer(25, 0.08).await))
}

/// Responds after about `typical_ms`, sometimes much later, sometimes with an error.
async fn answer(typical_ms: u64, failing: f64) -> StatusCode {
    let (luck, wobble): (f64, f64) = (rand::rng().random(), rand::rng().random());
    let slow = if wobble > 0.99 { 12.0 } else { 0.5 + wobble };
    tokio::time::sleep(Duration::from_secs_f64(typical_ms as f64 / 1000.0 * slow)).await;
    if luck < failing { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK }
}

async fn run_bot(task: Task, gateway: SocketAddr, bot: u8) {
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    // A network that is reserved for documentation.
    let address = Ipv4Addr::new(203, 0, 113, bot);
    let busy = bot == BOTS;
    for sent in 1.. {
        let pause = match sent {
            _ if !busy => Duration::from_millis(rand::rng().random_range(150..1500)),
            sent if sent % BURST == 0 => REST,
            _ => Duration::from_millis(15),
        };
        if !task.pause(pause).await {
            return;
        }
        let (method, path) = page(rand::rng().random_range(0..SHARES));
        let request = Request::builder().method(method).uri(format!("http://{gateway}{path}"));
        let request = request.header("x-forwarded-for", address.to_string()).body(Empty::new());
        if let Ok(request) = request
            && let Ok(response) = client.request(request).await
        {
            // The connection is reused only after the body was read.
            let _ = response.into_body().collect().await;
        }
        task.heartbeat();
    }
}

fn page(mut luck: u32) -> (Method, &'static str) {
    for (method, path, share) in &PAGES {
        match luck.checked_sub(*share) {
            Some(rest) => luck = rest,
            None => return (method.clone(), path),
        }
    }
    (Method::GET, "/")
}
