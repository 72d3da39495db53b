//! Proposes a schema for a Redis that has none, from a bounded sample of its keys.

mod content;
mod expiry;
mod ids;
mod proposal;
mod recognize;
mod values;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::{TryStreamExt, pin_mut};
use hob_schema::KeyType;
use hob_schema::check::{Expiry, Facts, GroupFacts, Sample};
use hob_store::{Store, Value};

use crate::audit::details::{field_ttl_command, groups_command, read_field_ttls, read_groups};
use crate::batch::{Batch, next, value};
use crate::error::Error;
use crate::master::Master;
use crate::patterns::{Merge, PatternTree};
use crate::sample::{read_sample, value_commands_of_type};
use crate::scan::{Pace, db_size, other_databases, pages};
use content::ContentStats;
use proposal::propose;
pub use recognize::Known;
use recognize::Recognizer;

/// How many keys to sample.
#[derive(Clone, Debug)]
pub struct InferOptions {
    /// The name of the proposed schema.
    pub name: String,
    pub max_keys: u64,
    pub max_time: Duration,
    /// Schemas whose keys the proposal leaves out if it recognizes them.
    pub known: Vec<Known>,
}

impl Default for InferOptions {
    fn default() -> Self {
        InferOptions {
            name: "inferred".to_owned(),
            max_keys: 20_000,
            max_time: Duration::from_secs(1),
            known: Vec::new(),
        }
    }
}

/// A proposed schema.
#[derive(Clone, Debug)]
pub struct Inferred {
    /// The text of a file to edit.
    pub text: String,
    /// Keys that the user may not read. The proposal does not contain them.
    pub unreadable: u64,
}

/// What was sampled.
#[derive(Debug, Default)]
struct Sampled {
    keys: u64,
    /// Keys of the server.
    existing: u64,
    unreadable: u64,
    /// The first reason why a key could not be read.
    refused: Option<String>,
    hint: Option<String>,
    /// No schema can declare it.
    has_empty_key: bool,
}

/// Where the keys of a sample go.
struct Sorting {
    tree: PatternTree<PatternStats>,
    recognizer: Recognizer,
}

/// What the sampled keys of one pattern have in common.
#[derive(Debug, Default)]
struct PatternStats {
    keys: Vec<Vec<u8>>,
    longest_ttl_ms: u64,
    expiring: u64,
    /// By type, as `TYPE` names it: the number of keys, and what they contain.
    types: BTreeMap<String, (u64, ContentStats)>,
}

impl Merge for PatternStats {
    fn merge(&mut self, other: Self) {
        self.keys.extend(other.keys);
        self.expiring += other.expiring;
        self.longest_ttl_ms = self.longest_ttl_ms.max(other.longest_ttl_ms);
        for (name, (keys, content)) in other.types {
            let (count, stats) = self.types.entry(name).or_default();
            *count += keys;
            stats.merge(content);
        }
    }

    /// Words with collections of one type, or at least three with strings.
    fn are_values(words: &[&Self]) -> bool {
        let mut types: Vec<&String> = words.iter().flat_map(|stats| stats.types.keys()).collect();
        types.sort_unstable();
        types.dedup();
        match types.as_slice() {
            [kind] if kind.as_str() == KeyType::String.as_str() => words.len() >= 3,
            [_] => words.len() >= 2,
            _ => false,
        }
    }
}

/// Proposes a schema for the keys of a store.
pub async fn infer(store: &Store, options: &InferOptions) -> Result<Inferred, Error> {
    let mut sorting = Sorting { tree: PatternTree::default(), recognizer: Recognizer::new(&options.known)? };
    let mut sampled = Sampled::default();
    let masters = store.masters().await.map_err(Error::Connect)?;
    let share = u32::try_from(masters.len()).unwrap_or(1).max(1);
    for store in masters {
        sampled.existing += db_size(&store).await?;
        let limit = Limit {
            keys: options.max_keys / u64::from(share),
            until: Instant::now() + options.max_time / share,
        };
        sample_master(&Master::new(store).await, &mut sorting, &mut sampled, limit).await?;
    }
    if sampled.existing == 0 {
        sampled.hint = other_databases(store).await;
    }
    let unreadable = sampled.unreadable;
    let Sorting { mut tree, recognizer } = sorting;
    let libraries = recognizer.finish(&mut tree);
    let patterns = tree.into_patterns();
    Ok(Inferred { text: propose(options, patterns, libraries, &sampled), unreadable })
}

#[derive(Clone, Copy)]
struct Limit {
    keys: u64,
    until: Instant,
}

async fn sample_master(
    master: &Master,
    sorting: &mut Sorting,
    sampled: &mut Sampled,
    limit: Limit,
) -> Result<(), Error> {
    let scanned = pages(master.store(), Pace::Full, None).await;
    pin_mut!(scanned);
    let mut keys = 0;
    while let Some(mut page) = scanned.try_next().await? {
        // SCAN may return a key twice.
        page.sort_unstable();
        page.dedup();
        keys += page.len() as u64;
        sampled.keys += page.len() as u64;
        sampled.has_empty_key |= page.iter().any(Vec::is_empty);
        sample_keys(master, sorting, sampled, page).await?;
        if keys >= limit.keys || Instant::now() >= limit.until {
            break;
        }
    }
    Ok(())
}

/// A sampled key: its type, its TTL and its length.
struct TypedKey {
    key: Vec<u8>,
    kind: String,
    ttl_ms: i64,
    len: u64,
}

impl TypedKey {
    /// The type, or a module's.
    fn key_type(&self) -> KeyType {
        self.kind.parse().unwrap_or(KeyType::Module)
    }
}

/// Reads type and TTL of the keys of a page, then their lengths and values.
async fn sample_keys(
    master: &Master,
    sorting: &mut Sorting,
    sampled: &mut Sampled,
    keys: Vec<Vec<u8>>,
) -> Result<(), Error> {
    let mut batch = Batch::with_capacity(keys.len() * 2);
    for key in &keys {
        batch.cmd("TYPE").arg(key);
        batch.cmd("PTTL").arg(key);
    }
    let mut replies = batch.read(master).await?.into_iter();
    let mut typed = Vec::with_capacity(keys.len());
    for key in keys {
        let mut refused = None;
        let kind: String = next(&mut replies, &mut refused).unwrap_or_default();
        let ttl_ms: i64 = next(&mut replies, &mut refused).unwrap_or(-2);
        match refused {
            Some(reason) => sampled.refuse(reason),
            None if ttl_ms == -2 || kind == "none" => {}
            None => typed.push(TypedKey { key, kind, ttl_ms, len: 0 }),
        }
    }
    let typed = read_lengths(master, sampled, typed).await?;
    sample_values(master, sorting, sampled, typed).await
}

impl Sampled {
    fn refuse(&mut self, reason: String) {
        self.unreadable += 1;
        self.refused.get_or_insert(reason);
    }
}

async fn read_lengths(
    master: &Master,
    sampled: &mut Sampled,
    keys: Vec<TypedKey>,
) -> Result<Vec<TypedKey>, Error> {
    let mut batch = Batch::with_capacity(keys.len());
    for key in &keys {
        let command = match key.key_type() {
            KeyType::String => "STRLEN",
            KeyType::Hash => "HLEN",
            KeyType::List => "LLEN",
            KeyType::Set => "SCARD",
            KeyType::Zset => "ZCARD",
            KeyType::Stream => "XLEN",
            KeyType::Module => continue,
        };
        batch.cmd(command).arg(&key.key);
    }
    let mut replies = batch.read(master).await?.into_iter();
    let mut known = Vec::with_capacity(keys.len());
    for mut key in keys {
        let mut refused = None;
        if key.key_type() != KeyType::Module {
            key.len = next(&mut replies, &mut refused).unwrap_or(0);
        }
        match refused {
            Some(reason) => sampled.refuse(reason),
            None => known.push(key),
        }
    }
    Ok(known)
}

async fn sample_values(
    master: &Master,
    sorting: &mut Sorting,
    sampled: &mut Sampled,
    keys: Vec<TypedKey>,
) -> Result<(), Error> {
    let mut batch = Batch::default();
    let mut counts = Vec::with_capacity(keys.len());
    for key in &keys {
        counts.push(value_commands_of_type(&mut batch, key.key_type(), &key.key, key.len));
        if key.key_type() == KeyType::Stream {
            groups_command(&mut batch, &key.key);
        }
    }
    let mut replies = batch.read(master).await?.into_iter();
    let mut read = Vec::with_capacity(keys.len());
    for (key, count) in keys.into_iter().zip(counts) {
        let mut refused = None;
        let values: Vec<Value> =
            replies.by_ref().take(count).filter_map(|reply| value(reply, &mut refused)).collect();
        let groups = match key.key_type() {
            KeyType::Stream => read_groups(replies.next().and_then(|reply| value(reply, &mut refused))),
            _ => Vec::new(),
        };
        if let Some(reason) = refused {
            sampled.refuse(reason);
            continue;
        }
        let sample = read_sample(key.key_type(), values, Some(key.len));
        read.push(SampledKey { key, sample, groups, field_ttls: Vec::new() });
    }
    if master.has_field_ttls() {
        read = read_field_lifetimes(master, sampled, read).await?;
    }
    read.into_iter().for_each(|key| sorting.add(key));
    Ok(())
}

/// A sampled key with values.
struct SampledKey {
    key: TypedKey,
    /// `None` if the values are too long to be read.
    sample: Option<Sample>,
    groups: Vec<GroupFacts>,
    field_ttls: Vec<(Vec<u8>, Expiry)>,
}

/// Reads the TTLs of the fields of hashes.
async fn read_field_lifetimes(
    master: &Master,
    sampled: &mut Sampled,
    keys: Vec<SampledKey>,
) -> Result<Vec<SampledKey>, Error> {
    let mut batch = Batch::default();
    let mut command = |key: &SampledKey| {
        key.sample.as_ref().and_then(|sample| field_ttl_command(&mut batch, &key.key.key, sample))
    };
    let names: Vec<Option<Vec<Vec<u8>>>> = keys.iter().map(&mut command).collect();
    let mut replies = batch.read(master).await?.into_iter();
    let mut known = Vec::with_capacity(keys.len());
    for (mut key, names) in keys.into_iter().zip(names) {
        let mut refused = None;
        if let Some(names) = names {
            key.field_ttls = read_field_ttls(names, replies.next(), &mut refused);
        }
        match refused {
            Some(reason) => sampled.refuse(reason),
            None => known.push(key),
        }
    }
    Ok(known)
}

impl Sorting {
    fn add(&mut self, sampled: SampledKey) {
        let SampledKey { key, sample, groups, field_ttls } = sampled;
        let facts = Facts {
            kind: Some(key.kind.clone()),
            // Keys of a library belong to it also if they break its rules for TTLs and lengths.
            expiry: Expiry::Unknown,
            len: None,
            sample: sample.clone().unwrap_or_default(),
            ..Facts::default()
        };
        let stats = match self.recognizer.take(&key.key, &facts) {
            Some(stats) => stats,
            None => self.tree.entry(&key.key),
        };
        if let Ok(ttl_ms) = u64::try_from(key.ttl_ms) {
            stats.expiring += 1;
            stats.longest_ttl_ms = stats.longest_ttl_ms.max(ttl_ms);
        }
        let (keys, content) = stats.types.entry(key.kind).or_default();
        *keys += 1;
        content.add(sample.as_ref(), key.len);
        content.add_groups(&groups);
        content.add_field_ttls(&field_ttls);
        stats.keys.push(key.key);
    }
}
