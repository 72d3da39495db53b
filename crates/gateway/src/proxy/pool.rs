//! Connections to upstreams. One is driven by whoever uses it, in the task of the client's connection: no other task
//! has to be woken for a request, and a client that leaves takes its request with it.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Either, Empty};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// What upstreams get.
pub(crate) type RequestBody = Either<Incoming, Empty<Bytes>>;

/// How long a connection may wait for its next request, and how many may.
const MAX_IDLE_TIME: Duration = Duration::from_secs(30);
const MAX_IDLE: usize = 512;

/// Where an upstream is, and how it is reached.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// For an upstream that is talked to with TLS.
    pub(crate) tls: Option<TlsConnector>,
}

/// A connection.
struct Connection {
    sender: SendRequest<RequestBody>,
    /// Reads and writes while it is polled; `None` when it is over.
    driver: Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>,
}

/// The connections to one upstream that wait for a request.
#[derive(Default)]
pub(crate) struct ConnectionPool {
    idle: Mutex<Vec<(Connection, Instant)>>,
}

/// Why there is no response.
pub(crate) enum SendError {
    /// The request was certainly not seen.
    NotSent(Box<dyn std::error::Error + Send + Sync>),
    /// Nobody knows.
    Interrupted(hyper::Error),
}

impl ConnectionPool {
    /// Sends a request over a connection that waits, or over a new one.
    pub(crate) async fn send(
        self: &Arc<Self>,
        mut request: Request<RequestBody>,
        target: &Target,
        connect_within: Duration,
    ) -> Result<Response<ResponseBody>, SendError> {
        while let Some(mut connection) = self.take() {
            match connection.send(request).await {
                Ok(response) => return Ok(self.with_body(response, connection)),
                // It was closed just now, before the request was on it.
                Err((_, Some(unsent))) => request = unsent,
                Err((error, None)) => return Err(SendError::Interrupted(error)),
            }
        }
        let connecting = tokio::time::timeout(connect_within, Connection::connect(target));
        let mut connection = connecting
            .await
            .unwrap_or_else(|_| Err("it took too long to connect".into()))
            .map_err(SendError::NotSent)?;
        match connection.send(request).await {
            Ok(response) => Ok(self.with_body(response, connection)),
            Err((error, Some(_))) => Err(SendError::NotSent(error.into())),
            Err((error, None)) => Err(SendError::Interrupted(error)),
        }
    }

    /// Closes connections that have waited for long, or were closed by the other side.
    pub(crate) fn sweep(&self) {
        let mut idle = std::mem::take(&mut *self.idle.lock());
        let is_usable = |(connection, since): &mut (Connection, Instant)| {
            since.elapsed() < MAX_IDLE_TIME && connection.is_ready()
        };
        self.idle.lock().extend(idle.extract_if(.., is_usable));
    }

    /// The connection that was used last and can still take a request.
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

    /// Keeps a connection for the next request, if it could take one at once. An upstream may answer before it has
    /// read the whole request; what is left of that upload would stand in the way of every later request, so such
    /// a connection is closed.
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

    /// Reads and writes what can be; ready when the connection is over.
    fn drive(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(driver) = &mut self.driver {
            // Why it ended is told to whoever waits for a response.
            let _ended = ready!(driver.as_mut().poll(context));
            self.driver = None;
        }
        Poll::Ready(())
    }

    /// Whether it can take a request now: not while a request is still being sent, nor once the other side has closed
    /// it. Nobody waits here, so nobody has to be woken.
    fn is_ready(&mut self) -> bool {
        let mut context = Context::from_waker(std::task::Waker::noop());
        self.drive(&mut context).is_pending() && self.sender.is_ready()
    }

    /// Sends a request and drives the connection until the response begins. What was not sent comes back.
    async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, (hyper::Error, Option<Request<RequestBody>>)> {
        let mut response = std::pin::pin!(self.sender.try_send_request(request));
        let finish = poll_fn(|context| {
            // First what there is to write, then perhaps the response that has been read.
            let _over = self.drive(context);
            response.as_mut().poll(context)
        });
        finish.await.map_err(|mut failed| {
            let unsent = failed.take_message();
            (failed.into_error(), unsent)
        })
    }
}

/// A response's body as it comes in. Read to its end, it leaves its connection for the next request.
pub(crate) struct ResponseBody {
    body: Incoming,
    ended: bool,
    connection: Option<(Connection, Arc<ConnectionPool>)>,
}

impl ResponseBody {
    /// Drives the connection for as long as it lasts, for a protocol that was switched to.
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
        f.debug_struct("Wires").field("idle", &self.idle.lock().len()).finish()
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arriving").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(error) => error.fmt(f),
            Self::Interrupted(error) => error.fmt(f),
        }
    }
}
