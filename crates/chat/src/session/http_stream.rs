//! Transports for networks that break WebSockets: the response to one request is a stream of messages, and the client sends its
//! commands with further requests to the emulation endpoint (`hub/emulation.rs`).

use bytes::{Bytes, BytesMut};
use hob_web::Stopping;
use tokio::sync::mpsc;

use super::connection::{self, End, Transport, in_time};
use crate::hub::EmulatedSession;
use crate::session::Session;
use crate::session::protocol::{Disconnect, Format, Push, Reply};

/// How many chunks wait for the client. More wait in the write queue, which is bounded in bytes.
const MAX_CHUNKS: usize = 2;

/// How messages are separated in the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// As the format separates them. In JSON, a message ends with a line break.
    Stream,
    /// Server-sent events.
    Events,
}

struct StreamTransport {
    format: Format,
    framing: Framing,
    /// The commands of the first request.
    first: Option<Bytes>,
    /// The commands of later requests.
    emulated: EmulatedSession,
    output: mpsc::Sender<Bytes>,
    stopping: Stopping,
}

/// Serves a connection whose first request has these commands, in the background. Returns the chunks of the response; the
/// connection ends when they are dropped.
pub(crate) fn serve(
    session: Box<Session>,
    framing: Framing,
    first: Bytes,
    emulated: EmulatedSession,
    stopping: Stopping,
) -> mpsc::Receiver<Bytes> {
    let (output, chunks) = mpsc::channel(MAX_CHUNKS);
    let format = session.format();
    let mut transport = StreamTransport { format, framing, first: Some(first), emulated, output, stopping };
    tokio::spawn(async move { connection::serve(session, &mut transport).await });
    chunks
}

impl Transport for StreamTransport {
    async fn receive(&mut self) -> Result<Option<Bytes>, End> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        tokio::select! {
            frame = self.emulated.receive() => Ok(Some(frame)),
            () = self.output.closed() => Err(None),
            // The server waits for the end of the response before it closes the connections of the chat.
            () = self.stopping.requested() => Err(Some(Disconnect::SHUTDOWN)),
        }
    }

    async fn send(&mut self, messages: Bytes) -> Result<(), End> {
        in_time(self.output.send(chunk(self.format, self.framing, &messages))).await
    }

    async fn flush(&mut self) -> Result<(), End> {
        Ok(())
    }

    async fn close(&mut self, reason: Disconnect) {
        let push = self.format.encode(&Reply::from(Push::disconnect(reason)));
        let _ = self.send(push).await;
    }
}

/// A part of the response with these messages.
fn chunk(format: Format, framing: Framing, messages: &[u8]) -> Bytes {
    let mut chunk = BytesMut::with_capacity(messages.len() + 16);
    match (framing, format) {
        (Framing::Events, _) => {
            for message in messages.split(|byte| *byte == b'\n') {
                chunk.extend_from_slice(b"data: ");
                chunk.extend_from_slice(message);
                chunk.extend_from_slice(b"\n\n");
            }
        }
        (Framing::Stream, format) => {
            chunk.extend_from_slice(messages);
            chunk.extend_from_slice(format.separator());
        }
    }
    chunk.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_has_complete_messages() {
        let stream = |format, messages: &[u8]| chunk(format, Framing::Stream, messages);
        assert_eq!(stream(Format::Json, b"{}\n{\"id\":1}").as_ref(), b"{}\n{\"id\":1}\n");
        assert_eq!(stream(Format::Protobuf, b"\x02\x08\x01").as_ref(), b"\x02\x08\x01");
        let events = chunk(Format::Json, Framing::Events, b"{}\n{\"id\":1}");
        assert_eq!(events.as_ref(), b"data: {}\n\ndata: {\"id\":1}\n\n");
    }
}
