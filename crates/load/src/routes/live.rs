//! `/runs/{id}/live`: a run's seconds over a WebSocket, as they happen. A client that was away says which number it saw
//! last, and gets what it missed, or is told that it missed too much.

use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use hob_web::{Path, Peer, Problem, Query};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use crate::Error;
use crate::keys::{SessionId, TestId};
use crate::load::Load;
use crate::routes::{find, now, run_id};
use crate::run::coordinator::LiveSecond;
use crate::run::logs::Ring;
use crate::run::views::{Shown, Status};
use crate::run::{Run, State as RunState};

/// How often a socket looks for news.
const LOOK: Duration = Duration::from_millis(500);
/// How often a watcher says that it is still there (L6).
const STAY: Duration = Duration::from_secs(60);
/// A client that takes longer to take a message is cut off, and catches up when it comes back.
const PATIENCE: Duration = Duration::from_secs(10);
const MOST_AT_ONCE: u32 = 500;
/// Clients have nothing to say.
const MOST_BYTES: usize = 4 << 10;

/// Where a client goes on.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct After {
    /// The number that it saw last; everything that is kept, if not said.
    after: Option<u64>,
}

/// What a client is sent.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Frame {
    /// A second of the run.
    Second { seq: u64, data: LiveSecond },
    /// The run changed its state.
    Status { data: Status },
    /// Seconds after the number that the client named are gone: the timeline of the API has them.
    Missed,
}

/// Watches a run: a WebSocket of JSON frames (`second` with `seq`, `status`, `missed`).
#[utoipa::path(get, path = "/api/v1/load/runs/{id}/live", params(("id" = String, Path, max_length = 128), After),
    responses((status = 101, description = "The socket is open.")))]
pub(crate) async fn watch(
    State(tests): State<Load>,
    Path(id): Path<String>,
    Query(after): Query<After>,
    peer: Option<Extension<Peer>>,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Problem> {
    let id = run_id(&id)?;
    find(&tests, &id).await?;
    let session =
        SessionId::new(format!("session_{:016x}", rand::random::<u64>())).map_err(Problem::internal)?;
    let client_ip = peer.map(|peer| peer.0.0.ip().to_string()).unwrap_or_default();
    let watcher =
        Watcher { tests, id, session, client_ip, connected_at: now().0, seen: after.after.unwrap_or(0) };
    if !watcher.stay().await? {
        return Err(Problem::too_many("Too many watch this run.", STAY));
    }
    Ok(upgrade.max_message_size(MOST_BYTES).on_upgrade(|socket| watcher.serve(socket)))
}

struct Watcher {
    tests: Load,
    id: TestId,
    session: SessionId,
    client_ip: String,
    connected_at: i64,
    seen: u64,
}

impl Watcher {
    async fn stay(&self) -> Result<bool, Error> {
        self.tests.views().watch(&self.id, &self.session, &self.client_ip, self.connected_at).await
    }

    async fn serve(mut self, mut socket: WebSocket) {
        let stopping = self.tests.inner.context.tasks.stop_token();
        let mut noted = Instant::now();
        let mut state = None;
        loop {
            match self.news(&mut state).await {
                Ok(frames) => {
                    for frame in frames {
                        if !send(&mut socket, &frame).await {
                            return self.leave().await;
                        }
                    }
                }
                // The store or the database is away for the moment.
                Err(error) => tracing::debug!(run = %self.id, %error, "a watcher waits"),
            }
            if state.is_some_and(RunState::is_final) {
                let _ = socket.send(Message::Close(None)).await;
                return self.leave().await;
            }
            if noted.elapsed() > STAY {
                let _ = self.stay().await;
                noted = Instant::now();
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                message = socket.recv() => match message {
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return self.leave().await,
                    Some(Ok(_)) => {}
                },
                () = stopping.cancelled() => return self.leave().await,
            }
        }
    }

    /// What happened since the last look. The state is read first: what a final run has measured is all there.
    async fn news(&mut self, state: &mut Option<RunState>) -> Result<Vec<Frame>, Error> {
        let Some(run) = self.tests.run(&self.id).await? else { return Ok(Vec::new()) };
        let mut frames = self.seconds().await?;
        if *state != Some(run.state) {
            *state = Some(run.state);
            frames.push(Frame::Status { data: self.status(&run).await });
        }
        Ok(frames)
    }

    async fn seconds(&mut self) -> Result<Vec<Frame>, Error> {
        let mut frames = Vec::new();
        loop {
            let entries = self.tests.logs().read(&self.id, Ring::Seconds, self.seen, MOST_AT_ONCE).await?;
            if self.seen > 0 && entries.missed_after(self.seen) {
                frames.push(Frame::Missed);
            }
            let first = entries.first;
            for (seq, entry) in (first..).zip(&entries.entries) {
                let data = serde_json::from_slice(entry).ok();
                frames.extend(data.map(|data| Frame::Second { seq, data }));
                self.seen = seq;
            }
            if entries.entries.len() < MOST_AT_ONCE as usize {
                return Ok(frames);
            }
        }
    }

    async fn status(&self, run: &Run) -> Status {
        let current = self.tests.views().current(&self.id).await.ok().flatten();
        let (users, progress) = current.map_or((0, 0.0), |current| (current.active_users, current.progress));
        let progress = if run.state == RunState::Completed { 100.0 } else { progress };
        Status::new(run, Shown { users, progress, target_users: 0 })
    }

    async fn leave(self) {
        if let Err(error) = self.tests.views().unwatch(&self.id, &self.session).await {
            tracing::debug!(run = %self.id, %error, "a watcher that left is listed until its time is up");
        }
    }
}

/// Whether the client took it.
async fn send(socket: &mut WebSocket, frame: &Frame) -> bool {
    let text = serde_json::to_string(frame).unwrap_or_default();
    let sent = tokio::time::timeout(PATIENCE, socket.send(Message::Text(text.into()))).await;
    sent.is_ok_and(|sent| sent.is_ok())
}
