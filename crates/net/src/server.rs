//! Accepts clients, HTTP/1.1 and 2, with or without TLS, and ends their connections in bounded time.

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

use crate::activity::{Activity, Sending};
use crate::connection::Connection;
use crate::tls::ServerTls;

/// When there are no file descriptors left, a moment's wait is better than a busy loop.
const PAUSE: Duration = Duration::from_millis(50);

/// How often an idle HTTP/2 client, and the host of an idle client, is asked whether it is still there.
const PING_EVERY: Duration = Duration::from_secs(30);

/// What a server takes, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time. Further ones wait to be accepted.
    pub connections: usize,
    /// Requests at a time on one HTTP/2 connection.
    pub streams: u32,
    /// Bytes of a request's head.
    pub head_bytes: u32,
    /// How long a client may take for a handshake or for the head of a request, and how long a connection may be idle.
    pub head_within: Duration,
    /// How long a client may leave unread what it is sent.
    pub unread_within: Duration,
    /// How long requests may go on once the server stops.
    pub drain_within: Duration,
}

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub struct Client {
    pub address: SocketAddr,
    /// Whether the connection is encrypted.
    pub secure: bool,
    /// Cancelled when the server has stopped: upgraded connections must end then, too.
    pub cut: CancellationToken,
}

/// What answers requests. Clones are handles to the same.
pub trait Handler: Clone + Send + Sync + 'static {
    /// Held for as long as a connection is open, also after an upgrade.
    type Guard: Unpin + Send + 'static;
    /// What the handler knows of a connection when it answers requests on it.
    type Arrival: Send + Sync + 'static;
    type Body: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Unpin
        + Send
        + 'static;

    /// A client has connected.
    fn connected(&self) -> Self::Guard;

    /// The connection is ready for requests.
    fn arrive(&self, client: Client) -> Self::Arrival;

    fn answer(
        &self,
        request: Request<Incoming>,
        arrival: &Self::Arrival,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}

/// What all connections share.
pub struct Server {
    http: auto::Builder<TokioExecutor>,
    tls: Option<Arc<ServerTls>>,
    permits: Arc<Semaphore>,
    limits: Limits,
}

impl Server {
    #[must_use]
    pub fn new(limits: Limits, tls: Option<Arc<ServerTls>>) -> Arc<Self> {
        let permits = Arc::new(Semaphore::new(limits.connections.clamp(1, Semaphore::MAX_PERMITS)));
        Arc::new(Self { http: http(&limits), tls, permits, limits })
    }

    /// Serves clients until `stop` is cancelled and the requests under way are done, or have had their time.
    pub async fn serve(
        self: &Arc<Self>,
        handler: &impl Handler,
        listener: &TcpListener,
        stop: &CancellationToken,
    ) {
        let cut = CancellationToken::new();
        // However this ends, no connection stays behind.
        let _cut = cut.clone().drop_guard();
        let graceful = GracefulShutdown::new();
        tokio::select! {
            () = self.accept(handler, listener, &graceful, &cut) => {}
            () = stop.cancelled() => {}
        }
        if tokio::time::timeout(self.limits.drain_within, graceful.shutdown()).await.is_err() {
            tracing::warn!("some requests were cut off");
        }
    }

    /// Accepts for ever, as many at a time as there are permits.
    async fn accept(
        self: &Arc<Self>,
        handler: &impl Handler,
        listener: &TcpListener,
        graceful: &GracefulShutdown,
        cut: &CancellationToken,
    ) {
        while let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await {
            match listener.accept().await {
                Ok((stream, address)) => {
                    // Without these options a connection works, too.
                    let _ = prepare(&stream);
                    let connection =
                        Connection::new(stream, self.limits.unread_within, permit, handler.connected());
                    let client = Client { address, secure: self.tls.is_some(), cut: cut.clone() };
                    let (server, handler) = (Arc::clone(self), handler.clone());
                    let (watcher, cut) = (graceful.watcher(), cut.clone());
                    tokio::spawn(async move {
                        cut.run_until_cancelled(server.welcome(handler, connection, client, watcher)).await;
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn welcome<H: Handler>(
        &self,
        handler: H,
        connection: Connection<H::Guard>,
        client: Client,
        watcher: Watcher,
    ) {
        let Some(tls) = &self.tls else {
            return self.attend(handler, connection, client, watcher).await;
        };
        let peer = client.address;
        match tokio::time::timeout(self.limits.head_within, tls.accept(connection)).await {
            Ok(Ok(stream)) => self.attend(handler, stream, client, watcher).await,
            Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
            Err(_) => tracing::debug!(%peer, "TLS handshake timed out"),
        }
    }

    async fn attend<H, I>(&self, handler: H, io: I, client: Client, watcher: Watcher)
    where
        H: Handler,
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (peer, activity) = (client.address, Arc::new(Activity::default()));
        let (arrival, requests) = (Arc::new(handler.arrive(client)), Arc::clone(&activity));
        let service = service_fn(move |request| {
            let (handler, arrival, under_way) = (handler.clone(), Arc::clone(&arrival), requests.begin());
            async move {
                let answer = handler.answer(request, &arrival).await;
                Ok::<_, Infallible>(answer.map(|body| Sending { body, _request: under_way }))
            }
        });
        let connection = self.http.serve_connection_with_upgrades(TokioIo::new(io), service);
        tokio::select! {
            ended = watcher.watch(connection) => {
                // Clients that go away or send rubbish are not news.
                if let Err(error) = ended {
                    tracing::debug!(%peer, error, "connection failed");
                }
            }
            () = activity.idle(self.limits.head_within) => tracing::debug!(%peer, "idle connection closed"),
        }
    }
}

fn http(limits: &Limits) -> auto::Builder<TokioExecutor> {
    let mut http = auto::Builder::new(TokioExecutor::new());
    let mut http1 = http.http1();
    http1.timer(TokioTimer::new());
    http1.header_read_timeout(limits.head_within).max_buf_size(limits.head_bytes as usize);
    let mut http2 = http1.http2();
    http2.timer(TokioTimer::new()).keep_alive_interval(PING_EVERY);
    http2.max_concurrent_streams(limits.streams).max_header_list_size(limits.head_bytes);
    http
}

/// Sends packets at once, and finds out when the other host is gone: a connection that was upgraded may be idle for as
/// long as both sides like.
fn prepare(stream: &TcpStream) -> std::io::Result<()> {
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

    /// A client whose host vanished must not hold its permit for ever.
    #[tokio::test]
    async fn connections_to_hosts_that_vanished_are_found_by_tcp() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (_client, (stream, _)) = (client.unwrap(), accepted.unwrap());
        prepare(&stream).unwrap();
        assert!(SockRef::from(&stream).keepalive().unwrap());
        assert_eq!(SockRef::from(&stream).tcp_keepalive_time().unwrap(), PING_EVERY);
    }
}
