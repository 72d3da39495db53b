//! One connection: reads commands, writes the queue, pings, and closes. The same for every transport.

use std::pin::pin;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::hub::NextWrite;
use crate::session::Session;
use crate::session::protocol::Disconnect;

/// The time limit for the first command.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for a write.
pub(super) const WRITE_TIMEOUT: Duration = Duration::from_secs(15);

/// Why a connection ends. `None` if the client has closed it, or it is lost.
pub(super) type End = Option<Disconnect>;

/// How the messages of a connection reach the client, and its commands the server.
pub(super) trait Transport {
    /// The next frame of the client. `None` if it has no commands. Cancel safe.
    async fn receive(&mut self) -> Result<Option<Bytes>, End>;

    /// Writes encoded messages.
    async fn send(&mut self, messages: Bytes) -> Result<(), End>;

    /// Writes the rest of what another task has begun.
    async fn flush(&mut self) -> Result<(), End>;

    /// Sends the reason and closes the connection.
    async fn close(&mut self, reason: Disconnect);
}

/// Serves a connection until it is closed.
pub(super) async fn serve(mut session: Box<Session>, transport: &mut impl Transport) {
    let end = run(&mut session, transport).await;
    // Ends the session first, because sending the reason can take a long time.
    Box::pin(session.close()).await;
    if let Some(reason) = end {
        transport.close(reason).await;
    }
}

async fn run(session: &mut Session, transport: &mut impl Transport) -> End {
    let format = session.format();
    let first = match tokio::time::timeout(CONNECT_TIMEOUT, transport.receive()).await {
        Ok(Ok(first)) => first,
        Ok(Err(end)) => return end,
        Err(_) => return Some(Disconnect::STALE),
    };
    if let Err(end) = execute(session, first).await {
        if let Some(rejection) = session.take_rejection() {
            let _ = transport.send(format.encode(&rejection)).await;
        }
        return end;
    }
    let mut pings = PingTimer::new(session.ping_interval());
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
            frame = transport.receive() => match frame {
                Ok(frame) => {
                    pings.received();
                    execute(session, frame).await
                }
                Err(end) => return end,
            },
            next = client.queue.next() => match next {
                NextWrite::Messages(messages) => transport.send(messages.into()).await,
                NextWrite::Flush => transport.flush().await,
                NextWrite::Close(reason) => Err(Some(reason)),
            },
            () = credential.ended() => Err(Some(Disconnect::EXPIRED)),
            () = &mut timer => match pings.due() {
                _ if session.expires_at() <= Instant::now() => Box::pin(session.renew()).await.map_err(Some),
                PingAction::Ping => transport.send(format.ping()).await,
                PingAction::Timeout => Err(Some(Disconnect::NO_PONG)),
            },
        };
        if let Err(end) = outcome {
            return end;
        }
    }
}

/// Executes the commands of a frame. Boxed, so that an idle connection does not reserve memory for them.
async fn execute(session: &mut Session, frame: Option<Bytes>) -> Result<(), End> {
    let Some(frame) = frame else { return Ok(()) };
    let commands = session.format().commands(&frame);
    let commands = commands.map_err(|reason| Some(Disconnect::BAD_REQUEST.with_detail(reason)))?;
    for command in commands {
        Box::pin(session.execute(command)).await.map_err(Some)?;
    }
    Ok(())
}

/// The result of a write, which must not take too long.
pub(super) async fn in_time<E>(written: impl Future<Output = Result<(), E>>) -> Result<(), End> {
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
