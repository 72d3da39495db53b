//! Pooled connections to upstreams. A connection is driven in the task of the client that uses it: no other task is
//! woken for a request, and when the client disconnects, its request is cancelled.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hob_units::error_text;
use http::{Request, Response};
use http_body_util::{Either, Empty};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::upload::ClientBody;

/// The body of a request: the client's as it arrives, or none.
pub(crate) type RequestBody = Either<ClientBody, Empty<Bytes>>;

const MAX_IDLE_TIME: Duration = Duration::from_secs(30);
const MAX_IDLE: usize = 512;

/// The address of an upstream.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// For an https upstream.
    pub(crate) tls: Option<TlsConnector>,
}

/// A connection to an upstream.
struct Connection {
    sender: SendRequest<RequestBody>,
    /// Reads and writes while it is polled; `None` once the connection is closed.
    driver: Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>,
}

/// The idle connections to one upstream.
#[derive(Default)]
pub(crate) struct ConnectionPool {
    idle: Mutex<Vec<(Connection, Instant)>>,
}

/// Why there is no response.
pub(crate) enum SendError {
    /// The upstream did not see the request.
    NotSent(Box<dyn std::error::Error + Send + Sync>),
    /// The upstream may have seen the request.
    Interrupted(hyper::Error),
}

impl ConnectionPool {
    /// Sends a request over an idle connection, or over a new one.
    pub(crate) async fn send(
        self: &Arc<Self>,
        mut request: Request<RequestBody>,
        target: &Target,
        connect_timeout: Duration,
    ) -> Result<Response<ResponseBody>, SendError> {
        while let Some(mut connection) = self.take() {
            match connection.send(request).await {
                Ok(response) => return Ok(self.with_body(response, connection)),
                // The upstream closed the connection before the request was sent.
                Err((_, Some(unsent))) => request = unsent,
                Err((error, None)) => return Err(SendError::Interrupted(error)),
            }
        }
        let connecting = tokio::time::timeout(connect_timeout, Connection::connect(target));
        let mut connection = connecting
            .await
            .unwrap_or_else(|_| Err("connecting timed out".into()))
            .map_err(SendError::NotSent)?;
        match connection.send(request).await {
            Ok(response) => Ok(self.with_body(response, connection)),
            Err((error, Some(_))) => Err(SendError::NotSent(error.into())),
            Err((error, None)) => Err(SendError::Interrupted(error)),
        }
    }

    /// Closes connections that were idle for too long, or that the upstream has closed.
    pub(crate) fn sweep(&self) {
        let mut idle = std::mem::take(&mut *self.idle.lock());
        let is_usable = |(connection, since): &mut (Connection, Instant)| {
            since.elapsed() < MAX_IDLE_TIME && connection.is_ready()
        };
        self.idle.lock().extend(idle.extract_if(.., is_usable));
    }

    /// The idle connection that was used last.
    fn take(&self) -> Option<Connection> {
        loop {
            let (mut connection, since) = self.idle.lock().pop()?;
            if since.elapsed() < MAX_IDLE_TIME && connection.is_ready() {
                return Some(connection);
            }
        }
    }

    fn with_body(
        self: &Arc<Self>,
        response: Response<Incoming>,
        connection: Connection,
    ) -> Response<ResponseBody> {
        response.map(|body| ResponseBody {
            body,
            ended: false,
            connection: Some((connection, Arc::clone(self))),
        })
    }

    /// Keeps a connection for the next request if it is ready for one. An upstream may respond before it has read the
    /// whole request; the rest of that upload would block every later request, so such a connection is closed.
    fn release(&self, mut connection: Connection) {
        if connection.is_ready() {
            let mut idle = self.idle.lock();
            if idle.len() < MAX_IDLE {
                idle.push((connection, Instant::now()));
            }
        }
    }
}

impl Connection {
    async fn connect(target: &Target) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let stream = TcpStream::connect((target.host.as_str(), target.port)).await?;
        stream.set_nodelay(true)?;
        match &target.tls {
            None => Self::handshake(stream).await,
            Some(tls) => {
                let name = target.host.trim_start_matches('[').trim_end_matches(']').to_owned();
                Self::handshake(tls.connect(name.try_into()?, stream).await?).await
            }
        }
    }

    async fn handshake(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let (sender, driver) = http1::handshake(TokioIo::new(stream)).await?;
        Ok(Self { sender, driver: Some(Box::pin(driver.with_upgrades())) })
    }

    /// Reads and writes as far as possible; ready once the connection is closed.
    fn drive(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(driver) = &mut self.driver {
            // The pending response reports why the connection closed.
            let _ended = ready!(driver.as_mut().poll(context));
            self.driver = None;
        }
        Poll::Ready(())
    }

    /// Whether the connection is open and no request is being sent. Nothing waits for the result, so no waker is
    /// needed.
    fn is_ready(&mut self) -> bool {
        let mut context = Context::from_waker(std::task::Waker::noop());
        self.drive(&mut context).is_pending() && self.sender.is_ready()
    }

    /// Sends a request and drives the connection until the response begins. Returns the request with the error if it
    /// was not sent.
    async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, (hyper::Error, Option<Request<RequestBody>>)> {
        let mut response = std::pin::pin!(self.sender.try_send_request(request));
        let finish = poll_fn(|context| {
            // First write the request, then poll for the response.
            let _over = self.drive(context);
            response.as_mut().poll(context)
        });
        finish.await.map_err(|mut failed| {
            let unsent = failed.take_message();
            (failed.into_error(), unsent)
        })
    }
}

/// A response's body as it arrives. Once it was read to its end, the connection returns to the pool.
pub(crate) struct ResponseBody {
    body: Incoming,
    ended: bool,
    connection: Option<(Connection, Arc<ConnectionPool>)>,
}

impl ResponseBody {
    /// Drives the connection until it is closed, for an upgraded protocol.
    pub(crate) fn detach(mut self) {
        if let Some((Connection { driver: Some(driver), .. }, _)) = self.connection.take() {
            tokio::spawn(driver);
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        let mut frame = Pin::new(&mut this.body).poll_frame(context);
        if frame.is_pending()
            && let Some((connection, _)) = &mut this.connection
        {
            let _over = connection.drive(context);
            frame = Pin::new(&mut this.body).poll_frame(context);
        }
        let frame = ready!(frame);
        this.ended = frame.is_none();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        if let Some((connection, pool)) = self.connection.take()
            && (self.ended || self.body.is_end_stream())
        {
            pool.release(connection);
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl fmt::Debug for ConnectionPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionPool").field("idle", &self.idle.lock().len()).finish()
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(error) => f.write_str(&error_text(&**error)),
            Self::Interrupted(error) => f.write_str(&error_text(error)),
        }
    }
}
