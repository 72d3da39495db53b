//! An HTTP/1.1 connection to a server, which reads and writes the socket directly.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::response::{Head, MAX_HEAD_BYTES, RequestKind, parse_head};
use crate::results::second::Fault;

const BUFFER: usize = 16 << 10;

/// The address of a server, and how to secure the connection.
#[derive(Clone, Debug)]
pub(super) struct Destination {
    pub(super) address: SocketAddr,
    pub(super) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

/// A connection for one request after the other.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Stream,
    buffer: Vec<u8>,
    filled: usize,
    body: Vec<u8>,
    timer: Pin<Box<Sleep>>,
    /// Whether a response was received on it.
    pub(super) used: bool,
    /// The bytes of the last request that were sent.
    pub(super) sent: usize,
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Whether the body of a response is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyMode {
    Keep,
    Skip,
}

/// A complete response. Its bytes stay in the connection until the next request.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) head: Head,
    pub(super) bytes: u64,
}

/// Why an exchange failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExchangeError {
    /// The connection had been idle and was closed before the first byte of a response.
    NoResponse,
    Fault(Fault),
}

impl Connection {
    pub(super) async fn open(to: &Destination, deadline: Instant) -> Result<Self, Fault> {
        let deadline = deadline.into();
        let stream = tokio::time::timeout_at(deadline, TcpStream::connect(to.address)).await;
        let stream = stream.map_err(|_| Fault::Timeout)?.map_err(|_| Fault::Connect)?;
        stream.set_nodelay(true).map_err(|_| Fault::Connect)?;
        let stream = match &to.tls {
            None => Stream::Plain(stream),
            Some((config, name)) => {
                let connector = TlsConnector::from(Arc::clone(config));
                let handshake =
                    tokio::time::timeout_at(deadline, connector.connect(name.clone(), stream)).await;
                Stream::Tls(Box::new(handshake.map_err(|_| Fault::Timeout)?.map_err(|_| Fault::Tls)?))
            }
        };
        let timer = Box::pin(tokio::time::sleep_until(deadline));
        Ok(Self { stream, buffer: vec![0; BUFFER], filled: 0, body: Vec::new(), timer, used: false, sent: 0 })
    }

    /// Sends a request and reads its response.
    pub(super) async fn exchange(
        &mut self,
        request: &[u8],
        kind: RequestKind,
        body: BodyMode,
        deadline: Instant,
    ) -> Result<Response, ExchangeError> {
        // The timer stays at the deadline of an earlier request. When it fires early it is reset, which is far rarer than
        // a request.
        if self.timer.deadline() > deadline.into() {
            self.timer.as_mut().reset(deadline.into());
        }
        self.filled = 0;
        self.send(request, deadline).await?;
        let mut head = self.read_head(kind, deadline).await?;
        let mut bytes = head.len as u64;
        self.body.clear();
        let mut begin = head.len;
        loop {
            let keep = (body == BodyMode::Keep).then_some(&mut self.body);
            let taken =
                head.framing.feed(&self.buffer[begin..self.filled], keep).map_err(ExchangeError::Fault)?;
            bytes += taken as u64;
            if begin + taken < self.filled {
                // Bytes after the response do not belong to a request, so the connection is not used again.
                head.keep_alive = false;
            }
            if head.framing.is_done() {
                break;
            }
            // The head stays at the start of the buffer for checks and extractions.
            (begin, self.filled) = (head.len, head.len);
            if self.fill(deadline).await.map_err(ExchangeError::Fault)? == 0 {
                if head.framing == super::response::Framing::UntilClose {
                    break;
                }
                return Err(ExchangeError::Fault(Fault::Closed));
            }
        }
        self.used = true;
        Ok(Response { head, bytes })
    }

    /// The head of the last response.
    pub(super) fn head<'a>(&'a self, received: &Response) -> &'a [u8] {
        &self.buffer[..received.head.len]
    }

    /// The body of the last response, if it was stored.
    pub(super) fn body(&self) -> &[u8] {
        &self.body
    }

    async fn read_head(&mut self, kind: RequestKind, deadline: Instant) -> Result<Head, ExchangeError> {
        loop {
            let read = self.fill(deadline).await.map_err(|fault| match fault {
                Fault::Closed if self.used && self.filled == 0 => ExchangeError::NoResponse,
                fault => ExchangeError::Fault(fault),
            })?;
            if read == 0 {
                let idle = self.used && self.filled == 0;
                return Err(if idle {
                    ExchangeError::NoResponse
                } else {
                    ExchangeError::Fault(Fault::Closed)
                });
            }
            match parse_head(&self.buffer[..self.filled], kind).map_err(ExchangeError::Fault)? {
                // 1xx responses such as 100 Continue precede the final response.
                Some(head) if (100..200).contains(&head.status) => {
                    self.buffer.copy_within(head.len..self.filled, 0);
                    self.filled -= head.len;
                }
                Some(head) => return Ok(head),
                None => {}
            }
        }
    }

    async fn send(&mut self, request: &[u8], deadline: Instant) -> Result<(), ExchangeError> {
        let Self { stream, timer, used, sent, .. } = self;
        *sent = 0;
        let outcome = poll_fn(|cx| {
            while *sent < request.len() {
                match stream.poll_write(cx, &request[*sent..]) {
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Err(Fault::Closed)),
                    Poll::Ready(Ok(written)) => *sent += written,
                    Poll::Pending => return poll_deadline(timer, deadline, cx).map(|()| Err(Fault::Timeout)),
                }
            }
            match stream.poll_flush(cx) {
                Poll::Ready(Ok(())) => Poll::Ready(Ok(())),
                Poll::Ready(Err(_)) => Poll::Ready(Err(Fault::Closed)),
                Poll::Pending => poll_deadline(timer, deadline, cx).map(|()| Err(Fault::Timeout)),
            }
        });
        outcome.await.map_err(|fault| match fault {
            Fault::Closed if *used => ExchangeError::NoResponse,
            fault => ExchangeError::Fault(fault),
        })
    }

    /// Appends to the buffer; returns 0 at the end of the stream.
    async fn fill(&mut self, deadline: Instant) -> Result<usize, Fault> {
        if self.filled == self.buffer.len() {
            self.buffer.resize((self.buffer.len() * 2).min(MAX_HEAD_BYTES + BUFFER), 0);
        }
        let Self { stream, buffer, filled, timer, .. } = self;
        let read = poll_fn(|cx| {
            let mut into = ReadBuf::new(&mut buffer[*filled..]);
            match stream.poll_read(cx, &mut into) {
                Poll::Ready(Ok(())) => Poll::Ready(Ok(into.filled().len())),
                Poll::Ready(Err(_)) => Poll::Ready(Err(Fault::Closed)),
                Poll::Pending => poll_deadline(timer, deadline, cx).map(|()| Err(Fault::Timeout)),
            }
        });
        let read = read.await?;
        self.filled += read;
        Ok(read)
    }
}

/// Ready once the deadline has passed.
fn poll_deadline(timer: &mut Pin<Box<Sleep>>, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
    loop {
        if timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        if Instant::now() >= deadline {
            return Poll::Ready(());
        }
        timer.as_mut().reset(deadline.into());
    }
}

impl Stream {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, into),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, into),
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }
}

/// Trusts the public certificate authorities and that of the plan.
pub(super) fn tls(ca: Option<&str>) -> Result<Arc<ClientConfig>, String> {
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject;

    let mut roots = rustls::RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for certificate in CertificateDer::pem_slice_iter(ca.unwrap_or_default().as_bytes()) {
        let certificate =
            certificate.map_err(|error| format!("`tls.ca` of the plan is not valid PEM: {error}"))?;
        roots
            .add(certificate)
            .map_err(|error| format!("`tls.ca` of the plan is not a usable certificate: {error}"))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
