//! Checks that tests put into the store: strict scripts, and a hook that sees every change.

use std::fmt;
use std::sync::Arc;

use crate::command::{Args, Flags, Run, resolve};
use crate::core::Core;
use crate::reply::{CommandResult, Failure, Reply};
use crate::slot::key_slot;

/// What a script may touch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strict {
    /// Whatever it likes, as on a Redis that stands alone.
    #[default]
    Off,
    /// Only keys that it was given in KEYS.
    Keys,
    /// Only keys that it was given in KEYS, all of one Redis Cluster slot.
    KeysOfOneSlot,
}

impl Strict {
    /// Judges a script's KEYS before it runs.
    pub(crate) fn check_keys(self, keys: &[&[u8]]) -> CommandResult<()> {
        let mut slots = keys.iter().map(|key| key_slot(key));
        let first = slots.next();
        if self == Strict::KeysOfOneSlot && slots.any(|slot| Some(slot) != first) {
            return Err(Failure::new("CROSSSLOT Keys in request don't hash to the same slot"));
        }
        Ok(())
    }

    /// Judges a key that a running script is about to touch.
    pub(crate) fn check_key(self, declared: &[Vec<u8>], key: &[u8]) -> CommandResult<()> {
        if self == Strict::Off || declared.iter().any(|allowed| allowed == key) {
            return Ok(());
        }
        let key = String::from_utf8_lossy(key);
        Err(format!(
            "ERR Script attempted to access a non local key in a cluster node: '{key}' is not in KEYS"
        )
        .into())
    }
}

/// A hook that is shown what every command, transaction or script has changed, at its end.
///
/// An `Err` becomes the error that the caller gets. The change stays: a guard is there to make a test
/// fail, not to undo.
#[derive(Clone)]
pub struct Guard(Arc<GuardFn>);

type GuardFn = dyn Fn(&mut Changes<'_>) -> Result<(), String> + Send + Sync;

impl Guard {
    pub fn new(check: impl Fn(&mut Changes<'_>) -> Result<(), String> + Send + Sync + 'static) -> Guard {
        Guard(Arc::new(check))
    }

    pub(crate) fn check(&self, changes: &mut Changes<'_>) -> CommandResult<()> {
        (self.0)(changes).map_err(|what| format!("GUARD {what}").into())
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}

/// The keys that were changed, and the store to look at them with.
#[derive(Debug)]
pub struct Changes<'a> {
    pub(crate) core: &'a mut Core,
    pub(crate) keys: Vec<Vec<u8>>,
}

impl Changes<'_> {
    /// The changed keys, each once, in the order of their bytes.
    pub fn keys(&self) -> &[Vec<u8>] {
        &self.keys
    }

    /// Asks the store; commands that write are refused.
    pub fn ask(&mut self, words: &[&[u8]]) -> Reply {
        self.try_ask(words).unwrap_or_else(Reply::from)
    }

    fn try_ask(&mut self, words: Args<'_>) -> CommandResult {
        let command = resolve(words)?;
        match command.run {
            Run::Data(run) if command.flags.has(Flags::READONLY) => run(self.core, words),
            _ => Err(Failure::new("ERR a guard may only read")),
        }
    }
}
