//! Windowed counters: one script increments and sets the end of the count's life, so that no count can be
//! left behind for ever.

use std::time::Duration;

use crate::clock::CLOCK;
use crate::error::{Error, Result};
use crate::lease::millis;
use crate::reply::Reply;
use crate::script::Script;
use crate::store::Store;

pub(crate) const WINDOW: &str = include_str!("counter/window.lua");

static ADD: Script = Script::with(&[CLOCK, WINDOW], include_str!("counter/add.lua"));
static BUCKET: Script = Script::with(&[CLOCK], include_str!("counter/bucket.lua"));

/// A counter of one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The count, with what was just added.
    pub count: i64,
    /// How long the window stays open.
    pub left: Duration,
}

/// Adds to `counter`, a plain string (C6) whose window starts with its first increment and whose end stands
/// in `ends`.
pub async fn add(
    store: &Store,
    counter: impl AsRef<[u8]>,
    ends: impl AsRef<[u8]>,
    by: i64,
    window: Duration,
) -> Result<Count> {
    let call = ADD.on(&[counter.as_ref(), ends.as_ref()]).arg(by).arg(millis(window)).arg(store.clock().us());
    let mut reply: Reply = store.run(call).await?;
    match reply.word() {
        "count" => Ok(Count { count: reply.next()?, left: Duration::from_millis(reply.next()?) }),
        _ => Err(reply.unexpected()),
    }
}

/// The three calendar buckets around the one that the caller believes to be the present one. Its clock may
/// be wrong; the store's decides among them.
#[derive(Clone, Copy, Debug)]
pub struct Buckets<'a> {
    /// The keys of the bucket before, the believed one and the next.
    pub keys: [&'a [u8]; 3],
    /// The believed bucket's start, in Unix milliseconds; a multiple of `width`.
    pub start_unix_ms: u64,
    /// A bucket's length.
    pub width: Duration,
}

/// What adding to a calendar bucket did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bucketed {
    /// Counted.
    Counted {
        /// The bucket's start by the store's clock, in Unix milliseconds.
        start_unix_ms: u64,
        /// Its count.
        count: i64,
    },
    /// The caller's clock is off by more than a bucket; nothing was counted. It may ask again with the keys
    /// around this one.
    Stray {
        /// The present bucket's start by the store's clock, in Unix milliseconds.
        start_unix_ms: u64,
    },
}

/// Adds to the bucket that the store's clock is in, which is kept for `keep` from its start on (G9 P1).
pub async fn add_to_bucket(store: &Store, buckets: Buckets<'_>, by: i64, keep: Duration) -> Result<Bucketed> {
    let width_ms = millis(buckets.width);
    let start = buckets.start_unix_ms;
    if !start.is_multiple_of(width_ms) {
        return Err(Error::Misuse(format!("no bucket of {width_ms} ms starts at {start}")));
    }
    if keep < buckets.width {
        return Err(Error::Misuse("a bucket is kept at least until it is over".to_owned()));
    }
    let call = BUCKET.on(&buckets.keys).arg(buckets.start_unix_ms).arg(width_ms);
    let call = call.arg(by).arg(millis(keep)).arg(store.clock().us());
    let mut reply: Reply = store.run(call).await?;
    match reply.word() {
        "count" => Ok(Bucketed::Counted { start_unix_ms: reply.next()?, count: reply.next()? }),
        "stray" => Ok(Bucketed::Stray { start_unix_ms: reply.next()? }),
        _ => Err(reply.unexpected()),
    }
}
