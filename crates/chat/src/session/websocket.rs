//! One WebSocket connection: reads commands, writes the queue, pings, and closes.

use std::pin::pin;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};
use futures_util::SinkExt as _;
use hob_net::SocketWriter;
use hob_web::Credential;
use tokio_tungstenite::tungstenite::{self, error::CapacityError};

use crate::Chat;
use crate::hub::NextWrite;
use crate::session::Session;
use crate::session::protocol::{Disconnect, Format};

/// The time limit for the first command.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for a write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a connection stays open after its close frame if the client's frame was not read: closing it at once resets it,
/// and the client may not see the close frame.
const LINGER: Duration = Duration::from_secs(1);

/// Serves a connection until it is closed.
pub(crate) async fn serve(
    chat: Chat,
    format: Format,
    credentials: Credential,
    writer: Option<SocketWriter>,
    mut socket: WebSocket,
) {
    let mut session = Session::new(chat, format, credentials, writer);
    let end = run(&mut session, &mut socket).await;
    // Ends the session first, because sending the close frame can take a long time.
    Box::pin(session.close()).await;
    if let Some(Disconnect { code, reason }) = end {
        let frame = CloseFrame { code, reason: reason.as_ref().into() };
        let _ = tokio::time::timeout(WRITE_TIMEOUT, socket.send(Message::Close(Some(frame)))).await;
        if code == Disconnect::TOO_LARGE.code {
            tokio::time::sleep(LINGER).await;
        }
    }
}

/// Why the connection is closed. `None` if the client closed it.
async fn run(session: &mut Session, socket: &mut WebSocket) -> Option<Disconnect> {
    let format = session.format();
    let first = tokio::time::timeout(CONNECT_TIMEOUT, socket.recv()).await;
    let Ok(first) = first else { return Some(Disconnect::STALE) };
    let first = match first? {
        Ok(first) => first,
        Err(error) => return read_error(error),
    };
    if let Err(end) = read(session, first).await {
        if let Some(rejection) = session.take_rejection() {
            let _ = write(socket, format, format.encode(&rejection)).await;
        }
        return end;
    }
    let ping_interval = session.ping_interval();
    let mut pings = PingTimer::new(ping_interval);
    // One timer for the whole connection, because most wake-ups have another cause.
    let mut timer = pin!(tokio::time::sleep_until(pings.next.into()));
    loop {
        let due = pings.next.min(session.expires_at()).into();
        if timer.deadline() != due {
            timer.as_mut().reset(due);
        }
        let Some(client) = session.client() else { return Some(Disconnect::STALE) };
        if session.is_recovering()
            && let Err(error) = Box::pin(session.catch_up()).await
        {
            if !error.is_reported() {
                tracing::warn!(%error, "failed to send missed messages to a client, disconnecting it");
            }
            return Some(Disconnect::SERVER_ERROR);
        }
        let credential = session.credential();
        let outcome = tokio::select! {
            frame = socket.recv() => match frame? {
                Ok(frame) => {
                    pings.received();
                    read(session, frame).await
                }
                Err(error) => return read_error(error),
            },
            next = client.queue.next() => match next {
                NextWrite::Messages(messages) => write(socket, format, messages.into()).await,
                NextWrite::Flush => in_time(socket.flush()).await,
                NextWrite::Close(reason) => Err(Some(reason)),
            },
            () = credential.ended() => Err(Some(Disconnect::EXPIRED)),
            () = &mut timer => match pings.due() {
                _ if session.expires_at() <= Instant::now() => Err(Some(Disconnect::EXPIRED)),
                PingAction::Ping => write(socket, format, format.ping()).await,
                PingAction::Timeout => Err(Some(Disconnect::NO_PONG)),
            },
        };
        if let Err(end) = outcome {
            return end;
        }
    }
}

/// The reason to close a connection from which no frame could be read. `None` if it is lost.
fn read_error(error: axum::Error) -> Option<Disconnect> {
    match error.into_inner().downcast_ref::<tungstenite::Error>() {
        Some(tungstenite::Error::Capacity(CapacityError::MessageTooLong { max_size, .. })) => {
            Some(Disconnect::TOO_LARGE.with_detail(format_args!("at most {max_size} bytes")))
        }
        _ => None,
    }
}

/// Executes the commands of a frame. Boxed, so that an idle connection does not reserve memory for them.
async fn read(session: &mut Session, frame: Message) -> Result<(), Option<Disconnect>> {
    let frame: Bytes = match frame {
        Message::Text(text) => text.into(),
        Message::Binary(bytes) => bytes,
        Message::Close(_) => return Err(None),
        Message::Ping(_) | Message::Pong(_) => return Ok(()),
    };
    let commands = session.format().commands(&frame);
    let commands = commands.map_err(|reason| Some(Disconnect::BAD_REQUEST.with_detail(reason)))?;
    for command in commands {
        Box::pin(session.execute(command)).await.map_err(Some)?;
    }
    Ok(())
}

async fn write(socket: &mut WebSocket, format: Format, messages: Bytes) -> Result<(), Option<Disconnect>> {
    let frame = match format {
        Format::Json => match Utf8Bytes::try_from(messages) {
            Ok(text) => Message::Text(text),
            Err(_) => return Err(Some(Disconnect::SERVER_ERROR)),
        },
        Format::Protobuf => Message::Binary(messages),
    };
    in_time(socket.send(frame)).await
}

async fn in_time(written: impl Future<Output = Result<(), axum::Error>>) -> Result<(), Option<Disconnect>> {
    match tokio::time::timeout(WRITE_TIMEOUT, written).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(None),
        Err(_) => Err(Some(Disconnect::SLOW)),
    }
}

/// When an idle client is pinged, and when it has timed out.
struct PingTimer {
    interval: Duration,
    next: Instant,
    awaiting_pong: bool,
}

enum PingAction {
    Ping,
    Timeout,
}

impl PingTimer {
    fn new(interval: Duration) -> Self {
        Self { interval, next: Instant::now() + interval, awaiting_pong: false }
    }

    fn received(&mut self) {
        if self.awaiting_pong {
            self.awaiting_pong = false;
            self.next = Instant::now() + self.interval;
        }
    }

    fn due(&mut self) -> PingAction {
        if self.awaiting_pong {
            return PingAction::Timeout;
        }
        self.awaiting_pong = true;
        self.next = Instant::now() + (self.interval / 2).max(Duration::from_secs(1));
        PingAction::Ping
    }
}
