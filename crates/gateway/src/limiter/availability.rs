//! Whether the store is available. While it is not, no request waits for it; a background task pings it.
//!
//! One failed call does not make the store unavailable: it may have been slow, or met a connection that was just lost.
//! That request alone is decided without the store. The store is pinged at once, and is unavailable if the ping fails too.
//! Until then, other requests wait for the store, each for at most its own timeout.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use hob_store::{Error, Store};

const PROBE_EVERY: Duration = Duration::from_millis(100);

const AVAILABLE: u8 = 0;
/// A call has failed, and the store is being pinged.
const SUSPECTED: u8 = 1;
const UNAVAILABLE: u8 = 2;

#[derive(Debug)]
pub(crate) struct Availability {
    store: Store,
    state: Arc<AtomicU8>,
}

impl Availability {
    pub(crate) fn new(store: &Store) -> Self {
        Self { store: store.clone(), state: Arc::default() }
    }

    pub(crate) fn is_unavailable(&self) -> bool {
        self.state.load(Ordering::Relaxed) == UNAVAILABLE
    }

    /// Records a failed call. An error reply does not count: the store is available.
    pub(crate) fn record_failure(&self, error: &Error) {
        if !matches!(error, Error::Unavailable { .. } | Error::Interrupted { .. }) {
            tracing::error!(%error, "limit check failed");
            return;
        }
        let suspected =
            self.state.compare_exchange(AVAILABLE, SUSPECTED, Ordering::Relaxed, Ordering::Relaxed);
        if suspected.is_err() {
            return;
        }
        tracing::warn!(%error, "limit check without reply, pinging the store");
        let (store, state) = (self.store.clone(), Arc::downgrade(&self.state));
        tokio::spawn(async move {
            let mut was_unavailable = false;
            while let Err(error) = store.ping().await {
                // The limiter was dropped.
                let Some(state) = state.upgrade() else { return };
                state.store(UNAVAILABLE, Ordering::Relaxed);
                if !was_unavailable {
                    tracing::warn!(%error, "store unavailable, on_store_failure applies");
                    was_unavailable = true;
                }
                drop(state);
                tokio::time::sleep(PROBE_EVERY).await;
            }
            if let Some(state) = state.upgrade() {
                state.store(AVAILABLE, Ordering::Relaxed);
            }
            if was_unavailable {
                tracing::info!("store available again");
            }
        });
    }
}
