//! A consumer group of a stream: who got which entry and has not acknowledged it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::StreamId;
use crate::store::value::{allocation, tree};

#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// The last entry that was delivered.
    pub(crate) last_id: StreamId,
    /// How many entries of the stream were delivered, if known.
    pub(crate) entries_read: Option<i64>,
    pending: BTreeMap<StreamId, Pending>,
    consumers: BTreeMap<Arc<[u8]>, Consumer>,
    /// Bytes of the names of consumers.
    names: usize,
}

/// An entry that was delivered and not acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) consumer: Arc<[u8]>,
    /// Unix milliseconds.
    pub(crate) delivered_ms: i64,
    pub(crate) deliveries: i64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Consumer {
    pub(crate) seen_ms: i64,
    /// The entries of the group's pending entries that belong to this consumer.
    pending: BTreeSet<StreamId>,
}

impl Consumer {
    pub(crate) fn pending(&self) -> &BTreeSet<StreamId> {
        &self.pending
    }
}

impl Group {
    pub(crate) fn new(last_id: StreamId, entries_read: Option<i64>) -> Group {
        Group { last_id, entries_read, pending: BTreeMap::new(), consumers: BTreeMap::new(), names: 0 }
    }

    pub(crate) fn pending(&self) -> &BTreeMap<StreamId, Pending> {
        &self.pending
    }

    /// The pending entries of one consumer or of all, from one id to another, both included.
    pub(crate) fn pending_of(
        &self,
        consumer: Option<&[u8]>,
        start: StreamId,
        end: StreamId,
    ) -> Box<dyn Iterator<Item = (StreamId, &Pending)> + '_> {
        if start > end {
            return Box::new(std::iter::empty());
        }
        let Some(name) = consumer else {
            return Box::new(self.pending.range(start..=end).map(|(id, pending)| (*id, pending)));
        };
        let ids = self.consumers.get(name).map(|consumer| consumer.pending.range(start..=end));
        Box::new(ids.into_iter().flatten().filter_map(|id| Some((*id, self.pending.get(id)?))))
    }

    /// Ordered by name.
    pub(crate) fn consumers(&self) -> impl ExactSizeIterator<Item = (&[u8], &Consumer)> {
        self.consumers.iter().map(|(name, consumer)| (name.as_ref(), consumer))
    }

    pub(crate) fn consumer(&self, name: &[u8]) -> Option<&Consumer> {
        self.consumers.get(name)
    }

    /// Creates a consumer; `false` if it exists.
    pub(crate) fn create_consumer(&mut self, name: &[u8], now_ms: i64) -> bool {
        if self.consumers.contains_key(name) {
            return false;
        }
        self.names += allocation(name.len() + 2 * size_of::<usize>());
        self.consumers.insert(name.into(), Consumer { seen_ms: now_ms, pending: BTreeSet::new() });
        true
    }

    /// Records that a consumer was active, and creates it if it is missing; returns whether it was created.
    pub(crate) fn see_consumer(&mut self, name: &[u8], now_ms: i64) -> bool {
        match self.consumers.get_mut(name) {
            Some(consumer) => {
                consumer.seen_ms = now_ms;
                false
            }
            None => self.create_consumer(name, now_ms),
        }
    }

    /// Removes a consumer with its pending entries; returns how many.
    pub(crate) fn remove_consumer(&mut self, name: &[u8]) -> Option<usize> {
        let consumer = self.consumers.remove(name)?;
        self.names -= allocation(name.len() + 2 * size_of::<usize>());
        for id in &consumer.pending {
            self.pending.remove(id);
        }
        Some(consumer.pending.len())
    }

    /// Gives an entry to an existing consumer, whether it was pending or not.
    pub(crate) fn assign(&mut self, id: StreamId, name: &[u8], delivered_ms: i64, deliveries: i64) {
        self.acknowledge(id);
        let Some((name, _)) = self.consumers.get_key_value(name) else { return };
        let pending = Pending { consumer: Arc::clone(name), delivered_ms, deliveries };
        if let Some(consumer) = self.consumers.get_mut(&pending.consumer) {
            consumer.pending.insert(id);
        }
        self.pending.insert(id, pending);
    }

    /// Counts another delivery to the same consumer.
    pub(crate) fn deliver_again(&mut self, id: StreamId, now_ms: i64) {
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.delivered_ms = now_ms;
            pending.deliveries = pending.deliveries.wrapping_add(1);
        }
    }

    /// Removes a pending entry; `false` if it was not pending.
    pub(crate) fn acknowledge(&mut self, id: StreamId) -> bool {
        let Some(pending) = self.pending.remove(&id) else { return false };
        if let Some(consumer) = self.consumers.get_mut(&pending.consumer) {
            consumer.pending.remove(&id);
        }
        true
    }

    pub(super) fn memory(&self) -> usize {
        // Every pending entry belongs to one consumer.
        tree::<(StreamId, Pending)>(self.pending.len())
            + tree::<StreamId>(self.pending.len())
            + tree::<(Arc<[u8]>, Consumer)>(self.consumers.len())
            + self.names
    }
}
