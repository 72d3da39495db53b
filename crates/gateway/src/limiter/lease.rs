//! Leased limits: tokens that the store has debited in advance, spent in memory.
//!
//! What the store debits is stricter than what callers are promised, by as much as can be spent later (see
//! `rule::lease`). The rest of the argument is here: a token is spent within `hold` of the moment it was asked for,
//! by a monotonic clock, or it is not spent at all. The store debits it no earlier than that moment, so it is spent
//! within `hold` of its debit. Clocks of different instances are never compared.
//!
//! A batch is as large as what is used in an eighth of the hold. The next one is asked for before it is used up, so
//! that a busy caller never waits for the store; and what is left of it at half of the hold is given back, since then
//! nobody came for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hob_schema::Key;
use hob_store::Store;
use hob_store::limit::{Decision, Lent, Loan, Quota, Rule};
use parking_lot::Mutex;

use super::availability::Availability;
use super::claim;
use super::generations::Generations;
use crate::admission::identity::Identity;

/// Callers whose tokens are held, by rule. Tokens of a caller that is forgotten are lost, which is safe.
const MOST_CALLERS: usize = 32_768;

/// One instance asks for at most this part of what can pass at once, so that others find some.
const SHARE: u32 = 8;

/// A batch is meant to last for this part of the hold.
const BATCHES: u32 = 8;

/// When the store has no more, it is left alone for this part of the hold, so that a flood costs it little.
const PAUSES: u32 = 16;

/// The next batch is asked for when this part of the last one is left.
const EARLY: u32 = 4;

/// Where tokens come from.
#[derive(Debug)]
pub(crate) struct Lender {
    pub(crate) store: Store,
    pub(crate) availability: Arc<Availability>,
    /// What the store debits.
    pub(crate) rule: Rule,
    pub(crate) hold: Duration,
}

/// The tokens of every caller of a rule.
#[derive(Debug)]
pub(crate) struct Pools {
    lender: Arc<Lender>,
    callers: Mutex<Generations<Identity, Arc<Pool>>>,
}

#[derive(Debug)]
struct Pool {
    key: Key,
    tokens: Mutex<Tokens>,
    /// One asks the store at a time; the others of this caller wait for what comes back.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Tokens {
    batches: VecDeque<Batch>,
    /// The size of the next batch; follows how fast they are used up.
    want: u32,
    /// What the store said last, and when.
    quota: Option<(Quota, Instant)>,
    refused: Option<Refused>,
}

#[derive(Debug)]
struct Batch {
    left: u32,
    /// Before the question was sent: the store debits later than this, never earlier.
    asked_at: Instant,
    /// When its first token was spent.
    begun_at: Option<Instant>,
    loan: Loan,
}

/// When the store was asked, and for what at least.
#[derive(Clone, Copy, Debug)]
struct Asked {
    least: u32,
    most: u32,
    at: Instant,
    answered_at: Instant,
}

/// The store has no more for now.
#[derive(Clone, Copy, Debug)]
struct Refused {
    until: Instant,
    /// What there was no room for: a refused large request says nothing about a small one.
    least: u32,
    quota: Quota,
}

/// What can be said without the store.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Decided(Decision),
    /// It is allowed, and the tokens will soon be used up.
    RunningLow(Decision),
    /// The store has to be asked.
    Nothing,
}

impl Pools {
    pub(crate) fn new(lender: Lender) -> Self {
        Self { lender: Arc::new(lender), callers: Mutex::new(Generations::new(MOST_CALLERS)) }
    }

    /// Spends tokens, or says that there are none; `None` while the store is away and nothing is held.
    pub(crate) async fn take(
        &self,
        identity: &Identity,
        cost: u32,
        key: impl FnOnce() -> Key,
    ) -> Option<Decision> {
        let pool = Arc::clone(self.callers.lock().get_or_insert(identity, || Arc::new(Pool::new(key()))));
        match pool.spend(cost, self.lender.hold) {
            Said::Decided(decision) => Some(decision),
            Said::RunningLow(decision) => {
                pool.prefetch(&self.lender);
                Some(decision)
            }
            Said::Nothing => pool.wait_for(cost, &self.lender).await,
        }
    }

    /// Gives back all that is held, for a clean stop.
    pub(crate) async fn give_back_all(&self) {
        let pools: Vec<Arc<Pool>> = self.callers.lock().values().cloned().collect();
        for pool in pools {
            let batches = std::mem::take(&mut pool.tokens.lock().batches);
            for batch in batches {
                pool.give_back(batch, &self.lender).await;
            }
        }
    }

    #[cfg(test)]
    fn callers(&self) -> usize {
        self.callers.lock().len()
    }
}

impl Pool {
    fn new(key: Key) -> Self {
        Self { key, tokens: Mutex::default(), asking: tokio::sync::Mutex::default() }
    }

    fn spend(&self, cost: u32, hold: Duration) -> Said {
        self.tokens.lock().spend(cost, Instant::now(), hold)
    }

    /// Asks the store, or waits for whoever asks it already.
    async fn wait_for(self: &Arc<Self>, cost: u32, lender: &Arc<Lender>) -> Option<Decision> {
        if lender.availability.is_away() {
            return None;
        }
        let asking = self.asking.lock().await;
        // Whoever asked before may have brought enough, or found out that nobody answers.
        match self.spend(cost, lender.hold) {
            Said::Decided(decision) | Said::RunningLow(decision) => return Some(decision),
            Said::Nothing if lender.availability.is_away() => return None,
            Said::Nothing => {}
        }
        let borrowed = self.borrow(cost, lender).await;
        drop(asking);
        borrowed?;
        match self.spend(cost, lender.hold) {
            Said::Decided(decision) | Said::RunningLow(decision) => Some(decision),
            Said::Nothing => None,
        }
    }

    /// Asks the store for the next batch while the last one is still in use.
    fn prefetch(self: &Arc<Self>, lender: &Arc<Lender>) {
        if lender.availability.is_away() || self.asking.try_lock().is_err() {
            return;
        }
        let (pool, lender) = (Arc::clone(self), Arc::clone(lender));
        tokio::spawn(async move {
            if let Ok(_asking) = pool.asking.try_lock() {
                pool.borrow(1, &lender).await;
            }
        });
    }

    /// Asks the store for a batch, or for as much of it as there is; `None` if nobody answers.
    async fn borrow(self: &Arc<Self>, least: u32, lender: &Arc<Lender>) -> Option<()> {
        let share = (lender.rule.most_at_once() / SHARE).max(1);
        let most = self.tokens.lock().want.clamp(1, share).max(least);
        let at = Instant::now();
        let borrow = || lender.rule.borrow(&lender.store, &self.key, least..=most);
        match claim::ask((&lender.store, &lender.rule, &self.key), borrow).await {
            Ok(lent) => {
                let asked = Asked { least, most, at, answered_at: Instant::now() };
                self.tokens.lock().receive(lent, asked, lender.hold);
                self.give_back_later(at, lender);
                Some(())
            }
            Err(error) => {
                lender.availability.failed(&error);
                None
            }
        }
    }

    /// At half of its hold, what is left of a batch goes back.
    fn give_back_later(self: &Arc<Self>, asked_at: Instant, lender: &Arc<Lender>) {
        if self.tokens.lock().left() <= 1 {
            // Only what is about to be spent.
            return;
        }
        let (pool, lender) = (Arc::clone(self), Arc::clone(lender));
        tokio::spawn(async move {
            tokio::time::sleep_until((asked_at + lender.hold / 2).into()).await;
            let batch = pool.tokens.lock().withdraw(asked_at);
            if let Some(batch) = batch {
                pool.give_back(batch, &lender).await;
            }
        });
    }

    /// Gives a batch back as far as it was not spent. Should that fail, its tokens are lost, which is safe.
    async fn give_back(&self, batch: Batch, lender: &Lender) {
        if batch.left == 0 || lender.availability.is_away() {
            return;
        }
        let unspent = (batch.left, batch.loan);
        if let Err(error) = lender.rule.give_back(&lender.store, &self.key, unspent, lender.hold).await {
            lender.availability.failed(&error);
        }
    }
}

impl Tokens {
    fn spend(&mut self, cost: u32, now: Instant, hold: Duration) -> Said {
        while let Some(batch) = self.batches.front()
            && (batch.left == 0 || now >= batch.asked_at + hold)
        {
            self.retire(now, hold);
        }
        let left = self.left();
        if left < cost {
            return match self.refused.filter(|refused| now < refused.until && cost >= refused.least) {
                Some(Refused { until, quota, .. }) => {
                    Said::Decided(Decision::Denied { quota, retry_after: until - now })
                }
                None => Said::Nothing,
            };
        }
        let mut owed = cost;
        for batch in &mut self.batches {
            if owed == 0 {
                break;
            }
            batch.begun_at.get_or_insert(now);
            let spent = batch.left.min(owed);
            batch.left -= spent;
            owed -= spent;
        }
        let decision = Decision::Allowed(self.quota_at(now, left - cost));
        let low = left - cost <= self.want / EARLY && self.want >= EARLY;
        if low && self.refused.is_none_or(|refused| now >= refused.until) {
            Said::RunningLow(decision)
        } else {
            Said::Decided(decision)
        }
    }

    /// What the store said last, as of now: what is held here is left, too.
    fn quota_at(&self, now: Instant, held: u32) -> Quota {
        let (quota, said_at) = self.quota.unwrap_or((Quota::default(), now));
        let reset_after = quota.reset_after.saturating_sub(now.saturating_duration_since(said_at));
        Quota { remaining: quota.remaining + held, reset_after, ..quota }
    }

    /// Drops the oldest batch, and learns from how long it lasted how large the next should be.
    fn retire(&mut self, now: Instant, hold: Duration) {
        let Some(batch) = self.batches.pop_front() else { return };
        let spent = batch.loan.granted() - batch.left;
        let lasted = now.saturating_duration_since(batch.begun_at.unwrap_or(now)).as_nanos().max(1);
        let fitting = u128::from(spent) * (hold / BATCHES).as_nanos() / lasted;
        // Twice as much at once, so that a short burst does not take what others need.
        self.want = u32::try_from(fitting).unwrap_or(u32::MAX).clamp(1, spent.saturating_mul(2).max(1));
    }

    fn receive(&mut self, lent: Lent, asked: Asked, hold: Duration) {
        let pause = asked.at + hold / PAUSES;
        match lent {
            Lent::Granted { quota, loan } => {
                // Less than was asked for is all that there is.
                let least = loan.granted() < asked.most;
                self.refused = least.then_some(Refused { until: pause, least: 1, quota });
                self.quota = Some((quota, asked.answered_at));
                let (left, asked_at) = (loan.granted(), asked.at);
                self.batches.push_back(Batch { left, asked_at, begun_at: None, loan });
            }
            Lent::Denied { quota, retry_after } => {
                let until = (asked.answered_at + retry_after).max(pause);
                self.refused = Some(Refused { until, least: asked.least, quota });
            }
        }
    }

    /// Takes a batch out; if some of it is left, less is wanted from now on.
    fn withdraw(&mut self, asked_at: Instant) -> Option<Batch> {
        let at = self.batches.iter().position(|batch| batch.asked_at == asked_at)?;
        let batch = self.batches.remove(at)?;
        if batch.left > 0 {
            self.want = (batch.loan.granted() - batch.left).max(1);
        }
        Some(batch)
    }

    fn left(&self) -> u32 {
        self.batches.iter().map(|batch| batch.left).sum()
    }
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
