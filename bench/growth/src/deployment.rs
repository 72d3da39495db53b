//! A server with its own Redis and database, and what a piece of work costs both.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use axum::Router;
use bench_kit::{Process, Usage, hob};
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use hob_testkit::RedisServer;
use http::Method;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tempfile::TempDir;

/// Requests that are open at the same time.
const CONCURRENCY: usize = 16;

/// The server under test.
pub(crate) struct Deployment {
    // Dropped in this order: the server ends first.
    server: Process,
    redis: RedisServer,
    address: SocketAddr,
    http: Client<HttpConnector, Full<Bytes>>,
    folder: TempDir,
}

/// CPU time per unit of work, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) server_us: f64,
    pub(crate) redis_us: f64,
}

impl Cost {
    pub(crate) fn total_us(&self) -> f64 {
        self.server_us + self.redis_us
    }
}

/// The CPU time of the server and of Redis since a point in time.
pub(crate) struct Work {
    server: Usage,
    redis: Usage,
}

impl Work {
    /// The cost of each of `units`.
    pub(crate) fn per_unit(&self, units: u64) -> Result<Cost> {
        ensure!(units > 0, "nothing was done");
        Ok(Cost { server_us: self.server.us_each(units)?, redis_us: self.redis.us_each(units)? })
    }
}

impl Deployment {
    /// Starts one system with these settings in `hob.toml`.
    pub(crate) fn start(system: &str, settings: &str) -> Result<Self> {
        let (redis, folder) = (RedisServer::start(), tempfile::tempdir()?);
        std::fs::write(folder.path().join("hob.toml"), settings)?;
        let mut command = hob()?;
        command.args(["serve", "--only", system, "--listen", "127.0.0.1:0", "--redis", &redis.url()]);
        let mut server = Process::start(command.current_dir(&folder))?;
        let address = server.line(|line| line.strip_prefix("Hob is on http://")?.parse().ok())?;
        let http = Client::builder(TokioExecutor::new()).build_http();
        Ok(Self { server, redis, address, http, folder })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Measures from now on.
    pub(crate) fn work(&self) -> Result<Work> {
        let (server, redis) = (self.server.family(), vec![self.redis.pid()]);
        Ok(Work { server: Usage::start(server)?, redis: Usage::start(redis)? })
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.send(Method::POST, path, Full::from(body.to_string())).await
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value> {
        self.send(Method::GET, path, Full::default()).await
    }

    /// Posts all bodies, several at a time.
    pub(crate) async fn post_all(&self, requests: impl Iterator<Item = (String, Value)>) -> Result<()> {
        let posted = stream::iter(requests).map(|(path, body)| async move { self.post(&path, &body).await });
        posted.buffer_unordered(CONCURRENCY).try_for_each(async |_| Ok(())).await
    }

    async fn send(&self, method: Method, path: &str, body: Full<Bytes>) -> Result<Value> {
        let request = http::Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body)?;
        let response = self.http.request(request).await.with_context(|| format!("no response: {path}"))?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        ensure!(status.is_success(), "{path}: {status} {}", String::from_utf8_lossy(&body));
        Ok(serde_json::from_slice(&body).unwrap_or(Value::Null))
    }
}

/// Serves a stand-in for another server until the program ends.
pub(crate) async fn serve(router: Router) -> Result<SocketAddr> {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

/// Waits until `check` returns a value.
pub(crate) async fn until<T>(
    limit: Duration,
    mut check: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let begun = Instant::now();
    loop {
        if let Some(value) = check().await? {
            return Ok(value);
        }
        if begun.elapsed() > limit {
            bail!("not done after {limit:?}");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
