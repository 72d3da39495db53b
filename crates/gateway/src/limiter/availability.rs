//! Whether the store is available. While it is not, no request waits for it; a background task pings it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hob_store::{Error, Store};

const PROBE_EVERY: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Availability {
    store: Store,
    unavailable: Arc<AtomicBool>,
}

impl Availability {
    pub(crate) fn new(store: &Store) -> Self {
        Self { store: store.clone(), unavailable: Arc::default() }
    }

    pub(crate) fn is_unavailable(&self) -> bool {
        self.unavailable.load(Ordering::Relaxed)
    }

    /// Records a failed call. An error reply does not count: the store is available.
    pub(crate) fn record_failure(&self, error: &Error) {
        if !matches!(error, Error::Unavailable { .. } | Error::Interrupted { .. }) {
            tracing::error!(%error, "limit check failed");
            return;
        }
        if self.unavailable.swap(true, Ordering::Relaxed) {
            return;
        }
        tracing::warn!(%error, "store unavailable, on_store_failure applies");
        let (store, unavailable) = (self.store.clone(), Arc::downgrade(&self.unavailable));
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(PROBE_EVERY).await;
                // The limiter was dropped.
                let Some(unavailable) = unavailable.upgrade() else { return };
                if store.ping().await.is_ok() {
                    unavailable.store(false, Ordering::Relaxed);
                    tracing::info!("store available again");
                    return;
                }
            }
        });
    }
}
