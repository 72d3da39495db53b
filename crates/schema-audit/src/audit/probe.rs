//! Reads the facts about a page of keys in two batches: length and TTL of every key, then values and memory of some.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use hob_schema::check::{Expiry, Facts, Sample};
use hob_schema::{Catalog, Content, FamilyId};
use hob_store::{Cmd, Value};

use super::details::{field_ttl_command, read_field_ttls, read_stream, stream_commands};
use super::sampling::{Choice, Selection};
use crate::batch::{Batch, Reply, decode, next, value};
use crate::error::Error;
use crate::master::Master;
use crate::sample::{is_scalar, read_sample, value_commands};

/// The first keys of a family are all sampled, then one of every sixteen.
const ALWAYS_VALUES: u64 = 1_000;
const ALWAYS_MEMORY: u64 = 64;
const ONE_IN: u64 = 16;
/// Maximum number of bytes of a number, a flag, a time or an id. A longer value breaks its declared form anyway.
const SCALAR_BYTES: usize = 1_100;

/// One key and the facts about it.
#[derive(Debug)]
pub(crate) struct ProbedKey {
    pub(crate) key: Vec<u8>,
    pub(crate) family: Option<FamilyId>,
    /// Only of identified families.
    pub(super) ids: Vec<String>,
    pub(crate) facts: Facts,
    /// The result of MEMORY USAGE, if it was sent.
    pub(crate) bytes: Option<u64>,
    /// Deleted between the scan and the probe.
    pub(crate) gone: bool,
    /// Why the server did not let the client read the key.
    pub(crate) refused: Option<String>,
    /// Its number in its family, which decides whether it is sampled.
    number: u64,
    /// Whether the facts are read; otherwise only the name is known.
    pub(super) choice: Choice,
}

/// Decides which keys are sampled; shared by all pages that are read at once.
#[derive(Debug)]
pub(crate) struct Prober {
    families: Vec<Vec<FamilyCounters>>,
    undeclared: FamilyCounters,
    memory: MemoryUse,
    selection: Selection,
    /// Families whose keys are reported with their ids.
    identified: HashSet<FamilyId>,
}

/// Whether the memory of keys is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryUse {
    Sampled,
    Unread,
}

#[derive(Debug, Default)]
struct FamilyCounters {
    seen: AtomicU64,
    longest: AtomicU64,
}

impl FamilyCounters {
    /// The number of this key, from zero.
    fn next(&self) -> u64 {
        self.seen.fetch_add(1, Ordering::Relaxed)
    }

    fn is_longest(&self, len: u64) -> bool {
        self.longest.fetch_max(len, Ordering::Relaxed) < len
    }
}

fn sampled(number: u64, always: u64) -> bool {
    number < always || number.is_multiple_of(ONE_IN)
}

impl Prober {
    pub(crate) fn new(
        catalog: &Catalog,
        identified: HashSet<FamilyId>,
        memory: MemoryUse,
        selection: Selection,
    ) -> Prober {
        let counters = |count: usize| (0..count).map(|_| FamilyCounters::default()).collect();
        let families = catalog.spaces().iter().map(|space| counters(space.schema().families.len())).collect();
        Prober { families, undeclared: FamilyCounters::default(), memory, selection, identified }
    }

    fn counters(&self, family: Option<FamilyId>) -> &FamilyCounters {
        family.map_or(&self.undeclared, |id| &self.families[id.schema][id.family])
    }

    /// The facts about every key of a page.
    pub(crate) async fn probe(
        &self,
        master: &Master,
        catalog: &Catalog,
        keys: Vec<Vec<u8>>,
    ) -> Result<Vec<ProbedKey>, Error> {
        let mut probed: Vec<ProbedKey> = keys.into_iter().map(|key| self.recognize(catalog, key)).collect();
        self.read_lengths(master, catalog, &mut probed).await?;
        self.read_samples(master, catalog, &mut probed).await?;
        if master.has_field_ttls() {
            read_field_lifetimes(master, catalog, &mut probed).await?;
        }
        Ok(probed)
    }

    pub(crate) fn recognize(&self, catalog: &Catalog, key: Vec<u8>) -> ProbedKey {
        let found = catalog.find(&key);
        let family = found.as_ref().map(|found| found.family);
        let ids = match found {
            Some(found) if self.identified.contains(&found.family) => {
                found.ids.iter().map(ToString::to_string).collect()
            }
            _ => Vec::new(),
        };
        let number = self.counters(family).next();
        let choice = self.selection.choose(&key, number);
        let facts = Facts::default();
        ProbedKey { key, family, ids, facts, bytes: None, gone: false, refused: None, number, choice }
    }

    /// Whether longer values are read. In a sample, everything is read of the keys that were chosen, so that all findings have
    /// the same bounds.
    fn reads_values(&self, entry: &ProbedKey) -> bool {
        match self.selection {
            Selection::All => sampled(entry.number, ALWAYS_VALUES),
            Selection::Part { .. } => entry.choice != Choice::LeftOut,
        }
    }

    /// The TTL is read of every key that must expire, and of a sample of those that must not.
    fn reads_ttl(&self, catalog: &Catalog, id: FamilyId, entry: &ProbedKey) -> bool {
        catalog.family(id).ttl.rule.longest().is_some() || self.reads_values(entry)
    }

    /// TTL and length of declared keys, the type of some others.
    async fn read_lengths(
        &self,
        master: &Master,
        catalog: &Catalog,
        probed: &mut [ProbedKey],
    ) -> Result<(), Error> {
        let mut batch = Batch::with_capacity(probed.len() * 2);
        for entry in probed.iter() {
            match entry.family {
                None if self.reads_values(entry) => {
                    batch.cmd("TYPE").arg(&entry.key);
                }
                None => {}
                Some(_) if entry.choice == Choice::LeftOut => {}
                Some(id) => {
                    if self.reads_ttl(catalog, id, entry) {
                        batch.cmd("PTTL").arg(&entry.key);
                    }
                    length_command(&mut batch, &catalog.family(id).content, &entry.key);
                }
            }
        }
        let mut replies = batch.read(master).await?.into_iter();
        for entry in probed.iter_mut() {
            match entry.family {
                None if self.reads_values(entry) => {
                    entry.facts.kind = next(&mut replies, &mut entry.refused);
                    entry.gone = entry.facts.kind.as_deref() == Some("none");
                }
                None => {}
                Some(_) if entry.choice == Choice::LeftOut => {}
                Some(id) => {
                    if self.reads_ttl(catalog, id, entry) {
                        let ttl_ms: Option<i64> = next(&mut replies, &mut entry.refused);
                        entry.gone = ttl_ms == Some(-2);
                        entry.facts.expiry = expiry(ttl_ms);
                    }
                    let length = replies.next().and_then(|reply| value(reply, &mut entry.refused));
                    read_length(&catalog.family(id).content, length, &mut entry.facts);
                }
            }
        }
        Ok(())
    }

    /// The type where it is not the declared one, and values and memory of some keys.
    async fn read_samples(
        &self,
        master: &Master,
        catalog: &Catalog,
        probed: &mut [ProbedKey],
    ) -> Result<(), Error> {
        let mut batch = Batch::default();
        let mut questions = Vec::new();
        let read = |entry: &ProbedKey| !entry.gone && entry.choice != Choice::LeftOut;
        for (index, entry) in probed.iter().enumerate().filter(|(_, entry)| read(entry)) {
            questions.extend(self.question(&mut batch, catalog, index, entry));
        }
        let mut replies = batch.read(master).await?.into_iter();
        for question in questions {
            question.read(catalog, &mut probed[question.index], &mut replies, master.now_ms());
        }
        Ok(())
    }

    /// The commands that the second batch needs for a key, if any.
    fn question(
        &self,
        batch: &mut Batch,
        catalog: &Catalog,
        index: usize,
        entry: &ProbedKey,
    ) -> Option<Question> {
        let len = entry.facts.len;
        // A missing length means another type; a length of zero means an empty string or a deleted key.
        let kind = (entry.family.is_some() && len.is_none()) || len == Some(0);
        let longest = len.is_some_and(|len| self.counters(entry.family).is_longest(len));
        let memory = self.memory == MemoryUse::Sampled && (longest || sampled(entry.number, ALWAYS_MEMORY));
        if kind {
            batch.cmd("TYPE").arg(&entry.key);
        }
        if memory {
            batch.cmd("MEMORY").arg("USAGE").arg(&entry.key);
        }
        let values = match (entry.family, len) {
            (Some(id), Some(len)) if self.reads_values(entry) => {
                value_commands(batch, &catalog.family(id).content, &entry.key, len)
            }
            _ => 0,
        };
        let details = match (entry.family, len) {
            (Some(id), Some(_)) => stream_commands(batch, &catalog.family(id).stream, &entry.key),
            _ => 0,
        };
        let asked = kind || memory || values > 0 || details > 0;
        asked.then_some(Question { index, kind, memory, values, details })
    }
}

/// What the second batch reads about one key, in this order.
struct Question {
    index: usize,
    kind: bool,
    memory: bool,
    /// How many replies hold values, and how many the consumer groups and the age of a stream.
    values: usize,
    details: usize,
}

impl Question {
    fn read(
        &self,
        catalog: &Catalog,
        entry: &mut ProbedKey,
        replies: &mut impl Iterator<Item = Reply>,
        now_ms: u64,
    ) {
        if self.kind {
            entry.facts.kind = next(replies, &mut entry.refused);
            entry.gone = entry.facts.kind.as_deref() == Some("none");
        }
        if self.memory {
            entry.bytes = next(replies, &mut entry.refused);
        }
        if let Some(id) = entry.family.filter(|_| self.values > 0) {
            let values: Vec<Value> = replies
                .by_ref()
                .take(self.values)
                .filter_map(|reply| value(reply, &mut entry.refused))
                .collect();
            let sample = read_sample(catalog.family(id).kind(), values, entry.facts.len);
            entry.facts.sample = sample.unwrap_or_default();
        }
        if let Some(id) = entry.family.filter(|_| self.details > 0) {
            let rules = &catalog.family(id).stream;
            entry.facts.stream = read_stream(rules, replies, &mut entry.refused, now_ms);
        }
    }
}

/// The TTLs of the fields of hashes that were read, where the schema has a rule for them.
async fn read_field_lifetimes(
    master: &Master,
    catalog: &Catalog,
    probed: &mut [ProbedKey],
) -> Result<(), Error> {
    let mut batch = Batch::default();
    let mut questions = Vec::new();
    for (index, entry) in probed.iter().enumerate() {
        if entry.family.is_some_and(|id| catalog.family(id).field_ttl.is_some()) {
            let names = field_ttl_command(&mut batch, &entry.key, &entry.facts.sample);
            questions.extend(names.map(|names| (index, names)));
        }
    }
    let mut replies = batch.read(master).await?.into_iter();
    for (index, names) in questions {
        let entry = &mut probed[index];
        entry.facts.field_expiry = read_field_ttls(names, replies.next(), &mut entry.refused);
    }
    Ok(())
}

pub(super) fn expiry(ttl_ms: Option<i64>) -> Expiry {
    match ttl_ms {
        Some(-1) => Expiry::Never,
        Some(ms) => u64::try_from(ms).map_or(Expiry::Unknown, Expiry::InMillis),
        None => Expiry::Unknown,
    }
}

fn length_command<'b>(batch: &'b mut Batch, content: &Content, key: &[u8]) -> &'b mut Cmd {
    match content {
        // One command returns both the length and the value.
        Content::String(value) if is_scalar(value) => {
            batch.cmd("GETRANGE").arg(key).arg(0).arg(SCALAR_BYTES - 1)
        }
        Content::String(_) => batch.cmd("STRLEN").arg(key),
        Content::Hash(_) => batch.cmd("HLEN").arg(key),
        Content::List(_) => batch.cmd("LLEN").arg(key),
        Content::Set(_) => batch.cmd("SCARD").arg(key),
        Content::Zset { .. } => batch.cmd("ZCARD").arg(key),
        Content::Stream(_) => batch.cmd("XLEN").arg(key),
        Content::Module(_) => batch.cmd("TYPE").arg(key),
    }
}

fn read_length(content: &Content, reply: Option<Value>, facts: &mut Facts) {
    let Some(reply) = reply else { return };
    match content {
        Content::String(value) if is_scalar(value) => {
            if let Some(bytes) = decode::<Vec<u8>>(reply) {
                facts.len = Some(bytes.len() as u64);
                facts.sample = Sample::Text(bytes);
            }
        }
        Content::Module(_) => facts.kind = decode(reply),
        _ => facts.len = decode(reply),
    }
}
