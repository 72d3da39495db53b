//! Streams: entries ordered by id, and the groups that consume them.

mod group;
mod id;

pub(crate) use group::Group;
pub(crate) use id::StreamId;

use std::collections::BTreeMap;

use super::value::{Bytes, allocation, tree};

/// The fields and values of an entry, in turn.
pub(crate) type Entry = Box<[Bytes]>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    entries: BTreeMap<StreamId, Entry>,
    groups: BTreeMap<Bytes, Group>,
    /// The greatest id ever used, or the one that `XSETID` set.
    pub(crate) last_id: StreamId,
    /// The greatest id that `XDEL` removed.
    pub(crate) max_deleted_id: StreamId,
    /// The number of entries ever added, as `XSETID` may set it.
    pub(crate) entries_added: u64,
    payload: usize,
}

/// Which entries to remove from the beginning of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trim {
    MaxLength(usize),
    MinId(StreamId),
}

impl Stream {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn first_id(&self) -> StreamId {
        self.entries.first_key_value().map_or(StreamId::MIN, |(id, _)| *id)
    }

    /// The id of the last entry that is still there.
    pub(crate) fn last_entry_id(&self) -> Option<StreamId> {
        self.entries.last_key_value().map(|(id, _)| *id)
    }

    pub(crate) fn entry(&self, id: StreamId) -> Option<&Entry> {
        self.entries.get(&id)
    }

    /// The entries from one id to another, both included.
    pub(crate) fn range(
        &self,
        start: StreamId,
        end: StreamId,
    ) -> impl DoubleEndedIterator<Item = (StreamId, &Entry)> {
        let entries = (start <= end).then(|| self.entries.range(start..=end));
        entries.into_iter().flatten().map(|(id, entry)| (*id, entry))
    }

    /// Adds an entry. Its id must be greater than the last one.
    pub(crate) fn add(&mut self, id: StreamId, words: &[&[u8]]) {
        let entry: Entry = words.iter().map(|word| Bytes::from(*word)).collect();
        self.payload += weight(&entry);
        self.entries.insert(id, entry);
        self.last_id = id;
        self.entries_added = self.entries_added.wrapping_add(1);
    }

    /// Removes an entry; `false` if it is missing.
    pub(crate) fn delete(&mut self, id: StreamId) -> bool {
        let Some(entry) = self.entries.remove(&id) else { return false };
        self.payload -= weight(&entry);
        self.max_deleted_id = self.max_deleted_id.max(id);
        true
    }

    /// Removes at most `limit` entries from the beginning; returns how many.
    pub(crate) fn trim(&mut self, trim: Trim, limit: usize) -> usize {
        let surplus = match trim {
            Trim::MaxLength(length) => self.entries.len().saturating_sub(length).min(limit),
            Trim::MinId(id) => self.entries.range(..id).take(limit).count(),
        };
        for _ in 0..surplus {
            if let Some((_, entry)) = self.entries.pop_first() {
                self.payload -= weight(&entry);
            }
        }
        surplus
    }

    /// Ordered by name.
    pub(crate) fn groups(&self) -> impl ExactSizeIterator<Item = (&[u8], &Group)> {
        self.groups.iter().map(|(name, group)| (name.as_ref(), group))
    }

    pub(crate) fn group(&self, name: &[u8]) -> Option<&Group> {
        self.groups.get(name)
    }

    /// Changes a group; `None` if it is missing.
    pub(crate) fn update_group<R>(&mut self, name: &[u8], change: impl FnOnce(&mut Group) -> R) -> Option<R> {
        let group = self.groups.get_mut(name)?;
        let before = group.memory();
        let result = change(group);
        self.payload = self.payload + group.memory() - before;
        Some(result)
    }

    /// Adds a group; `false` if it exists.
    pub(crate) fn create_group(&mut self, name: &[u8], group: Group) -> bool {
        if self.groups.contains_key(name) {
            return false;
        }
        self.payload += group.memory() + allocation(name.len());
        self.groups.insert(name.into(), group);
        true
    }

    /// Removes a group; `false` if it is missing.
    pub(crate) fn remove_group(&mut self, name: &[u8]) -> bool {
        let Some(group) = self.groups.remove(name) else { return false };
        self.payload -= group.memory() + allocation(name.len());
        true
    }

    /// How many entries were added up to this id, if that can be known: entries that `XDEL` removed were also counted.
    pub(crate) fn entries_until(&self, id: StreamId) -> Option<i64> {
        let added = self.entries_added.cast_signed();
        if added == 0 {
            return Some(0);
        }
        if id == self.last_id || (self.entries.is_empty() && id < self.last_id) {
            return Some(added);
        }
        let has_gaps = self.max_deleted_id != StreamId::MIN && self.max_deleted_id >= self.first_id();
        if id > self.last_id || has_gaps || id > self.first_id() {
            return None;
        }
        let before_first = added.wrapping_sub(self.entries.len() as i64);
        Some(before_first.wrapping_add(i64::from(id == self.first_id())))
    }

    /// Whether `XDEL` may have removed an entry from this id on.
    pub(crate) fn has_gaps_from(&self, id: StreamId) -> bool {
        !self.entries.is_empty()
            && self.max_deleted_id != StreamId::MIN
            && self.first_id() <= self.max_deleted_id
            && id <= self.max_deleted_id
    }

    /// How many entries a group has not read, if that can be known.
    pub(crate) fn lag(&self, group: &Group) -> Option<i64> {
        if self.entries_added == 0 {
            return Some(0);
        }
        let read = group.entries_read.filter(|_| !self.has_gaps_from(group.last_id));
        let read = read.or_else(|| self.entries_until(group.last_id))?;
        Some(self.entries_added.cast_signed().wrapping_sub(read))
    }

    /// What a group has read after it gets the entry with this id.
    pub(crate) fn entries_read_after(&self, group: &Group, id: StreamId) -> Option<i64> {
        match group.entries_read {
            Some(read) if !self.has_gaps_from(id) => Some(read.wrapping_add(1)),
            read if self.entries_added == 0 => read,
            _ => self.entries_until(id),
        }
    }

    pub(super) fn memory(&self) -> usize {
        tree::<(StreamId, Entry)>(self.entries.len())
            + tree::<(Bytes, Group)>(self.groups.len())
            + self.payload
    }
}

/// The memory of an entry outside of the tree.
fn weight(entry: &Entry) -> usize {
    allocation(entry.len() * size_of::<Bytes>())
        + entry.iter().map(|word| allocation(word.len())).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_returns_to_its_beginning() {
        let mut stream = Stream::default();
        let empty = stream.memory();
        for ms in 1..=100 {
            stream.add(StreamId { ms, seq: 0 }, &[b"field", b"value"]);
        }
        assert!(stream.create_group(b"group", Group::new(StreamId::MIN, None)));
        stream.update_group(b"group", |group| {
            group.see_consumer(b"consumer", 0);
            group.assign(StreamId { ms: 1, seq: 0 }, b"consumer", 0, 1);
        });
        assert!(stream.memory() > empty + 100 * 40);
        assert_eq!(stream.trim(Trim::MaxLength(10), 80), 80);
        assert_eq!(stream.trim(Trim::MinId(StreamId { ms: 100, seq: 0 }), usize::MAX), 19);
        assert!(stream.delete(StreamId { ms: 100, seq: 0 }));
        assert_eq!(stream.update_group(b"group", |group| group.remove_consumer(b"consumer")), Some(Some(1)));
        assert!(stream.remove_group(b"group"));
        assert_eq!(stream.memory(), empty);
    }
}
