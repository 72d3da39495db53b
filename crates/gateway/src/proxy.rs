//! The reverse proxy: clients in over HTTP/1.1 and HTTP/2, with or without TLS; requests out over pooled connections.
//! Bodies pass as they come.

mod activity;
mod connection;
mod forward;
mod headers;
mod server;
mod tls;
mod upstream;
mod wire;

use std::sync::Arc;

use http::Request;
use http::uri::PathAndQuery;
use hyper::body::Incoming;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::admission::Admission;
use crate::config::Config;
use forward::{Answer, Arrival, Forwarder, plain};
use server::Server;

/// A proxy that is ready to serve. Clones are handles to the same.
#[derive(Clone)]
pub(crate) struct Proxy {
    inner: Arc<Inner>,
}

struct Inner {
    admission: Admission,
    forwarder: Forwarder,
    server: Server,
}

impl Proxy {
    pub(crate) fn new(config: &Config, admission: Admission) -> Result<Self, Error> {
        let forwarder = Forwarder::new(config)?;
        let server = Server::new(config)?;
        Ok(Self { inner: Arc::new(Inner { admission, forwarder, server }) })
    }

    /// Serves clients until it is told to stop; then lets requests end, for a while.
    pub(crate) async fn serve(&self, listener: &TcpListener, stop: &CancellationToken) {
        self.inner.server.serve(self, listener, stop).await;
    }

    async fn answer(&self, request: Request<Incoming>, arrival: &Arrival) -> Answer {
        let admission = &self.inner.admission;
        let admitted =
            admission.admit(arrival.peer, request.method(), request.uri().path(), request.headers()).await;
        let mut response = match admitted.refusal {
            Some(refusal) => plain(refusal.status(), refusal.reason()),
            None => self.inner.forwarder.forward(request, arrival, &admitted).await,
        };
        admitted.tell(response.headers_mut());
        admitted.answered(response.status());
        response
    }

    /// Sends the next requests where another configuration says.
    pub(crate) fn replace(&self, config: &Config) -> Result<(), Error> {
        self.inner.forwarder.replace(config)
    }

    /// Asks every upstream for its health path, if there is one, and closes connections that nobody needs.
    pub(crate) async fn examine(&self, path: Option<&PathAndQuery>) {
        self.inner.forwarder.examine(path).await;
    }
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy").field("forwarder", &self.inner.forwarder).finish_non_exhaustive()
    }
}
