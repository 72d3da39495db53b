//! `/api/v1/load/runs/{id}/live`: the seconds of a run over a WebSocket. A client that reconnects passes the last number it
//! received, and gets the seconds since then or a `missed` frame.

use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use hob_database::UnixMs;
use hob_web::{Credential, CredentialWatch, Path, Peer, Problem, Query};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use crate::Error;
use crate::keys::{SessionId, TestId};
use crate::load::Load;
use crate::routes::{find_run, parse_run_id};
use crate::run::coordinator::LiveSecond;
use crate::run::logs::LogStream;
use crate::run::views::{Progress, RunStatus};
use crate::run::{Run, RunState};

const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How often a session is renewed (L6).
const RENEW_INTERVAL: Duration = Duration::from_secs(60);
/// A slower client is disconnected; it catches up by number when it reconnects.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_BATCH: u32 = 500;
/// Clients send only control frames.
const MAX_MESSAGE_BYTES: usize = 4 << 10;

/// The position of a client.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct LiveQuery {
    /// The last number that the client received; without it, all stored seconds are sent.
    #[param(maximum = 9_223_372_036_854_775_807i64)]
    after: Option<u64>,
}

/// A message to a client.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Frame {
    /// A second of the run.
    Second { seq: u64, data: LiveSecond },
    /// The state of the run has changed.
    Status { data: RunStatus },
    /// Seconds after the client's number are no longer stored here; the timeline has them.
    Missed,
}

/// Follows a run over a WebSocket of JSON frames: `second` with `seq`, `status`, `missed`.
#[utoipa::path(get, path = "/api/v1/load/runs/{id}/live", params(("id" = String, Path, max_length = 128), LiveQuery),
    responses((status = 101, description = "Switching to WebSocket.")))]
pub(crate) async fn watch(
    State(load): State<Load>,
    Path(id): Path<String>,
    Query(query): Query<LiveQuery>,
    peer: Option<Extension<Peer>>,
    credential: Credential,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Problem> {
    let id = parse_run_id(&id)?;
    find_run(&load, &id).await?;
    let session =
        SessionId::new(format!("session_{:016x}", rand::random::<u64>())).map_err(Problem::internal)?;
    let client_ip = peer.map(|peer| peer.0.0.ip().to_string()).unwrap_or_default();
    let watcher = Watcher {
        load,
        id,
        session,
        client_ip,
        connected_at: UnixMs::now().0,
        last: query.after.unwrap_or(0),
        credential: credential.watch(),
    };
    if !watcher.register().await? {
        return Err(Problem::too_many("Too many clients are watching this run.", RENEW_INTERVAL));
    }
    Ok(upgrade.max_message_size(MAX_MESSAGE_BYTES).on_upgrade(|socket| watcher.serve(socket)))
}

struct Watcher {
    load: Load,
    id: TestId,
    session: SessionId,
    client_ip: String,
    connected_at: i64,
    last: u64,
    /// The connection ends with it.
    credential: CredentialWatch,
}

impl Watcher {
    async fn register(&self) -> Result<bool, Error> {
        self.load.views().add_session(&self.id, &self.session, &self.client_ip, self.connected_at).await
    }

    async fn serve(mut self, mut socket: WebSocket) {
        let stopping = self.load.inner.context.tasks.stop_token();
        let mut renewed = Instant::now();
        let mut state = None;
        loop {
            match self.updates(&mut state).await {
                Ok(frames) => {
                    for frame in frames {
                        if !send(&mut socket, &frame).await {
                            return self.leave().await;
                        }
                    }
                }
                Err(error) => {
                    tracing::debug!(run = %self.id, %error, "failed to read live updates of a load run");
                }
            }
            if state.is_some_and(RunState::is_final) {
                let _ = socket.send(Message::Close(None)).await;
                return self.leave().await;
            }
            if renewed.elapsed() > RENEW_INTERVAL {
                let _ = self.register().await;
                renewed = Instant::now();
            }
            tokio::select! {
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                message = socket.recv() => match message {
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return self.leave().await,
                    Some(Ok(_)) => {}
                },
                () = stopping.cancelled() => return self.leave().await,
                () = self.credential.ended() => {
                    let _ = socket.send(Message::Close(None)).await;
                    return self.leave().await;
                }
            }
        }
    }

    /// The frames since the last call. The state is read first: once it is final, all seconds are stored.
    async fn updates(&mut self, state: &mut Option<RunState>) -> Result<Vec<Frame>, Error> {
        let Some(run) = self.load.run(&self.id).await? else { return Ok(Vec::new()) };
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
            let entries = self.load.logs().read(&self.id, LogStream::Seconds, self.last, MAX_BATCH).await?;
            if self.last > 0 && entries.missed_after(self.last) {
                frames.push(Frame::Missed);
            }
            let first = entries.first;
            for (seq, entry) in (first..).zip(&entries.entries) {
                let data = serde_json::from_slice(entry).ok();
                frames.extend(data.map(|data| Frame::Second { seq, data }));
                self.last = seq;
            }
            if entries.entries.len() < MAX_BATCH as usize {
                return Ok(frames);
            }
        }
    }

    async fn status(&self, run: &Run) -> RunStatus {
        let current = self.load.views().current(&self.id).await.ok().flatten();
        let (users, percent) = current.map_or((0, 0.0), |current| (current.active_users, current.progress));
        let percent = if run.state == RunState::Completed { 100.0 } else { percent };
        RunStatus::new(run, Progress { users, percent, target_users: 0 })
    }

    async fn leave(self) {
        if let Err(error) = self.load.views().remove_session(&self.id, &self.session).await {
            tracing::debug!(run = %self.id, %error, "failed to remove the live session of a client");
        }
    }
}

/// Returns `false` when the client is gone or too slow.
async fn send(socket: &mut WebSocket, frame: &Frame) -> bool {
    let text = serde_json::to_string(frame).unwrap_or_default();
    let sent = tokio::time::timeout(SEND_TIMEOUT, socket.send(Message::Text(text.into()))).await;
    sent.is_ok_and(|sent| sent.is_ok())
}
