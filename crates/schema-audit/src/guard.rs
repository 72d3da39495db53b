//! Checks what a command, transaction or script of the embedded engine has changed.

use hob_engine::{Changes, Reply};
use hob_schema::Catalog;
use hob_schema::check::{Expiry, Facts, GroupFacts, Sample, StreamFacts, Violation, check_key};

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
        _ => (b"XLEN", entries(changes.ask(&[b"XRANGE", key, b"-", b"+", b"COUNT", LAST_SAMPLED]))),
    };
    let stream = match &*kind {
        "stream" => stream(changes, key),
        _ => StreamFacts::default(),
    };
    let len = match changes.ask(&[length, key]) {
        Reply::Int(len) => u64::try_from(len).ok(),
        _ => None,
    };
    Some(Facts { kind: Some(kind), expiry, len, sample, stream, ..Facts::default() })
}

fn stream(changes: &mut Changes<'_>, key: &[u8]) -> StreamFacts {
    let groups = groups(changes.ask(&[b"XINFO", b"GROUPS", key]));
    let added_ms = first_entry_ms(changes.ask(&[b"XRANGE", key, b"-", b"+", b"COUNT", b"1"]));
    let oldest_ms = added_ms.map(|added_ms| changes.now_ms().saturating_sub(added_ms));
    StreamFacts { groups, oldest_ms }
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

fn entries(reply: Reply) -> Sample {
    let Reply::Array(entries) = reply else { return Sample::Unread };
    let fields = |entry: Reply| {
        let Reply::Array(parts) = entry else { return None };
        let Some(Reply::Array(words)) = parts.into_iter().nth(1) else { return None };
        let mut words = words.into_iter().filter_map(bytes);
        Some(std::iter::from_fn(|| Some((words.next()?, words.next()?))).collect())
    };
    Sample::Entries(entries.into_iter().filter_map(fields).collect())
}

/// The time in the id of the first of these entries.
fn first_entry_ms(reply: Reply) -> Option<u64> {
    let Reply::Array(entries) = reply else { return None };
    let Reply::Array(parts) = entries.into_iter().next()? else { return None };
    let id = String::from_utf8(bytes(parts.into_iter().next()?)?).ok()?;
    id.split_once('-')?.0.parse().ok()
}

fn groups(reply: Reply) -> Vec<GroupFacts> {
    let Reply::Array(groups) = reply else { return Vec::new() };
    let group = |group: Reply| {
        let Reply::Map(facts) = group else { return None };
        let (mut name, mut pending) = (None, None);
        for (fact, value) in facts {
            match (bytes(fact)?.as_slice(), value) {
                (b"name", value) => name = bytes(value),
                (b"pending", Reply::Int(number)) => pending = u64::try_from(number).ok(),
                _ => {}
            }
        }
        Some(GroupFacts { name: name?, pending: pending? })
    };
    groups.into_iter().filter_map(group).collect()
}

fn scored(reply: Reply) -> Sample {
    match reply {
        Reply::Scored(pairs) => Sample::Scored(pairs),
        _ => Sample::Unread,
    }
}

#[cfg(test)]
mod tests {
    use hob_engine::{Config, Engine, Guard};
    use hob_schema::{Layout, Schema};

    use super::*;

    #[test]
    fn streams_are_checked() {
        let text = "[schema]\nname = \"t\"\nversion = 1\n[ids]\nid = {}\n[key.events]\npattern = \"events:<id>\"\ntype = \"stream\"\n\
                    fields = { n = \"int\" }\ngroups = [\"billing\"]\nmax_pending = 1\nmax_age = \"1h\"\n";
        let schema = Schema::parse("t.toml", text).unwrap();
        let catalog = Catalog::new(vec![schema], Layout::Plain).unwrap();
        let guard = Guard::new(move |changes| match broken_keys(&catalog, changes).first() {
            Some(broken) => Err(broken.violations[0].message.clone()),
            None => Ok(()),
        });
        let engine = Engine::new(Config { guard: Some(guard), ..Config::default() });
        let refused =
            |line: &str| match engine.execute(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>()) {
                Reply::Error(text) => text.into_owned(),
                _ => String::new(),
            };
        for allowed in ["XADD events:1 * n 1", "XGROUP CREATE events:1 billing 0", "XADD events:1 * n 2"] {
            assert_eq!(refused(allowed), "", "{allowed}");
        }
        // Reading does not count as a change; the next change finds the pending entries.
        assert_eq!(refused("XREADGROUP GROUP billing one COUNT 2 STREAMS events:1 >"), "");
        // A change that is refused stays, so each has another key.
        for (line, reason) in [
            ("XADD events:2 * n many", "is not a whole number"),
            ("XADD events:3 * n 1 other 1", "field \"other\" is not declared"),
            ("XGROUP CREATE events:4 search 0 MKSTREAM", "group \"search\" is not declared"),
            ("XADD events:1 * n 3", "2 pending entries, more than 1"),
            ("XADD events:5 1700000000000-0 n 1", "old, more than 1h"),
        ] {
            let refusal = refused(line);
            assert!(refusal.contains(reason), "{line}: {refusal}");
        }
    }
}
