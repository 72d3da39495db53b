//! The server: accepts connections, HTTP/1.1 and 2, and ends them in bounded time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::{Config, Error};

/// Who is at the other end of the connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// A connection that cannot be accepted right now, for want of file descriptors: later, perhaps.
const BREATH: Duration = Duration::from_millis(50);

/// How often a quiet HTTP/2 connection is asked whether anybody is still there.
const PING_EVERY: Duration = Duration::from_secs(30);

const MOST_STREAMS: u32 = 128;
const LARGEST_HEAD: usize = 32 * 1024;

/// What all connections share.
#[derive(Clone)]
struct Host {
    router: Router,
    http: auto::Builder<TokioExecutor>,
    head_within: Duration,
    /// Cancelled when even patience has an end.
    cut: CancellationToken,
}

pub(crate) async fn serve(
    config: &Config,
    router: Router,
    listener: TcpListener,
    stop: CancellationToken,
) -> Result<(), Error> {
    let host = Host {
        router,
        http: http(config.head_within.get()),
        head_within: config.head_within.get(),
        cut: CancellationToken::new(),
    };
    let seats = Arc::new(Semaphore::new(config.max_connections as usize));
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &seats) => accepted,
            () = stop.cancelled() => break,
        };
        let Some((stream, peer, seat)) = accepted else { continue };
        let (host, watcher) = (host.clone(), graceful.watcher());
        tokio::spawn(async move {
            host.attend(TokioIo::new(stream), Peer(peer), watcher).await;
            drop(seat);
        });
    }
    drop(listener);
    if tokio::time::timeout(config.drain_within.get(), graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests were cut off");
    }
    host.cut.cancel();
    Ok(())
}

/// The next connection, once there is a seat for it.
async fn accept(
    listener: &TcpListener,
    seats: &Arc<Semaphore>,
) -> Option<(tokio::net::TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let seat = Arc::clone(seats).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, peer)) => {
            let _ = stream.set_nodelay(true);
            Some((stream, peer, seat))
        }
        Err(error) => {
            tracing::warn!(%error, "could not accept a connection");
            tokio::time::sleep(BREATH).await;
            None
        }
    }
}

fn http(head_within: Duration) -> auto::Builder<TokioExecutor> {
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new()).header_read_timeout(head_within).max_buf_size(LARGEST_HEAD);
    http.http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .max_concurrent_streams(MOST_STREAMS)
        .max_header_list_size(LARGEST_HEAD as u32);
    http
}

impl Host {
    async fn attend<I>(self, io: I, peer: Peer, watcher: Watcher)
    where
        I: Read + Write + Unpin + Send + 'static,
    {
        let spoke = Arc::new(AtomicBool::new(false));
        let (router, heard) = (self.router, Arc::clone(&spoke));
        let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
            heard.store(true, Ordering::Relaxed);
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(peer);
            router.clone().oneshot(request)
        });
        let connection = watcher.watch(self.http.serve_connection_with_upgrades(io, service).into_owned());
        tokio::select! {
            // Clients that go away or send rubbish are no news.
            ended = connection => if let Err(error) = ended { tracing::debug!(%error, "a connection ended") },
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
