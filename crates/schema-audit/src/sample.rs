//! Commands that read a few values of a key, and the values in their replies.

use hob_schema::check::Sample;
use hob_schema::{Content, Field, FieldName, KeyType, Presence, Value as Declared};
use hob_store::Value;

use crate::batch::{Batch, decode};

/// Longer values are not fetched.
const MAX_VALUE_BYTES: u64 = 64 << 10;
/// Elements that are fetched from each end of a collection.
const ELEMENTS: u64 = 16;
/// A hash with more fields is read in part.
const MAX_WHOLE_HASH: u64 = 64;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Whether a declared value is so short that one GETRANGE returns it whole.
pub(crate) fn is_scalar(value: &Declared) -> bool {
    !matches!(value, Declared::Any | Declared::HyperLogLog) && value.max_bytes().is_none()
}

/// Adds commands that read values of a key with `len` elements; returns the number of replies to expect.
pub(crate) fn value_commands(batch: &mut Batch, content: &Content, key: &[u8], len: u64) -> usize {
    commands(batch, content, key, len, ELEMENTS)
}

/// `scanned` is the number of elements that are fetched from a collection without an order.
fn commands(batch: &mut Batch, content: &Content, key: &[u8], len: u64, scanned: u64) -> usize {
    let last = ELEMENTS - 1;
    match content {
        Content::String(value) if is_scalar(value) => return 0,
        // Of a bitmap only the size is declared.
        Content::String(Declared::Any | Declared::Bitmap { .. }) => return 0,
        Content::String(_) if len > MAX_VALUE_BYTES => return 0,
        Content::String(_) => batch.cmd("GET").arg(key),
        Content::Hash(fields) if fields.is_empty() => return 0,
        Content::Hash(_) if len <= MAX_WHOLE_HASH => batch.cmd("HGETALL").arg(key),
        Content::Hash(_) => batch.cmd("HSCAN").arg(key).arg(0).arg("COUNT").arg(scanned),
        Content::Set(_) => batch.cmd("SSCAN").arg(key).arg(0).arg("COUNT").arg(scanned),
        Content::List(_) => {
            batch.cmd("LRANGE").arg(key).arg(0).arg(last);
            batch.cmd("LRANGE").arg(key).arg(-1).arg(-1);
            return 2;
        }
        Content::Stream(fields) if fields.is_empty() => return 0,
        Content::Module(_) => return 0,
        Content::Stream(_) => {
            batch.cmd("XRANGE").arg(key).arg("-").arg("+").arg("COUNT").arg(ELEMENTS);
            batch.cmd("XREVRANGE").arg(key).arg("+").arg("-").arg("COUNT").arg(1);
            return 2;
        }
        Content::Zset { .. } => {
            batch.cmd("ZRANGE").arg(key).arg(0).arg(last).arg("WITHSCORES");
            batch.cmd("ZRANGE").arg(key).arg(-1).arg(-1).arg("WITHSCORES");
            return 2;
        }
    };
    1
}

/// Like [`value_commands`], but for a key of which only the type is known, and with more elements.
pub(crate) fn value_commands_of_type(batch: &mut Batch, kind: KeyType, key: &[u8], len: u64) -> usize {
    let content = match kind {
        KeyType::String => Content::String(Declared::Text { max_bytes: 0 }),
        KeyType::Hash => Content::Hash(vec![any_field()]),
        KeyType::Stream => Content::Stream(vec![any_field()]),
        KeyType::Module => Content::Module(String::new()),
        KeyType::List => Content::List(Declared::Any),
        KeyType::Set => Content::Set(Declared::Any),
        KeyType::Zset => Content::Zset { member: Declared::Any, score: Declared::Any },
    };
    // An audit may see other elements of the same collection, so a proposal is based on more of them.
    commands(batch, &content, key, len, 64 * ELEMENTS)
}

fn any_field() -> Field {
    Field { name: FieldName::Any, value: Declared::Any, presence: Presence::Optional }
}

/// The values in the replies to [`value_commands`].
pub(crate) fn read_sample(kind: KeyType, replies: Vec<Value>, len: Option<u64>) -> Option<Sample> {
    let mut replies = replies.into_iter();
    Some(match kind {
        KeyType::String => Sample::Text(decode(replies.next()?)?),
        KeyType::Hash if len.is_some_and(|len| len > MAX_WHOLE_HASH) => {
            let (_, fields): (u64, Pairs) = decode(replies.next()?)?;
            Sample::Hash { fields, whole: false }
        }
        KeyType::Hash => Sample::Hash { fields: decode(replies.next()?)?, whole: true },
        KeyType::Set => {
            let (_, members): (u64, Vec<Vec<u8>>) = decode(replies.next()?)?;
            Sample::Items(members)
        }
        KeyType::List => Sample::Items(replies.filter_map(decode::<Vec<Vec<u8>>>).flatten().collect()),
        KeyType::Module => return None,
        KeyType::Stream => {
            let entries = replies.filter_map(decode::<Vec<(Vec<u8>, Pairs)>>).flatten();
            Sample::Entries(entries.map(|(_, fields)| fields).collect())
        }
        KeyType::Zset => {
            Sample::Scored(replies.filter_map(decode::<Vec<(Vec<u8>, f64)>>).flatten().collect())
        }
    })
}
