//! The command table. Dispatch, `COMMAND`, strict mode and the documentation all use it.

mod hashes;
mod info;
mod keys;
mod lists;
mod options;
mod pubsub;
mod scripts;
mod server;
mod sets;
mod sorted_sets;
mod strings;
mod transactions;

use std::collections::HashMap;
use std::ops::BitOr;
use std::sync::LazyLock;

use crate::core::Core;
use crate::dispatch::CommandContext;
use crate::reply::{CommandResult, Failure};

/// A command's arguments, with its name first.
pub(crate) type Args<'a> = &'a [&'a [u8]];

#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) name: &'static str,
    /// The number of arguments including the name; negative: the minimum number.
    pub(crate) arity: i32,
    pub(crate) flags: Flags,
    pub(crate) keys: Keys,
    pub(crate) run: Run,
}

#[derive(Debug)]
pub(crate) enum Run {
    /// Needs only the data, so a script may call it.
    Data(fn(&mut Core, Args<'_>) -> CommandResult),
    /// Also needs the session or the scripts.
    Session(fn(&mut CommandContext<'_>, Args<'_>) -> CommandResult),
    /// The second argument names a subcommand.
    Container(&'static [Command]),
}

/// Which of a command's arguments are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    None,
    /// From `first` to `last` (negative: counted from the end), every `step` arguments.
    Range {
        first: usize,
        last: i32,
        step: usize,
    },
    /// The number of keys is at `at`, and the keys follow.
    Counted {
        at: usize,
    },
}

impl Keys {
    const ONE: Keys = Keys::Range { first: 1, last: 1, step: 1 };
    const TWO: Keys = Keys::Range { first: 1, last: 2, step: 1 };
    const REST: Keys = Keys::Range { first: 1, last: -1, step: 1 };

    /// The keys among these arguments.
    pub(crate) fn of<'a>(self, args: Args<'a>) -> impl Iterator<Item = &'a [u8]> {
        let (range, step) = match self {
            Keys::None => (0..0, 1),
            Keys::Range { first, last, step } => {
                let last = if last < 0 { args.len() as i64 + i64::from(last) } else { i64::from(last) };
                let end = usize::try_from(last + 1).unwrap_or(0).min(args.len());
                (first..end.max(first), step)
            }
            Keys::Counted { at } => {
                let count = args.get(at).and_then(|text| crate::number::read_int(text)).unwrap_or(0);
                let count = usize::try_from(count).unwrap_or(0);
                (at + 1..(at + 1).saturating_add(count).min(args.len()).max(at + 1), 1)
            }
        };
        args.get(range).unwrap_or_default().iter().step_by(step).copied()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flags(u16);

impl Flags {
    pub(crate) const NONE: Flags = Flags(0);
    pub(crate) const WRITE: Flags = Flags(1);
    pub(crate) const READONLY: Flags = Flags(1 << 1);
    /// May need memory: refused when the store is full.
    pub(crate) const DENYOOM: Flags = Flags(1 << 2);
    pub(crate) const ADMIN: Flags = Flags(1 << 3);
    pub(crate) const PUBSUB: Flags = Flags(1 << 4);
    pub(crate) const NOSCRIPT: Flags = Flags(1 << 5);
    pub(crate) const FAST: Flags = Flags(1 << 6);
    /// Allowed before authentication.
    pub(crate) const NO_AUTH: Flags = Flags(1 << 7);
    /// Allowed while a script keeps the store busy.
    pub(crate) const ALLOW_BUSY: Flags = Flags(1 << 8);
    /// Runs or compiles Lua, which may take long. Redis has no such flag, so it has no name.
    pub(crate) const LUA: Flags = Flags(1 << 9);

    const NAMES: [(Flags, &'static str); 9] = [
        (Flags::WRITE, "write"),
        (Flags::READONLY, "readonly"),
        (Flags::DENYOOM, "denyoom"),
        (Flags::ADMIN, "admin"),
        (Flags::PUBSUB, "pubsub"),
        (Flags::NOSCRIPT, "noscript"),
        (Flags::FAST, "fast"),
        (Flags::NO_AUTH, "no_auth"),
        (Flags::ALLOW_BUSY, "allow_busy"),
    ];

    pub(crate) fn has(self, flag: Flags) -> bool {
        self.0 & flag.0 != 0
    }

    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        Flags::NAMES.into_iter().filter(move |(flag, _)| self.has(*flag)).map(|(_, name)| name)
    }

    const fn and(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

impl BitOr for Flags {
    type Output = Flags;

    fn bitor(self, other: Flags) -> Flags {
        self.and(other)
    }
}

const READ: Flags = Flags::READONLY;
const READ_FAST: Flags = Flags::READONLY.and(Flags::FAST);
const WRITE: Flags = Flags::WRITE;
const WRITE_FAST: Flags = Flags::WRITE.and(Flags::FAST);
/// Writes that may need memory.
const GROW: Flags = Flags::WRITE.and(Flags::DENYOOM);
const GROW_FAST: Flags = GROW.and(Flags::FAST);
const CONTROL: Flags = Flags::NOSCRIPT;
const ADMIN: Flags = Flags::ADMIN.and(Flags::NOSCRIPT);

const fn data(
    name: &'static str,
    arity: i32,
    flags: Flags,
    keys: Keys,
    run: fn(&mut Core, Args<'_>) -> CommandResult,
) -> Command {
    Command { name, arity, flags, keys, run: Run::Data(run) }
}

const fn session(
    name: &'static str,
    arity: i32,
    flags: Flags,
    keys: Keys,
    run: fn(&mut CommandContext<'_>, Args<'_>) -> CommandResult,
) -> Command {
    Command { name, arity, flags, keys, run: Run::Session(run) }
}

const fn container(name: &'static str, subcommands: &'static [Command]) -> Command {
    Command { name, arity: -2, flags: Flags::NONE, keys: Keys::None, run: Run::Container(subcommands) }
}

/// The families, in the order of the documentation.
pub(crate) const FAMILIES: [(&str, &[Command]); 10] = [
    ("Keys", keys::COMMANDS),
    ("Strings", strings::COMMANDS),
    ("Hashes", hashes::COMMANDS),
    ("Lists", lists::COMMANDS),
    ("Sets", sets::COMMANDS),
    ("Sorted sets", sorted_sets::COMMANDS),
    ("Pub/sub", pubsub::COMMANDS),
    ("Transactions", transactions::COMMANDS),
    ("Scripts", scripts::COMMANDS),
    ("Server and connection", server::COMMANDS),
];

static BY_NAME: LazyLock<HashMap<&'static [u8], &'static Command>> = LazyLock::new(|| {
    let all = FAMILIES.iter().flat_map(|(_, commands)| commands.iter());
    all.map(|command| (command.name.as_bytes(), command)).collect()
});

/// Every command, without subcommands.
pub(crate) fn all() -> impl Iterator<Item = &'static Command> {
    FAMILIES.iter().flat_map(|(_, commands)| commands.iter())
}

/// Longer than any command's name.
const MAX_NAME: usize = 32;

pub(crate) fn lookup(name: &[u8]) -> Option<&'static Command> {
    let mut lower = [0; MAX_NAME];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    BY_NAME.get(&*lower).copied()
}

/// The command for these arguments, if their number is right.
pub(crate) fn resolve(args: Args<'_>) -> CommandResult<&'static Command> {
    let command = lookup(args[0]).ok_or_else(|| unknown_command(args))?;
    let Run::Container(subcommands) = command.run else {
        return command.check_arity(args.len(), || command.name.to_owned());
    };
    let Some(name) = args.get(1) else {
        return Err(Failure::arity(command.name));
    };
    let found = subcommands.iter().find(|sub| sub.name.as_bytes().eq_ignore_ascii_case(name));
    let Some(sub) = found else {
        let (name, container) = (printable(name, 128), command.name.to_ascii_uppercase());
        return Err(format!("ERR unknown subcommand '{name}'. Try {container} HELP.").into());
    };
    sub.check_arity(args.len(), || format!("{}|{}", command.name, sub.name))
}

/// The keys among the words of a command, its name first. `None` if the engine does not know the command or the words are
/// too few for it.
pub fn command_keys<'a>(words: &'a [&'a [u8]]) -> Option<impl Iterator<Item = &'a [u8]>> {
    let command = resolve(if words.is_empty() { &[b""] } else { words }).ok()?;
    Some(command.keys.of(words))
}

impl Command {
    fn check_arity(
        &'static self,
        words: usize,
        full_name: impl Fn() -> String,
    ) -> CommandResult<&'static Command> {
        let wanted = self.arity.unsigned_abs() as usize;
        let fits = if self.arity < 0 { words >= wanted } else { words == wanted };
        if fits { Ok(self) } else { Err(Failure::arity(&full_name())) }
    }
}

fn unknown_command(args: Args<'_>) -> Failure {
    let mut beginning = String::new();
    for arg in &args[1..] {
        if beginning.len() >= 128 {
            break;
        }
        beginning += &format!("'{}' ", printable(arg, 128 - beginning.len()));
    }
    let name = printable(args[0], 128);
    format!("ERR unknown command '{name}', with args beginning with: {beginning}").into()
}

/// Bytes as shown in an error. A NUL ends them, as in Redis, which uses C strings.
pub(crate) fn printable(bytes: &[u8], max_bytes: usize) -> String {
    let bytes = bytes[..bytes.len().min(max_bytes)].split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes).replace(['\r', '\n'], " ")
}
