//! Checks what a command, transaction or script of the embedded engine has changed.

use hob_engine::{Changes, Reply};
use hob_schema::Catalog;
use hob_schema::check::{Expiry, Facts, Sample, Violation, check_key};

/// Index of the last element to check. Tests write small collections.
const LAST_SAMPLED: &[u8] = b"999";

/// A changed key that breaks the schemas.
#[derive(Debug)]
pub struct BrokenKey {
    pub key: Vec<u8>,
    pub violations: Vec<Violation>,
}

/// The changed keys that are undeclared, or have a wrong type, a missing or too long TTL, too many elements, or an invalid
/// value. For an [engine's guard](hob_engine::Guard).
pub fn broken_keys(catalog: &Catalog, changes: &mut Changes<'_>) -> Vec<BrokenKey> {
    let mut broken = Vec::new();
    for key in changes.keys().to_vec() {
        let Some(facts) = facts(changes, &key) else { continue };
        let violations = check_key(catalog, &key, &facts);
        if !violations.is_empty() {
            broken.push(BrokenKey { key, violations });
        }
    }
    broken
}

/// Type, TTL, length and first elements of a key; `None` if the key does not exist.
fn facts(changes: &mut Changes<'_>, key: &[u8]) -> Option<Facts> {
    let kind = match changes.ask(&[b"TYPE", key]) {
        Reply::Simple(kind) if kind != "none" => kind.into_owned(),
        _ => return None,
    };
    let expiry = match changes.ask(&[b"PTTL", key]) {
        Reply::Int(-1) => Expiry::Never,
        Reply::Int(left) => Expiry::InMillis(u64::try_from(left).ok()?),
        _ => Expiry::Unknown,
    };
    let (length, sample): (&[u8], Sample) = match &*kind {
        "string" => (b"STRLEN", text(changes.ask(&[b"GET", key]))),
        "hash" => (b"HLEN", hash(changes.ask(&[b"HGETALL", key]))),
        "list" => (b"LLEN", items(changes.ask(&[b"LRANGE", key, b"0", LAST_SAMPLED]))),
        "set" => (b"SCARD", items(changes.ask(&[b"SMEMBERS", key]))),
        "zset" => (b"ZCARD", scored(changes.ask(&[b"ZRANGE", key, b"0", LAST_SAMPLED, b"WITHSCORES"]))),
        _ => (b"XLEN", Sample::Unread),
    };
    let len = match changes.ask(&[length, key]) {
        Reply::Int(len) => u64::try_from(len).ok(),
        _ => None,
    };
    Some(Facts { kind: Some(kind), expiry, len, sample, ..Facts::default() })
}

fn bytes(reply: Reply) -> Option<Vec<u8>> {
    match reply {
        Reply::Bulk(bytes) => Some(bytes),
        _ => None,
    }
}

fn text(reply: Reply) -> Sample {
    bytes(reply).map_or(Sample::Unread, Sample::Text)
}

fn hash(reply: Reply) -> Sample {
    let Reply::Map(pairs) = reply else { return Sample::Unread };
    let fields =
        pairs.into_iter().filter_map(|(field, value)| Some((bytes(field)?, bytes(value)?))).collect();
    Sample::Hash { fields, whole: true }
}

fn items(reply: Reply) -> Sample {
    match reply {
        Reply::Array(items) | Reply::Set(items) => {
            Sample::Items(items.into_iter().filter_map(bytes).collect())
        }
        _ => Sample::Unread,
    }
}

fn scored(reply: Reply) -> Sample {
    match reply {
        Reply::Scored(pairs) => Sample::Scored(pairs),
        _ => Sample::Unread,
    }
}
