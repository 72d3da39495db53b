//! `COMMAND`: what the table says about its commands.

use hob_commands::{Command, Entry, Flags, Keys, entries, lookup, resolve};

use super::{Args, printable};
use crate::engine::Core;
use crate::glob;
use crate::reply::{CommandResult, Failure, Reply};

pub(super) fn command(_: &mut Core, args: Args<'_>) -> CommandResult {
    let Some(sub) = args.get(1) else {
        return Ok(describe_all());
    };
    match sub.to_ascii_lowercase().as_slice() {
        b"count" if args.len() > 2 => Err(Failure::arity("command|count")),
        b"count" => Ok(Reply::len(entries().len())),
        b"info" if args.len() == 2 => Ok(describe_all()),
        b"info" => Ok(Reply::Array(args[2..].iter().map(|name| describe_named(name)).collect())),
        b"list" => list(&args[2..]),
        b"getkeys" if args.len() < 4 => Err(Failure::arity("command|getkeys")),
        b"getkeys" => getkeys(&args[2..]),
        _ => {
            let sub = printable(sub, 128);
            Err(format!("ERR unknown subcommand '{sub}'. Try COMMAND HELP.").into())
        }
    }
}

fn describe_all() -> Reply {
    Reply::Array(entries().iter().map(describe).collect())
}

/// A command by its name; a subcommand is written `config|get`.
fn describe_named(name: &[u8]) -> Reply {
    let Some(at) = memchr::memchr(b'|', name) else {
        return lookup(name).map_or(Reply::Null, describe);
    };
    let subcommand = all_commands().find(|command| command.name.as_bytes().eq_ignore_ascii_case(name));
    subcommand.filter(|_| at > 0).map_or(Reply::Null, describe_command)
}

fn all_commands() -> impl Iterator<Item = &'static Command> {
    hob_commands::FAMILIES.iter().flat_map(|family| family.commands)
}

fn describe(entry: &Entry) -> Reply {
    match entry {
        Entry::Command(command) => describe_command(command),
        Entry::Container { name, subcommands } => {
            let subcommands = subcommands.iter().map(|sub| describe_command(sub)).collect();
            description(name, -2, vec![], Keys::None, &["slow"], subcommands)
        }
    }
}

fn describe_command(command: &Command) -> Reply {
    let movable =
        matches!(command.keys, Keys::Counted { .. } | Keys::TargetAndCounted { .. } | Keys::Streams);
    let flags = command.flags.names().chain(movable.then_some("movablekeys")).collect();
    let categories: Vec<&str> = command.categories().collect();
    description(command.name, command.arity, flags, command.keys, &categories, vec![])
}

fn description(
    name: &str,
    arity: i32,
    flags: Vec<&'static str>,
    keys: Keys,
    categories: &[&'static str],
    subcommands: Vec<Reply>,
) -> Reply {
    let (first, last, step) = match keys {
        Keys::Range { first, last, step } => (first as i64, i64::from(last), step as i64),
        Keys::TargetAndCounted { .. } => (1, 1, 1),
        Keys::None | Keys::Counted { .. } | Keys::Streams => (0, 0, 0),
    };
    let categories = categories.iter().map(|name| Reply::Simple(format!("@{name}").into()));
    Reply::Array(vec![
        Reply::bulk(name),
        Reply::Int(arity.into()),
        Reply::Set(flags.into_iter().map(|name| Reply::Simple(name.into())).collect()),
        Reply::Int(first),
        Reply::Int(last),
        Reply::Int(step),
        Reply::Set(categories.collect()),
        Reply::Array(vec![]),
        Reply::Array(vec![]),
        Reply::Array(subcommands),
    ])
}

/// The names of all commands, or of those that a filter selects, which may be subcommands.
fn list(options: Args<'_>) -> CommandResult {
    let names: Vec<&str> = match options {
        [] => entries().iter().map(Entry::name).collect(),
        [word, kind, value] if word.eq_ignore_ascii_case(b"filterby") => {
            match kind.to_ascii_lowercase().as_slice() {
                b"module" => vec![],
                b"aclcat" => {
                    let category = String::from_utf8_lossy(value).to_ascii_lowercase();
                    let selected = all_commands().filter(|command| command.is_in_category(&category));
                    selected.map(|command| command.name).collect()
                }
                b"pattern" => {
                    let pattern = value.to_ascii_lowercase();
                    let containers =
                        entries().iter().filter(|entry| matches!(entry, Entry::Container { .. }));
                    let names = containers.map(Entry::name).chain(all_commands().map(|command| command.name));
                    names.filter(|name| glob::matches(&pattern, name.as_bytes())).collect()
                }
                _ => return Err(Failure::SYNTAX),
            }
        }
        _ => return Err(Failure::SYNTAX),
    };
    Ok(Reply::bulks(names))
}

fn getkeys(words: Args<'_>) -> CommandResult {
    let command = resolve(words).map_err(|reason| match reason {
        hob_commands::Unresolved::Arity { .. } => {
            Failure::new("ERR Invalid number of arguments specified for command")
        }
        _ => Failure::new("ERR Invalid command specified"),
    })?;
    if command.keys == Keys::None {
        return Err(Failure::new("ERR The command has no key arguments"));
    }
    let keys: Vec<&[u8]> = command.keys.of(words).collect();
    if keys.is_empty() && !command.flags.has(Flags::NO_MANDATORY_KEYS) {
        return Err(Failure::new("ERR Invalid arguments specified for command"));
    }
    Ok(Reply::bulks(keys))
}
