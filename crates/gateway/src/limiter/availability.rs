//! Whether the store answers. While it does not, no request waits for it: one probe in the background does.

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

    /// Takes note of a call that got no answer. An answer that is an error is none of that: the store is there.
    pub(crate) fn record_failure(&self, error: &Error) {
        if !matches!(error, Error::Unavailable { .. } | Error::Interrupted { .. }) {
            tracing::error!(%error, "a limit could not be asked");
            return;
        }
        if self.unavailable.swap(true, Ordering::Relaxed) {
            return;
        }
        tracing::warn!(%error, "limits go on without the store");
        let (store, unavailable) = (self.store.clone(), Arc::downgrade(&self.unavailable));
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(PROBE_EVERY).await;
                // Nobody asks any more.
                let Some(unavailable) = unavailable.upgrade() else { return };
                if store.ping().await.is_ok() {
                    unavailable.store(false, Ordering::Relaxed);
                    tracing::info!("limits ask the store again");
                    return;
                }
            }
        });
    }
}
