//! Whether the store answers. While it does not, no request waits for it: one probe in the background does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hob_store::{Error, Store};

const PROBE_EVERY: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Availability {
    store: Store,
    away: Arc<AtomicBool>,
}

impl Availability {
    pub(crate) fn new(store: &Store) -> Self {
        Self { store: store.clone(), away: Arc::default() }
    }

    pub(crate) fn is_away(&self) -> bool {
        self.away.load(Ordering::Relaxed)
    }

    /// Takes note of a call that got no answer. An answer that is an error is none of that: the store is there.
    pub(crate) fn failed(&self, error: &Error) {
        if !matches!(error, Error::Unavailable { .. } | Error::Interrupted { .. }) {
            tracing::error!(%error, "a limit could not be asked");
            return;
        }
        if self.away.swap(true, Ordering::Relaxed) {
            return;
        }
        tracing::warn!(%error, "limits go on without the store");
        let (store, away) = (self.store.clone(), Arc::downgrade(&self.away));
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(PROBE_EVERY).await;
                // Nobody asks any more.
                let Some(away) = away.upgrade() else { return };
                if store.ping().await.is_ok() {
                    away.store(false, Ordering::Relaxed);
                    tracing::info!("limits ask the store again");
                    return;
                }
            }
        });
    }
}
