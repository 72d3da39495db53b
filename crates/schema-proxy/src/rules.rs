//! The commands that the proxy looks at. All others are forwarded without being parsed further than their name.

use std::sync::Arc;

use hob_commands::{FAMILIES, Flags, Keys};
use hob_store::{FromRedisValue, Store, Value, cmd};

use crate::judge::is_word;
use crate::writes::{WRITES, Write};

/// Longer than any name.
const MAX_NAME: usize = 64;

/// What to do with a command.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) name: Arc<str>,
    pub(crate) action: Action,
    pub(crate) keys: Keys,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Write(Write),
    /// Only removes data: its keys have to be in one slot, nothing else.
    Remove,
    Script,
    Session(SessionCommand),
}

/// A command that changes how later ones of the same connection are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionCommand {
    Multi,
    /// `EXEC` or `DISCARD`.
    EndTransaction,
    Reset,
    Select,
    Hello,
    Client,
    Cluster,
}

const SESSION: [(&str, SessionCommand); 8] = [
    ("multi", SessionCommand::Multi),
    ("exec", SessionCommand::EndTransaction),
    ("discard", SessionCommand::EndTransaction),
    ("reset", SessionCommand::Reset),
    ("select", SessionCommand::Select),
    ("hello", SessionCommand::Hello),
    ("client", SessionCommand::Client),
    ("cluster", SessionCommand::Cluster),
];

const SCRIPTS: [&str; 3] = ["eval", "evalsha", "fcall"];
const SCRIPT_KEYS: Keys = Keys::Counted { at: 2 };
const ONE_KEY: Keys = Keys::Range { first: 1, last: 1, step: 1 };

/// More than there are commands, so that most buckets have one rule.
const BUCKETS: usize = 1_024;

/// The commands that need a look, by name.
///
/// Every command of every client is looked up here, in upper or lower case. A `HashMap` would need a copy of the name in lower
/// case, which costs as much as the search.
#[derive(Debug)]
pub(crate) struct Rules {
    buckets: Vec<Vec<Rule>>,
}

impl Rules {
    /// The rules for a server with these further commands.
    pub(crate) fn new(further: Vec<FurtherCommand>) -> Rules {
        let mut rules = Rules { buckets: (0..BUCKETS).map(|_| Vec::new()).collect() };
        for command in further {
            rules.add(&command.name, Action::Write(Write::unknown(command.keys)), command.keys);
        }
        // The table of a container's subcommands has one row each; those that write have their key in the same place.
        for command in FAMILIES.iter().flat_map(|family| family.commands) {
            if command.flags.has(Flags::WRITE) && command.keys != Keys::None {
                let name = command.name.split('|').next().unwrap_or(command.name);
                rules.add(name, Action::Remove, command.keys);
            }
        }
        for (name, write) in WRITES {
            let keys = rules.find(name.as_bytes()).map_or(ONE_KEY, |rule| rule.keys);
            rules.add(name, Action::Write(*write), keys);
        }
        for name in SCRIPTS {
            rules.add(name, Action::Script, SCRIPT_KEYS);
        }
        for (name, command) in SESSION {
            rules.add(name, Action::Session(command), Keys::None);
        }
        rules
    }

    /// Replaces an earlier rule for the same name.
    fn add(&mut self, name: &str, action: Action, keys: Keys) {
        let bucket = &mut self.buckets[bucket(name.as_bytes())];
        bucket.retain(|rule| !is_word(name.as_bytes(), &rule.name));
        bucket.push(Rule { name: name.into(), action, keys });
    }

    /// The rule for a command, whose name may be in upper or lower case.
    pub(crate) fn find(&self, name: &[u8]) -> Option<&Rule> {
        self.buckets[bucket(name)].iter().find(|rule| is_word(name, &rule.name))
    }
}

/// The same for upper and lower case.
fn bucket(name: &[u8]) -> usize {
    let hash = name.iter().take(MAX_NAME).fold(0_usize, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(usize::from(byte.to_ascii_lowercase()))
    });
    hash % BUCKETS
}

/// A command of the server that is not in our table, such as one of a module, and may create keys.
#[derive(Debug)]
pub(crate) struct FurtherCommand {
    name: String,
    keys: Keys,
}

impl FurtherCommand {
    /// Asks the server for its commands. The reply of a server that does not list them is an empty list: then only the
    /// commands of our table are checked.
    pub(crate) async fn list(store: &Store) -> hob_store::Result<Vec<FurtherCommand>> {
        let listed: Vec<Value> = match store.run(cmd("COMMAND")).await {
            Ok(listed) => listed,
            Err(hob_store::Error::Refused { .. }) => Vec::new(),
            Err(error) => return Err(error),
        };
        Ok(listed.into_iter().filter_map(FurtherCommand::read).collect())
    }

    /// An entry of the reply of `COMMAND`. Commands that need memory can create keys.
    fn read(entry: Value) -> Option<FurtherCommand> {
        let fields = Vec::<Value>::from_redis_value(entry).ok()?;
        let field = |at: usize| fields.get(at).cloned();
        let name = String::from_redis_value(field(0)?).ok()?.to_ascii_lowercase();
        let flags = Vec::<String>::from_redis_value(field(2)?).ok()?;
        let creates = ["write", "denyoom"].iter().all(|flag| flags.iter().any(|known| known == flag));
        let number = |at: usize| i32::from_redis_value(field(at)?).ok();
        let (first, last, step) = (number(3)?, number(4)?, number(5)?);
        if !creates || first < 1 || step < 1 || name.len() > MAX_NAME {
            return None;
        }
        let keys = Keys::Range { first: first as usize, last, step: step as usize };
        Some(FurtherCommand { name, keys })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_in_any_case() {
        let rules = Rules::new(vec![FurtherCommand { name: "json.set".to_owned(), keys: ONE_KEY }]);
        for name in ["SET", "set", "SeT", "georadiusbymember", "JSON.SET", "EVAL", "del", "multi"] {
            let found = rules.find(name.as_bytes()).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(&*found.name, name.to_ascii_lowercase());
        }
        for (name, _) in WRITES {
            let rule = rules.find(name.as_bytes()).unwrap_or_else(|| panic!("{name}"));
            assert!(matches!(rule.action, Action::Write(_)), "{name} has another rule: {rule:?}");
        }
        for name in ["", "get", "set\0", "se", "sett", &"x".repeat(1_000)] {
            assert!(rules.find(name.as_bytes()).is_none(), "{name}");
        }
    }

    #[test]
    fn most_commands_have_their_own_bucket() {
        let rules = Rules::new(Vec::new());
        let longest = rules.buckets.iter().map(Vec::len).max();
        assert!(longest <= Some(4), "{longest:?}");
    }
}
