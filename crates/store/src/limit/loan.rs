//! Requests that can be returned: those counted in advance and not used, and those that another limit has refused.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::{
    Algorithm, CLOCK, Call, Decision, Error, Least, Quota, Reply, Result, Rule, Script, Store, Window,
};

static GCRA_GIVE_BACK: Script = Script::with(&[CLOCK], include_str!("gcra_give_back.lua"));
static FIXED_LOG_GIVE_BACK: Script = Script::new(include_str!("fixed_log_give_back.lua"));
static SLIDING_LOG_GIVE_BACK: Script = Script::new(include_str!("sliding_log_give_back.lua"));
static SLIDING_WINDOW_GIVE_BACK: Script = Script::new(include_str!("sliding_window_give_back.lua"));

/// The result of borrowing several requests.
#[derive(Debug)]
pub enum Lent {
    /// Requests were granted.
    Granted {
        /// The quota that remains after them.
        quota: Quota,
        /// What was granted.
        loan: Loan,
    },
    /// Fewer than the minimum are available; nothing was counted.
    Denied {
        /// The remaining quota, less than the cost.
        quota: Quota,
        /// When the minimum would be available, if there are no other requests.
        retry_after: Duration,
    },
}

/// Requests counted in advance. Not `Clone`, since it can be returned only once.
#[derive(Debug)]
pub struct Loan {
    granted: u32,
    receipt: Vec<u8>,
}

impl Loan {
    /// How many requests it is for.
    #[must_use]
    pub fn granted(&self) -> u32 {
        self.granted
    }
}

impl Rule {
    /// Whether requests can be counted in advance: with [`Algorithm::Gcra`] and [`Algorithm::SlidingLog`].
    #[must_use]
    pub fn can_lend(&self) -> bool {
        matches!(self.algorithm(), Algorithm::Gcra | Algorithm::SlidingLog)
    }

    /// Whether counted requests can be returned: with every algorithm except [`Algorithm::FixedCounter`].
    #[must_use]
    pub fn can_give_back(&self) -> bool {
        self.algorithm() != Algorithm::FixedCounter
    }

    /// Counts a request of this cost if the limit allows it. It can be returned with [`give_back`](Self::give_back).
    pub async fn take_returnable<K: AsRef<[u8]>>(&self, store: &Store, key: K, cost: u32) -> Result<Lent> {
        if !self.can_give_back() || cost == 0 {
            return Err(Error::Misuse(format!("{} cannot return {cost} requests", self.algorithm())));
        }
        self.lend(store, key, cost..=cost).await
    }

    /// Counts as many requests in advance as are available, within this range.
    pub async fn borrow<K: AsRef<[u8]>>(
        &self,
        store: &Store,
        key: K,
        wanted: RangeInclusive<u32>,
    ) -> Result<Lent> {
        if !self.can_lend() || wanted.is_empty() || *wanted.start() == 0 {
            return Err(Error::Misuse(format!(
                "the algorithm {} cannot lend {wanted:?} requests",
                self.algorithm()
            )));
        }
        self.lend(store, key, wanted).await
    }

    async fn lend<K: AsRef<[u8]>>(&self, store: &Store, key: K, wanted: RangeInclusive<u32>) -> Result<Lent> {
        let keys = [key];
        let call = self.call_for(store, &keys, *wanted.end(), Least::This(*wanted.start()))?;
        let mut reply = self.run(store, &keys, call).await?;
        match self.read_next(&mut reply)? {
            Decision::Allowed(quota) => {
                let loan = Loan { granted: reply.next()?, receipt: reply.next()? };
                Ok(Lent::Granted { quota, loan })
            }
            Decision::Denied { quota, retry_after } => Ok(Lent::Denied { quota, retry_after }),
        }
    }

    /// Returns unused requests of a loan. Returns how many were accepted: with [`Algorithm::Gcra`], only those that are
    /// younger than `hold` and still count against the limit.
    pub async fn give_back<K: AsRef<[u8]>>(
        &self,
        store: &Store,
        key: K,
        (count, loan): (u32, Loan),
        hold: Duration,
    ) -> Result<u32> {
        let count = count.min(loan.granted);
        let call = match self.algorithm() {
            Algorithm::Gcra => {
                let hold_us = u64::try_from(hold.as_micros()).unwrap_or(u64::MAX);
                let call = GCRA_GIVE_BACK.on(&[key]).arg(count).arg(hold_us).arg(loan.receipt);
                self.windows().iter().fold(call.arg(store.clock().us()), |call, window| {
                    let (rate, per_us) = window.rate();
                    call.arg(rate).arg(per_us)
                })
            }
            Algorithm::SlidingWindow => {
                let call = SLIDING_WINDOW_GIVE_BACK.on(&[key]).arg(count).arg(loan.receipt);
                let add = |call: Call, window: &Window| call.arg(window.limit).arg(window.period_ms());
                self.windows().iter().fold(call, add)
            }
            Algorithm::SlidingLog => {
                SLIDING_LOG_GIVE_BACK.on(&[key]).arg(count).arg(loan.granted).arg(loan.receipt)
            }
            Algorithm::FixedLog => {
                FIXED_LOG_GIVE_BACK.on(&[key]).arg(count).arg(loan.granted).arg(loan.receipt)
            }
            Algorithm::FixedCounter => {
                return Err(Error::Misuse("fixed_counter cannot return requests".to_owned()));
            }
        };
        let mut reply: Reply = store.run(call).await?;
        match reply.word() {
            "given" => reply.next(),
            _ => Err(reply.unexpected()),
        }
    }
}
