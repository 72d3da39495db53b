//! Rate limits (G16 G17 C6), with one script per algorithm. A request is counted in all windows of a rule or in none.
//! Scripts use the store's clock.

mod loan;
mod rule;

use std::time::Duration;

use redis::{FromRedisValue, Value};

use crate::clock::CLOCK;
use crate::error::{Error, Result};
use crate::repair::{self, KeyType, STORED};
use crate::reply::Reply;
use crate::script::{Call, Script};
use crate::store::Store;
pub use loan::{Lent, Loan};
pub use rule::{Algorithm, Rule, Window};

const VERDICT: &str = include_str!("limit/verdict.lua");

const WINDOW: &str = include_str!("limit/window.lua");

static FIXED_COUNTER: Script =
    Script::with(&[CLOCK, STORED, WINDOW, VERDICT], include_str!("limit/fixed_counter.lua"));
static FIXED_LOG: Script = Script::with(&[CLOCK, VERDICT], include_str!("limit/fixed_log.lua"));
static SLIDING_LOG: Script = Script::with(&[CLOCK, VERDICT], include_str!("limit/sliding_log.lua"));
static SLIDING_WINDOW: Script = Script::with(&[CLOCK, VERDICT], include_str!("limit/sliding_window.lua"));
static GCRA: Script = Script::with(&[CLOCK, VERDICT], include_str!("limit/gcra.lua"));

/// Whether a request is allowed, and the quota to report to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The request is allowed and was counted.
    Allowed(Quota),
    /// The request is denied; nothing was counted.
    Denied {
        /// The remaining quota, less than the cost.
        quota: Quota,
        /// When the same request would be allowed, if there are no other requests.
        retry_after: Duration,
    },
}

/// The state of a window. If there are several windows, it is the most restrictive one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// The limit of the window.
    pub limit: u32,
    /// How many more requests would be allowed now.
    pub remaining: u32,
    /// When the full limit is available again, if there are no requests.
    pub reset_after: Duration,
}

impl Decision {
    /// Whether the request is allowed.
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
    /// Counts a request of this cost if the limit allows it. A cost of 0 reads the quota without counting.
    ///
    /// `keys` is one key per identifier; for [`Algorithm::FixedCounter`] two, the public counter and the end
    /// of its window.
    pub async fn take<K: AsRef<[u8]>>(&self, store: &Store, keys: &[K], cost: u32) -> Result<Decision> {
        self.read_next(&mut self.run(store, keys, self.call(store, keys, cost)?).await?)
    }

    /// Runs a call on these keys, and again if another client had changed one of them. Their types are listed only then.
    async fn run<K: AsRef<[u8]>>(&self, store: &Store, keys: &[K], call: Call) -> Result<Reply> {
        let repair = async |error| repair::repair(store, &error, &self.typed(keys)).await.map(drop);
        repair::run_with(store, call, repair).await
    }

    /// The call behind [`take`](Self::take), for a batch; its answer goes through [`read`](Self::read).
    pub fn call<K: AsRef<[u8]>>(&self, store: &Store, keys: &[K], cost: u32) -> Result<Call> {
        self.call_for(store, keys, cost, Least::All)
    }

    /// The keys with the type that the algorithm gives them.
    fn typed<'a, K: AsRef<[u8]>>(&self, keys: &'a [K]) -> Vec<(&'a [u8], KeyType)> {
        let kind = match self.algorithm() {
            Algorithm::FixedLog | Algorithm::SlidingLog => KeyType::Zset,
            Algorithm::FixedCounter | Algorithm::SlidingWindow | Algorithm::Gcra => KeyType::String,
        };
        keys.iter().map(|key| (key.as_ref(), kind)).collect()
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
        if cost > self.max_at_once() {
            let most = self.max_at_once();
            return Err(Error::Misuse(format!(
                "a request with a cost of {cost} can never be allowed; the maximum cost is {most}"
            )));
        }
        let mut call = script.on(keys).arg(cost);
        if self.can_give_back() {
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
                    call.arg(rate).arg(per_us).arg(window.max_at_once(Algorithm::Gcra))
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
        let window = window
            .ok_or_else(|| Error::reply(format!("the reply names window {index}, which does not exist")))?;
        let unit = match self.algorithm() {
            Algorithm::Gcra => Duration::from_micros,
            _ => Duration::from_millis,
        };
        let remaining = reply.next()?;
        let quota = Quota {
            limit: window.max_at_once(self.algorithm()),
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

/// The smallest part of the cost that may be granted. If less is available, nothing is granted. With an explicit part, the
/// reply has a receipt.
#[derive(Clone, Copy, Debug)]
enum Least {
    All,
    This(u32),
}
