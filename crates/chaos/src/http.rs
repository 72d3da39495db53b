//! HTTP for the traffic: a client that tells a request that was never sent from one whose outcome is unknown, and
//! stand-ins for the servers of other people.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::Router;
use bytes::Bytes;
use http::Method;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// How long a request waits for its response: a frozen node gives none.
const TIMEOUT: Duration = Duration::from_secs(8);

/// What became of a request.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    Answered {
        status: u16,
        /// Null if it is not JSON.
        body: Value,
    },
    /// The connection was refused, so the server has not seen the request.
    NotSent,
    /// The server may have seen it.
    Unknown,
}

impl Outcome {
    /// The body of a response with this status.
    pub(crate) fn ok(self, expected: u16) -> Option<Value> {
        match self {
            Self::Answered { status, body } if status == expected => Some(body),
            Self::Answered { .. } | Self::NotSent | Self::Unknown => None,
        }
    }
}

/// A client that opens a connection for each request, so that no request fails because of an earlier fault.
#[derive(Clone, Debug)]
pub(crate) struct Http(Client<HttpConnector, Full<Bytes>>);

impl Http {
    pub(crate) fn new() -> Self {
        Self(Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http())
    }

    pub(crate) async fn get(&self, to: SocketAddr, path: &str) -> Outcome {
        self.send(Method::GET, to, path, None).await
    }

    pub(crate) async fn post(&self, to: SocketAddr, path: &str, body: &Value) -> Outcome {
        self.send(Method::POST, to, path, Some(body)).await
    }

    async fn send(&self, method: Method, to: SocketAddr, path: &str, body: Option<&Value>) -> Outcome {
        let request = http::Request::builder()
            .method(method)
            .uri(format!("http://{to}{path}"))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Full::from(body.map(Value::to_string).unwrap_or_default()))
            .expect("paths of the harness are valid");
        let answer = async {
            let response = match self.0.request(request).await {
                Ok(response) => response,
                Err(error) if error.is_connect() => return Outcome::NotSent,
                Err(_) => return Outcome::Unknown,
            };
            let status = response.status().as_u16();
            match response.into_body().collect().await {
                Ok(body) => {
                    let body = serde_json::from_slice(&body.to_bytes()).unwrap_or(Value::Null);
                    Outcome::Answered { status, body }
                }
                Err(_) => Outcome::Unknown,
            }
        };
        tokio::time::timeout(TIMEOUT, answer).await.unwrap_or(Outcome::Unknown)
    }
}

/// Serves a stand-in on a free port until the runtime ends.
pub(crate) async fn serve(router: Router) -> Result<SocketAddr> {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let listener = listener.context("cannot listen on a port of this machine")?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}
