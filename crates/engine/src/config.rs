//! The limits of an engine, and its strict mode.

mod clock;

pub use clock::{Clock, DrivenClock};

use std::fmt;
use std::time::Duration;

use crate::guard::{Guard, Strict};

#[derive(Clone)]
pub struct Config {
    pub clock: Clock,
    /// Required from clients of the listener; in-process handles need none.
    pub password: Option<String>,
    /// Beyond this, commands that need memory are refused; 0: no limit.
    pub max_memory_bytes: usize,
    pub max_clients: usize,
    /// The maximum size of one argument, and of a string that `APPEND` creates.
    pub max_value_bytes: usize,
    /// The maximum size of a command with all its arguments, and of a transaction's queue.
    pub max_command_bytes: usize,
    /// The maximum number of items in a reply with repetitions (`SRANDMEMBER key -n`).
    pub max_reply_items: usize,
    /// What is queued for one subscriber.
    pub subscriber_limits: SubscriberLimits,
    /// The maximum number of channels and patterns of one connection.
    pub max_subscriptions: usize,
    pub max_script_instructions: u64,
    /// The maximum run time of a script, including its calls to the store.
    pub max_script_duration: Duration,
    pub script_memory_bytes: usize,
    /// The maximum number of cached scripts. The oldest is dropped first, and its callers load it again.
    pub max_scripts: usize,
    /// How long a script may run before other commands get a BUSY error.
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
            subscriber_limits: SubscriberLimits::default(),
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

/// How much a subscriber may fall behind. Beyond a limit, a client of the listener is disconnected, and a subscriber in this
/// process loses messages and receives their number. The limits of bytes are those of Redis
/// (`client-output-buffer-limit pubsub`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriberLimits {
    pub messages: usize,
    pub hard_bytes: usize,
    /// May be exceeded for `soft_duration`.
    pub soft_bytes: usize,
    pub soft_duration: Duration,
}

impl Default for SubscriberLimits {
    fn default() -> SubscriberLimits {
        SubscriberLimits {
            messages: 4096,
            hard_bytes: 32 << 20,
            soft_bytes: 8 << 20,
            soft_duration: Duration::from_secs(60),
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
