//! Keys, their values and their deadlines. Every change goes through here, so that memory is counted, watches are
//! notified, and a guard can see the changed keys.

use std::num::NonZeroU64;

use indexmap::{IndexMap, IndexSet};

use super::awaited::Awaited;
use super::events::{EventClass, EventFlags, Events};
use super::value::{Bytes, Value, ValueType, allocation, table};
use super::watch::{Watch, Watches};
use crate::blocked::BlockedId;
use crate::reply::{CommandResult, Failure};

#[derive(Debug, Default)]
pub(crate) struct Keyspace {
    entries: IndexMap<Bytes, Entry>,
    /// Bytes of keys and values; `memory` adds the table itself.
    payload: usize,
    volatile: usize,
    /// Constant while a command, transaction or script runs, so that a key cannot expire half way.
    pub(crate) now_ms: u64,
    watches: Watches,
    awaited: Awaited,
    events: Events,
    /// Keys changed since the last `take_touched`; only recorded for a guard.
    touched: Option<Vec<Vec<u8>>>,
    sweep_at: usize,
    pub(crate) expired_keys: u64,
    pub(crate) lookups: Lookups,
}

/// How often a key that a command read was there.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    /// As in Redis, only commands that only read are counted.
    pub(crate) counted: bool,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) value: Value,
    /// Unix milliseconds. Not 0, which makes the entry smaller.
    deadline: Option<NonZeroU64>,
}

impl Entry {
    fn new(value: Value, deadline: Option<u64>) -> Entry {
        Entry { value, deadline: deadline.map(not_zero) }
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        self.deadline.map(NonZeroU64::get)
    }
}

/// The same deadline, but 1 instead of 0: both have passed.
fn not_zero(deadline: u64) -> NonZeroU64 {
    NonZeroU64::new(deadline).unwrap_or(NonZeroU64::MIN)
}

/// A page of a `SCAN`: the elements, and the next cursor (0: the end).
pub(crate) struct Scan<T> {
    pub(crate) cursor: usize,
    pub(crate) found: Vec<T>,
}

impl<T> Scan<T> {
    /// Walks a table backwards from `cursor` (0: from its end).
    ///
    /// Tables remove an element by moving their last element into the gap, that is towards the start: an element that
    /// was not reached yet stays unreached or moves further to the start. So every element that exists throughout the
    /// walk is found.
    pub(crate) fn page(
        cursor: usize,
        count: usize,
        len: usize,
        mut at: impl FnMut(usize) -> Option<T>,
    ) -> Scan<T> {
        let start = if cursor == 0 { len } else { cursor.min(len) };
        let end = start.saturating_sub(count);
        Scan { cursor: end, found: (end..start).rev().filter_map(&mut at).collect() }
    }
}

impl Keyspace {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn volatile(&self) -> usize {
        self.volatile
    }

    pub(crate) fn memory(&self) -> usize {
        self.payload + table::<(Bytes, Entry)>(self.entries.capacity())
    }

    /// Memory of one key and its value.
    pub(crate) fn memory_of(&mut self, key: &[u8]) -> Option<usize> {
        let index = self.find(key)?;
        let value = self.entries[index].value.memory();
        let share = size_of::<(Bytes, Entry)>() + 2 * size_of::<u64>();
        Some(value + allocation(key.len()) + share)
    }

    /// The entry of an existing key. An expired one is removed.
    pub(crate) fn get(&mut self, key: &[u8]) -> Option<&Entry> {
        let index = self.find(key);
        if self.lookups.counted {
            let count = if index.is_some() { &mut self.lookups.hits } else { &mut self.lookups.misses };
            *count += 1;
            if index.is_none() {
                self.events.add(EventClass::Miss, "keymiss", key);
            }
        }
        self.entries.get_index(index?).map(|(_, entry)| entry)
    }

    pub(crate) fn contains(&mut self, key: &[u8]) -> bool {
        self.get(key).is_some()
    }

    /// The value of a key as a `T`, or an error if it has another type.
    pub(crate) fn read<T: ValueType>(&mut self, key: &[u8]) -> CommandResult<Option<&T>> {
        self.get(key).map(|entry| T::of(&entry.value).ok_or(Failure::WRONG_TYPE)).transpose()
    }

    /// Changes the value of an existing key. An empty collection is removed.
    pub(crate) fn update<T: ValueType, R>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut T) -> R,
    ) -> CommandResult<Option<R>> {
        let Some(index) = self.find(key) else {
            return Ok(None);
        };
        self.update_at(index, change).map(Some)
    }

    fn update_at<T: ValueType, R>(
        &mut self,
        index: usize,
        change: impl FnOnce(&mut T) -> R,
    ) -> CommandResult<R> {
        let (_, entry) = self.entries.get_index_mut(index).expect("the key was found at this index");
        let before = entry.value.memory();
        let value = T::of_mut(&mut entry.value).ok_or(Failure::WRONG_TYPE)?;
        let result = change(value);
        let after = entry.value.memory();
        let emptied = entry.value.is_empty();
        self.payload = self.payload + after - before;
        if emptied {
            self.drop_entry_at(index);
        }
        Ok(result)
    }

    /// Changes the value of a key, starting with an empty one if it does not exist.
    pub(crate) fn upsert<T: ValueType, R>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut T) -> R,
    ) -> CommandResult<R> {
        let index = match self.find(key) {
            Some(index) => index,
            None => {
                self.put(key, T::empty(), None);
                self.entries.len() - 1
            }
        };
        self.update_at(index, change)
    }

    /// Sets the value of a key, whatever was there.
    pub(crate) fn put(&mut self, key: &[u8], value: Value, deadline: Option<u64>) {
        let index = self.find(key);
        self.payload += value.memory();
        self.volatile += usize::from(deadline.is_some());
        let entry = Entry::new(value, deadline);
        if let Some(index) = index {
            let old = std::mem::replace(&mut self.entries[index], entry);
            self.payload -= old.value.memory();
            self.volatile -= usize::from(old.deadline.is_some());
            self.wake_consumers(key, &old.value);
        } else {
            self.payload += allocation(key.len());
            self.entries.insert(key.into(), entry);
            self.events.add(EventClass::New, "new", key);
        }
    }

    /// Removes a key; `None` if it does not exist or has expired.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<Entry> {
        let index = self.find(key)?;
        self.drop_entry_at(index)
    }

    pub(crate) fn deadline(&mut self, key: &[u8]) -> Option<u64> {
        self.get(key)?.deadline()
    }

    /// Sets or clears the deadline of an existing key.
    pub(crate) fn set_deadline(&mut self, key: &[u8], deadline: Option<u64>) {
        if let Some(entry) = self.entries.get_mut(key) {
            self.volatile += usize::from(deadline.is_some());
            self.volatile -= usize::from(entry.deadline.is_some());
            entry.deadline = deadline.map(not_zero);
        }
    }

    pub(crate) fn clear(&mut self) {
        let watched: Vec<Bytes> = self.watches.keys().map(Bytes::from).collect();
        for key in watched.iter().filter(|key| self.entries.contains_key(&***key)) {
            self.watches.changed(key);
        }
        for (key, entry) in std::mem::take(&mut self.entries) {
            self.wake_consumers(&key, &entry.value);
        }
        self.payload = 0;
        self.volatile = 0;
    }

    /// Records that a command changed this key, like Redis's `signalModifiedKey`. Clients that wait for the key may be served.
    pub(crate) fn touch(&mut self, key: &[u8]) {
        self.modified(key);
        if !self.awaited.is_empty() && self.entries.get(key).is_some_and(|entry| entry.value.is_awaitable()) {
            self.awaited.written(key);
        }
    }

    fn modified(&mut self, key: &[u8]) {
        if !self.watches.is_empty() {
            self.watches.changed(key);
        }
        if let Some(touched) = &mut self.touched {
            touched.push(key.to_vec());
        }
    }

    /// Records that entries of a stream were removed. Unlike after other changes, no client that waits for the stream is
    /// served: it waits for new entries.
    pub(crate) fn shortened(&mut self, key: &[u8], class: EventClass, event: &'static str) {
        self.modified(key);
        self.notify(key, class, event);
    }

    /// Records a change and its event.
    pub(crate) fn changed(&mut self, key: &[u8], class: EventClass, event: &'static str) {
        self.touch(key);
        self.notify(key, class, event);
    }

    /// Records that elements were removed, and with the last one the key.
    pub(crate) fn reduced(&mut self, key: &[u8], class: EventClass, event: &'static str) {
        self.changed(key, class, event);
        if !self.entries.contains_key(key) {
            self.notify(key, EventClass::Generic, "del");
        }
    }

    /// Adds an event, if its class is switched on.
    pub(crate) fn notify(&mut self, key: &[u8], class: EventClass, event: &'static str) {
        self.events.add(class, event, key);
    }

    pub(crate) fn event_flags(&self) -> EventFlags {
        self.events.flags
    }

    pub(crate) fn set_event_flags(&mut self, flags: EventFlags) {
        self.events.flags = flags;
    }

    /// Calls `publish` with the channel and the text of the messages since the last call.
    pub(crate) fn publish_events(&mut self, publish: impl Fn(&[u8], &[u8])) {
        self.events.publish(publish);
    }

    /// Lets the clients that wait for this key try again, although it was not written.
    pub(crate) fn wake(&mut self, key: &[u8]) {
        if !self.awaited.is_empty() {
            self.awaited.written(key);
        }
    }

    /// Records that a blocked client waits for a key.
    pub(crate) fn await_key(&mut self, key: &[u8], id: BlockedId) {
        self.awaited.add(key, id);
    }

    pub(crate) fn stop_awaiting(&mut self, key: &[u8], id: BlockedId) {
        self.awaited.remove(key, id);
    }

    /// The client at this place in the queue of those that wait for a key.
    pub(crate) fn awaiting(&self, key: &[u8], place: usize) -> Option<BlockedId> {
        self.awaited.at(key, place)
    }

    /// The awaited keys that were written since the last call, in this order.
    pub(crate) fn take_written(&mut self) -> IndexSet<Bytes> {
        self.awaited.take_written()
    }

    pub(crate) fn report_touched(&mut self) {
        self.touched = Some(Vec::new());
    }

    pub(crate) fn take_touched(&mut self) -> Vec<Vec<u8>> {
        self.touched.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(crate) fn watch(&mut self, key: &[u8]) -> Watch {
        let was_expired = self.entries.get(key).is_some_and(|entry| self.is_due(entry));
        self.watches.begin(key, was_expired)
    }

    pub(crate) fn unwatch(&mut self, watch: &Watch) {
        self.watches.end(watch);
    }

    /// Whether a watched key was changed or expired since its watch began.
    pub(crate) fn is_changed(&self, watch: &Watch) -> bool {
        let ran_out =
            !watch.was_expired() && self.entries.get(&watch.key).is_some_and(|entry| self.is_due(entry));
        watch.is_dirty() || ran_out
    }

    /// A page of keys that have not expired.
    pub(crate) fn scan<T>(
        &mut self,
        cursor: usize,
        count: usize,
        mut pick: impl FnMut(&[u8], &Entry) -> Option<T>,
    ) -> Scan<T> {
        let now_ms = self.now_ms;
        Scan::page(cursor, count, self.entries.len(), |index| {
            let (key, entry) = self.entries.get_index(index)?;
            let alive = entry.deadline().is_none_or(|deadline| deadline >= now_ms);
            if alive { pick(key, entry) } else { None }
        })
    }

    /// A random key that has not expired.
    pub(crate) fn random(&mut self) -> Option<Vec<u8>> {
        /// Each try that finds an expired key removes it. After this many, the result is `None`.
        const TRIES: usize = 1000;
        for _ in 0..TRIES.min(self.entries.len()) {
            if self.entries.is_empty() {
                return None;
            }
            let index = rand::random_range(..self.entries.len());
            let key = self.entries.get_index(index)?.0.clone();
            if self.find(&key).is_some() {
                return Some(key.into());
            }
        }
        None
    }

    /// Checks the next `max_keys` keys and removes the expired ones; returns how many.
    pub(crate) fn sweep(&mut self, max_keys: usize) -> usize {
        if self.volatile == 0 {
            return 0;
        }
        let page = self.sweep_at;
        let due = Scan::page(page, max_keys, self.entries.len(), |index| {
            let (key, entry) = self.entries.get_index(index)?;
            self.is_due(entry).then(|| key.clone())
        });
        self.sweep_at = due.cursor;
        for key in &due.found {
            self.find(key);
        }
        due.found.len()
    }

    fn is_due(&self, entry: &Entry) -> bool {
        entry.deadline().is_some_and(|deadline| deadline < self.now_ms)
    }

    /// Where the entry of an existing key is. An expired one is removed.
    fn find(&mut self, key: &[u8]) -> Option<usize> {
        let index = self.entries.get_index_of(key)?;
        if self.volatile > 0 && self.is_due(&self.entries[index]) {
            self.drop_entry_at(index);
            self.watches.expired(key);
            self.events.add(EventClass::Expired, "expired", key);
            self.expired_keys += 1;
            return None;
        }
        Some(index)
    }

    fn drop_entry_at(&mut self, index: usize) -> Option<Entry> {
        let (key, entry) = self.entries.swap_remove_index(index)?;
        self.payload -= entry.value.memory() + allocation(key.len());
        self.volatile -= usize::from(entry.deadline.is_some());
        self.wake_consumers(&key, &entry.value);
        Some(entry)
    }

    /// Consumers that wait for a stream stop waiting when it is removed or replaced.
    fn wake_consumers(&mut self, key: &[u8], removed: &Value) {
        if let Value::Stream(_) = removed {
            self.wake(key);
        }
    }
}
