//! The properties of a command in the table.

use std::ops::BitOr;

use crate::table::CommandId;

/// One command, or one subcommand of a container such as `CONFIG`.
#[derive(Debug)]
pub struct Command {
    pub id: CommandId,
    /// In lower case; a subcommand follows its container: `config|get`.
    pub name: &'static str,
    /// The number of arguments, including the name. A negative number is a minimum.
    pub arity: i32,
    pub flags: Flags,
    pub keys: Keys,
}

impl Command {
    /// Whether the command takes this number of arguments, its name included.
    #[must_use]
    pub fn takes(&self, words: usize) -> bool {
        let wanted = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { words >= wanted } else { words == wanted }
    }
}

/// Which of a command's arguments are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    None,
    /// Every `step`th argument from `first` to `last`. A negative `last` counts from the end.
    Range {
        first: usize,
        last: i32,
        step: usize,
    },
    /// The argument at index `at` is the number of keys; the keys follow it.
    Counted {
        at: usize,
    },
    /// The first argument is a key; the number of further keys is at `at`, and they follow.
    TargetAndCounted {
        at: usize,
    },
    /// After the word `STREAMS`: the first half of the arguments are keys, the second half ids.
    Streams,
}

impl Keys {
    /// The keys among these arguments. The first argument is the name of the command.
    pub fn of<'a>(self, words: &'a [&'a [u8]]) -> impl Iterator<Item = &'a [u8]> {
        let target = match self {
            Keys::TargetAndCounted { .. } => words.get(1),
            Keys::None | Keys::Range { .. } | Keys::Counted { .. } | Keys::Streams => None,
        };
        let (range, step) = match self {
            Keys::None => (0..0, 1),
            Keys::Range { first, last, step } => {
                let last = if last < 0 { words.len() as i64 + i64::from(last) } else { i64::from(last) };
                let end = usize::try_from(last + 1).unwrap_or(0).min(words.len());
                (first..end.max(first), step)
            }
            Keys::Counted { at } | Keys::TargetAndCounted { at } => {
                let count = words.get(at).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
                let end = (at + 1).saturating_add(count.unwrap_or(0)).min(words.len());
                (at + 1..end.max(at + 1), 1)
            }
            Keys::Streams => {
                let first = first_stream(words);
                (first..first + (words.len() - first) / 2, 1)
            }
        };
        target.into_iter().chain(words.get(range).unwrap_or_default().iter().step_by(step)).copied()
    }
}

/// Where the keys of `XREAD` or `XREADGROUP` begin. Names of groups and consumers may be any word, so options are skipped
/// with their values.
fn first_stream(words: &[&[u8]]) -> usize {
    let mut at = 1;
    while let Some(word) = words.get(at) {
        at += match word.to_ascii_lowercase().as_slice() {
            b"streams" => return at + 1,
            b"block" | b"count" => 2,
            b"group" => 3,
            _ => 1,
        };
    }
    words.len()
}

/// What a command does, and when it may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(u16);

impl Flags {
    pub const NONE: Flags = Flags(0);
    pub const WRITE: Flags = Flags(1);
    pub const READONLY: Flags = Flags(1 << 1);
    /// May need memory: refused when the store is full.
    pub const DENYOOM: Flags = Flags(1 << 2);
    pub const ADMIN: Flags = Flags(1 << 3);
    pub const PUBSUB: Flags = Flags(1 << 4);
    pub const NOSCRIPT: Flags = Flags(1 << 5);
    pub const FAST: Flags = Flags(1 << 6);
    /// Allowed before authentication.
    pub const NO_AUTH: Flags = Flags(1 << 7);
    /// Allowed while a script keeps the store busy.
    pub const ALLOW_BUSY: Flags = Flags(1 << 8);
    /// Runs or compiles Lua, which may take a long time. Redis does not have this flag, so it has no name.
    pub const LUA: Flags = Flags(1 << 9);
    /// May make the client wait.
    pub const BLOCKING: Flags = Flags(1 << 10);
    /// Allowed while Redis loads its data. The engine has none to load.
    pub const LOADING: Flags = Flags(1 << 11);
    /// Allowed on a replica with old data. The engine has no replicas.
    pub const STALE: Flags = Flags(1 << 12);
    /// Shows itself to `MONITOR`, before the commands that it runs.
    pub const SKIP_MONITOR: Flags = Flags(1 << 13);
    pub const SKIP_SLOWLOG: Flags = Flags(1 << 14);
    /// May have no keys, although it can have some.
    pub const NO_MANDATORY_KEYS: Flags = Flags(1 << 15);

    const NAMES: [(Flags, &'static str); 15] = [
        (Flags::WRITE, "write"),
        (Flags::READONLY, "readonly"),
        (Flags::DENYOOM, "denyoom"),
        (Flags::ADMIN, "admin"),
        (Flags::PUBSUB, "pubsub"),
        (Flags::NOSCRIPT, "noscript"),
        (Flags::BLOCKING, "blocking"),
        (Flags::LOADING, "loading"),
        (Flags::STALE, "stale"),
        (Flags::SKIP_MONITOR, "skip_monitor"),
        (Flags::SKIP_SLOWLOG, "skip_slowlog"),
        (Flags::FAST, "fast"),
        (Flags::NO_AUTH, "no_auth"),
        (Flags::NO_MANDATORY_KEYS, "no_mandatory_keys"),
        (Flags::ALLOW_BUSY, "allow_busy"),
    ];

    #[must_use]
    pub fn has(self, flag: Flags) -> bool {
        self.0 & flag.0 != 0
    }

    /// The names that `COMMAND` shows.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Flags::NAMES.into_iter().filter(move |(flag, _)| self.has(*flag)).map(|(_, name)| name)
    }

    pub(crate) const fn and(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

impl BitOr for Flags {
    type Output = Flags;

    fn bitor(self, other: Flags) -> Flags {
        self.and(other)
    }
}
