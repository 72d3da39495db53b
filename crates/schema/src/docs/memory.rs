//! Estimates the memory of a key in Redis 7. The structures around the data often need more memory than the data
//! itself.

use crate::examples::example_value;
use crate::model::value::Value;
use crate::model::{Content, Family, FieldName, Schema};

/// An entry of the keyspace table with its slot, and the header of the value.
const ENTRY: u64 = 24 + 8 + 16;
/// The same again in the table of expiry times, without the key.
const EXPIRY: u64 = 24 + 8;
/// A collection within these limits is one packed block.
const PACKED_ITEMS: u64 = 128;
const PACKED_BYTES: u64 = 64;

/// The bytes of one key with `items` elements like its example.
pub(super) fn key_bytes(schema: &Schema, family: &Family, key_len: usize, items: u64) -> u64 {
    let expiry = if family.ttl.rule.longest().is_some() { EXPIRY } else { 0 };
    ENTRY + expiry + text_bytes(key_len as u64) + content_bytes(schema, &family.content, items)
}

/// A text with its header, in the allocator's sizes.
fn text_bytes(len: u64) -> u64 {
    (len + if len < 32 { 2 } else { 4 }).next_multiple_of(16).max(16)
}

fn content_bytes(schema: &Schema, content: &Content, items: u64) -> u64 {
    let size = |value: &Value| example_value(value, schema).len() as u64;
    match content {
        // Small numbers live in the header itself.
        Content::String(Value::Int { .. } | Value::UnixSeconds | Value::UnixMillis) => 0,
        // Some elements, without the empty registers.
        Content::String(Value::HyperLogLog) => text_bytes(64),
        Content::String(value) => text_bytes(size(value)),
        Content::Hash(fields) => {
            let named = fields.iter().filter(|field| matches!(field.name, FieldName::Exact(_)));
            let named: u64 = named.map(|field| field_bytes(&field.name, &field.value, schema)).sum();
            let many = fields.iter().find(|field| !matches!(field.name, FieldName::Exact(_)));
            let each = many.map_or(0, |field| field_bytes(&field.name, &field.value, schema));
            let count = if many.is_some() { items } else { fields.len() as u64 };
            collection(count, if many.is_some() { each } else { named / count.max(1) }, 24 + 8 + 2 * 16)
        }
        Content::List(item) => 48 + items * (size(item) + 4),
        // Before Redis 7.2 only sets of numbers are packed.
        Content::Set(member) => 120 + items * (24 + 8 + text_bytes(size(member))),
        // Entries are packed together; most of an entry is its values.
        Content::Stream(fields) => {
            let entry: u64 = fields.iter().map(|field| field_bytes(&field.name, &field.value, schema)).sum();
            1_024 + items * (entry + 16)
        }
        Content::Module(_) => 0,
        Content::Zset { member, .. } => collection(items, size(member) + 10, 24 + 8 + 16 + 40),
    }
}

fn field_bytes(name: &FieldName, value: &Value, schema: &Schema) -> u64 {
    let name = match name {
        FieldName::Exact(name) => name.len(),
        FieldName::Id(id) => schema.ids[*id].example.len(),
        FieldName::Any => 8,
    };
    (name + example_value(value, schema).len() + 4) as u64
}

/// One packed block if it is small, else a table with an entry for each element.
fn collection(items: u64, each: u64, entry: u64) -> u64 {
    if items <= PACKED_ITEMS && each <= PACKED_BYTES {
        (16 + items * each).next_multiple_of(16)
    } else {
        64 + items * (each + entry)
    }
}
