//! Whether the store is available. While it is not, no request waits for it; a background task pings it.
//!
//! One failed call does not make the store unavailable: it may have been slow, or met a connection that was just lost.
//! That request alone is decided without the store. The store is pinged at once, and is unavailable if the ping fails too.
//! Until then, other requests wait for the store, each for at most its own timeout. It is an outage if the store has not
//! answered for a second: only then are open rules really open.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hob_store::{Error, Store};
use parking_lot::RwLock;

const PROBE_EVERY: Duration = Duration::from_millis(100);
/// A store that is silent for less time is slow.
const OUTAGE_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Available,
    /// A call has failed, and the store is being pinged.
    Suspected,
    Unavailable {
        since: Instant,
    },
}

#[derive(Debug)]
pub(crate) struct Availability {
    store: Store,
    state: Arc<RwLock<State>>,
}

impl Availability {
    pub(crate) fn new(store: &Store) -> Self {
        Self { store: store.clone(), state: Arc::new(RwLock::new(State::Available)) }
    }

    pub(crate) fn is_unavailable(&self) -> bool {
        matches!(*self.state.read(), State::Unavailable { .. })
    }

    /// Whether the store has been unavailable for so long that it is not merely slow.
    pub(crate) fn is_outage(&self) -> bool {
        matches!(*self.state.read(), State::Unavailable { since } if since.elapsed() >= OUTAGE_AFTER)
    }

    /// Records a failed call. An error reply does not count: the store is available. If it refuses every call, its handle
    /// logs that.
    pub(crate) fn record_failure(&self, error: &Error) {
        if !matches!(error, Error::Unavailable { .. } | Error::Interrupted { .. }) {
            if !error.is_reported() {
                tracing::error!(%error, "failed to check a rate limit");
            }
            return;
        }
        {
            let mut state = self.state.write();
            if *state != State::Available {
                return;
            }
            *state = State::Suspected;
        }
        tracing::warn!(%error, "no reply to a rate limit check, pinging the store");
        let (store, state) = (self.store.clone(), Arc::downgrade(&self.state));
        let since = Instant::now();
        tokio::spawn(async move {
            loop {
                let ping = store.ping().await;
                // The limiter was dropped.
                let Some(state) = state.upgrade() else { return };
                let now = if ping.is_ok() { State::Available } else { State::Unavailable { since } };
                let before = std::mem::replace(&mut *state.write(), now);
                drop(state);
                match (before, ping) {
                    (State::Unavailable { .. }, Ok(())) => tracing::info!("store is available again"),
                    (State::Suspected, Err(error)) => {
                        tracing::warn!(%error, "store is unavailable, applying on_store_failure");
                    }
                    _ => {}
                }
                if now == State::Available {
                    return;
                }
                tokio::time::sleep(PROBE_EVERY).await;
            }
        });
    }
}
