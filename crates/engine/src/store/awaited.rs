//! Keys for which blocked clients wait, and which of them were written.

use std::collections::{HashMap, VecDeque};

use indexmap::IndexSet;

use super::value::Bytes;
use crate::blocked::BlockedId;

#[derive(Debug, Default)]
pub(crate) struct Awaited {
    /// In the order in which they began to wait.
    waiting: HashMap<Bytes, VecDeque<BlockedId>>,
    /// Keys that were written since the last `take_written`, each once.
    written: IndexSet<Bytes>,
}

impl Awaited {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn add(&mut self, key: &[u8], id: BlockedId) {
        self.waiting.entry(key.into()).or_default().push_back(id);
    }

    pub(super) fn remove(&mut self, key: &[u8], id: BlockedId) {
        if let Some(waiting) = self.waiting.get_mut(key) {
            waiting.retain(|other| *other != id);
            if waiting.is_empty() {
                self.waiting.remove(key);
            }
        }
    }

    pub(super) fn at(&self, key: &[u8], index: usize) -> Option<BlockedId> {
        self.waiting.get(key)?.get(index).copied()
    }

    pub(super) fn written(&mut self, key: &[u8]) {
        if self.waiting.contains_key(key) && !self.written.contains(key) {
            self.written.insert(key.into());
        }
    }

    pub(super) fn take_written(&mut self) -> IndexSet<Bytes> {
        std::mem::take(&mut self.written)
    }
}
