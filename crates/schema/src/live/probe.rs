//! Fetching the facts of a page of keys in two pipelines: what the declared type makes cheap for every key,
//! then values for some.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::aio::ConnectionLike;
use redis::{Pipeline, Value as Reply, from_redis_value};

use super::target::ask;
use crate::catalog::{Catalog, FamilyId};
use crate::check::{Expiry, Facts, Sample};
use crate::error::Error;
use crate::model::{Content, Kind};
use crate::shape::Value;

/// The first keys of a family are all looked into, then one of every sixteen.
const ALWAYS_VALUES: u64 = 1_000;
const ALWAYS_MEMORY: u64 = 64;
const ONE_IN: u64 = 16;
/// The most bytes of one value that are fetched.
const MOST_VALUE_BYTES: u64 = 64 << 10;
/// Bytes of a number, a flag, a time or an id; more is a misfit anyway.
const SCALAR_BYTES: usize = 1_100;
/// Elements of a collection that are looked at.
const ELEMENTS: u64 = 16;
/// A hash up to here is read whole.
const WHOLE_HASH: u64 = 64;

/// One key and what was found out about it.
#[derive(Debug)]
pub(super) struct Probed {
    pub(super) key: Vec<u8>,
    pub(super) family: Option<FamilyId>,
    /// Only of identified families.
    pub(super) ids: Vec<String>,
    pub(super) facts: Facts,
    /// What MEMORY USAGE says, where it was asked.
    pub(super) bytes: Option<u64>,
    /// Gone before it was asked about.
    pub(super) gone: bool,
    /// Its number in its family, which decides what is looked at more closely.
    number: u64,
}

/// Which keys are looked into more closely; shared by all pages under way.
#[derive(Debug)]
pub(super) struct Prober {
    families: Vec<Vec<Counters>>,
    undeclared: Counters,
    /// Families whose ids somebody asks for afterwards.
    identified: HashSet<FamilyId>,
}

#[derive(Debug, Default)]
struct Counters {
    seen: AtomicU64,
    longest: AtomicU64,
}

impl Counters {
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
    pub(super) fn new(catalog: &Catalog, identified: HashSet<FamilyId>) -> Prober {
        let counters = |count: usize| (0..count).map(|_| Counters::default()).collect();
        let families = catalog.spaces().iter().map(|space| counters(space.schema().families.len())).collect();
        Prober { families, undeclared: Counters::default(), identified }
    }

    fn counters(&self, family: Option<FamilyId>) -> &Counters {
        family.map_or(&self.undeclared, |id| &self.families[id.schema][id.family])
    }

    /// The facts of every key of a page.
    pub(super) async fn probe<C: ConnectionLike>(
        &self,
        connection: &mut C,
        catalog: &Catalog,
        keys: Vec<Vec<u8>>,
    ) -> Result<Vec<Probed>, Error> {
        let mut probed: Vec<Probed> = keys.into_iter().map(|key| self.recognize(catalog, key)).collect();
        self.first_round(connection, catalog, &mut probed).await?;
        self.second_round(connection, catalog, &mut probed).await?;
        Ok(probed)
    }

    fn recognize(&self, catalog: &Catalog, key: Vec<u8>) -> Probed {
        let found = catalog.find(&key);
        let family = found.as_ref().map(|found| found.family);
        let ids = match found {
            Some(found) if self.identified.contains(&found.family) => {
                found.ids.iter().map(ToString::to_string).collect()
            }
            _ => Vec::new(),
        };
        let number = self.counters(family).next();
        Probed { key, family, ids, facts: Facts::default(), bytes: None, gone: false, number }
    }

    /// TTL and length of declared keys, the type of some others.
    async fn first_round<C: ConnectionLike>(
        &self,
        connection: &mut C,
        catalog: &Catalog,
        probed: &mut [Probed],
    ) -> Result<(), Error> {
        let mut pipe = Pipeline::with_capacity(probed.len() * 2);
        for entry in probed.iter() {
            match entry.family {
                None if sampled(entry.number, ALWAYS_VALUES) => {
                    pipe.cmd("TYPE").arg(&entry.key);
                }
                None => {}
                Some(id) => {
                    if asks_ttl(catalog, id, entry.number) {
                        pipe.cmd("PTTL").arg(&entry.key);
                    }
                    length_command(&mut pipe, &catalog.family(id).content, &entry.key);
                }
            }
        }
        let mut replies = ask(pipe, connection).await?.into_iter();
        for entry in probed.iter_mut() {
            match entry.family {
                None if sampled(entry.number, ALWAYS_VALUES) => {
                    entry.facts.kind = replies.next().and_then(|reply| from_redis_value(reply?).ok());
                    entry.gone = entry.facts.kind.as_deref() == Some("none");
                }
                None => {}
                Some(id) => {
                    if asks_ttl(catalog, id, entry.number) {
                        let ttl_ms: Option<i64> =
                            replies.next().and_then(|reply| from_redis_value(reply?).ok());
                        entry.gone = ttl_ms == Some(-2);
                        entry.facts.expiry = expiry(ttl_ms);
                    }
                    let length = replies.next().flatten();
                    read_length(&catalog.family(id).content, length, &mut entry.facts);
                }
            }
        }
        Ok(())
    }

    /// The type where the declared one was wrong, and values and memory of some keys.
    async fn second_round<C: ConnectionLike>(
        &self,
        connection: &mut C,
        catalog: &Catalog,
        probed: &mut [Probed],
    ) -> Result<(), Error> {
        let mut pipe = Pipeline::new();
        let mut questions = Vec::new();
        for (index, entry) in probed.iter().enumerate().filter(|(_, entry)| !entry.gone) {
            questions.extend(self.question(&mut pipe, catalog, index, entry));
        }
        let mut replies = ask(pipe, connection).await?.into_iter();
        for question in questions {
            question.read(catalog, &mut probed[question.index], &mut replies);
        }
        Ok(())
    }

    /// What has still to be asked about a key, if anything.
    fn question(
        &self,
        pipe: &mut Pipeline,
        catalog: &Catalog,
        index: usize,
        entry: &Probed,
    ) -> Option<Question> {
        let len = entry.facts.len;
        // A refused length means another type; a length of zero an empty string, or a key that went away.
        let kind = (entry.family.is_some() && len.is_none()) || len == Some(0);
        let longest = len.is_some_and(|len| self.counters(entry.family).is_longest(len));
        let memory = longest || sampled(entry.number, ALWAYS_MEMORY);
        if kind {
            pipe.cmd("TYPE").arg(&entry.key);
        }
        if memory {
            pipe.cmd("MEMORY").arg("USAGE").arg(&entry.key);
        }
        let values = match (entry.family, len) {
            (Some(id), Some(len)) if sampled(entry.number, ALWAYS_VALUES) => {
                value_commands(pipe, &catalog.family(id).content, &entry.key, len)
            }
            _ => 0,
        };
        (kind || memory || values > 0).then_some(Question { index, kind, memory, values })
    }
}

/// What the second round asks about one key, in this order.
struct Question {
    index: usize,
    kind: bool,
    memory: bool,
    /// How many replies hold values.
    values: usize,
}

impl Question {
    fn read(&self, catalog: &Catalog, entry: &mut Probed, replies: &mut impl Iterator<Item = Option<Reply>>) {
        if self.kind {
            entry.facts.kind = replies.next().and_then(|reply| from_redis_value(reply?).ok());
            entry.gone = entry.facts.kind.as_deref() == Some("none");
        }
        if self.memory {
            entry.bytes = replies.next().and_then(|reply| from_redis_value(reply?).ok());
        }
        if let Some(id) = entry.family.filter(|_| self.values > 0) {
            let values: Vec<Reply> = replies.take(self.values).flatten().collect();
            entry.facts.sample = read_values(&catalog.family(id).content, values, entry.facts.len);
        }
    }
}

/// Whether a key expires is asked of all keys that must, and of some that must not.
fn asks_ttl(catalog: &Catalog, id: FamilyId, number: u64) -> bool {
    catalog.family(id).ttl.rule.longest().is_some() || sampled(number, ALWAYS_VALUES)
}

fn expiry(ttl_ms: Option<i64>) -> Expiry {
    match ttl_ms {
        Some(-1) => Expiry::Never,
        Some(ms) => u64::try_from(ms).map_or(Expiry::Unknown, Expiry::InMillis),
        None => Expiry::Unknown,
    }
}

/// Short values come with the first round: one command tells length and value.
fn is_scalar(value: &Value) -> bool {
    !matches!(value, Value::Any | Value::Text { .. } | Value::Json { .. })
}

fn length_command<'p>(pipe: &'p mut Pipeline, content: &Content, key: &[u8]) -> &'p mut Pipeline {
    match content {
        Content::String(value) if is_scalar(value) => {
            pipe.cmd("GETRANGE").arg(key).arg(0).arg(SCALAR_BYTES - 1)
        }
        Content::String(_) => pipe.cmd("STRLEN").arg(key),
        Content::Hash(_) => pipe.cmd("HLEN").arg(key),
        Content::List(_) => pipe.cmd("LLEN").arg(key),
        Content::Set(_) => pipe.cmd("SCARD").arg(key),
        Content::Zset { .. } => pipe.cmd("ZCARD").arg(key),
    }
}

fn read_length(content: &Content, reply: Option<Reply>, facts: &mut Facts) {
    let Some(reply) = reply else { return };
    match content {
        Content::String(value) if is_scalar(value) => {
            if let Ok(bytes) = from_redis_value::<Vec<u8>>(reply) {
                facts.len = Some(bytes.len() as u64);
                facts.sample = Sample::Text(bytes);
            }
        }
        _ => facts.len = from_redis_value(reply).ok(),
    }
}

/// Asks for some values; the number of replies to expect.
fn value_commands(pipe: &mut Pipeline, content: &Content, key: &[u8], len: u64) -> usize {
    let last = ELEMENTS - 1;
    match content {
        Content::String(value) if is_scalar(value) || *value == Value::Any => return 0,
        Content::String(_) if len > MOST_VALUE_BYTES => return 0,
        Content::String(_) => pipe.cmd("GET").arg(key),
        Content::Hash(fields) if fields.is_empty() => return 0,
        Content::Hash(_) if len <= WHOLE_HASH => pipe.cmd("HGETALL").arg(key),
        Content::Hash(_) => pipe.cmd("HSCAN").arg(key).arg(0).arg("COUNT").arg(ELEMENTS),
        Content::Set(_) => pipe.cmd("SSCAN").arg(key).arg(0).arg("COUNT").arg(ELEMENTS),
        Content::List(_) => {
            pipe.cmd("LRANGE").arg(key).arg(0).arg(last);
            pipe.cmd("LRANGE").arg(key).arg(-1).arg(-1);
            return 2;
        }
        Content::Zset { .. } => {
            pipe.cmd("ZRANGE").arg(key).arg(0).arg(last).arg("WITHSCORES");
            pipe.cmd("ZRANGE").arg(key).arg(-1).arg(-1).arg("WITHSCORES");
            return 2;
        }
    };
    1
}

fn read_values(content: &Content, replies: Vec<Reply>, len: Option<u64>) -> Sample {
    let kind = match content {
        Content::String(_) => Kind::String,
        Content::Hash(_) => Kind::Hash,
        Content::List(_) => Kind::List,
        Content::Set(_) => Kind::Set,
        Content::Zset { .. } => Kind::Zset,
    };
    read_sample(kind, replies, len).unwrap_or_default()
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// The values in the replies to the commands that read a key of this type.
pub(super) fn read_sample(kind: Kind, replies: Vec<Reply>, len: Option<u64>) -> Option<Sample> {
    let mut replies = replies.into_iter();
    Some(match kind {
        Kind::String => Sample::Text(from_redis_value(replies.next()?).ok()?),
        Kind::Hash if len.is_some_and(|len| len > WHOLE_HASH) => {
            let (_, fields): (u64, Pairs) = from_redis_value(replies.next()?).ok()?;
            Sample::Hash { fields, whole: false }
        }
        Kind::Hash => Sample::Hash { fields: from_redis_value(replies.next()?).ok()?, whole: true },
        Kind::Set => {
            let (_, members): (u64, Vec<Vec<u8>>) = from_redis_value(replies.next()?).ok()?;
            Sample::Items(members)
        }
        Kind::List => {
            let items = replies.filter_map(|reply| from_redis_value::<Vec<Vec<u8>>>(reply).ok());
            Sample::Items(items.flatten().collect())
        }
        Kind::Zset => {
            let members = replies.filter_map(|reply| from_redis_value::<Vec<(Vec<u8>, f64)>>(reply).ok());
            Sample::Scored(members.flatten().collect())
        }
    })
}

/// For infer, which knows only the type: the same commands as for a declared family of it.
pub(super) fn sample_commands(pipe: &mut Pipeline, kind: Kind, key: &[u8], len: u64) -> usize {
    let content = match kind {
        Kind::String => Content::String(Value::Text { max_bytes: 0 }),
        Kind::Hash => {
            let any = crate::model::Field {
                name: crate::model::FieldName::Any,
                value: Value::Any,
                presence: crate::model::Presence::Optional,
            };
            Content::Hash(vec![any])
        }
        Kind::List => Content::List(Value::Any),
        Kind::Set => Content::Set(Value::Any),
        Kind::Zset => Content::Zset { member: Value::Any, score: Value::Any },
    };
    value_commands(pipe, &content, key, len)
}
