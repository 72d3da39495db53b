//! The types of value, and the memory that each uses.

use std::collections::VecDeque;

use indexmap::{IndexMap, IndexSet};

use super::sorted_set::SortedSet;
use super::stream::Stream;
use crate::number::read_int;

pub(crate) type Bytes = Box<[u8]>;

/// The size of an allocation of `bytes` with its header, rounded up as the allocator does.
pub(crate) fn allocation(bytes: usize) -> usize {
    if bytes == 0 { 0 } else { (bytes + 8).next_multiple_of(16).max(32) }
}

/// The size of a hash table of this capacity, with its index and entries.
pub(crate) fn table<T>(capacity: usize) -> usize {
    const HASH: usize = size_of::<u64>();
    // The index has a word and a control byte per bucket, and is at most seven eighths full.
    let buckets = if capacity == 0 { 0 } else { (capacity * 8 / 7).next_power_of_two() };
    allocation(capacity * (size_of::<T>() + HASH)) + allocation(buckets * 9)
}

/// The size of a B-tree of this length: its nodes have eleven places and are on average two thirds full.
pub(crate) fn tree<T>(len: usize) -> usize {
    const SHARE_OF_HEADER: usize = 4;
    len * (size_of::<T>() + SHARE_OF_HEADER) * 3 / 2
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Str(Str),
    Hash(Box<Hash>),
    List(Box<List>),
    Set(Box<Set>),
    SortedSet(Box<SortedSet>),
    Stream(Box<Stream>),
}

impl Value {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Value::Str(_) => Str::NAME,
            Value::Hash(_) => Hash::NAME,
            Value::List(_) => List::NAME,
            Value::Set(_) => Set::NAME,
            Value::SortedSet(_) => SortedSet::NAME,
            Value::Stream(_) => Stream::NAME,
        }
    }

    pub(crate) fn memory(&self) -> usize {
        match self {
            Value::Str(value) => value.memory(),
            Value::Hash(value) => allocation(size_of::<Hash>()) + value.memory(),
            Value::List(value) => allocation(size_of::<List>()) + value.memory(),
            Value::Set(value) => allocation(size_of::<Set>()) + value.memory(),
            Value::SortedSet(value) => allocation(size_of::<SortedSet>()) + value.memory(),
            Value::Stream(value) => allocation(size_of::<Stream>()) + value.memory(),
        }
    }

    /// Whether a client can wait for a value of this type.
    pub(crate) fn is_awaitable(&self) -> bool {
        match self {
            Value::List(_) | Value::SortedSet(_) | Value::Stream(_) => true,
            Value::Str(_) | Value::Hash(_) | Value::Set(_) => false,
        }
    }

    /// Whether the value is a collection that has to be removed. A stream stays, because it keeps its last id.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Value::Str(_) | Value::Stream(_) => false,
            Value::Hash(value) => value.is_empty(),
            Value::List(value) => value.is_empty(),
            Value::Set(value) => value.is_empty(),
            Value::SortedSet(value) => value.is_empty(),
        }
    }
}

/// A type of value, so that one accessor of the keyspace serves all.
pub(crate) trait ValueType: Sized {
    const NAME: &'static str;
    fn empty() -> Value;
    fn of(value: &Value) -> Option<&Self>;
    fn of_mut(value: &mut Value) -> Option<&mut Self>;
}

macro_rules! kind {
    ($type:ty, $variant:ident, $name:literal, $empty:expr) => {
        impl ValueType for $type {
            const NAME: &'static str = $name;
            fn empty() -> Value {
                Value::$variant($empty)
            }
            fn of(value: &Value) -> Option<&Self> {
                if let Value::$variant(value) = value { Some(value) } else { None }
            }
            fn of_mut(value: &mut Value) -> Option<&mut Self> {
                if let Value::$variant(value) = value { Some(value) } else { None }
            }
        }
    };
}

kind!(Str, Str, "string", Str::new(b""));
kind!(Hash, Hash, "hash", Box::default());
kind!(List, List, "list", Box::default());
kind!(Set, Set, "set", Box::default());
kind!(SortedSet, SortedSet, "zset", Box::default());
kind!(Stream, Stream, "stream", Box::default());

/// A string, stored as an integer or in place where possible, so that counters and short values need no allocation.
#[derive(Clone, Debug)]
pub(crate) enum Str {
    Int(i64),
    Short(Short),
    Raw(Vec<u8>),
}

/// The largest length with which a `Str` is not larger than a `Vec`.
const MAX_SHORT: usize = 15;

/// At most [`MAX_SHORT`] bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Short {
    bytes: [u8; MAX_SHORT],
    len: u8,
}

impl Short {
    fn new(bytes: &[u8]) -> Option<Short> {
        let mut short = Short { bytes: [0; MAX_SHORT], len: u8::try_from(bytes.len()).ok()? };
        short.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(short)
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }
}

impl Str {
    pub(crate) fn new(bytes: &[u8]) -> Str {
        let short = || Short::new(bytes).map_or_else(|| Str::Raw(bytes.to_vec()), Str::Short);
        read_int(bytes).map_or_else(short, Str::Int)
    }

    pub(crate) fn to_vec(&self) -> Vec<u8> {
        match self {
            Str::Int(value) => itoa::Buffer::new().format(*value).as_bytes().to_vec(),
            Str::Short(short) => short.bytes().to_vec(),
            Str::Raw(bytes) => bytes.clone(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Str::Int(value) => itoa::Buffer::new().format(*value).len(),
            Str::Short(short) => short.bytes().len(),
            Str::Raw(bytes) => bytes.len(),
        }
    }

    pub(crate) fn append(&mut self, tail: &[u8]) {
        let mut bytes = match self {
            Str::Int(_) | Str::Short(_) => self.to_vec(),
            Str::Raw(bytes) => std::mem::take(bytes),
        };
        bytes.extend_from_slice(tail);
        *self = Str::Raw(bytes);
    }

    /// Writes bytes at an offset. A gap is filled with zeros.
    pub(crate) fn write_at(&mut self, offset: usize, bytes: &[u8]) {
        self.append(b"");
        if let Str::Raw(value) = self {
            value.resize(value.len().max(offset + bytes.len()), 0);
            value[offset..offset + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// The integer that this string represents. A `Raw` may represent one too, after `APPEND` or `SETRANGE`.
    pub(crate) fn as_int(&self) -> Option<i64> {
        match self {
            Str::Int(value) => Some(*value),
            Str::Short(_) => None,
            Str::Raw(bytes) => read_int(bytes),
        }
    }

    fn memory(&self) -> usize {
        match self {
            Str::Int(_) | Str::Short(_) => 0,
            Str::Raw(bytes) => allocation(bytes.capacity()),
        }
    }
}

/// Fields and their values, in an order that `SCAN` can walk (see `Keyspace::scan`).
#[derive(Clone, Debug, Default)]
pub(crate) struct Hash {
    fields: IndexMap<Bytes, Bytes>,
    payload: usize,
}

impl Hash {
    pub(crate) fn get(&self, field: &[u8]) -> Option<&[u8]> {
        self.fields.get(field).map(AsRef::as_ref)
    }

    /// Whether the field is new.
    pub(crate) fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        self.payload += allocation(value.len());
        if let Some(old) = self.fields.get_mut(field) {
            self.payload -= allocation(old.len());
            *old = value.into();
            return false;
        }
        self.payload += allocation(field.len());
        self.fields.insert(field.into(), value.into());
        true
    }

    pub(crate) fn remove(&mut self, field: &[u8]) -> bool {
        let Some((field, value)) = self.fields.swap_remove_entry(field) else {
            return false;
        };
        self.payload -= allocation(field.len()) + allocation(value.len());
        true
    }

    pub(crate) fn len(&self) -> usize {
        self.fields.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|(field, value)| (field.as_ref(), value.as_ref()))
    }

    pub(crate) fn at(&self, index: usize) -> Option<(&[u8], &[u8])> {
        self.fields.get_index(index).map(|(field, value)| (field.as_ref(), value.as_ref()))
    }

    fn memory(&self) -> usize {
        table::<(Bytes, Bytes)>(self.fields.capacity()) + self.payload
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct List {
    items: VecDeque<Bytes>,
    payload: usize,
}

impl List {
    pub(crate) fn push(&mut self, end: End, item: &[u8]) {
        self.payload += allocation(item.len());
        match end {
            End::Left => self.items.push_front(item.into()),
            End::Right => self.items.push_back(item.into()),
        }
    }

    pub(crate) fn pop(&mut self, end: End) -> Option<Bytes> {
        let item = match end {
            End::Left => self.items.pop_front(),
            End::Right => self.items.pop_back(),
        }?;
        self.payload -= allocation(item.len());
        Some(item)
    }

    pub(crate) fn get(&self, index: usize) -> Option<&[u8]> {
        self.items.get(index).map(AsRef::as_ref)
    }

    pub(crate) fn set(&mut self, index: usize, item: &[u8]) {
        self.payload += allocation(item.len());
        self.payload -= allocation(self.items[index].len());
        self.items[index] = item.into();
    }

    pub(crate) fn insert(&mut self, index: usize, item: &[u8]) {
        self.payload += allocation(item.len());
        self.items.insert(index, item.into());
    }

    pub(crate) fn keep(&mut self, range: std::ops::Range<usize>) {
        let weight = |item: Bytes| allocation(item.len());
        let mut gone: usize = self.items.drain(range.end..).map(weight).sum();
        gone += self.items.drain(..range.start).map(weight).sum::<usize>();
        self.payload -= gone;
    }

    /// Removes up to `max_items` items equal to `item`, starting from one end; returns how many.
    pub(crate) fn remove(&mut self, item: &[u8], end: End, max_items: usize) -> usize {
        let mut found = Vec::new();
        let fits = |&(_, candidate): &(usize, &Bytes)| candidate.as_ref() == item;
        let items = self.items.iter().enumerate();
        match end {
            End::Left => found.extend(items.filter(fits).take(max_items).map(|(index, _)| index)),
            End::Right => found.extend(items.rev().filter(fits).take(max_items).map(|(index, _)| index)),
        }
        found.sort_unstable();
        let mut index = 0;
        self.items.retain(|_| {
            index += 1;
            found.binary_search(&(index - 1)).is_err()
        });
        self.payload -= found.len() * allocation(item.len());
        found.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) fn range(&self, range: std::ops::Range<usize>) -> impl Iterator<Item = &[u8]> {
        self.items.range(range).map(AsRef::as_ref)
    }

    fn memory(&self) -> usize {
        allocation(self.items.capacity() * size_of::<Bytes>()) + self.payload
    }
}

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Left,
    Right,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Set {
    members: IndexSet<Bytes>,
    payload: usize,
}

impl Set {
    pub(crate) fn add(&mut self, member: &[u8]) -> bool {
        if self.members.contains(member) {
            return false;
        }
        self.payload += allocation(member.len());
        self.members.insert(member.into())
    }

    pub(crate) fn remove(&mut self, member: &[u8]) -> bool {
        let removed = self.members.swap_remove(member);
        self.payload -= if removed { allocation(member.len()) } else { 0 };
        removed
    }

    pub(crate) fn take_at(&mut self, index: usize) -> Option<Bytes> {
        let member = self.members.swap_remove_index(index)?;
        self.payload -= allocation(member.len());
        Some(member)
    }

    pub(crate) fn contains(&self, member: &[u8]) -> bool {
        self.members.contains(member)
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.members.iter().map(AsRef::as_ref)
    }

    pub(crate) fn at(&self, index: usize) -> Option<&[u8]> {
        self.members.get_index(index).map(AsRef::as_ref)
    }

    fn memory(&self) -> usize {
        table::<Bytes>(self.members.capacity()) + self.payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_strings_need_no_allocation() {
        assert_eq!(size_of::<Value>(), size_of::<Vec<u8>>());
        for (text, memory) in [("", 0), ("true", 0), ("123456789012345", 0), ("123456789abcdef", 0)] {
            let value = Str::new(text.as_bytes());
            assert_eq!(value.to_vec(), text.as_bytes());
            assert_eq!((value.len(), value.memory()), (text.len(), memory), "{text}");
        }
        let long = Str::new(b"123456789abcdefg");
        assert_eq!((long.to_vec().as_slice(), long.memory()), (b"123456789abcdefg".as_slice(), 32));
    }

    #[test]
    fn appending_keeps_every_byte() {
        let mut value = Str::new(b"");
        for (tail, whole) in
            [("1", "1"), ("23", "123"), ("x", "123x"), ("0123456789abcdef", "123x0123456789abcdef")]
        {
            value.append(tail.as_bytes());
            assert_eq!(value.to_vec(), whole.as_bytes());
            assert_eq!(value.as_int(), read_int(whole.as_bytes()));
        }
    }
}
