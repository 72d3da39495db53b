//! Proposes a schema for a Redis that has none, from a bounded sample of its keys.

mod proposal;
mod shapes;

use std::time::{Duration, Instant};

use futures_util::{TryStreamExt, pin_mut};
use hob_schema::KeyType;
use hob_schema::check::Sample;
use hob_store::{Store, Value};

use crate::batch::{Batch, decode, next};
use crate::error::Error;
use crate::patterns::{Merge, PatternTree};
use crate::sample::{read_sample, value_commands_of_type};
use crate::scan::{Pace, db_size, pages};
use proposal::propose;

/// How many keys to sample.
#[derive(Clone, Debug)]
pub struct InferOptions {
    /// The name of the proposed schema.
    pub name: String,
    pub max_keys: u64,
    pub max_time: Duration,
}

impl Default for InferOptions {
    fn default() -> Self {
        InferOptions { name: "inferred".to_owned(), max_keys: 20_000, max_time: Duration::from_secs(1) }
    }
}

/// Maximum number of values and keys that are kept for one pattern.
const MAX_SAMPLES: usize = 64;
const MAX_EXAMPLES: usize = 64;
/// Longer strings are not fetched.
const MAX_STRING_BYTES: u64 = 16 << 10;

/// What the sampled keys of one pattern have in common.
#[derive(Debug, Default)]
struct PatternStats {
    keys: u64,
    kinds: Vec<KeyType>,
    longest_ttl_ms: u64,
    expiring: u64,
    longest: u64,
    examples: Vec<String>,
    samples: Vec<Sample>,
}

impl PatternStats {
    fn add_kind(&mut self, kind: KeyType) {
        if !self.kinds.contains(&kind) {
            self.kinds.push(kind);
        }
    }
}

impl Merge for PatternStats {
    fn merge(&mut self, other: Self) {
        self.keys += other.keys;
        self.expiring += other.expiring;
        self.longest = self.longest.max(other.longest);
        self.longest_ttl_ms = self.longest_ttl_ms.max(other.longest_ttl_ms);
        other.kinds.into_iter().for_each(|kind| self.add_kind(kind));
        self.examples.extend(other.examples);
        self.examples.truncate(MAX_EXAMPLES);
        self.samples.extend(other.samples);
        self.samples.truncate(MAX_SAMPLES);
    }
}

/// Proposes a schema for the keys of a store, as the text of a file to edit.
pub async fn infer(store: &Store, options: &InferOptions) -> Result<String, Error> {
    let mut tree = PatternTree::<PatternStats>::default();
    let (mut sampled, mut existing) = (0, 0);
    let masters = store.masters().await.map_err(Error::Connect)?;
    let share = u32::try_from(masters.len()).unwrap_or(1).max(1);
    for master in &masters {
        existing += db_size(master).await?;
        let limit = Limit {
            keys: options.max_keys / u64::from(share),
            until: Instant::now() + options.max_time / share,
        };
        sampled += sample_master(master, &mut tree, limit).await?;
    }
    Ok(propose(options, tree.into_patterns(), sampled, existing))
}

#[derive(Clone, Copy)]
struct Limit {
    keys: u64,
    until: Instant,
}

async fn sample_master(
    master: &Store,
    tree: &mut PatternTree<PatternStats>,
    limit: Limit,
) -> Result<u64, Error> {
    let scanned = pages(master, Pace::Full, None).await;
    pin_mut!(scanned);
    let mut sampled = 0;
    while let Some(keys) = scanned.try_next().await? {
        sampled += keys.len() as u64;
        sample_keys(master, tree, &keys).await?;
        if sampled >= limit.keys || Instant::now() >= limit.until {
            break;
        }
    }
    Ok(sampled)
}

/// Reads type and TTL of the keys of a page, then their lengths and values.
async fn sample_keys(
    master: &Store,
    tree: &mut PatternTree<PatternStats>,
    keys: &[Vec<u8>],
) -> Result<(), Error> {
    let mut batch = Batch::with_capacity(keys.len() * 2);
    for key in keys {
        batch.cmd("TYPE").arg(key);
        batch.cmd("PTTL").arg(key);
    }
    let mut replies = batch.read(master).await?.into_iter();
    let mut typed = Vec::with_capacity(keys.len());
    for key in keys {
        let kind: String = next(&mut replies).unwrap_or_default();
        let ttl_ms: i64 = next(&mut replies).unwrap_or(-2);
        if ttl_ms == -2 {
            continue;
        }
        let stats = tree.entry(key);
        stats.keys += 1;
        if stats.examples.len() < MAX_EXAMPLES {
            stats.examples.push(String::from_utf8_lossy(key).into_owned());
        }
        if let Ok(ttl_ms) = u64::try_from(ttl_ms) {
            stats.expiring += 1;
            stats.longest_ttl_ms = stats.longest_ttl_ms.max(ttl_ms);
        }
        // A schema cannot declare streams and the types of modules.
        if let Ok(kind) = kind.parse::<KeyType>() {
            stats.add_kind(kind);
            typed.push((key, kind));
        }
    }
    sample_values(master, tree, &typed).await
}

async fn sample_values(
    master: &Store,
    tree: &mut PatternTree<PatternStats>,
    keys: &[(&Vec<u8>, KeyType)],
) -> Result<(), Error> {
    let mut batch = Batch::with_capacity(keys.len());
    for (key, kind) in keys {
        let command = match kind {
            KeyType::String => "STRLEN",
            KeyType::Hash => "HLEN",
            KeyType::List => "LLEN",
            KeyType::Set => "SCARD",
            KeyType::Zset => "ZCARD",
        };
        batch.cmd(command).arg(key);
    }
    let lengths = batch.read(master).await?;
    let mut batch = Batch::default();
    let mut pending = Vec::new();
    for ((key, kind), length) in keys.iter().zip(lengths) {
        let length: u64 = length.and_then(decode).unwrap_or(0);
        let stats = tree.entry(key);
        stats.longest = stats.longest.max(length);
        if stats.samples.len() < MAX_SAMPLES && (*kind != KeyType::String || length <= MAX_STRING_BYTES) {
            let replies = value_commands_of_type(&mut batch, *kind, key, length);
            pending.push((key, *kind, length, replies));
        }
    }
    let mut replies = batch.read(master).await?.into_iter();
    for (key, kind, length, count) in pending {
        let values: Vec<Value> = replies.by_ref().take(count).flatten().collect();
        let stats = tree.entry(key);
        if stats.samples.len() < MAX_SAMPLES {
            stats.samples.extend(read_sample(kind, values, Some(length)));
        }
    }
    Ok(())
}
