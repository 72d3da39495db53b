//! A schema file as typed values. Built only by [`Schema::parse`], so every reference in it resolves.

pub(crate) mod id;
pub(crate) mod pattern;
pub(crate) mod value;

use std::time::Duration;

pub use hob_commands::KeyType;

use crate::model::id::IdRule;
use crate::model::pattern::Pattern;
use crate::model::value::{Shape, Value};
use crate::parse::source::Position;
use crate::units::{parse_duration, parse_size};

/// One schema file.
#[derive(Clone, Debug)]
pub struct Schema {
    /// The file it was read from, for messages.
    pub file: String,
    pub name: String,
    pub version: u32,
    pub purpose: Option<String>,
    pub note: Option<String>,
    pub prefix: Prefix,
    /// How many shards a global key has under the tagged layout.
    pub shards: Limit<u64>,
    pub ids: Vec<IdRule>,
    pub families: Vec<Family>,
    pub channels: Vec<Channel>,
    pub shapes: Vec<Shape>,
    pub allow: Vec<Allow>,
    /// The position of `[schema]`.
    pub position: Position,
}

/// The prefix of every key of a schema.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefix {
    pub env: Option<String>,
    pub value: String,
}

impl Prefix {
    /// Whether a text can be a prefix: none of its characters has a special meaning, except for one hash tag such as
    /// `{bull}:`, which puts all keys into one slot of a Cluster.
    pub fn accepts(text: &str) -> bool {
        let special = |char: char| char.is_control() || " {}<>*?[]\\%\"'".contains(char);
        match text.split_once('{') {
            None => !text.contains(special),
            Some((before, rest)) => rest.split_once('}').is_some_and(|(tag, after)| {
                !tag.is_empty() && ![before, tag, after].iter().any(|part| part.contains(special))
            }),
        }
    }
}

/// A limit that an environment variable may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit<T> {
    /// The current value: the default of the file until [`Schema::apply_env`].
    pub value: T,
    pub env: Option<EnvVar>,
}

impl<T> Limit<T> {
    pub fn fixed(value: T) -> Self {
        Limit { value, env: None }
    }
}

/// The environment variable of a limit, and the unit of a bare number in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvVar {
    pub name: String,
    pub unit: Option<String>,
}

/// All keys of one pattern, with their type, values, TTL, bounds and purpose.
#[derive(Clone, Debug)]
pub struct Family {
    pub name: String,
    pub pattern: Pattern,
    pub content: Content,
    /// Further types that keys of this pattern have, as `TYPE` names them. Of such keys only the TTL is checked.
    pub also: Vec<String>,
    pub max_len: Option<Limit<u64>>,
    pub max_keys: Option<Limit<u64>>,
    pub ttl: Ttl,
    /// Only of a hash: how long its fields may live.
    pub field_ttl: Option<TtlRule>,
    /// Only of a stream.
    pub stream: StreamRules,
    pub tag: Tag,
    pub role: Option<Role>,
    /// Families that a script uses together with this one.
    pub with: Vec<String>,
    /// The family whose values add up to the values of this one.
    pub sums: Option<String>,
    pub writers: Vec<String>,
    pub contract: Vec<String>,
    pub purpose: Option<String>,
    pub note: Option<String>,
    pub example: Option<Example>,
    pub allow: Vec<Allow>,
    /// What `infer` suspects and a person has not confirmed yet; lint reports each entry.
    pub unconfirmed: Vec<String>,
    pub position: Position,
}

/// What a stream may hold, besides its length and the fields of its entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamRules {
    /// The names of its consumer groups; `None` allows any.
    pub groups: Option<Vec<String>>,
    /// Maximum number of pending entries of each group.
    pub max_pending: Option<Limit<u64>>,
    /// Maximum age of the oldest entry, by the time in its id.
    pub max_age: Option<Limit<Duration>>,
}

/// An example for the documentation: a value, an item or a member, or some fields of a hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    pub values: Vec<(Option<String>, String)>,
    pub position: Position,
}

impl Family {
    pub fn kind(&self) -> KeyType {
        self.content.kind()
    }

    /// The type as `TYPE` names it.
    pub fn type_name(&self) -> &str {
        match &self.content {
            Content::Module(name) => name,
            _ => self.kind().as_str(),
        }
    }
}

/// The value of a key, by type.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    String(Value),
    Hash(Vec<Field>),
    List(Value),
    Set(Value),
    Zset {
        member: Value,
        score: Value,
    },
    /// The fields of each entry.
    Stream(Vec<Field>),
    /// The type of this name, which only its module can read.
    Module(String),
}

impl Content {
    pub fn kind(&self) -> KeyType {
        match self {
            Content::String(_) => KeyType::String,
            Content::Hash(_) => KeyType::Hash,
            Content::List(_) => KeyType::List,
            Content::Set(_) => KeyType::Set,
            Content::Zset { .. } => KeyType::Zset,
            Content::Stream(_) => KeyType::Stream,
            Content::Module(_) => KeyType::Module,
        }
    }
}

/// One field of a hash, or a rule for many.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    pub name: FieldName,
    pub value: Value,
    pub presence: Presence,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldName {
    /// Exactly this field.
    Exact(String),
    /// Any field whose name is an id of this index.
    Id(usize),
    /// Any other field.
    Any,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Required,
    Optional,
}

/// How long a key may live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ttl {
    pub rule: TtlRule,
    /// Whether each write restarts the TTL.
    pub renewal: Renewal,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TtlRule {
    /// Not declared, which lint reports.
    Undeclared,
    /// Always set, at most this.
    Max(Limit<Duration>),
    /// Set to exactly this.
    Exact(Limit<Duration>),
    /// Set to a TTL between the two.
    Range(Limit<Duration>, Limit<Duration>),
    /// Never expires, for this reason.
    None { why: String },
    /// May be written without a TTL, for this reason; once set, the TTL is at most this long.
    Late { max: Limit<Duration>, why: String },
    /// Kept for this long after an event; the backstop is the TTL until then.
    After { event: String, keep: Limit<Duration>, backstop: Option<Limit<Duration>> },
}

impl TtlRule {
    /// The longest TTL that a key may have, if it may have one.
    pub fn longest(&self) -> Option<Duration> {
        match self {
            TtlRule::Undeclared | TtlRule::None { .. } => None,
            TtlRule::Max(limit) | TtlRule::Exact(limit) | TtlRule::Late { max: limit, .. } => {
                Some(limit.value)
            }
            TtlRule::Range(_, max) => Some(max.value),
            TtlRule::After { keep, backstop, .. } => {
                Some(backstop.as_ref().map_or(keep.value, |backstop| backstop.value.max(keep.value)))
            }
        }
    }

    fn limits_mut(&mut self) -> Vec<&mut Limit<Duration>> {
        match self {
            TtlRule::Undeclared | TtlRule::None { .. } => Vec::new(),
            TtlRule::Max(limit) | TtlRule::Exact(limit) | TtlRule::Late { max: limit, .. } => vec![limit],
            TtlRule::Range(min, max) => vec![min, max],
            TtlRule::After { keep, backstop, .. } => std::iter::once(keep).chain(backstop).collect(),
        }
    }

    /// Whether a key without a TTL breaks the rule.
    pub fn required(&self) -> bool {
        match self {
            TtlRule::Max(_) | TtlRule::Exact(_) | TtlRule::Range(..) => true,
            TtlRule::After { backstop, .. } => backstop.is_some(),
            TtlRule::Undeclared | TtlRule::None { .. } | TtlRule::Late { .. } => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    Unspecified,
    EachWrite,
    Never,
}

/// Which keys share a Cluster slot under the tagged layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tag {
    Undeclared,
    /// Braces around the id of this index.
    Id(usize),
    /// A numbered shard; given by the caller, or derived from the id of this index.
    Shard {
        by: Option<usize>,
    },
    /// One key in a separate slot, for this reason.
    Single {
        why: String,
    },
}

/// The use of a family, for lint rules that depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Counter,
    Gauge,
    State,
    Cache,
    View,
    Index,
    Log,
    Samples,
    Window,
    Buffer,
    Queue,
    Lease,
}

hob_units::names!(Role {
    Counter = "counter",
    Gauge = "gauge",
    State = "state",
    Cache = "cache",
    View = "view",
    Index = "index",
    Log = "log",
    Samples = "samples",
    Window = "window",
    Buffer = "buffer",
    Queue = "queue",
    Lease = "lease",
});

/// A pub/sub channel and what is published on it.
#[derive(Clone, Debug)]
pub struct Channel {
    pub name: String,
    pub pattern: Pattern,
    /// The variable that replaces the whole name, prefix included.
    pub env: Option<String>,
    /// The value of that variable, after [`Schema::apply_env`].
    pub renamed: Option<String>,
    pub payload: Value,
    pub contract: Vec<String>,
    pub purpose: Option<String>,
    pub note: Option<String>,
    pub position: Position,
}

/// A lint rule that a documented family breaks on purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allow {
    pub rule: String,
    pub reason: String,
    pub position: Position,
}

/// An environment variable with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable}={text:?} is not {expected}")]
pub struct BadEnv {
    pub variable: String,
    pub text: String,
    pub expected: &'static str,
}

impl Schema {
    pub fn family(&self, name: &str) -> Option<&Family> {
        self.families.iter().find(|family| family.name == name)
    }

    pub fn channel(&self, name: &str) -> Option<&Channel> {
        self.channels.iter().find(|channel| channel.name == name)
    }

    pub fn shape(&self, name: &str) -> Option<&Shape> {
        self.shapes.iter().find(|shape| shape.name == name)
    }

    pub fn id(&self, name: &str) -> Option<&IdRule> {
        self.ids.iter().find(|id| id.name == name)
    }

    /// Applies the prefix, limits and channel names that the environment sets.
    pub fn apply_env(&mut self, env: &dyn Fn(&str) -> Option<String>) -> Result<(), BadEnv> {
        if let Some((variable, text)) = self.prefix.env.as_ref().and_then(|name| Some((name, env(name)?))) {
            if !Prefix::accepts(&text) {
                let expected =
                    "a prefix without stars, spaces or control characters, and with at most one hash tag";
                return Err(BadEnv { variable: variable.clone(), text, expected });
            }
            self.prefix.value = text;
        }
        for channel in &mut self.channels {
            channel.renamed = channel.env.as_deref().and_then(env);
        }
        read_count(&mut self.shards, env)?;
        for family in &mut self.families {
            let counts = family.max_len.iter_mut().chain(&mut family.max_keys);
            for limit in counts.chain(&mut family.stream.max_pending) {
                read_count(limit, env)?;
            }
            let durations = family.ttl.rule.limits_mut().into_iter();
            let durations = durations.chain(family.field_ttl.iter_mut().flat_map(TtlRule::limits_mut));
            for limit in durations.chain(&mut family.stream.max_age) {
                read_duration(limit, env)?;
            }
        }
        Ok(())
    }
}

fn read_count(limit: &mut Limit<u64>, env: &dyn Fn(&str) -> Option<String>) -> Result<(), BadEnv> {
    let Some((variable, text)) = lookup(limit.env.as_ref(), env) else {
        return Ok(());
    };
    let count = parse_size(&text).filter(|count| *count > 0);
    limit.value = count.ok_or(BadEnv { variable, text, expected: "a positive number" })?;
    Ok(())
}

fn read_duration(limit: &mut Limit<Duration>, env: &dyn Fn(&str) -> Option<String>) -> Result<(), BadEnv> {
    let Some((variable, text)) = lookup(limit.env.as_ref(), env) else {
        return Ok(());
    };
    let unit = limit.env.as_ref().and_then(|var| var.unit.as_deref()).unwrap_or("");
    let bare = text.trim().bytes().all(|byte| byte.is_ascii_digit());
    let spelled = if bare { format!("{}{unit}", text.trim()) } else { text.clone() };
    limit.value =
        parse_duration(&spelled).ok_or(BadEnv { variable, text, expected: "a duration such as 2h" })?;
    Ok(())
}

fn lookup(var: Option<&EnvVar>, env: &dyn Fn(&str) -> Option<String>) -> Option<(String, String)> {
    let name = &var?.name;
    env(name).map(|text| (name.clone(), text))
}
