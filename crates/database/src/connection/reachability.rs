//! Whether a PostgreSQL server is known to be away, so that calls fail at once instead of waiting for a connection.
//!
//! One failed call proves nothing: its connection may be old, or the server slow. It starts a task that opens a separate
//! connection. If that fails too, the server is known to be away until the task gets an answer. Meanwhile a call still takes
//! a pooled connection that works, but it waits only shortly for one.

use std::sync::Arc;
use std::time::Duration;

use hob_units::Backoff;
use sqlx::{Connection as _, PgConnection, PgPool};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// How long the server may take to close the connection of a probe.
const CLOSE_LIMIT: Duration = Duration::from_millis(250);
/// The pauses between the attempts to reach a server that is away.
const PROBE_PAUSE: Backoff =
    Backoff::linear(Duration::from_millis(50), Duration::from_millis(500)).with_jitter(0.5..1.0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Reachable,
    /// A call has failed, and the server is being probed.
    Suspected,
    Away,
}

/// What is known about a server. Clones share it.
#[derive(Clone)]
pub(crate) struct Reachability {
    state: Arc<watch::Sender<State>>,
    /// How long a call waits for a connection while the server is known to be away.
    away_timeout: Duration,
}

impl Reachability {
    pub(crate) fn new(away_timeout: Duration) -> Self {
        Self { state: Arc::new(watch::Sender::new(State::Reachable)), away_timeout }
    }

    pub(crate) fn is_away(&self) -> bool {
        *self.state.borrow() == State::Away
    }

    /// Waits until the server is known to be away, and a call that began now has waited long enough.
    pub(crate) async fn give_up(&self) {
        let give_up_at = Instant::now() + self.away_timeout;
        let mut state = self.state.subscribe();
        loop {
            // The sender cannot be dropped while `self` exists.
            let _ = state.wait_for(|state| *state == State::Away).await;
            tokio::select! {
                () = sleep_until(give_up_at) => return,
                _ = state.wait_for(|state| *state != State::Away) => {}
            }
        }
    }

    /// Records a failed call. The first one starts the probe.
    pub(crate) fn suspect(&self, pool: &PgPool) {
        let first = self.state.send_if_modified(|state| {
            let first = *state == State::Reachable;
            if first {
                *state = State::Suspected;
            }
            first
        });
        if first {
            tokio::spawn(probe(Arc::downgrade(&self.state), pool.clone()));
        }
    }
}

/// Connects until the server answers, or until the database is closed.
async fn probe(state: std::sync::Weak<watch::Sender<State>>, pool: PgPool) {
    let mut pause = PROBE_PAUSE.clone();
    loop {
        let answer = connect(&pool).await;
        let Some(state) = state.upgrade().filter(|_| !pool.is_closed()) else { return };
        let now = if answer.is_ok() { State::Reachable } else { State::Away };
        let before = state.send_replace(now);
        drop(state);
        match (before, answer) {
            (State::Away, Ok(())) => tracing::info!("database connection restored"),
            (State::Suspected, Err(reason)) => tracing::warn!(reason, "database connection lost"),
            _ => {}
        }
        if now == State::Reachable {
            return;
        }
        sleep(pause.next()).await;
    }
}

/// Opens a connection beside the pool. A server that refuses it with a reason, such as too many clients, is not away.
async fn connect(pool: &PgPool) -> Result<(), String> {
    let limit = pool.options().get_acquire_timeout();
    match timeout(limit, PgConnection::connect_with(&pool.connect_options())).await {
        Ok(Ok(connection)) => {
            let _ = timeout(CLOSE_LIMIT, connection.close()).await;
            Ok(())
        }
        Ok(Err(sqlx::Error::Database(error))) if !is_starting_or_stopping(&*error) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no connection within {limit:?}")),
    }
}

/// `57P01` to `57P03`: the server shuts down, has crashed, or is starting.
fn is_starting_or_stopping(error: &dyn sqlx::error::DatabaseError) -> bool {
    error.code().is_some_and(|code| code.starts_with("57P"))
}
