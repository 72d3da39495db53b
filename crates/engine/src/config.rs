//! What an engine is allowed to use, and how strict it is.

use std::fmt;
use std::time::Duration;

use crate::clock::Clock;
use crate::guard::{Guard, Strict};

#[derive(Clone)]
pub struct Config {
    pub clock: Clock,
    /// Asked of clients of the listener; in-process handles need none.
    pub password: Option<String>,
    /// Commands that need memory are refused beyond this; 0: no limit.
    pub max_memory_bytes: usize,
    pub max_clients: usize,
    /// The longest single word of a command, and the longest string that `APPEND` may make.
    pub max_value_bytes: usize,
    /// The longest command, its words together; a transaction's queue is bounded by it too.
    pub max_command_bytes: usize,
    /// How many items a command that repeats itself (`SRANDMEMBER key -n`) may answer.
    pub max_reply_items: usize,
    /// Messages that may wait for one subscriber.
    pub subscriber_queue: usize,
    /// Channels and patterns that one connection may listen to.
    pub max_subscriptions: usize,
    pub max_script_instructions: u64,
    /// The longest that a script may run, whatever it spends the time on.
    pub max_script_duration: Duration,
    pub script_memory_bytes: usize,
    /// Scripts kept by their hash; the oldest goes first, and its callers load it again.
    pub max_scripts: usize,
    /// How long a script may run before other commands are answered with BUSY.
    pub busy_after: Duration,
    pub strict: Strict,
    pub guard: Option<Guard>,
}

impl Default for Config {
    fn default() -> Config {
        const MIB: usize = 1024 * 1024;
        Config {
            clock: Clock::System,
            password: None,
            max_memory_bytes: 0,
            max_clients: 1000,
            max_value_bytes: 64 * MIB,
            max_command_bytes: 128 * MIB,
            max_reply_items: 1_000_000,
            subscriber_queue: 4096,
            max_subscriptions: 10_000,
            max_script_instructions: 200_000_000,
            max_script_duration: Duration::from_secs(30),
            script_memory_bytes: 256 * MIB,
            max_scripts: 4096,
            busy_after: Duration::from_secs(5),
            strict: Strict::Off,
            guard: None,
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("password", &self.password.as_ref().map(|_| "***"))
            .field("max_memory_bytes", &self.max_memory_bytes)
            .field("strict", &self.strict)
            .finish_non_exhaustive()
    }
}
