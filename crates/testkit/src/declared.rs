//! A guard for the embedded store: every key that a test touches must be what a schema declares.

use hob_engine::{Changes, Guard, Reply};
use hob_schema::check::{Expiry, Facts, Sample, judge_key};
use hob_schema::{Catalog, Layout, Schema};

/// Enough of a collection to judge its values; tests write small ones.
const SAMPLED: &str = "999";

/// Fails every command, transaction or script that leaves a key which no family declares, of the wrong type,
/// with a missing or too long TTL, over-long, or with a value that does not fit.
pub fn declared(catalog: Catalog) -> Guard {
    Guard::new(move |changes| judge(&catalog, changes))
}

pub(crate) fn judge(catalog: &Catalog, changes: &mut Changes<'_>) -> Result<(), String> {
    let keys = changes.keys().to_vec();
    let mut wrong = keys.iter().filter_map(|key| {
        let facts = facts(changes, key)?;
        let violations = judge_key(catalog, key, &facts);
        let messages: Vec<String> = violations.into_iter().map(|violation| violation.message).collect();
        (!messages.is_empty()).then(|| format!("{} {}", String::from_utf8_lossy(key), messages.join("; ")))
    });
    wrong.next().map_or(Ok(()), Err)
}

/// The families that tests of the shared primitives use.
pub(crate) fn test_families(layout: Layout) -> Catalog {
    let schema = Schema::parse("crates/testkit/keys.toml", include_str!("../keys.toml"));
    let schema = schema.unwrap_or_else(|mistakes| panic!("{mistakes}"));
    Catalog::new(vec![schema], layout).unwrap_or_else(|clash| panic!("{clash}"))
}

/// What the store holds under a key; `None` where it holds nothing any more.
fn facts(changes: &mut Changes<'_>, key: &[u8]) -> Option<Facts> {
    let Reply::Simple(kind) = changes.ask(&[b"TYPE", key]) else { return None };
    let expiry = match changes.ask(&[b"PTTL", key]) {
        Reply::Int(-1) => Expiry::Never,
        Reply::Int(left) => Expiry::InMillis(u64::try_from(left).ok()?),
        _ => Expiry::Unknown,
    };
    let range: [&[u8]; 2] = [b"0", SAMPLED.as_bytes()];
    let (length, sample) = match &*kind {
        "string" => (b"STRLEN".as_slice(), text(changes.ask(&[b"GET", key]))),
        "hash" => (b"HLEN".as_slice(), hash(changes.ask(&[b"HGETALL", key]))),
        "list" => (b"LLEN".as_slice(), items(changes.ask(&[b"LRANGE", key, range[0], range[1]]))),
        "set" => (b"SCARD".as_slice(), items(changes.ask(&[b"SMEMBERS", key]))),
        "zset" => {
            (b"ZCARD".as_slice(), scored(changes.ask(&[b"ZRANGE", key, range[0], range[1], b"WITHSCORES"])))
        }
        _ => return None,
    };
    let len = match changes.ask(&[length, key]) {
        Reply::Int(len) => u64::try_from(len).ok(),
        _ => None,
    };
    Some(Facts { kind: Some(kind.into_owned()), expiry, len, sample })
}

fn bytes(reply: Reply) -> Vec<u8> {
    match reply {
        Reply::Bulk(bytes) => bytes,
        other => panic!("a value is bytes, not {other:?}"),
    }
}

fn text(reply: Reply) -> Sample {
    Sample::Text(bytes(reply))
}

fn hash(reply: Reply) -> Sample {
    let Reply::Map(pairs) = reply else { return Sample::Unread };
    let fields = pairs.into_iter().map(|(field, value)| (bytes(field), bytes(value))).collect();
    Sample::Hash { fields, whole: true }
}

fn items(reply: Reply) -> Sample {
    match reply {
        Reply::Array(items) | Reply::Set(items) => Sample::Items(items.into_iter().map(bytes).collect()),
        _ => Sample::Unread,
    }
}

fn scored(reply: Reply) -> Sample {
    match reply {
        Reply::Scored(pairs) => Sample::Scored(pairs),
        _ => Sample::Unread,
    }
}
