//! What the commands that write do to their keys: which arguments are keys and values, and what happens to the TTL.

use hob_commands::{KeyType, Keys};

/// What a command writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    pub(crate) targets: Targets,
    /// The type of the key afterwards; `None` if it depends on the data.
    pub(crate) kind: Option<KeyType>,
    pub(crate) values: Values,
    pub(crate) ttl: TtlEffect,
    pub(crate) creation: Creation,
}

/// Whether a command writes a key that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Creation {
    Creates,
    /// It changes only keys that exist.
    ExistingOnly,
}

/// Which keys are written. The others are only read, or lose elements.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Targets {
    At(usize),
    All(Keys),
    /// The word after the option `STORE` or `STOREDIST`.
    Stored,
    /// The second argument, with the option `MKSTREAM`.
    MadeStream,
}

/// Which arguments are values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    /// The result depends on data that is not in the command.
    Unknown,
    /// The result is a whole number, which depends on the data.
    WholeNumber,
    /// The whole value, at this index.
    Text(usize),
    /// The value after each key.
    TextAfterKey,
    /// Fields and values in turn, from the second argument on.
    Fields,
    /// Items or members, from this index on.
    Items(usize),
    /// One item or member, at this index.
    Item(usize),
    /// Scores and members in turn, after options.
    Scored,
    /// Fields and values in turn, after options and an id.
    Entry,
}

/// What happens to the TTL.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TtlEffect {
    /// It is kept; a new key has none.
    Kept,
    Removed,
    /// The argument at this index.
    Argument(usize, TtlUnit),
    /// Options from this index on. Without any, the TTL is removed.
    SetOptions(usize),
    /// Options from this index on. Without any, the TTL is kept.
    GetOptions(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TtlUnit {
    Seconds,
    Millis,
    /// Seconds since 1970.
    UnixSeconds,
    UnixMillis,
}

impl Write {
    const fn new(kind: Option<KeyType>, at: usize, values: Values, ttl: TtlEffect) -> Write {
        Write { targets: Targets::At(at), kind, values, ttl, creation: Creation::Creates }
    }

    const fn string(values: Values, ttl: TtlEffect) -> Write {
        Write::new(Some(KeyType::String), 1, values, ttl)
    }

    /// Adds to a collection, which keeps its TTL.
    const fn adds(kind: KeyType, values: Values) -> Write {
        Write::new(Some(kind), 1, values, TtlEffect::Kept)
    }

    /// Adds to the collection at this index what is in another one.
    const fn moves(kind: KeyType, at: usize, values: Values) -> Write {
        Write::new(Some(kind), at, values, TtlEffect::Kept)
    }

    /// Replaces the key at this index by a result.
    const fn stores(kind: KeyType, at: usize) -> Write {
        Write::new(Some(kind), at, Values::Unknown, TtlEffect::Removed)
    }

    const fn expires(ttl: TtlEffect) -> Write {
        let write = Write::new(None, 1, Values::Unknown, ttl);
        Write { creation: Creation::ExistingOnly, ..write }
    }

    const fn to(self, targets: Targets) -> Write {
        Write { targets, ..self }
    }

    /// A command that is not in the table, such as one of a module: it may create any of its keys.
    pub(crate) const fn unknown(keys: Keys) -> Write {
        Write::new(None, 1, Values::Unknown, TtlEffect::Kept).to(Targets::All(keys))
    }
}

const PAIRS: Targets = Targets::All(Keys::Range { first: 1, last: -1, step: 2 });

/// Every command that can create or extend a key, or change its TTL. Commands that only remove are not here.
pub(crate) const WRITES: &[(&str, Write)] = {
    use KeyType::{Hash, List, Set, Stream, String, Zset};
    use TtlEffect::{Argument, GetOptions, Kept, Removed, SetOptions};
    use Values::{Entry, Fields, Item, Items, Scored, Text, TextAfterKey, Unknown, WholeNumber};
    &[
        ("set", Write::string(Text(2), SetOptions(3))),
        ("setnx", Write::string(Text(2), Kept)),
        ("setex", Write::string(Text(3), Argument(2, TtlUnit::Seconds))),
        ("psetex", Write::string(Text(3), Argument(2, TtlUnit::Millis))),
        ("getset", Write::string(Text(2), Removed)),
        ("mset", Write::string(TextAfterKey, Removed).to(PAIRS)),
        ("msetnx", Write::string(TextAfterKey, Kept).to(PAIRS)),
        ("append", Write::string(Unknown, Kept)),
        ("setrange", Write::string(Unknown, Kept)),
        ("setbit", Write::string(Unknown, Kept)),
        ("bitfield", Write::string(Unknown, Kept)),
        ("bitop", Write::stores(String, 2)),
        ("incr", Write::string(WholeNumber, Kept)),
        ("decr", Write::string(WholeNumber, Kept)),
        ("incrby", Write::string(WholeNumber, Kept)),
        ("decrby", Write::string(WholeNumber, Kept)),
        ("incrbyfloat", Write::string(Unknown, Kept)),
        ("pfadd", Write::string(Unknown, Kept)),
        ("pfmerge", Write::string(Unknown, Kept)),
        ("hset", Write::adds(Hash, Fields)),
        ("hmset", Write::adds(Hash, Fields)),
        ("hsetnx", Write::adds(Hash, Fields)),
        ("hsetex", Write::adds(Hash, Unknown)),
        ("hincrby", Write::adds(Hash, Unknown)),
        ("hincrbyfloat", Write::adds(Hash, Unknown)),
        ("lpush", Write::adds(List, Items(2))),
        ("rpush", Write::adds(List, Items(2))),
        ("lpushx", Write::adds(List, Items(2))),
        ("rpushx", Write::adds(List, Items(2))),
        ("lset", Write::adds(List, Item(3))),
        ("linsert", Write::adds(List, Item(4))),
        ("lmove", Write::moves(List, 2, Unknown)),
        ("blmove", Write::moves(List, 2, Unknown)),
        ("rpoplpush", Write::moves(List, 2, Unknown)),
        ("brpoplpush", Write::moves(List, 2, Unknown)),
        ("sort", Write::stores(List, 1).to(Targets::Stored)),
        ("sadd", Write::adds(Set, Items(2))),
        ("smove", Write::moves(Set, 2, Item(3))),
        ("sinterstore", Write::stores(Set, 1)),
        ("sunionstore", Write::stores(Set, 1)),
        ("sdiffstore", Write::stores(Set, 1)),
        ("zadd", Write::adds(Zset, Scored)),
        ("zincrby", Write::adds(Zset, Unknown)),
        ("zrangestore", Write::stores(Zset, 1)),
        ("zinterstore", Write::stores(Zset, 1)),
        ("zunionstore", Write::stores(Zset, 1)),
        ("zdiffstore", Write::stores(Zset, 1)),
        ("geoadd", Write::adds(Zset, Unknown)),
        ("geosearchstore", Write::stores(Zset, 1)),
        ("georadius", Write::stores(Zset, 1).to(Targets::Stored)),
        ("georadiusbymember", Write::stores(Zset, 1).to(Targets::Stored)),
        ("xadd", Write::adds(Stream, Entry)),
        ("xgroup", Write::adds(Stream, Unknown).to(Targets::MadeStream)),
        ("rename", Write::new(None, 2, Unknown, Kept)),
        ("renamenx", Write::new(None, 2, Unknown, Kept)),
        ("copy", Write::new(None, 2, Unknown, Kept)),
        ("restore", Write::new(None, 1, Unknown, Kept)),
        ("expire", Write::expires(Argument(2, TtlUnit::Seconds))),
        ("pexpire", Write::expires(Argument(2, TtlUnit::Millis))),
        ("expireat", Write::expires(Argument(2, TtlUnit::UnixSeconds))),
        ("pexpireat", Write::expires(Argument(2, TtlUnit::UnixMillis))),
        ("persist", Write::expires(Removed)),
        ("getex", Write::expires(GetOptions(2))),
    ]
};
