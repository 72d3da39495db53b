//! How long a script may run before other commands get a BUSY error, which `CONFIG SET` changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct BusyAfter(Arc<AtomicU64>);

impl BusyAfter {
    pub(crate) fn new(duration: Duration) -> BusyAfter {
        let busy_after = BusyAfter(Arc::default());
        busy_after.set(duration);
        busy_after
    }

    pub(crate) fn set(&self, duration: Duration) {
        self.0.store(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}
