//! The reverse proxy. Clients connect with HTTP/1.1 or HTTP/2, with or without TLS; upstreams are called over pooled
//! HTTP/1.1 connections. Bodies are streamed.

mod forward;
mod headers;
mod malformed;
mod pool;
mod span;
mod upload;
mod upstream;

use std::path::Path;
use std::sync::Arc;

use hob_admission::Admission;
use hob_net::{CertificateFiles, Client, Handler, Server, ServerLimits, ServerTls, TlsError};
use hob_trace::{SpanKind, TraceContext, Tracer};
use http::Request;
use http::uri::PathAndQuery;
use hyper::body::Incoming;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::config::Config;
use crate::traffic::counter::TrafficCounter;
use crate::traffic::meter::ConnectionGuard;
use forward::{ClientConnection, Forwarder, ProxyBody, ProxyResponse, text_response};
pub(crate) use upstream::check_upstream;

const MAX_STREAMS: u32 = 256;
const MAX_HEAD_BYTES: u32 = 64 * 1024;

/// A proxy that is ready to serve. Clones share their state.
#[derive(Clone)]
pub(crate) struct Proxy {
    inner: Arc<Inner>,
}

struct Inner {
    admission: Admission,
    traffic: TrafficCounter,
    forwarder: Forwarder,
    tracer: Tracer,
    server: Arc<Server>,
    tls: Option<Arc<ServerTls>>,
}

impl Proxy {
    pub(crate) fn new(
        config: &Config,
        admission: Admission,
        traffic: TrafficCounter,
        tracer: Tracer,
    ) -> Result<Self, Error> {
        let forwarder = Forwarder::new(config)?;
        let tls = certificate(config)?.map(ServerTls::read).transpose().map_err(bad_tls)?.map(Arc::new);
        let server = Server::new(limits(config), tls.clone());
        Ok(Self { inner: Arc::new(Inner { admission, traffic, forwarder, tracer, server, tls }) })
    }

    /// Serves clients until `stop` is cancelled, then lets requests finish within `drain_timeout`.
    pub(crate) async fn serve(&self, listener: &TcpListener, stop: &CancellationToken) {
        self.inner.server.serve(self, listener, stop).await;
    }

    /// Applies a changed configuration: upstreams to the next request, the certificate in its files to the next
    /// connection. An error changes neither. Whether clients use TLS is decided at startup.
    pub(crate) fn apply_config(&self, config: &Config) -> Result<(), Error> {
        let settings = self.inner.forwarder.read(config)?;
        if let (Some(tls), Some(files)) = (&self.inner.tls, certificate(config)?) {
            tls.reload(files).map_err(bad_tls)?;
        }
        self.inner.forwarder.replace(settings);
        Ok(())
    }

    /// Checks the health of every upstream if there is a health path, and closes idle connections.
    pub(crate) async fn check_health(&self, path: Option<&PathAndQuery>) {
        self.inner.forwarder.check_health(path).await;
    }
}

impl Handler for Proxy {
    type Guard = ConnectionGuard;
    type ConnectionState = ClientConnection;
    type Body = ProxyBody;

    fn on_connect(&self) -> ConnectionGuard {
        self.inner.traffic.meter.connected()
    }

    fn on_ready(&self, client: Client) -> ClientConnection {
        ClientConnection::new(client)
    }

    async fn handle(&self, mut request: Request<Incoming>, client: &ClientConnection) -> ProxyResponse {
        let Inner { admission, traffic, tracer, .. } = &*self.inner;
        let parent = TraceContext::of(request.headers());
        let mut span = tracer.span(SpanKind::Server, parent);
        span.describe(|record| record.set_request(&request, client.scheme.as_str(), request.uri().path()));
        let method = request.method().clone();
        let malformed = malformed::find(&request, client.scheme);
        let head = (request.method(), request.uri().path(), request.headers());
        let checked = admission.check(client.peer, head, malformed).await;
        let mut response = match checked.refusal {
            Some(refusal) => text_response(refusal.status(), refusal.reason()),
            None => {
                span::pass_on(tracer, &span, parent, request.headers_mut());
                self.inner.forwarder.forward(request, client, &checked).await
            }
        };
        checked.write_headers(response.headers_mut());
        let status = response.status();
        span.describe(|record| {
            span::describe(record, (&method, client), (&traffic.endpoints, &checked), status);
        });
        checked.finish(status);
        response
    }
}

pub(crate) fn certificate(config: &Config) -> Result<Option<CertificateFiles<'_>>, Error> {
    match (&config.tls_certificate, &config.tls_key) {
        (Some(certificate), Some(key)) => {
            Ok(Some(CertificateFiles { certificate: Path::new(certificate), key: Path::new(key) }))
        }
        (None, None) => Ok(None),
        _ => Err(Error::Config("tls_certificate and tls_key must be set together".to_owned())),
    }
}

#[allow(clippy::needless_pass_by_value, reason = "made for `map_err`")]
fn bad_tls(error: TlsError) -> Error {
    Error::Config(error.to_string())
}

fn limits(config: &Config) -> ServerLimits {
    ServerLimits {
        connections: config.max_connections as usize,
        streams: MAX_STREAMS,
        head_bytes: MAX_HEAD_BYTES,
        header_timeout: config.header_timeout.get(),
        write_timeout: config.write_timeout.get(),
        drain_timeout: config.drain_timeout.get(),
    }
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy").field("forwarder", &self.inner.forwarder).finish_non_exhaustive()
    }
}
