//! Checks for tests: strict scripts, and a hook that is called with every change.

use std::fmt;
use std::sync::Arc;

use hob_commands::{Flags, key_slot};

use crate::command::{Args, Handler, resolve};
use crate::engine::Core;
use crate::reply::{CommandResult, Failure, Reply};

/// Which keys a script may access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strict {
    /// Any key, as on a standalone Redis.
    #[default]
    Off,
    /// Only the keys in KEYS.
    Keys,
    /// Only the keys in KEYS, all in one Redis Cluster slot.
    KeysOfOneSlot,
}

impl Strict {
    /// Checks a script's KEYS before it runs.
    pub(crate) fn check_keys(self, keys: &[&[u8]]) -> CommandResult<()> {
        let mut slots = keys.iter().map(|key| key_slot(key));
        let first = slots.next();
        if self == Strict::KeysOfOneSlot && slots.any(|slot| Some(slot) != first) {
            return Err(Failure::new("CROSSSLOT Keys in request don't hash to the same slot"));
        }
        Ok(())
    }

    /// Checks a key that a running script accesses.
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

/// A hook that is called with the changes of every command, transaction or script, at its end.
///
/// An `Err` becomes the error that the caller gets. The change stays: a guard makes a test fail, it does not roll back.
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

/// The changed keys, and read access to the store.
#[derive(Debug)]
pub struct Changes<'a> {
    pub(crate) core: &'a mut Core,
    pub(crate) keys: Vec<Vec<u8>>,
}

impl Changes<'_> {
    /// The changed keys without duplicates, ordered by their bytes.
    pub fn keys(&self) -> &[Vec<u8>] {
        &self.keys
    }

    /// The time of the store.
    pub fn now_ms(&self) -> u64 {
        self.core.now_us / 1_000
    }

    /// Runs a command; commands that write are refused.
    pub fn ask(&mut self, words: &[&[u8]]) -> Reply {
        self.try_ask(words).unwrap_or_else(Reply::from)
    }

    fn try_ask(&mut self, words: Args<'_>) -> CommandResult {
        let command = resolve(words)?;
        match Handler::of(command) {
            Handler::Data(run) if command.flags.has(Flags::READONLY) => run(self.core, words),
            _ => Err(Failure::new("ERR a guard may only read")),
        }
    }
}
