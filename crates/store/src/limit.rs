//! Rate limits (G16 G17 C6): one script per algorithm, several windows all or nothing, on the store's clock.

mod loan;
mod rule;

use std::time::Duration;

use redis::{FromRedisValue, Value};

use crate::clock::CLOCK;
use crate::error::{Error, Result};
use crate::reply::Reply;
use crate::script::{Call, Script};
use crate::store::Store;
pub use loan::{Lent, Loan};
pub use rule::{Algorithm, Rule, Window};

const VERDICT: &str = include_str!("limit/verdict.lua");

const WINDOW: &str = include_str!("limit/window.lua");

static FIXED_COUNTER: Script =
    Script::with(&[CLOCK, WINDOW, VERDICT], include_str!("limit/fixed_counter.lua"));
static FIXED_LOG: Script = Script::with(&[CLOCK, VERDICT], include_str!("limit/fixed_log.lua"));
static SLIDING_LOG: Script = Script::with(&[CLOCK, VERDICT], include_str!("limit/sliding_log.lua"));
static SLIDING_WINDOW: Script = Script::with(&[CLOCK, VERDICT], include_str!("limit/sliding_window.lua"));
static GCRA: Script = Script::with(&[CLOCK, VERDICT], include_str!("limit/gcra.lua"));

/// Whether a caller may go on, and what it should be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It may.
    Allowed(Quota),
    /// It may not; nothing was counted.
    Denied {
        /// What is left, too little for what was asked.
        quota: Quota,
        /// When the same request would pass if nobody else asked.
        retry_after: Duration,
    },
}

/// The state of the window that a client is told about: of several the one that binds most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// How many requests the window lets pass.
    pub limit: u32,
    /// How many more would pass right now.
    pub remaining: u32,
    /// When all of the limit is there again, if nobody asks.
    pub reset_after: Duration,
}

impl Decision {
    /// Whether the caller may go on.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }

    /// What is left.
    #[must_use]
    pub fn quota(&self) -> Quota {
        match self {
            Self::Allowed(quota) | Self::Denied { quota, .. } => *quota,
        }
    }
}

impl Rule {
    /// Asks whether a request of this cost may pass, and counts it if so. A cost of 0 looks without
    /// counting.
    ///
    /// `keys` is one key per identifier; for [`Algorithm::FixedCounter`] two, the public counter and the end
    /// of its window.
    pub async fn take<K: AsRef<[u8]>>(&self, store: &Store, keys: &[K], cost: u32) -> Result<Decision> {
        let value: Value = store.run(self.call(store, keys, cost)?).await?;
        self.read(value)
    }

    /// The call behind [`take`](Self::take), for a batch; its answer goes through [`read`](Self::read).
    pub fn call<K: AsRef<[u8]>>(&self, store: &Store, keys: &[K], cost: u32) -> Result<Call> {
        self.call_for(store, keys, cost, Least::All)
    }

    fn call_for<K: AsRef<[u8]>>(&self, store: &Store, keys: &[K], cost: u32, least: Least) -> Result<Call> {
        let (script, wanted) = match self.algorithm() {
            Algorithm::FixedCounter => (&FIXED_COUNTER, 2),
            Algorithm::FixedLog => (&FIXED_LOG, 1),
            Algorithm::SlidingLog => (&SLIDING_LOG, 1),
            Algorithm::SlidingWindow => (&SLIDING_WINDOW, 1),
            Algorithm::Gcra => (&GCRA, 1),
        };
        if keys.len() != wanted {
            return Err(Error::Misuse(format!(
                "{} takes {wanted} keys, not {}",
                self.algorithm(),
                keys.len()
            )));
        }
        if cost > self.most_at_once() {
            let most = self.most_at_once();
            return Err(Error::Misuse(format!(
                "a cost of {cost} can never pass; at most {most} can at once"
            )));
        }
        let mut call = script.on(keys).arg(cost);
        if self.can_lend() {
            call = match least {
                Least::All => call.arg(""),
                Least::This(least) => call.arg(least),
            };
        }
        call = call.arg(store.clock().us());
        for window in self.windows() {
            call = match self.algorithm() {
                Algorithm::Gcra => {
                    let (rate, per_us) = window.rate();
                    call.arg(rate).arg(per_us).arg(window.most_at_once(Algorithm::Gcra))
                }
                _ => call.arg(window.limit).arg(window.period_ms()),
            };
        }
        Ok(call)
    }

    /// Reads the answer to [`call`](Self::call).
    pub fn read(&self, value: Value) -> Result<Decision> {
        self.read_next(&mut Reply::from_redis_value(value).map_err(Error::reply)?)
    }

    fn read_next(&self, reply: &mut Reply) -> Result<Decision> {
        let index: usize = reply.next()?;
        let window = index.checked_sub(1).and_then(|index| self.windows().get(index));
        let window = window.ok_or_else(|| Error::reply(format!("there is no window {index}")))?;
        let unit = match self.algorithm() {
            Algorithm::Gcra => Duration::from_micros,
            _ => Duration::from_millis,
        };
        let remaining = reply.next()?;
        let quota = Quota {
            limit: window.most_at_once(self.algorithm()),
            remaining,
            reset_after: unit(reply.next()?),
        };
        let retry_after = unit(reply.next()?);
        match reply.word() {
            "allowed" => Ok(Decision::Allowed(quota)),
            "denied" => Ok(Decision::Denied { quota, retry_after }),
            _ => Err(reply.unexpected()),
        }
    }
}

/// How much of a cost must pass, or nothing does.
#[derive(Clone, Copy, Debug)]
enum Least {
    All,
    This(u32),
}
