//! The commands that the proxy looks at. All others are forwarded without being parsed further than their name.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use hob_commands::{FAMILIES, Flags, FnvHasher, Keys};
use hob_store::{FromRedisValue, Store, Value, cmd};

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

/// The commands that need a look, by name.
#[derive(Debug)]
pub(crate) struct Rules(HashMap<Box<[u8]>, Rule, BuildHasherDefault<FnvHasher>>);

impl Rules {
    /// The rules for a server with these further commands.
    pub(crate) fn new(further: Vec<FurtherCommand>) -> Rules {
        let mut rules = Rules(HashMap::default());
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
            let keys = rules.0.get(name.as_bytes()).map_or(ONE_KEY, |rule| rule.keys);
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

    fn add(&mut self, name: &str, action: Action, keys: Keys) {
        let rule = Rule { name: name.into(), action, keys };
        self.0.insert(name.as_bytes().into(), rule);
    }

    /// The rule for a command, whose name may be in upper or lower case.
    pub(crate) fn find(&self, name: &[u8]) -> Option<&Rule> {
        let mut lower = [0; MAX_NAME];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        self.0.get(&*lower)
    }
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
