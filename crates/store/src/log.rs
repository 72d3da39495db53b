//! Capped logs: lists of the newest entries. Entries are numbered, so that a reader can detect a gap.

use std::time::Duration;

use crate::clock::CLOCK;
use crate::clock::millis;
use crate::error::{Error, Result};
use crate::repair::{self, KeyType, STORED};
use crate::reply::Reply;
use crate::script::Script;
use crate::store::Store;

static APPEND: Script = Script::with(&[CLOCK, STORED], include_str!("log/append.lua"));
static READ: Script = Script::with(&[STORED], include_str!("log/read.lua"));

/// The maximum number of entries in one append.
const MAX_ENTRIES_PER_APPEND: usize = 1000;

/// The keys of a log, and how many entries it keeps.
#[derive(Clone, Copy, Debug)]
pub struct Log<'a> {
    /// The list, newest first.
    pub list: &'a [u8],
    /// The number of its newest entry, in the same slot.
    pub sequence: &'a [u8],
    /// How many entries are kept.
    pub most: u32,
    /// How long the log is kept after its newest entry.
    pub keep: Duration,
}

/// A part of a log, oldest entry first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entries {
    /// The number of the log's newest entry, 0 for an empty log. Numbers only increase, even after the log was lost.
    pub newest: u64,
    /// The number of the first entry below; the others follow without a gap.
    pub first: u64,
    /// The entries.
    pub entries: Vec<Vec<u8>>,
}

impl Entries {
    /// Whether entries after number `after` have been dropped, so that a reader that has read up to `after` has missed
    /// some.
    #[must_use]
    pub fn missed_after(&self, after: u64) -> bool {
        self.newest != after && self.first != after + 1
    }
}

impl<'a> Log<'a> {
    /// Adds entries in order; returns the number of the last one.
    pub async fn append<E: AsRef<[u8]>>(&self, store: &Store, entries: &[E]) -> Result<u64> {
        if entries.is_empty() || entries.len() > MAX_ENTRIES_PER_APPEND {
            return Err(Error::Misuse(format!(
                "1 to {MAX_ENTRIES_PER_APPEND} entries can be appended at once"
            )));
        }
        let mut call = APPEND.on(&[self.list, self.sequence]);
        call = call.arg(self.most.max(1)).arg(millis(self.keep)).arg(store.clock().us());
        for entry in entries {
            call = call.arg(entry.as_ref());
        }
        let mut reply: Reply = repair::run(store, call, &self.kinds()).await?;
        match reply.word() {
            "appended" => reply.next(),
            _ => Err(reply.unexpected()),
        }
    }

    fn kinds(&self) -> [(&'a [u8], KeyType); 2] {
        [(self.list, KeyType::List), (self.sequence, KeyType::String)]
    }

    /// Reads at most `most` entries after the one numbered `after`; 0 reads from the oldest entry that is kept.
    pub async fn read(&self, store: &Store, after: u64, most: u32) -> Result<Entries> {
        let call = READ.on(&[self.list, self.sequence]).arg(after).arg(most);
        let mut reply: Reply = repair::run(store, call, &self.kinds()).await?;
        if reply.word() != "entries" {
            return Err(reply.unexpected());
        }
        let (newest, first) = (reply.next()?, reply.next()?);
        let mut entries = Vec::with_capacity(reply.left());
        while reply.left() > 0 {
            entries.push(reply.next()?);
        }
        Ok(Entries { newest, first, entries })
    }
}
