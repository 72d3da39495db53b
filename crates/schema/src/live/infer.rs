//! A first schema for a server that has none: from a bounded, read-only sample of its keys.

use std::time::{Duration, Instant};

use futures_util::{TryStreamExt, pin_mut};
use redis::aio::ConnectionLike;
use redis::{Pipeline, Value as Reply, from_redis_value};

use super::guess::{Gathered, PatternTree};
use super::probe::{read_sample, sample_commands};
use super::propose::propose;
use super::scan::{Pace, db_size, pages};
use super::target::{Node, ask, connect};
use crate::check::Sample;
use crate::error::Error;
use crate::model::Kind;

/// How much to look at.
#[derive(Clone, Debug)]
pub struct InferOptions {
    /// The name of the proposed schema.
    pub name: String,
    pub most_keys: u64,
    pub most_time: Duration,
}

impl Default for InferOptions {
    fn default() -> Self {
        InferOptions { name: "inferred".to_owned(), most_keys: 20_000, most_time: Duration::from_secs(1) }
    }
}

/// Values of one pattern that are kept for guessing.
const KEPT_SAMPLES: usize = 64;
/// Ids of one pattern that are kept for guessing.
const KEPT_KEYS: usize = 64;
/// Longer strings are not fetched.
const LONGEST_STRING: u64 = 16 << 10;

/// What the keys of one pattern have in common.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) keys: u64,
    pub(super) kinds: Vec<Kind>,
    /// Keys of types that a schema cannot declare.
    pub(super) foreign: u64,
    pub(super) longest_ttl_ms: u64,
    pub(super) expiring: u64,
    pub(super) longest: u64,
    pub(super) examples: Vec<String>,
    pub(super) samples: Vec<Sample>,
}

impl Gathered for Seen {
    fn merge(&mut self, other: Self) {
        self.keys += other.keys;
        self.foreign += other.foreign;
        self.expiring += other.expiring;
        self.longest = self.longest.max(other.longest);
        self.longest_ttl_ms = self.longest_ttl_ms.max(other.longest_ttl_ms);
        for kind in other.kinds {
            if !self.kinds.contains(&kind) {
                self.kinds.push(kind);
            }
        }
        self.examples.extend(other.examples);
        self.examples.truncate(KEPT_KEYS);
        self.samples.extend(other.samples);
        self.samples.truncate(KEPT_SAMPLES);
    }
}

/// Proposes a schema for the server at `url`, as the text of a file to edit.
pub async fn infer(url: &str, options: &InferOptions) -> Result<String, Error> {
    infer_nodes(connect(url).await?, options).await
}

/// Proposes a schema for servers that are already connected.
pub async fn infer_nodes<C: ConnectionLike + Clone + Send>(
    mut nodes: Vec<Node<C>>,
    options: &InferOptions,
) -> Result<String, Error> {
    let mut tree = PatternTree::<Seen>::default();
    let (mut sampled, mut existing) = (0, 0);
    let share = u64::try_from(nodes.len()).unwrap_or(1).max(1);
    for node in &mut nodes {
        existing += db_size(&mut node.connection).await?;
        let limit = Limit {
            keys: options.most_keys / share,
            until: Instant::now() + options.most_time / u32::try_from(share).unwrap_or(1),
        };
        sampled += look_around(node, &mut tree, limit).await?;
    }
    Ok(propose(options, tree.into_patterns(), sampled, existing))
}

#[derive(Clone, Copy)]
struct Limit {
    keys: u64,
    until: Instant,
}

async fn look_around<C: ConnectionLike + Clone + Send>(
    node: &mut Node<C>,
    tree: &mut PatternTree<Seen>,
    limit: Limit,
) -> Result<u64, Error> {
    let walk = pages(node.connection.clone(), Pace::Full, None);
    pin_mut!(walk);
    let mut sampled = 0;
    while let Some(keys) = walk.try_next().await? {
        sampled += keys.len() as u64;
        look_at(&mut node.connection, tree, &keys).await?;
        if sampled >= limit.keys || Instant::now() >= limit.until {
            break;
        }
    }
    Ok(sampled)
}

/// Type, TTL and length, then values: three pipelines for a page.
async fn look_at<C: ConnectionLike>(
    connection: &mut C,
    tree: &mut PatternTree<Seen>,
    keys: &[Vec<u8>],
) -> Result<(), Error> {
    let mut pipe = Pipeline::new();
    for key in keys {
        pipe.cmd("TYPE").arg(key);
        pipe.cmd("PTTL").arg(key);
    }
    let mut answers = ask(pipe, connection).await?.into_iter();
    let mut looked = Vec::with_capacity(keys.len());
    for key in keys {
        let kind: String = answers.next().and_then(|reply| from_redis_value(reply?).ok()).unwrap_or_default();
        let ttl_ms: i64 = answers.next().and_then(|reply| from_redis_value(reply?).ok()).unwrap_or(-2);
        if ttl_ms == -2 {
            continue;
        }
        let seen = tree.entry(key);
        seen.keys += 1;
        if seen.examples.len() < KEPT_KEYS {
            seen.examples.push(String::from_utf8_lossy(key).into_owned());
        }
        if let Ok(ttl_ms) = u64::try_from(ttl_ms) {
            seen.expiring += 1;
            seen.longest_ttl_ms = seen.longest_ttl_ms.max(ttl_ms);
        }
        match Kind::from_name(&kind) {
            None => seen.foreign += 1,
            Some(kind) => {
                if !seen.kinds.contains(&kind) {
                    seen.kinds.push(kind);
                }
                looked.push((key, kind));
            }
        }
    }
    look_inside(connection, tree, &looked).await
}

async fn look_inside<C: ConnectionLike>(
    connection: &mut C,
    tree: &mut PatternTree<Seen>,
    keys: &[(&Vec<u8>, Kind)],
) -> Result<(), Error> {
    let mut pipe = Pipeline::new();
    for (key, kind) in keys {
        let command = match kind {
            Kind::String => "STRLEN",
            Kind::Hash => "HLEN",
            Kind::List => "LLEN",
            Kind::Set => "SCARD",
            Kind::Zset => "ZCARD",
        };
        pipe.cmd(command).arg(key);
    }
    let lengths = ask(pipe, connection).await?;
    let mut pipe = Pipeline::new();
    let mut asked = Vec::new();
    for ((key, kind), length) in keys.iter().zip(lengths) {
        let length: u64 = length.and_then(|reply| from_redis_value(reply).ok()).unwrap_or(0);
        let seen = tree.entry(key);
        seen.longest = seen.longest.max(length);
        if seen.samples.len() < KEPT_SAMPLES && (*kind != Kind::String || length <= LONGEST_STRING) {
            let replies = sample_commands(&mut pipe, *kind, key, length);
            asked.push((key, *kind, length, replies));
        }
    }
    if asked.is_empty() {
        return Ok(());
    }
    let mut answers = ask(pipe, connection).await?.into_iter();
    for (key, kind, length, replies) in asked {
        let replies: Vec<Reply> = answers.by_ref().take(replies).flatten().collect();
        let seen = tree.entry(key);
        if seen.samples.len() < KEPT_SAMPLES {
            seen.samples.extend(read_sample(kind, replies, Some(length)));
        }
    }
    Ok(())
}
