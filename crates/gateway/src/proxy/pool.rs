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
pub(crate) type Sent = Either<Incoming, Empty<Bytes>>;

/// How long a connection may wait for its next request, and how many may.
const IDLE_FOR: Duration = Duration::from_secs(30);
const MOST_IDLE: usize = 512;

/// Where an upstream is, and how it is reached.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// For an upstream that is talked to with TLS.
    pub(crate) tls: Option<TlsConnector>,
}

/// A connection.
struct Wire {
    sender: SendRequest<Sent>,
    /// Reads and writes while it is polled; `None` when it is over.
    connection: Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>,
}

/// The connections to one upstream that wait for a request.
#[derive(Default)]
pub(crate) struct Wires {
    idle: Mutex<Vec<(Wire, Instant)>>,
}

/// Why there is no response.
pub(crate) enum Unanswered {
    /// The request was certainly not seen.
    NotSent(Box<dyn std::error::Error + Send + Sync>),
    /// Nobody knows.
    BrokeOff(hyper::Error),
}

impl Wires {
    /// Sends a request over a connection that waits, or over a new one.
    pub(crate) async fn send(
        self: &Arc<Self>,
        mut request: Request<Sent>,
        target: &Target,
        connect_within: Duration,
    ) -> Result<Response<Arriving>, Unanswered> {
        while let Some(mut wire) = self.take() {
            match wire.send(request).await {
                Ok(response) => return Ok(self.arriving(response, wire)),
                // It was closed just now, before the request was on it.
                Err((_, Some(unsent))) => request = unsent,
                Err((error, None)) => return Err(Unanswered::BrokeOff(error)),
            }
        }
        let connecting = tokio::time::timeout(connect_within, Wire::open(target));
        let mut wire = connecting
            .await
            .unwrap_or_else(|_| Err("it took too long to connect".into()))
            .map_err(Unanswered::NotSent)?;
        match wire.send(request).await {
            Ok(response) => Ok(self.arriving(response, wire)),
            Err((error, Some(_))) => Err(Unanswered::NotSent(error.into())),
            Err((error, None)) => Err(Unanswered::BrokeOff(error)),
        }
    }

    /// Closes connections that have waited for long, or were closed by the other side.
    pub(crate) fn sweep(&self) {
        let mut waiting = std::mem::take(&mut *self.idle.lock());
        let still = |(wire, since): &mut (Wire, Instant)| since.elapsed() < IDLE_FOR && wire.is_ready();
        self.idle.lock().extend(waiting.extract_if(.., still));
    }

    /// The connection that was used last and can still take a request.
    fn take(&self) -> Option<Wire> {
        loop {
            let (mut wire, since) = self.idle.lock().pop()?;
            if since.elapsed() < IDLE_FOR && wire.is_ready() {
                return Some(wire);
            }
        }
    }

    fn arriving(self: &Arc<Self>, response: Response<Incoming>, wire: Wire) -> Response<Arriving> {
        response.map(|body| Arriving { body, ended: false, wire: Some((wire, Arc::clone(self))) })
    }

    /// Keeps a connection for the next request, if it could take one at once. An upstream may answer before it has
    /// read the whole request; what is left of that upload would stand in the way of every later request, so such
    /// a connection is closed.
    fn put(&self, mut wire: Wire) {
        if wire.is_ready() {
            let mut idle = self.idle.lock();
            if idle.len() < MOST_IDLE {
                idle.push((wire, Instant::now()));
            }
        }
    }
}

impl Wire {
    async fn open(target: &Target) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let stream = TcpStream::connect((target.host.as_str(), target.port)).await?;
        stream.set_nodelay(true)?;
        match &target.tls {
            None => Self::over(stream).await,
            Some(tls) => {
                let name = target.host.trim_start_matches('[').trim_end_matches(']').to_owned();
                Self::over(tls.connect(name.try_into()?, stream).await?).await
            }
        }
    }

    async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        Ok(Self { sender, connection: Some(Box::pin(connection.with_upgrades())) })
    }

    /// Reads and writes what can be; ready when the connection is over.
    fn drive(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(connection) = &mut self.connection {
            // Why it ended is told to whoever waits for a response.
            let _ended = ready!(connection.as_mut().poll(context));
            self.connection = None;
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
        request: Request<Sent>,
    ) -> Result<Response<Incoming>, (hyper::Error, Option<Request<Sent>>)> {
        let mut answer = std::pin::pin!(self.sender.try_send_request(request));
        let answered = poll_fn(|context| {
            // First what there is to write, then perhaps the response that has been read.
            let _over = self.drive(context);
            answer.as_mut().poll(context)
        });
        answered.await.map_err(|mut failed| {
            let unsent = failed.take_message();
            (failed.into_error(), unsent)
        })
    }
}

/// A response's body as it comes in. Read to its end, it leaves its connection for the next request.
pub(crate) struct Arriving {
    body: Incoming,
    ended: bool,
    wire: Option<(Wire, Arc<Wires>)>,
}

impl Arriving {
    /// Drives the connection for as long as it lasts, for a protocol that was switched to.
    pub(crate) fn let_go(mut self) {
        if let Some((Wire { connection: Some(connection), .. }, _)) = self.wire.take() {
            tokio::spawn(connection);
        }
    }
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        let mut frame = Pin::new(&mut this.body).poll_frame(context);
        if frame.is_pending()
            && let Some((wire, _)) = &mut this.wire
        {
            let _over = wire.drive(context);
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

impl Drop for Arriving {
    fn drop(&mut self) {
        if let Some((wire, wires)) = self.wire.take()
            && (self.ended || self.body.is_end_stream())
        {
            wires.put(wire);
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl fmt::Debug for Wires {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wires").field("idle", &self.idle.lock().len()).finish()
    }
}

impl fmt::Debug for Arriving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arriving").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(error) => error.fmt(f),
            Self::BrokeOff(error) => error.fmt(f),
        }
    }
}
