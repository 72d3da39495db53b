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
use utoipa::{IntoParams, ToSchema};

use crate::Error;
use crate::database;
use crate::keys::SessionId;
use crate::load::Load;
use crate::routes::{find_run, parse_run_id};
use crate::run::coordinator::LiveSecond;
use crate::run::logs::LogStream;
use crate::run::views::{Progress, Registration, RunStatus};
use crate::run::{PublicStatus, Run, RunState};

const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How often a session is renewed, so that it is soon listed again after a loss of the store (L6).
const RENEW_INTERVAL: Duration = Duration::from_secs(5);
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
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[schema(as = LoadFrame)]
enum Frame {
    /// A second of the run.
    Second { seq: u64, data: LiveSecond },
    /// The state of the run has changed.
    Status { data: LiveStatus },
    /// Seconds after the client's number are no longer stored here; the timeline has them.
    Missed,
}

/// The status of a run as live clients receive it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LoadLiveStatus)]
struct LiveStatus {
    test_id: String,
    state: RunState,
    /// The state as the public key `test:status` has it.
    status: PublicStatus,
    /// Unix milliseconds.
    start_time: i64,
    current_users: u64,
    target_users: u32,
    /// Per cent.
    progress: f64,
    message: String,
}

/// Follow a run over a WebSocket. The JSON frames are `second` with `seq`, `status`, and `missed`. The connection closes ten
/// minutes after the end of the run.
#[utoipa::path(get, path = "/api/v1/load/runs/{id}/live", params(("id" = String, Path, max_length = 128), LiveQuery),
    responses((status = 101, description = "Switching to WebSocket.", body = Frame)))]
pub(crate) async fn watch(
    State(load): State<Load>,
    Path(id): Path<String>,
    Query(query): Query<LiveQuery>,
    peer: Option<Extension<Peer>>,
    credential: Credential,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Problem> {
    let run = find_run(&load, &parse_run_id(&id)?).await?;
    let session =
        SessionId::new(format!("session_{:016x}", rand::random::<u64>())).map_err(Problem::internal)?;
    let client_ip = peer.map(|peer| peer.0.0.ip().to_string()).unwrap_or_default();
    let watcher = Watcher {
        load,
        run,
        session,
        client_ip,
        connected_at: UnixMs::now().0,
        last: query.after.unwrap_or(0),
        sent: None,
        credential: credential.watch(),
    };
    if watcher.register().await? == Registration::Full {
        return Err(Problem::too_many("Too many clients are watching this run.", RENEW_INTERVAL));
    }
    Ok(upgrade.max_message_size(MAX_MESSAGE_BYTES).on_upgrade(|socket| watcher.serve(socket)))
}

struct Watcher {
    load: Load,
    run: Run,
    session: SessionId,
    client_ip: String,
    connected_at: i64,
    /// The number of the last second that the client has.
    last: u64,
    /// The last state that was sent to the client.
    sent: Option<RunState>,
    /// The connection ends with it.
    credential: CredentialWatch,
}

impl Watcher {
    /// Lists the client among the live clients of the run, or renews it.
    async fn register(&self) -> Result<Registration, Error> {
        let now = database::now(&self.load.inner.context.database).await?;
        let views = self.load.views();
        views.add_session(&self.run, now, &self.session, &self.client_ip, self.connected_at).await
    }

    fn has_sent_end(&self) -> bool {
        self.sent.is_some_and(RunState::is_final)
    }

    async fn serve(mut self, mut socket: WebSocket) {
        let stopping = self.load.inner.context.tasks.stop_token();
        let mut renewed = Instant::now();
        loop {
            let mut is_renewal_due = renewed.elapsed() >= RENEW_INTERVAL;
            if !self.has_sent_end() {
                if !self.send_updates(&mut socket).await {
                    return self.leave().await;
                }
                // From now on, the session has another TTL.
                is_renewal_due |= self.has_sent_end();
            }
            if is_renewal_due {
                renewed = Instant::now();
                if matches!(self.register().await, Ok(Registration::Over)) {
                    let _ = socket.send(Message::Close(None)).await;
                    return self.leave().await;
                }
            }
            let pause = if self.has_sent_end() { RENEW_INTERVAL } else { POLL_INTERVAL };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
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

    /// Sends what is new. Returns `false` when the client is gone or too slow.
    async fn send_updates(&mut self, socket: &mut WebSocket) -> bool {
        let frames = match self.updates().await {
            Ok(frames) => frames,
            Err(error) => {
                tracing::debug!(run = %self.run.id, %error, "failed to read live updates of a load run");
                return true;
            }
        };
        for frame in frames {
            if !send(socket, &frame).await {
                return false;
            }
        }
        true
    }

    /// The frames since the last call. The state is read first: once it is final, all seconds are stored.
    async fn updates(&mut self) -> Result<Vec<Frame>, Error> {
        let Some(run) = self.load.run(&self.run.id).await? else { return Ok(Vec::new()) };
        self.run = run;
        let mut frames = self.seconds().await?;
        if self.sent != Some(self.run.state) {
            let progress = self.load.views().progress(&self.run).await?;
            frames.push(Frame::Status { data: LiveStatus::new(&self.run, progress) });
            self.sent = Some(self.run.state);
        }
        Ok(frames)
    }

    async fn seconds(&mut self) -> Result<Vec<Frame>, Error> {
        let mut frames = Vec::new();
        loop {
            let entries =
                self.load.logs().read(&self.run.id, LogStream::Seconds, self.last, MAX_BATCH).await?;
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

    async fn leave(self) {
        if let Err(error) = self.load.views().remove_session(&self.run.id, &self.session).await {
            tracing::debug!(run = %self.run.id, %error, "failed to remove the live session of a client");
        }
    }
}

impl LiveStatus {
    fn new(run: &Run, progress: Progress) -> Self {
        let RunStatus { test_id, status, start_time, current_users, target_users, progress, message } =
            RunStatus::new(run, progress);
        let state = run.state;
        Self { test_id, state, status, start_time, current_users, target_users, progress, message }
    }
}

/// Returns `false` when the client is gone or too slow.
async fn send(socket: &mut WebSocket, frame: &Frame) -> bool {
    let text = serde_json::to_string(frame).unwrap_or_default();
    let sent = tokio::time::timeout(SEND_TIMEOUT, socket.send(Message::Text(text.into()))).await;
    sent.is_ok_and(|sent| sent.is_ok())
}
