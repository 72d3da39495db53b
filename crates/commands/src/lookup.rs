//! Finds the command that a client sent.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::LazyLock;

use crate::command::Command;
use crate::hash::FnvHasher;
use crate::table::FAMILIES;

/// What the first word of a command refers to.
#[derive(Debug)]
pub enum Entry {
    Command(&'static Command),
    /// A container. The second word names one of these subcommands.
    Container {
        name: &'static str,
        subcommands: Vec<&'static Command>,
    },
}

impl Entry {
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Entry::Command(command) => command.name,
            Entry::Container { name, .. } => name,
        }
    }
}

/// Why these words are not a command of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unresolved {
    UnknownCommand,
    UnknownSubcommand {
        container: &'static str,
    },
    /// The command with this name does not take this number of words.
    Arity {
        name: &'static str,
    },
}

/// Longer than any name.
const MAX_NAME: usize = 32;

struct Index {
    entries: Vec<Entry>,
    by_name: HashMap<&'static [u8], usize, BuildHasherDefault<FnvHasher>>,
}

static INDEX: LazyLock<Index> = LazyLock::new(|| {
    let mut index = Index { entries: vec![], by_name: HashMap::default() };
    for command in FAMILIES.iter().flat_map(|family| family.commands) {
        let (name, is_sub) = match command.name.split_once('|') {
            Some((container, _)) => (container, true),
            None => (command.name, false),
        };
        let at = *index.by_name.entry(name.as_bytes()).or_insert_with(|| {
            index.entries.push(if is_sub {
                Entry::Container { name, subcommands: vec![] }
            } else {
                Entry::Command(command)
            });
            index.entries.len() - 1
        });
        if let Entry::Container { subcommands, .. } = &mut index.entries[at] {
            subcommands.push(command);
        }
    }
    index
});

/// Every first word of a command, in the order of the table.
#[must_use]
pub fn entries() -> &'static [Entry] {
    &INDEX.entries
}

/// What this first word of a command refers to. It may be in upper or lower case.
#[must_use]
pub fn lookup(name: &[u8]) -> Option<&'static Entry> {
    let mut lower = [0; MAX_NAME];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    INDEX.by_name.get(&*lower).map(|at| &INDEX.entries[*at])
}

/// The command that these words call. Fails if the number of words is wrong.
pub fn resolve(words: &[&[u8]]) -> Result<&'static Command, Unresolved> {
    let entry = words.first().and_then(|name| lookup(name)).ok_or(Unresolved::UnknownCommand)?;
    let command = match entry {
        Entry::Command(command) => command,
        Entry::Container { name: container, subcommands } => {
            let name = words.get(1).ok_or(Unresolved::Arity { name: container })?;
            // The name of a subcommand consists of the name of its container, a bar, and the second word.
            let is_named =
                |sub: &&&Command| sub.name.as_bytes()[container.len() + 1..].eq_ignore_ascii_case(name);
            subcommands.iter().find(is_named).ok_or(Unresolved::UnknownSubcommand { container })?
        }
    };
    if command.takes(words.len()) { Ok(command) } else { Err(Unresolved::Arity { name: command.name }) }
}

/// The keys among the words of a command. The first word is its name. `None` if the table does not have the command, or
/// if the command does not take this number of words.
pub fn command_keys<'a>(words: &'a [&'a [u8]]) -> Option<impl Iterator<Item = &'a [u8]>> {
    resolve(words).ok().map(|command| command.keys.of(words))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::table::KeyCommand;

    fn words(line: &str) -> Vec<&[u8]> {
        line.split(' ').map(str::as_bytes).collect()
    }

    fn keys(line: &str) -> Option<Vec<String>> {
        let words = words(line);
        let keys = command_keys(&words)?;
        Some(keys.map(|key| String::from_utf8_lossy(key).into_owned()).collect())
    }

    #[test]
    fn names_are_found_in_any_case() {
        assert_eq!(resolve(&words("dEl a")).unwrap().id, KeyCommand::Del.into());
        assert_eq!(resolve(&words("Memory uSAGE a")).unwrap().id, KeyCommand::MemoryUsage.into());
    }

    #[test]
    fn every_command_is_found_by_its_name() {
        let mut names = HashSet::new();
        for command in FAMILIES.iter().flat_map(|family| family.commands) {
            assert!(names.insert(command.name), "{} is in the table twice", command.name);
            assert_eq!(command.name, command.name.to_ascii_lowercase());
            let mut words: Vec<&[u8]> = command.name.split('|').map(str::as_bytes).collect();
            words.resize(command.arity.unsigned_abs() as usize, b"0");
            assert_eq!(resolve(&words).unwrap().name, command.name);
        }
        let listed: usize = entries()
            .iter()
            .map(|entry| match entry {
                Entry::Command(_) => 1,
                Entry::Container { subcommands, .. } => subcommands.len(),
            })
            .sum();
        assert_eq!(listed, names.len());
    }

    #[test]
    fn words_that_are_not_a_command_are_refused() {
        for (line, reason) in [
            ("", Unresolved::UnknownCommand),
            ("GEOADD s", Unresolved::UnknownCommand),
            ("a-name-that-is-longer-than-every-name-of-a-command", Unresolved::UnknownCommand),
            ("memory|usage a", Unresolved::UnknownCommand),
            ("MEMORY", Unresolved::Arity { name: "memory" }),
            ("MEMORY DOCTOR", Unresolved::UnknownSubcommand { container: "memory" }),
            ("MEMORY USAGE", Unresolved::Arity { name: "memory|usage" }),
            ("GET", Unresolved::Arity { name: "get" }),
            ("GET a b", Unresolved::Arity { name: "get" }),
        ] {
            assert_eq!(resolve(&words(line)).err(), Some(reason), "{line}");
        }
        assert_eq!(resolve(&[]).err(), Some(Unresolved::UnknownCommand));
    }

    #[test]
    fn keys_are_found_among_the_words() {
        for (line, expected) in [
            ("PING", &[][..]),
            ("GET a", &["a"]),
            ("LMOVE a b LEFT RIGHT", &["a", "b"]),
            ("DEL a b c", &["a", "b", "c"]),
            ("MSET a 1 b 2", &["a", "b"]),
            ("MEMORY USAGE a SAMPLES 0", &["a"]),
            ("EVAL script 2 a b c", &["a", "b"]),
            ("EVAL script 0 a", &[]),
            ("BLPOP a b 0", &["a", "b"]),
            ("LMPOP 2 a b LEFT", &["a", "b"]),
            ("ZUNIONSTORE a 2 b c WEIGHTS 1 2", &["a", "b", "c"]),
            ("ZUNIONSTORE a 9 b", &["a", "b"]),
            ("EVAL script 9 a b", &["a", "b"]),
            ("EVAL script -1 a", &[]),
            ("XREAD COUNT 1 STREAMS a b 0 0", &["a", "b"]),
            ("XREADGROUP GROUP streams c NOACK BLOCK 0 STREAMS a >", &["a"]),
            ("XREAD COUNT 1 BLOCK", &[]),
            ("EVAL script 99999999999999999999 a", &[]),
            ("EVAL script 18446744073709551615 a", &["a"]),
        ] {
            assert_eq!(keys(line).unwrap(), expected, "{line}");
        }
        assert_eq!(keys("GEOADD s 1 2 m"), None);
    }
}
