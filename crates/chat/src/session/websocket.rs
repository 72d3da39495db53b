//! One WebSocket connection: reads commands, writes what waits, and ends in order.

use std::pin::pin;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};

use crate::Chat;
use crate::hub::Next;
use crate::session::Session;
use crate::session::protocol::{self, Command, Disconnect};

/// Who has not said who they are by then is not going to.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// A client that takes nothing for so long is gone.
const WRITE_WITHIN: Duration = Duration::from_secs(15);
/// The most commands of one frame.
const MOST_COMMANDS: usize = 256;

/// Serves a connection until it ends.
pub(crate) async fn serve(chat: Chat, mut socket: WebSocket) {
    let mut session = Session::new(chat);
    let end = run(&mut session, &mut socket).await;
    // First out of everybody's sight, then closed: the other end may take its time.
    Box::pin(session.close()).await;
    if let Some(Disconnect { code, reason }) = end {
        let frame = CloseFrame { code, reason: Utf8Bytes::from_static(reason) };
        let _ = tokio::time::timeout(WRITE_WITHIN, socket.send(Message::Close(Some(frame)))).await;
    }
}

/// Why the connection is to be closed; `None` if the client closed it.
async fn run(session: &mut Session, socket: &mut WebSocket) -> Option<Disconnect> {
    let first = tokio::time::timeout(CONNECT_WITHIN, socket.recv()).await;
    let Ok(first) = first else { return Some(Disconnect::STALE) };
    if let Err(end) = read(session, first?.ok()?).await {
        if let Some(refused) = session.take_refused() {
            let _ = write(socket, refused.into()).await;
        }
        return end;
    }
    let ping_every = session.ping_every();
    let mut rhythm = Rhythm::new(ping_every);
    // One for as long as the connection lasts: most of what wakes it has nothing to do with the time.
    let mut alarm = pin!(tokio::time::sleep_until(rhythm.next.into()));
    loop {
        let due = rhythm.next.min(session.ends()).into();
        if alarm.deadline() != due {
            alarm.as_mut().reset(due);
        }
        let Some(peer) = session.peer() else { return Some(Disconnect::STALE) };
        if session.is_behind()
            && let Err(error) = Box::pin(session.catch_up()).await
        {
            tracing::warn!(%error, "a client that was away has to come back");
            return Some(Disconnect::SERVER_ERROR);
        }
        let outcome = tokio::select! {
            frame = socket.recv() => match frame? {
                Ok(frame) => {
                    rhythm.heard();
                    read(session, frame).await
                }
                // The client is gone, or speaks no WebSocket.
                Err(_) => return None,
            },
            next = peer.outlet.next() => match next {
                Next::Frames(frames) => write(socket, frames).await,
                Next::End(why) => Err(Some(why)),
            },
            () = &mut alarm => match rhythm.turn() {
                _ if session.ends() <= Instant::now() => Err(Some(Disconnect::EXPIRED)),
                Turn::Ping => write(socket, protocol::PING.into()).await,
                Turn::Silence => Err(Some(Disconnect::NO_PONG)),
            },
        };
        if let Err(end) = outcome {
            return end;
        }
    }
}

/// Carries out the commands of a frame. In a box: an idle connection has no room for all that they may need.
async fn read(session: &mut Session, frame: Message) -> Result<(), Option<Disconnect>> {
    let text: Bytes = match frame {
        Message::Text(text) => text.into(),
        Message::Binary(bytes) => bytes,
        Message::Close(_) => return Err(None),
        Message::Ping(_) | Message::Pong(_) => return Ok(()),
    };
    let bad = Err(Some(Disconnect::BAD_REQUEST));
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    if lines.is_empty() || lines.len() > MOST_COMMANDS {
        return bad;
    }
    for line in lines {
        let Ok(command) = serde_json::from_slice::<Command>(line) else { return bad };
        Box::pin(session.carry_out(command)).await.map_err(Some)?;
    }
    Ok(())
}

async fn write(socket: &mut WebSocket, frames: Vec<u8>) -> Result<(), Option<Disconnect>> {
    let Ok(text) = Utf8Bytes::try_from(Bytes::from(frames)) else {
        return Err(Some(Disconnect::SERVER_ERROR));
    };
    match tokio::time::timeout(WRITE_WITHIN, socket.send(Message::Text(text))).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(None),
        Err(_) => Err(Some(Disconnect::SLOW)),
    }
}

/// When a quiet client is asked for a sign of life, and when it is given up.
struct Rhythm {
    every: Duration,
    next: Instant,
    asked: bool,
}

enum Turn {
    Ping,
    Silence,
}

impl Rhythm {
    fn new(every: Duration) -> Self {
        Self { every, next: Instant::now() + every, asked: false }
    }

    fn heard(&mut self) {
        if self.asked {
            self.asked = false;
            self.next = Instant::now() + self.every;
        }
    }

    fn turn(&mut self) -> Turn {
        if self.asked {
            return Turn::Silence;
        }
        self.asked = true;
        self.next = Instant::now() + (self.every / 2).max(Duration::from_secs(1));
        Turn::Ping
    }
}
