//! Leased limits: tokens that the store has debited in advance, spent in memory.
//!
//! What the store debits is stricter than what callers are promised, by as much as can be spent later (see
//! `rule::lease`). The rest of the argument is here: a token is spent within `hold` of the moment it was asked for,
//! by a monotonic clock, or it is dropped. The store debits it no earlier than that moment, so it is spent within
//! `hold` of its debit. Clocks of different instances are never compared.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hob_hot::Hot;
use hob_hot::limit::{Decision, Quota, Rule};
use hob_schema::Key;
use parking_lot::Mutex;

use super::availability::Availability;
use super::generations::Generations;
use crate::identity::Identity;

/// Callers whose tokens are held, by rule. Tokens of a caller that is forgotten are lost, which is safe.
const MOST_CALLERS: usize = 32_768;

/// One instance asks for at most this part of what can pass at once, so that others find some.
const SHARE: u32 = 8;

/// A refusal is believed for at least this part of the hold, so that a flood costs the store little.
const REFUSED_FOR: u32 = 16;

/// Where tokens come from.
pub(crate) struct Lender<'a, K: Fn() -> Key> {
    pub(crate) hot: &'a Hot,
    pub(crate) availability: &'a Availability,
    pub(crate) key: K,
    /// What the store debits.
    pub(crate) rule: &'a Rule,
    pub(crate) hold: Duration,
}

/// The tokens of every caller of a rule.
#[derive(Debug)]
pub(crate) struct Pools {
    callers: Mutex<Generations<Identity, Arc<Pool>>>,
}

impl Default for Pools {
    fn default() -> Self {
        Self { callers: Mutex::new(Generations::new(MOST_CALLERS)) }
    }
}

#[derive(Debug, Default)]
struct Pool {
    tokens: Mutex<Tokens>,
    /// One asks the store at a time; the others of this caller wait for what comes back.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Tokens {
    batches: VecDeque<Batch>,
    /// The size of the next batch; grows while batches are used up quickly.
    want: u32,
    quota: Option<Quota>,
    refused: Option<Refused>,
}

#[derive(Debug)]
struct Batch {
    left: u32,
    size: u32,
    asked_at: Instant,
    until: Instant,
}

/// What the store was asked.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// What is needed at once.
    cost: u32,
    /// What is given if the answer is yes.
    granted: u32,
    /// Before the question was sent: the store debits later than this, never earlier.
    at: Instant,
    answered_at: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Refused {
    until: Instant,
    /// What the store needs to have room for: a refused large request says nothing about a small one.
    cost: u32,
    quota: Quota,
}

impl Pools {
    /// Spends tokens, or says that there are none; `None` while the store is away and nothing is held.
    pub(crate) async fn take<K: Fn() -> Key>(
        &self,
        identity: &Identity,
        cost: u32,
        lender: &Lender<'_, K>,
    ) -> Option<Decision> {
        let pool = Arc::clone(self.callers.lock().get_or_insert(identity, Arc::default));
        if let Some(decision) = pool.tokens.lock().spend(cost, Instant::now(), lender.hold) {
            return Some(decision);
        }
        if lender.availability.is_away() {
            return None;
        }
        let _asking = pool.asking.lock().await;
        // Whoever asked before may have brought enough.
        if let Some(decision) = pool.tokens.lock().spend(cost, Instant::now(), lender.hold) {
            return Some(decision);
        }
        if let Err(error) = pool.borrow(cost, lender).await {
            lender.availability.failed(&error);
            return None;
        }
        pool.tokens.lock().spend(cost, Instant::now(), lender.hold)
    }

    #[cfg(test)]
    fn callers(&self) -> usize {
        self.callers.lock().len()
    }
}

impl Pool {
    /// Asks the store for a batch, and if that is too much, for what is left.
    async fn borrow<K: Fn() -> Key>(&self, cost: u32, lender: &Lender<'_, K>) -> hob_hot::Result<()> {
        let key = (lender.key)();
        let most = (lender.rule.most_at_once() / SHARE).max(1);
        let want = self.tokens.lock().want.clamp(1, most).max(cost);
        let mut asked_at = Instant::now();
        let mut decision = lender.rule.take(lender.hot, &[&key], want).await?;
        let mut granted = want;
        if let Decision::Denied { quota, .. } = decision
            && want > cost
        {
            granted = quota.remaining.clamp(cost, want);
            asked_at = Instant::now();
            decision = lender.rule.take(lender.hot, &[&key], granted).await?;
        }
        let asked = Asked { cost, granted, at: asked_at, answered_at: Instant::now() };
        self.tokens.lock().receive(decision, asked, lender.hold);
        Ok(())
    }
}

impl Tokens {
    fn spend(&mut self, cost: u32, now: Instant, hold: Duration) -> Option<Decision> {
        while let Some(batch) = self.batches.front() {
            if batch.left > 0 && now < batch.until {
                break;
            }
            self.retire(now, hold);
        }
        if self.left() >= cost {
            let mut owed = cost;
            for batch in &mut self.batches {
                let spent = batch.left.min(owed);
                batch.left -= spent;
                owed -= spent;
            }
            let quota = self.quota?;
            return Some(Decision::Allowed(Quota { remaining: quota.remaining + self.left(), ..quota }));
        }
        let refused = self.refused.filter(|refused| now < refused.until && cost >= refused.cost)?;
        Some(Decision::Denied { quota: refused.quota, retry_after: refused.until - now })
    }

    /// Drops the oldest batch, and learns from how it went how large the next should be.
    fn retire(&mut self, now: Instant, hold: Duration) {
        let Some(batch) = self.batches.pop_front() else { return };
        if batch.left > 0 {
            self.want = (batch.size - batch.left).max(1);
        } else if now.duration_since(batch.asked_at) < hold / 4 {
            self.want = batch.size.saturating_mul(2);
        }
    }

    fn receive(&mut self, decision: Decision, asked: Asked, hold: Duration) {
        match decision {
            Decision::Allowed(quota) => {
                self.quota = Some(quota);
                self.refused = None;
                let (size, asked_at) = (asked.granted, asked.at);
                self.batches.push_back(Batch { left: size, size, asked_at, until: asked_at + hold });
            }
            Decision::Denied { quota, retry_after } => {
                let until = asked.answered_at + retry_after.max(hold / REFUSED_FOR);
                self.refused = Some(Refused { until, cost: asked.cost, quota });
            }
        }
    }

    fn left(&self) -> u32 {
        self.batches.iter().map(|batch| batch.left).sum()
    }
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
