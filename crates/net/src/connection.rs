//! The connection of a client. It holds a permit while it is open, and fails if the client does not read.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;

/// A client connection, before and after an upgrade to another protocol. Without the write timeout, the response to a
/// client that does not read would stay in memory forever.
#[derive(Debug)]
pub(crate) struct Connection<G> {
    shared: Arc<SharedStream>,
    write_timeout: Duration,
    /// Set while the client does not read.
    stalled: Option<Pin<Box<Sleep>>>,
    _permit: OwnedSemaphorePermit,
    _guard: G,
}

/// Writes to a connection from any task, without waiting: for frames of an upgraded connection that its own task does not
/// have to wake up for. It does not keep the connection open.
#[derive(Clone, Debug)]
pub struct SocketWriter(Weak<SharedStream>);

/// The result of writing with a [`SocketWriter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectWrite {
    Written,
    /// The system has taken a part. The task of the connection must flush it to write the rest.
    Unfinished,
    /// Nothing was written, because the client is slow, another write is unfinished, or the connection has failed.
    Refused,
}

#[derive(Debug)]
struct SharedStream {
    stream: TcpStream,
    output: Mutex<Output>,
}

/// What must be written before anything else.
#[derive(Debug, Default)]
struct Output {
    /// The rest of a frame that a [`SocketWriter`] has begun.
    rest: Vec<u8>,
    /// Whether the task of the connection has written only a part of its bytes.
    unfinished: bool,
}

impl<G> Connection<G> {
    pub(crate) fn new(
        stream: TcpStream,
        write_timeout: Duration,
        permit: OwnedSemaphorePermit,
        guard: G,
    ) -> Self {
        let shared = Arc::new(SharedStream { stream, output: Mutex::default() });
        Self { shared, write_timeout, stalled: None, _permit: permit, _guard: guard }
    }

    pub(crate) fn writer(&self) -> SocketWriter {
        SocketWriter(Arc::downgrade(&self.shared))
    }

    /// Returns the result of a write; fails when writes have been pending for too long.
    fn limit<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let timeout = self.write_timeout;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl SocketWriter {
    /// Writes a complete frame between the writes of the connection's own task.
    pub fn write(&self, frame: &[u8]) -> DirectWrite {
        let Some(shared) = self.0.upgrade() else { return DirectWrite::Refused };
        let mut output = shared.output();
        if output.unfinished || !output.rest.is_empty() {
            return DirectWrite::Refused;
        }
        match shared.stream.try_write(frame) {
            Ok(written) if written == frame.len() => DirectWrite::Written,
            Ok(written) => {
                output.rest = frame[written..].to_vec();
                DirectWrite::Unfinished
            }
            // The connection's own task notices the same error.
            Err(_) => DirectWrite::Refused,
        }
    }
}

impl SharedStream {
    fn output(&self) -> MutexGuard<'_, Output> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll_write(
        &self,
        cx: &mut Context<'_>,
        mut write: impl FnMut(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(cx))?;
            match write(&self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }

    /// Writes the rest of a frame that a [`SocketWriter`] has begun.
    fn poll_rest(&self, cx: &mut Context<'_>, output: &mut Output) -> Poll<io::Result<()>> {
        while !output.rest.is_empty() {
            let written = ready!(self.poll_write(cx, |stream| stream.try_write(&output.rest)))?;
            output.rest.drain(..written);
        }
        // Frees the memory of an idle connection.
        output.rest = Vec::new();
        Poll::Ready(Ok(()))
    }

    /// Writes `length` bytes of the connection's own task, after the rest of another frame.
    fn poll_own(
        &self,
        cx: &mut Context<'_>,
        length: usize,
        write: impl FnMut(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let mut output = self.output();
        ready!(self.poll_rest(cx, &mut output))?;
        let written = ready!(self.poll_write(cx, write));
        if let Ok(written) = written {
            output.unfinished = written < length;
        }
        Poll::Ready(written)
    }
}

impl<G: Unpin> AsyncRead for Connection<G> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.shared.stream.poll_read_ready(cx))?;
            match self.shared.stream.try_read(into.initialize_unfilled()) {
                Ok(read) => {
                    into.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl<G: Unpin> AsyncWrite for Connection<G> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.shared.poll_own(cx, bytes.len(), |stream| stream.try_write(bytes));
        self.limit(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = bytes.iter().map(|part| part.len()).sum();
        let written = self.shared.poll_own(cx, length, |stream| stream.try_write_vectored(bytes));
        self.limit(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.shared.poll_rest(cx, &mut self.shared.output());
        self.limit(cx, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(socket2::SockRef::from(&self.shared.stream).shutdown(std::net::Shutdown::Write))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::sync::Semaphore;

    use super::*;

    async fn connected() -> (Connection<()>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let permit = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
        (Connection::new(stream, Duration::from_secs(60), permit, ()), client)
    }

    #[tokio::test]
    async fn frames_of_both_writers_are_never_mixed() {
        let (mut connection, mut client) = connected().await;
        let writer = connection.writer();
        let (direct, own) = (vec![b'd'; 3_000], vec![b'o'; 5_000_000]);
        // The client does not read, so at some point a frame is written in part.
        let mut frames = 0;
        let result = loop {
            match writer.write(&direct) {
                DirectWrite::Written => frames += 1,
                result => break result,
            }
        };
        frames += usize::from(result == DirectWrite::Unfinished);
        assert_eq!(writer.write(&direct), DirectWrite::Refused);
        let expected = frames * direct.len() + own.len();
        let reading = tokio::spawn(async move {
            let mut received = vec![0; expected];
            client.read_exact(&mut received).await.unwrap();
            (client, received)
        });
        connection.write_all(&own).await.unwrap();
        connection.flush().await.unwrap();
        let (mut client, received) = reading.await.unwrap();
        let (first, second) = received.split_at(frames * direct.len());
        assert!(first.iter().all(|byte| *byte == b'd'));
        assert!(second.iter().all(|byte| *byte == b'o'));
        assert_eq!(writer.write(b"end"), DirectWrite::Written, "the client has read everything");
        let mut end = [0; 3];
        client.read_exact(&mut end).await.unwrap();
        assert_eq!(&end, b"end");
    }

    #[tokio::test]
    async fn part_of_an_own_write_delays_direct_writes() {
        let (mut connection, _client) = connected().await;
        let writer = connection.writer();
        let too_much = vec![0; 50_000_000];
        let written = connection.write(&too_much).await.unwrap();
        assert!(written < too_much.len());
        assert_eq!(writer.write(b"frame"), DirectWrite::Refused);
    }

    #[tokio::test]
    async fn writer_does_not_keep_a_connection_open() {
        let (connection, mut client) = connected().await;
        let writer = connection.writer();
        drop(connection);
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
        assert_eq!(writer.write(b"frame"), DirectWrite::Refused);
    }
}
