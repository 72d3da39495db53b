//! `OBJECT`: how Redis would store a value.

use super::Args;
use crate::engine::Core;
use crate::reply::{CommandResult, Failure, Reply};
use crate::store::{Hash, Set, SortedSet, Str, Value};

/// Redis's limits for the compact encodings, in their default configuration.
const MAX_EMBEDDED_BYTES: usize = 44;
const MAX_COMPACT_BYTES: usize = 64;
const MAX_HASH_ENTRIES: usize = 512;
const MAX_SORTED_SET_ENTRIES: usize = 128;
const MAX_INTEGER_SET_ENTRIES: usize = 512;
/// Redis shares objects for these integers, and shows this number of references to them.
const SHARED_INTEGERS: std::ops::Range<i64> = 0..10_000;
const SHARED_REFERENCES: i64 = i32::MAX as i64;

/// The encoding that Redis chooses for this content. Redis keeps a larger encoding when a value becomes smaller.
pub(super) fn encoding(core: &mut Core, args: Args<'_>) -> CommandResult {
    let entry = core.keys.get(args[2]);
    Ok(entry.map_or(Reply::Null, |entry| Reply::bulk(encoding_of(&entry.value))))
}

fn encoding_of(value: &Value) -> &'static str {
    match value {
        Value::Str(Str::Int(_)) => "int",
        Value::Str(Str::Short(_)) => "embstr",
        Value::Str(Str::Raw(bytes)) if bytes.len() <= MAX_EMBEDDED_BYTES => "embstr",
        Value::Str(Str::Raw(_)) => "raw",
        Value::Hash(hash) if is_compact_hash(hash) => "listpack",
        Value::Hash(_) => "hashtable",
        Value::List(_) => "quicklist",
        Value::Set(set) if is_integer_set(set) => "intset",
        Value::Set(_) => "hashtable",
        Value::SortedSet(set) if is_compact_sorted_set(set) => "listpack",
        Value::SortedSet(_) => "skiplist",
        Value::Stream(_) => "stream",
    }
}

fn is_compact_hash(hash: &Hash) -> bool {
    let fits = |bytes: &[u8]| bytes.len() <= MAX_COMPACT_BYTES;
    hash.len() <= MAX_HASH_ENTRIES && hash.iter().all(|(field, value)| fits(field) && fits(value))
}

fn is_integer_set(set: &Set) -> bool {
    let is_integer = |member: &[u8]| crate::number::read_int(member).is_some();
    set.len() <= MAX_INTEGER_SET_ENTRIES && set.iter().all(is_integer)
}

fn is_compact_sorted_set(set: &SortedSet) -> bool {
    set.len() <= MAX_SORTED_SET_ENTRIES
        && set.range(0..set.len()).all(|ranked| ranked.member.len() <= MAX_COMPACT_BYTES)
}

pub(super) fn refcount(core: &mut Core, args: Args<'_>) -> CommandResult {
    Ok(match core.keys.get(args[2]).map(|entry| &entry.value) {
        None => Reply::Null,
        Some(Value::Str(Str::Int(value))) if SHARED_INTEGERS.contains(value) => Reply::Int(SHARED_REFERENCES),
        Some(_) => Reply::Int(1),
    })
}

/// Frequencies are only counted for eviction, which does not exist here.
pub(super) fn freq(core: &mut Core, args: Args<'_>) -> CommandResult {
    if !core.keys.contains(args[2]) {
        return Ok(Reply::Null);
    }
    Err(Failure::new(
        "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching \
         between policies at runtime LRU and LFU data will take some time to adjust.",
    ))
}
