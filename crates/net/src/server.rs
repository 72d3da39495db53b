//! The server: accepts HTTP/1.1 and HTTP/2 connections, with or without TLS, and limits how long they last.

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::activity::{Activity, ResponseBody};
use crate::connection::{Connection, SocketWriter};
use crate::tls::ServerTls;

/// Pause after accepting a connection failed, for example because no file descriptors are left. Prevents a busy loop.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Interval of HTTP/2 pings, and idle time before the first TCP keepalive probe.
const PING_EVERY: Duration = Duration::from_secs(30);

/// The limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Maximum number of connections. Further connections wait to be accepted.
    pub connections: usize,
    /// Maximum number of concurrent requests on one HTTP/2 connection.
    pub streams: u32,
    /// Maximum size of a request head, in bytes.
    pub head_bytes: u32,
    /// Maximum duration of a TLS handshake and of sending a request head. Also the idle timeout:
    /// an idle connection is closed after one to two times this duration.
    pub header_timeout: Duration,
    /// How long a write may block before the connection is closed.
    pub write_timeout: Duration,
    /// How long requests may continue after the server stops.
    pub drain_timeout: Duration,
}

/// The client of a connection.
#[derive(Clone, Debug)]
pub struct Client {
    pub address: SocketAddr,
    /// Whether the connection is encrypted.
    pub secure: bool,
    /// Cancelled when the server closes the remaining connections. The server cannot close upgraded connections: their
    /// handlers must then end them.
    pub force_close: CancellationToken,
    /// Writes to the connection after an upgrade. `None` if it is encrypted.
    pub writer: Option<SocketWriter>,
}

/// Answers requests. Clones share their state.
pub trait Handler: Clone + Send + Sync + 'static {
    /// A value that is held as long as a connection is open, even after an upgrade.
    type Guard: Unpin + Send + 'static;
    /// Per-connection state for [`Handler::handle`].
    type ConnectionState: Send + Sync + 'static;
    type Body: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Unpin
        + Send
        + 'static;

    /// Called when a client has connected.
    fn on_connect(&self) -> Self::Guard;

    /// Called when the connection is ready for requests, after the TLS handshake.
    fn on_ready(&self, client: Client) -> Self::ConnectionState;

    fn handle(
        &self,
        request: Request<Incoming>,
        state: &Self::ConnectionState,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}

/// An HTTP server. Its limits apply to all listeners that it serves.
pub struct Server {
    http: auto::Builder<TokioExecutor>,
    tls: Option<Arc<ServerTls>>,
    permits: Arc<Semaphore>,
    limits: ServerLimits,
}

impl Server {
    #[must_use]
    pub fn new(limits: ServerLimits, tls: Option<Arc<ServerTls>>) -> Arc<Self> {
        let permits = Arc::new(Semaphore::new(limits.connections.clamp(1, Semaphore::MAX_PERMITS)));
        Arc::new(Self { http: http(&limits), tls, permits, limits })
    }

    /// Serves clients until `stop` is cancelled, then waits up to `drain_timeout` for active requests.
    pub async fn serve(
        self: &Arc<Self>,
        handler: &impl Handler,
        listener: &TcpListener,
        stop: &CancellationToken,
    ) {
        let force_close = CancellationToken::new();
        // Closes all connections, even when this future is dropped.
        let _close_on_drop = force_close.clone().drop_guard();
        let graceful = GracefulShutdown::new();
        tokio::select! {
            () = self.accept(handler, listener, &graceful, &force_close) => {}
            () = stop.cancelled() => {}
        }
        if tokio::time::timeout(self.limits.drain_timeout, graceful.shutdown()).await.is_err() {
            tracing::warn!("connections did not finish in time, closing them");
        }
    }

    /// Accepts connections in a loop, and takes a permit before each one.
    async fn accept(
        self: &Arc<Self>,
        handler: &impl Handler,
        listener: &TcpListener,
        graceful: &GracefulShutdown,
        force_close: &CancellationToken,
    ) {
        while let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await {
            match listener.accept().await {
                Ok((stream, address)) => {
                    // The connection also works without these options.
                    let _ = set_options(&stream);
                    let connection =
                        Connection::new(stream, self.limits.write_timeout, permit, handler.on_connect());
                    let secure = self.tls.is_some();
                    let writer = (!secure).then(|| connection.writer());
                    let client = Client { address, secure, force_close: force_close.clone(), writer };
                    let (server, handler) = (Arc::clone(self), handler.clone());
                    let (watcher, force_close) = (graceful.watcher(), force_close.clone());
                    tokio::spawn(async move {
                        force_close
                            .run_until_cancelled(server.run_connection(handler, connection, client, watcher))
                            .await;
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }

    async fn run_connection<H: Handler>(
        &self,
        handler: H,
        connection: Connection<H::Guard>,
        client: Client,
        watcher: Watcher,
    ) {
        let Some(tls) = &self.tls else {
            return self.serve_connection(handler, connection, client, watcher).await;
        };
        let peer = client.address;
        match tokio::time::timeout(self.limits.header_timeout, tls.accept(connection)).await {
            Ok(Ok(stream)) => self.serve_connection(handler, stream, client, watcher).await,
            Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
            Err(_) => tracing::debug!(%peer, "TLS handshake timed out"),
        }
    }

    async fn serve_connection<H, I>(&self, handler: H, io: I, client: Client, watcher: Watcher)
    where
        H: Handler,
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (peer, activity) = (client.address, Arc::new(Activity::default()));
        let state = Arc::new(handler.on_ready(client));
        let service = {
            let activity = Arc::clone(&activity);
            service_fn(move |request| {
                let (handler, state, active) = (handler.clone(), Arc::clone(&state), activity.begin());
                async move {
                    let response = handler.handle(request, &state).await;
                    Ok::<_, Infallible>(response.map(|body| ResponseBody { body, _request: active }))
                }
            })
        };
        let connection = self.http.serve_connection_with_upgrades(TokioIo::new(io), service);
        tokio::select! {
            // A request that has arrived is read first, even if the process was suspended for longer than the timeout.
            biased;
            ended = watcher.watch(connection) => {
                if let Err(error) = ended {
                    tracing::debug!(%peer, error, "connection failed");
                }
            }
            () = activity.idle(self.limits.header_timeout) => tracing::debug!(%peer, "idle connection closed"),
        }
    }
}

fn http(limits: &ServerLimits) -> auto::Builder<TokioExecutor> {
    let mut http = auto::Builder::new(TokioExecutor::new());
    let mut http1 = http.http1();
    http1.timer(TokioTimer::new());
    http1.header_read_timeout(limits.header_timeout).max_buf_size(limits.head_bytes as usize);
    let mut http2 = http1.http2();
    http2.timer(TokioTimer::new()).keep_alive_interval(PING_EVERY);
    http2.max_concurrent_streams(limits.streams).max_header_list_size(limits.head_bytes);
    http
}

/// Disables Nagle's algorithm, and enables keepalive to detect lost hosts, because an upgraded connection may be idle
/// for any time.
fn set_options(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(PING_EVERY).with_interval(PING_EVERY / 3);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("limits", &self.limits).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without it, a client whose host is lost would hold its permit for ever.
    #[tokio::test]
    async fn tcp_keepalive_is_enabled() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (_client, (stream, _)) = (client.unwrap(), accepted.unwrap());
        set_options(&stream).unwrap();
        assert!(SockRef::from(&stream).keepalive().unwrap());
        assert_eq!(SockRef::from(&stream).tcp_keepalive_time().unwrap(), PING_EVERY);
    }
}
