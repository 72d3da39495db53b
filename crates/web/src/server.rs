//! The server: accepts connections, HTTP/1.1 and 2, and ends them in bounded time.

mod tls;
mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

pub(crate) use self::tls::Tls;
use self::wire::Wire;
use crate::Config;

/// Who is at the other end of the connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

/// When there are no file descriptors left, there may be some after this.
const BREATH: Duration = Duration::from_millis(50);

/// How often a quiet HTTP/2 connection is asked whether anybody is still there.
const PING_EVERY: Duration = Duration::from_secs(30);

const MOST_STREAMS: u32 = 128;
const LARGEST_HEAD: u32 = 32 * 1024;

/// What all connections share.
#[derive(Clone)]
struct Host {
    router: Router,
    http: auto::Builder<TokioExecutor>,
    tls: Option<Arc<Tls>>,
    head_within: Duration,
    /// Cancelled when even patience has an end.
    cut: CancellationToken,
}

/// Answers until `stop` is cancelled and what was under way is done, or has had its time.
pub(crate) async fn serve(
    config: &Config,
    tls: Option<Arc<Tls>>,
    router: Router,
    listener: TcpListener,
    stop: CancellationToken,
) {
    let head_within = config.head_within.get();
    let cut = CancellationToken::new();
    // Whatever way this ends, nothing stays behind.
    let _cut = cut.clone().drop_guard();
    let host = Host { router, http: http(head_within), tls, head_within, cut };
    let graceful = GracefulShutdown::new();
    tokio::select! {
        () = accept(&host, config, &listener, &graceful) => {}
        () = stop.cancelled() => {}
    }
    drop(listener);
    if tokio::time::timeout(config.drain_within.get(), graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests were cut off");
    }
}

/// Accepts for ever, as many at a time as there are seats.
async fn accept(host: &Host, config: &Config, listener: &TcpListener, graceful: &GracefulShutdown) {
    let seats = Arc::new(Semaphore::new(config.max_connections as usize));
    let unread_within = config.unread_within.get();
    while let Ok(seat) = Arc::clone(&seats).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let _ = stream.set_nodelay(true);
                let wire = Wire::new(stream, unread_within, seat);
                tokio::spawn(host.clone().welcome(wire, Peer(peer), graceful.watcher()));
            }
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(BREATH).await;
            }
        }
    }
}

fn http(head_within: Duration) -> auto::Builder<TokioExecutor> {
    let mut http = auto::Builder::new(TokioExecutor::new());
    let mut http1 = http.http1();
    http1.timer(TokioTimer::new()).header_read_timeout(head_within).max_buf_size(LARGEST_HEAD as usize);
    let mut http2 = http1.http2();
    http2.timer(TokioTimer::new()).keep_alive_interval(PING_EVERY);
    http2.max_concurrent_streams(MOST_STREAMS).max_header_list_size(LARGEST_HEAD);
    http
}

impl Host {
    async fn welcome(self, wire: Wire, peer: Peer, watcher: Watcher) {
        let Some(tls) = self.tls.clone() else { return self.attend(wire, peer, watcher).await };
        match tokio::time::timeout(self.head_within, tls.accept(wire)).await {
            Ok(Ok(stream)) => self.attend(stream, peer, watcher).await,
            Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
            Err(_) => tracing::debug!("a TLS handshake took too long"),
        }
    }

    async fn attend<I>(self, io: I, peer: Peer, watcher: Watcher)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let spoke = Arc::new(AtomicBool::new(false));
        let (router, heard) = (self.router, Arc::clone(&spoke));
        let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
            heard.store(true, Ordering::Relaxed);
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(peer);
            router.clone().oneshot(request)
        });
        let connection = self.http.serve_connection_with_upgrades(TokioIo::new(io), service).into_owned();
        tokio::select! {
            // Clients that go away or send rubbish are no news.
            ended = watcher.watch(connection) => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended");
                }
            }
            () = silence(self.head_within, &spoke) => tracing::debug!("a connection without a request was closed"),
            () = self.cut.cancelled() => {}
        }
    }
}

/// Done when nothing was asked for so long. hyper's own limit begins with the first bytes, which may never come.
async fn silence(within: Duration, spoke: &AtomicBool) {
    tokio::time::sleep(within).await;
    if spoke.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
}
