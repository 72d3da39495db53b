//! The reverse proxy: clients in over HTTP/1.1 and HTTP/2, with or without TLS; requests out over pooled connections.
//! Bodies pass as they come.

mod forward;
mod headers;
mod tls;
mod upstream;
mod wire;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http::uri::PathAndQuery;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::admission::Admission;
use crate::config::Config;
use forward::{Answer, Arrival, Forwarder, plain};
use headers::Scheme;

/// A client that connects says hello within this, and sends a whole request head.
const HELLO_WITHIN: Duration = Duration::from_secs(15);
/// How long requests may go on once the proxy was told to stop.
const DRAIN: Duration = Duration::from_secs(5);
/// When there are no file descriptors left, a moment's wait is better than a busy loop.
const PAUSE: Duration = Duration::from_millis(50);
const MOST_STREAMS: u32 = 256;
/// Bytes of a request's head.
const MOST_HEAD: usize = 64 * 1024;

/// A proxy that is ready to serve. Clones are handles to the same.
#[derive(Clone)]
pub(crate) struct Proxy {
    inner: Arc<Inner>,
}

struct Inner {
    admission: Admission,
    forwarder: Forwarder,
    tls: Option<TlsAcceptor>,
    connections: Arc<Semaphore>,
    http: auto::Builder<TokioExecutor>,
}

impl Proxy {
    pub(crate) fn new(config: &Config, admission: Admission) -> Result<Self, Error> {
        let forwarder = Forwarder::new(config)?;
        let tls = match (&config.tls_certificate, &config.tls_key) {
            (Some(certificate), Some(key)) => {
                Some(tls::acceptor(Path::new(certificate), Path::new(key)).map_err(Error::Config)?)
            }
            (None, None) => None,
            _ => return Err(Error::Config("tls_certificate and tls_key belong together".to_owned())),
        };
        let mut http = auto::Builder::new(TokioExecutor::new());
        http.http1().timer(TokioTimer::new()).header_read_timeout(HELLO_WITHIN).max_buf_size(MOST_HEAD);
        http.http2().timer(TokioTimer::new()).max_concurrent_streams(MOST_STREAMS);
        let connections = Arc::new(Semaphore::new(config.connections.max(1) as usize));
        Ok(Self { inner: Arc::new(Inner { admission, forwarder, tls, connections, http }) })
    }

    /// Serves clients until it is told to stop; then lets requests end, for a while.
    pub(crate) async fn serve(&self, listener: &TcpListener, stop: &CancellationToken) {
        let graceful = GracefulShutdown::new();
        let cut_off = CancellationToken::new();
        while let Some(accepted) = stop.run_until_cancelled(self.accept(listener)).await {
            let Some((permit, stream, peer)) = accepted else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let (proxy, watcher, cut_off) = (self.clone(), graceful.watcher(), cut_off.clone());
            tokio::spawn(async move {
                cut_off.run_until_cancelled(proxy.connected(stream, peer, watcher)).await;
                drop(permit);
            });
        }
        if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
            tracing::warn!("some requests through the gateway were cut off");
        }
        cut_off.cancel();
    }

    /// The next client, once there is room for one more; `None` if it could not be had.
    async fn accept(&self, listener: &TcpListener) -> Option<(OwnedSemaphorePermit, TcpStream, SocketAddr)> {
        let permit = Arc::clone(&self.inner.connections).acquire_owned().await.ok()?;
        let (stream, peer) = listener.accept().await.ok()?;
        Some((permit, stream, peer))
    }

    async fn connected(&self, stream: TcpStream, peer: SocketAddr, watcher: Watcher) {
        let _open = self.inner.admission.meter().connected();
        // A client that does not want its packets at once is rare, and one that is gone is seen later.
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.inner.tls else {
            return self.converse(stream, Arrival::new(peer, Scheme::Http), watcher).await;
        };
        if let Ok(Ok(stream)) = tokio::time::timeout(HELLO_WITHIN, tls.accept(stream)).await {
            self.converse(stream, Arrival::new(peer, Scheme::Https), watcher).await;
        }
    }

    async fn converse<S>(&self, stream: S, arrival: Arrival, watcher: Watcher)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (proxy, peer) = (self.clone(), arrival.peer);
        let arrival = Arc::new(arrival);
        let answer = service_fn(move |request| {
            let (proxy, arrival) = (proxy.clone(), Arc::clone(&arrival));
            async move { Ok::<_, Infallible>(proxy.answer(request, &arrival).await) }
        });
        let connection = self.inner.http.serve_connection_with_upgrades(TokioIo::new(stream), answer);
        if let Err(error) = watcher.watch(connection).await {
            tracing::debug!(%peer, error, "a client's connection ended badly");
        }
    }

    async fn answer(&self, request: Request<Incoming>, arrival: &Arrival) -> Answer {
        let admission = &self.inner.admission;
        let admitted =
            admission.admit(arrival.peer, request.method(), request.uri().path(), request.headers()).await;
        let mut response = match admitted.refusal {
            Some(refusal) => plain(refusal.status(), refusal.reason()),
            None => self.inner.forwarder.forward(request, arrival, admission).await,
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
