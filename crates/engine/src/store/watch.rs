//! `WATCH`: whether a watched key was changed before `EXEC`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::value::Bytes;

/// One watched key of one connection. The watch lasts until [`Watches::end`] is called, because the keyspace has a
/// copy.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) key: Bytes,
    /// Had expired already when the watch began: then its removal is not a change.
    was_expired: bool,
    dirty: Arc<AtomicBool>,
}

impl Watch {
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::Relaxed)
    }

    pub(crate) fn was_expired(&self) -> bool {
        self.was_expired
    }
}

/// All watches of a keyspace, by key.
#[derive(Debug, Default)]
pub(crate) struct Watches(HashMap<Bytes, Vec<Watch>>);

impl Watches {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn begin(&mut self, key: &[u8], was_expired: bool) -> Watch {
        let watch = Watch { key: key.into(), was_expired, dirty: Arc::default() };
        self.0.entry(key.into()).or_default().push(watch.clone());
        watch
    }

    pub(crate) fn end(&mut self, watch: &Watch) {
        if let Some(watches) = self.0.get_mut(&watch.key) {
            watches.retain(|other| !Arc::ptr_eq(&other.dirty, &watch.dirty));
            if watches.is_empty() {
                self.0.remove(&watch.key);
            }
        }
    }

    pub(crate) fn changed(&mut self, key: &[u8]) {
        for watch in self.0.get(key).into_iter().flatten() {
            watch.dirty.store(true, Ordering::Relaxed);
        }
    }

    /// The key was removed because it had expired.
    pub(crate) fn expired(&mut self, key: &[u8]) {
        for watch in self.0.get(key).into_iter().flatten().filter(|watch| !watch.was_expired) {
            watch.dirty.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.0.keys().map(AsRef::as_ref)
    }
}
