//! The WebSocket transport.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};
use futures_util::SinkExt as _;
use tokio_tungstenite::tungstenite::{self, error::CapacityError};

use super::connection::{self, End, Transport, WRITE_TIMEOUT, in_time};
use crate::session::Session;
use crate::session::protocol::{Disconnect, Format};

/// How long a connection stays open after its close frame if the client's frame was not read: closing it at once resets it,
/// and the client may not see the close frame.
const LINGER: Duration = Duration::from_secs(1);

struct WebSocketTransport {
    socket: WebSocket,
    format: Format,
}

/// Serves a connection until it is closed.
pub(crate) fn serve(session: Box<Session>, socket: WebSocket) -> impl Future<Output = ()> {
    // On the heap, because the future would otherwise have a place for the argument and one for the variable.
    let mut transport = Box::new(WebSocketTransport { socket, format: session.format() });
    async move { connection::serve(session, &mut *transport).await }
}

impl Transport for WebSocketTransport {
    async fn receive(&mut self) -> Result<Option<Bytes>, End> {
        match self.socket.recv().await {
            Some(Ok(Message::Text(text))) => Ok(Some(text.into())),
            Some(Ok(Message::Binary(bytes))) => Ok(Some(bytes)),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(None),
            Some(Err(error)) => Err(read_error(error)),
            Some(Ok(Message::Close(_))) | None => Err(None),
        }
    }

    async fn send(&mut self, messages: Bytes) -> Result<(), End> {
        let frame = match self.format {
            Format::Json => match Utf8Bytes::try_from(messages) {
                Ok(text) => Message::Text(text),
                Err(_) => return Err(Some(Disconnect::SERVER_ERROR)),
            },
            Format::Protobuf => Message::Binary(messages),
        };
        in_time(self.socket.send(frame)).await
    }

    async fn flush(&mut self) -> Result<(), End> {
        in_time(self.socket.flush()).await
    }

    async fn close(&mut self, Disconnect { code, reason }: Disconnect) {
        let frame = CloseFrame { code, reason: reason.as_ref().into() };
        let _ = tokio::time::timeout(WRITE_TIMEOUT, self.socket.send(Message::Close(Some(frame)))).await;
        if code == Disconnect::TOO_LARGE.code {
            tokio::time::sleep(LINGER).await;
        }
    }
}

/// The reason to close a connection from which no frame could be read. `None` if it is lost.
fn read_error(error: axum::Error) -> End {
    match error.into_inner().downcast_ref::<tungstenite::Error>() {
        Some(tungstenite::Error::Capacity(CapacityError::MessageTooLong { max_size, .. })) => {
            Some(Disconnect::TOO_LARGE.with_detail(format_args!("at most {max_size} bytes")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of the future that a function returns.
    fn future_size<F: Future>(_: fn(Box<Session>, WebSocket) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn idle_connection_reserves_little_memory() {
        let size = future_size(serve);
        assert!(size <= 1280, "{size} bytes for each connection");
    }
}
