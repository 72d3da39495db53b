//! Accepts clients, HTTP/1.1 and 2, with or without TLS, and ends their connections in bounded time.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::activity::{Activity, Outgoing};
use super::connection::Connection;
use super::forward::Arrival;
use super::headers::Scheme;
use super::{Proxy, tls};
use crate::Error;
use crate::config::Config;

/// When there are no file descriptors left, a moment's wait is better than a busy loop.
const PAUSE: Duration = Duration::from_millis(50);

/// How often an idle HTTP/2 client, and the host of an idle client, is asked whether it is still there.
const PING_EVERY: Duration = Duration::from_secs(30);

const MAX_STREAMS: u32 = 256;
/// Bytes of a request's head.
const MAX_HEAD: u32 = 64 * 1024;

/// What all connections share.
pub(crate) struct Server {
    http: auto::Builder<TokioExecutor>,
    tls: Option<TlsAcceptor>,
    permits: Arc<Semaphore>,
    head_within: Duration,
    unread_within: Duration,
    drain_within: Duration,
}

impl Server {
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        let tls = match (&config.tls_certificate, &config.tls_key) {
            (Some(certificate), Some(key)) => {
                Some(tls::acceptor(Path::new(certificate), Path::new(key)).map_err(Error::Config)?)
            }
            (None, None) => None,
            _ => return Err(Error::Config("tls_certificate and tls_key belong together".to_owned())),
        };
        Ok(Self {
            http: http(config.head_within.get()),
            tls,
            permits: Arc::new(Semaphore::new(config.connections.max(1) as usize)),
            head_within: config.head_within.get(),
            unread_within: config.unread_within.get(),
            drain_within: config.drain_within.get(),
        })
    }

    /// Serves clients until `stop` is cancelled and the requests under way are done, or have had their time.
    pub(crate) async fn serve(&self, proxy: &Proxy, listener: &TcpListener, stop: &CancellationToken) {
        let cut = CancellationToken::new();
        // Whatever way this ends, no connection stays behind.
        let _cut = cut.clone().drop_guard();
        let graceful = GracefulShutdown::new();
        tokio::select! {
            () = self.accept(proxy, listener, &graceful, &cut) => {}
            () = stop.cancelled() => {}
        }
        if tokio::time::timeout(self.drain_within, graceful.shutdown()).await.is_err() {
            tracing::warn!("some requests through the gateway were cut off");
        }
    }

    /// Accepts for ever, as many at a time as there are permits.
    async fn accept(
        &self,
        proxy: &Proxy,
        listener: &TcpListener,
        graceful: &GracefulShutdown,
        cut: &CancellationToken,
    ) {
        while let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    // Without these options a connection works, too.
                    let _ = prepare(&stream);
                    let counted = proxy.inner.admission.meter().connected();
                    let connection = Connection::new(stream, self.unread_within, permit, counted);
                    let (proxy, watcher, cut) = (proxy.clone(), graceful.watcher(), cut.clone());
                    tokio::spawn(async move {
                        let welcome = proxy.inner.server.welcome(&proxy, connection, peer, watcher, &cut);
                        cut.run_until_cancelled(welcome).await;
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection to the gateway");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn welcome(
        &self,
        proxy: &Proxy,
        connection: Connection,
        peer: SocketAddr,
        watcher: Watcher,
        cut: &CancellationToken,
    ) {
        let arrival = |scheme| Arrival::new(peer, scheme, cut.clone());
        let Some(tls) = &self.tls else {
            return self.attend(proxy, connection, arrival(Scheme::Http), watcher).await;
        };
        match tokio::time::timeout(self.head_within, tls.accept(connection)).await {
            Ok(Ok(stream)) => self.attend(proxy, stream, arrival(Scheme::Https), watcher).await,
            Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
            Err(_) => tracing::debug!(%peer, "TLS handshake timed out"),
        }
    }

    async fn attend<I>(&self, proxy: &Proxy, io: I, arrival: Arrival, watcher: Watcher)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (peer, activity) = (arrival.peer, Arc::new(Activity::default()));
        let (proxy, arrival, requests) = (proxy.clone(), Arc::new(arrival), Arc::clone(&activity));
        let service = service_fn(move |request| {
            let (proxy, arrival, under_way) = (proxy.clone(), Arc::clone(&arrival), requests.begin());
            async move {
                let answer = proxy.answer(request, &arrival).await;
                Ok::<_, Infallible>(answer.map(|body| Outgoing { body, _request: under_way }))
            }
        });
        let connection = self.http.serve_connection_with_upgrades(TokioIo::new(io), service);
        tokio::select! {
            ended = watcher.watch(connection) => {
                if let Err(error) = ended {
                    tracing::debug!(%peer, error, "connection of a client failed");
                }
            }
            () = activity.idle(self.head_within) => tracing::debug!(%peer, "idle connection closed"),
        }
    }
}

fn http(head_within: Duration) -> auto::Builder<TokioExecutor> {
    let mut http = auto::Builder::new(TokioExecutor::new());
    let mut http1 = http.http1();
    http1.timer(TokioTimer::new()).header_read_timeout(head_within).max_buf_size(MAX_HEAD as usize);
    let mut http2 = http1.http2();
    http2.timer(TokioTimer::new()).keep_alive_interval(PING_EVERY);
    http2.max_concurrent_streams(MAX_STREAMS).max_header_list_size(MAX_HEAD);
    http
}

/// Sends packets at once, and finds out when the other host is gone: a connection that was upgraded may be idle for as
/// long as both sides like.
fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(PING_EVERY).with_interval(PING_EVERY / 3);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
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
