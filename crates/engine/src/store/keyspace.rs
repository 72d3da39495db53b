//! Keys, their values and their deadlines. Every change goes through here, so that memory is accounted
//! for, watches see it, and a guard can be shown what was touched.

use indexmap::IndexMap;

use super::value::{Bytes, Value, ValueType, allocation, table};
use super::watch::{Watch, Watches};
use crate::reply::{CommandResult, Failure};

#[derive(Debug, Default)]
pub(crate) struct Keyspace {
    entries: IndexMap<Bytes, Entry>,
    /// Bytes of keys and values; the table itself is added by `memory`.
    payload: usize,
    volatile: usize,
    /// Fixed while a command, transaction or script runs, so that a key cannot vanish half way.
    pub(crate) now_ms: u64,
    watches: Watches,
    /// Keys changed since the last `take_touched`, kept only while a guard wants them.
    touched: Option<Vec<Vec<u8>>>,
    sweep_at: usize,
    pub(crate) expired_keys: u64,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) value: Value,
    /// Unix milliseconds.
    pub(crate) deadline: Option<u64>,
}

/// A page of a `SCAN`: what was found, and where to go on (0: nowhere).
pub(crate) struct Scan<T> {
    pub(crate) cursor: usize,
    pub(crate) found: Vec<T>,
}

impl<T> Scan<T> {
    /// Walks a table backwards from `cursor` (0: from its end).
    ///
    /// Tables remove by moving their last element into the gap, that is downwards: an element that was
    /// not yet reached stays unreached or moves further down, so whatever is there throughout is found.
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

    /// What one key and its value hold.
    pub(crate) fn memory_of(&mut self, key: &[u8]) -> Option<usize> {
        let value = self.get(key)?.value.memory();
        let share = size_of::<(Bytes, Entry)>() + 2 * size_of::<u64>();
        Some(value + allocation(key.len()) + share)
    }

    /// The entry of a key that is there and has time left. One whose time is over is removed on the way.
    pub(crate) fn get(&mut self, key: &[u8]) -> Option<&Entry> {
        self.expire_if_due(key);
        self.entries.get(key)
    }

    pub(crate) fn contains(&mut self, key: &[u8]) -> bool {
        self.get(key).is_some()
    }

    /// The value of a key as a `T`, or the refusal if it is something else.
    pub(crate) fn read<T: ValueType>(&mut self, key: &[u8]) -> CommandResult<Option<&T>> {
        self.get(key).map(|entry| T::of(&entry.value).ok_or(Failure::WRONG_TYPE)).transpose()
    }

    /// Changes the value of a key that exists. A collection that ends up empty is removed.
    pub(crate) fn update<T: ValueType, R>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut T) -> R,
    ) -> CommandResult<Option<R>> {
        self.expire_if_due(key);
        let Some(entry) = self.entries.get_mut(key) else {
            return Ok(None);
        };
        let before = entry.value.memory();
        let value = T::of_mut(&mut entry.value).ok_or(Failure::WRONG_TYPE)?;
        let result = change(value);
        let after = entry.value.memory();
        let emptied = entry.value.is_empty();
        self.payload = self.payload + after - before;
        if emptied {
            self.drop_entry(key);
        }
        Ok(Some(result))
    }

    /// Changes the value of a key, starting from an empty one where there is none.
    pub(crate) fn upsert<T: ValueType, R>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut T) -> R,
    ) -> CommandResult<R> {
        if !self.contains(key) {
            self.put(key, T::empty(), None);
        }
        Ok(self.update(key, change)?.expect("the key was put just now if it was missing"))
    }

    /// Puts a value under a key, whatever was there.
    pub(crate) fn put(&mut self, key: &[u8], value: Value, deadline: Option<u64>) {
        self.payload += value.memory();
        self.volatile += usize::from(deadline.is_some());
        let entry = Entry { value, deadline };
        if let Some(old) = self.entries.get_mut(key) {
            let old = std::mem::replace(old, entry);
            self.payload -= old.value.memory();
            self.volatile -= usize::from(old.deadline.is_some());
        } else {
            self.payload += allocation(key.len());
            self.entries.insert(key.into(), entry);
        }
    }

    /// Takes a key away; `None` if it is not there or its time is over.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<Entry> {
        self.expire_if_due(key);
        self.drop_entry(key)
    }

    pub(crate) fn deadline(&mut self, key: &[u8]) -> Option<u64> {
        self.get(key)?.deadline
    }

    /// Sets or clears the deadline of a key that is there.
    pub(crate) fn set_deadline(&mut self, key: &[u8], deadline: Option<u64>) {
        if let Some(entry) = self.entries.get_mut(key) {
            self.volatile += usize::from(deadline.is_some());
            self.volatile -= usize::from(entry.deadline.is_some());
            entry.deadline = deadline;
        }
    }

    pub(crate) fn clear(&mut self) {
        let watched: Vec<Bytes> = self.watches.keys().map(Bytes::from).collect();
        for key in watched.iter().filter(|key| self.entries.contains_key(&***key)) {
            self.watches.changed(key);
        }
        self.entries = IndexMap::new();
        self.payload = 0;
        self.volatile = 0;
    }

    /// Says that a command changed this key, as Redis's `signalModifiedKey` does.
    pub(crate) fn touch(&mut self, key: &[u8]) {
        if !self.watches.is_empty() {
            self.watches.changed(key);
        }
        if let Some(touched) = &mut self.touched {
            touched.push(key.to_vec());
        }
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

    /// Whether a watched key was changed, or ran out, since its watch began.
    pub(crate) fn is_changed(&self, watch: &Watch) -> bool {
        let ran_out =
            !watch.was_expired() && self.entries.get(&watch.key).is_some_and(|entry| self.is_due(entry));
        watch.is_dirty() || ran_out
    }

    /// A page of keys whose time is not over.
    pub(crate) fn scan<T>(
        &mut self,
        cursor: usize,
        count: usize,
        mut pick: impl FnMut(&[u8], &Entry) -> Option<T>,
    ) -> Scan<T> {
        let now_ms = self.now_ms;
        Scan::page(cursor, count, self.entries.len(), |index| {
            let (key, entry) = self.entries.get_index(index)?;
            let alive = entry.deadline.is_none_or(|deadline| deadline >= now_ms);
            if alive { pick(key, entry) } else { None }
        })
    }

    /// Looks at the next `max_keys` keys and removes those whose time is over; says how many it removed.
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
            self.expire_if_due(key);
        }
        due.found.len()
    }

    fn is_due(&self, entry: &Entry) -> bool {
        entry.deadline.is_some_and(|deadline| deadline < self.now_ms)
    }

    fn expire_if_due(&mut self, key: &[u8]) {
        if self.volatile > 0 && self.entries.get(key).is_some_and(|entry| self.is_due(entry)) {
            self.drop_entry(key);
            self.watches.expired(key);
            self.expired_keys += 1;
        }
    }

    fn drop_entry(&mut self, key: &[u8]) -> Option<Entry> {
        let entry = self.entries.swap_remove(key)?;
        self.payload -= entry.value.memory() + allocation(key.len());
        self.volatile -= usize::from(entry.deadline.is_some());
        Some(entry)
    }
}
