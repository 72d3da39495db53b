//! Leased limits: the store debits tokens in advance, and the instance spends them in memory.
//!
//! The store debits more strictly than the limit, by as much as can be spent late (see `rule::leased_accounting`). The
//! rest of the argument is here: a token is spent within `hold` of the moment it was requested, by a monotonic clock,
//! or not at all. The store debits it no earlier than that moment, so it is spent within `hold` of its debit. Clocks of
//! different instances are never compared.
//!
//! A batch is as large as what a caller uses in an eighth of the hold. The next batch is requested before the last one
//! is used up, so that a busy caller never waits for the store. Tokens that are left at half of the hold are returned,
//! because the caller has stopped.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hob_store::limit::{Decision, Lent, Loan, Quota, Rule};
use hob_store::{Key, Store};
use hob_units::RecentMap;
use parking_lot::Mutex;

use super::availability::Availability;
use crate::identity::Identity;

/// Callers whose tokens are held, per rule. If a caller is dropped, its tokens are lost, which is safe.
const MAX_CALLERS: usize = 32_768;

/// An instance requests at most 1/8 of what can pass at once, so that tokens are left for others.
const MAX_BATCH_DIVISOR: u32 = 8;

/// A batch is meant to last for 1/8 of the hold.
const BATCH_DURATION_DIVISOR: u32 = 8;

/// After a refusal, the store is not asked again for 1/16 of the hold, so that a flood costs it little.
const REFUSAL_PAUSE_DIVISOR: u32 = 16;

/// The next batch is requested when 1/4 of the last one is left.
const PREFETCH_DIVISOR: u32 = 4;

/// How often a request borrows, if other requests spend the tokens first or the tokens expire on the way.
const MAX_BORROWS: u32 = 2;

/// Borrows tokens from the store.
#[derive(Debug)]
pub(crate) struct TokenSource {
    pub(crate) store: Store,
    pub(crate) availability: Arc<Availability>,
    /// The limit by which the store debits tokens.
    pub(crate) rule: Rule,
    pub(crate) hold: Duration,
}

/// The tokens of all callers of a rule.
#[derive(Debug)]
pub(crate) struct TokenPools {
    source: Arc<TokenSource>,
    callers: Mutex<RecentMap<Identity, Arc<TokenPool>>>,
}

#[derive(Debug)]
struct TokenPool {
    key: Key,
    tokens: Mutex<Tokens>,
    /// One request at a time borrows tokens; others of the same caller wait for the result.
    borrowing: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct Tokens {
    batches: VecDeque<Batch>,
    /// Follows how fast tokens are used.
    next_batch_size: u32,
    /// The last quota from the store, and when it arrived.
    quota: Option<(Quota, Instant)>,
    refused: Option<StoreRefusal>,
    /// How often the store has not replied.
    failures: u64,
    /// The batch that the last request was paid from, by its `requested_at`; `None` if it took several.
    last_paid_from: Option<Instant>,
}

/// A decision, and the batch that paid for it if the tokens can be put back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) decision: Decision,
    pub(crate) batch: Option<BatchId>,
}

/// A batch of one caller, by the time at which it was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchId(Instant);

#[derive(Debug)]
struct Batch {
    left: u32,
    /// Before the request was sent: the store debits no earlier than this.
    requested_at: Instant,
    first_spent_at: Option<Instant>,
    loan: Loan,
}

/// A request for tokens.
#[derive(Clone, Copy, Debug)]
struct BorrowRequest {
    min: u32,
    max: u32,
    at: Instant,
    answered_at: Instant,
}

/// The store has no more tokens for now.
#[derive(Clone, Copy, Debug)]
struct StoreRefusal {
    until: Instant,
    /// The smallest cost that was refused: a refused large request does not mean that a small one would be.
    min: u32,
    quota: Quota,
}

/// A decision without the store.
#[derive(Debug, PartialEq, Eq)]
enum LocalDecision {
    Decided(Decision),
    /// Allowed, and the tokens will soon be used up.
    RunningLow(Decision),
    /// There are not enough tokens.
    AskStore,
}

impl TokenPools {
    pub(crate) fn new(source: TokenSource) -> Self {
        Self { source: Arc::new(source), callers: Mutex::new(RecentMap::new(MAX_CALLERS)) }
    }

    /// Spends tokens, or refuses; `None` while the store is unavailable and there are not enough tokens.
    pub(crate) async fn take(
        &self,
        identity: &Identity,
        cost: u32,
        key: impl FnOnce() -> Key,
    ) -> Option<Spent> {
        let pool =
            Arc::clone(self.callers.lock().get_or_insert(identity, || Arc::new(TokenPool::new(key()))));
        let (decision, batch) = pool.tokens.lock().spend_from(cost, Instant::now(), self.source.hold);
        match decision {
            LocalDecision::Decided(decision) => Some(Spent { decision, batch }),
            LocalDecision::RunningLow(decision) => {
                pool.prefetch(&self.source);
                Some(Spent { decision, batch })
            }
            LocalDecision::AskStore => pool.borrow_and_spend(cost, &self.source).await,
        }
    }

    /// Puts tokens back that were spent for a request which another rule has refused.
    pub(crate) fn put_back(&self, identity: &Identity, cost: u32, batch: BatchId) {
        if let Some(pool) = self.callers.lock().get(identity) {
            pool.tokens.lock().put_back(cost, batch);
        }
    }

    /// Returns all held tokens, for a clean stop.
    pub(crate) async fn return_all(&self) {
        let pools: Vec<Arc<TokenPool>> = self.callers.lock().values().cloned().collect();
        for pool in pools {
            // A batch that is being borrowed is returned as well.
            let _borrowing = pool.borrowing.lock().await;
            let batches = std::mem::take(&mut pool.tokens.lock().batches);
            for batch in batches {
                pool.return_batch(batch, &self.source).await;
            }
        }
    }

    #[cfg(test)]
    fn callers(&self) -> usize {
        self.callers.lock().len()
    }
}

impl TokenPool {
    fn new(key: Key) -> Self {
        Self { key, tokens: Mutex::default(), borrowing: Arc::default() }
    }

    /// Borrows tokens, or waits for another request that does, and spends them.
    async fn borrow_and_spend(self: &Arc<Self>, cost: u32, source: &Arc<TokenSource>) -> Option<Spent> {
        if source.availability.is_unavailable() {
            return None;
        }
        let failures = self.tokens.lock().failures;
        let _borrowing = self.borrowing.lock().await;
        let (mut now, mut borrows) = (Instant::now(), 0);
        loop {
            // Another request may have borrowed enough. If it got no reply, all that waited for it have waited long enough.
            let ((decision, batch), has_failed) = {
                let mut tokens = self.tokens.lock();
                (tokens.spend_from(cost, now, source.hold), tokens.failures != failures)
            };
            match decision {
                LocalDecision::Decided(decision) | LocalDecision::RunningLow(decision) => {
                    return Some(Spent { decision, batch });
                }
                LocalDecision::AskStore
                    if borrows == MAX_BORROWS || has_failed || source.availability.is_unavailable() =>
                {
                    return None;
                }
                LocalDecision::AskStore => {
                    // The answer counts as of its arrival, however long this task is suspended afterwards.
                    now = self.borrow(cost, source).await?;
                    borrows += 1;
                }
            }
        }
    }

    /// Borrows the next batch while the last one is still in use.
    fn prefetch(self: &Arc<Self>, source: &Arc<TokenSource>) {
        if source.availability.is_unavailable() {
            return;
        }
        // Held from now on: until the task has run, further requests would each start another one.
        let Ok(borrowing) = Arc::clone(&self.borrowing).try_lock_owned() else { return };
        let (pool, source) = (Arc::clone(self), Arc::clone(source));
        tokio::spawn(async move {
            let _borrowing = borrowing;
            pool.borrow(1, &source).await;
        });
    }

    /// Borrows up to a batch, and returns when the answer arrived; `None` if the store is unavailable.
    async fn borrow(self: &Arc<Self>, min: u32, source: &Arc<TokenSource>) -> Option<Instant> {
        let share = (source.rule.max_at_once() / MAX_BATCH_DIVISOR).max(1);
        let max = self.tokens.lock().next_batch_size.clamp(1, share).max(min);
        let at = Instant::now();
        match source.rule.borrow(&source.store, &self.key, min..=max).await {
            Ok(lent) => {
                let answered_at = Instant::now();
                let request = BorrowRequest { min, max, at, answered_at };
                self.tokens.lock().receive(lent, request, source.hold);
                self.return_later(at, source);
                Some(answered_at)
            }
            Err(error) => {
                source.availability.record_failure(&error);
                self.tokens.lock().failures += 1;
                None
            }
        }
    }

    /// Returns the rest of a batch at half of its hold.
    fn return_later(self: &Arc<Self>, requested_at: Instant, source: &Arc<TokenSource>) {
        if self.tokens.lock().left() <= 1 {
            // The one token is about to be spent.
            return;
        }
        let (pool, source) = (Arc::clone(self), Arc::clone(source));
        tokio::spawn(async move {
            tokio::time::sleep_until((requested_at + source.hold / 2).into()).await;
            let batch = pool.tokens.lock().withdraw(requested_at);
            if let Some(batch) = batch {
                pool.return_batch(batch, &source).await;
            }
        });
    }

    /// Returns the unspent tokens of a batch. If that fails they are lost, which is safe.
    async fn return_batch(&self, batch: Batch, source: &TokenSource) {
        if batch.left == 0 || source.availability.is_unavailable() {
            return;
        }
        let unspent = (batch.left, batch.loan);
        if let Err(error) = source.rule.give_back(&source.store, &self.key, unspent, source.hold).await {
            source.availability.record_failure(&error);
        }
    }
}

impl Tokens {
    /// Spends tokens, and names the batch if one alone has paid.
    fn spend_from(&mut self, cost: u32, now: Instant, hold: Duration) -> (LocalDecision, Option<BatchId>) {
        self.last_paid_from = None;
        (self.spend(cost, now, hold), self.last_paid_from.map(BatchId))
    }

    /// A batch that was used up in the meantime is gone, and its tokens with it.
    fn put_back(&mut self, cost: u32, BatchId(requested_at): BatchId) {
        let batch = self.batches.iter_mut().find(|batch| batch.requested_at == requested_at);
        if let Some(batch) = batch {
            batch.left = batch.left.saturating_add(cost).min(batch.loan.granted());
        }
    }

    fn spend(&mut self, cost: u32, now: Instant, hold: Duration) -> LocalDecision {
        while let Some(batch) = self.batches.front()
            && (batch.left == 0 || now >= batch.requested_at + hold)
        {
            self.retire(now, hold);
        }
        let left = self.left();
        if left < cost {
            return match self.refused.filter(|refused| now < refused.until && cost >= refused.min) {
                Some(StoreRefusal { until, quota, .. }) => {
                    LocalDecision::Decided(Decision::Denied { quota, retry_after: until - now })
                }
                None => LocalDecision::AskStore,
            };
        }
        let mut owed = cost;
        for batch in &mut self.batches {
            if owed == 0 {
                break;
            }
            batch.first_spent_at.get_or_insert(now);
            let spent = batch.left.min(owed);
            batch.left -= spent;
            owed -= spent;
            self.last_paid_from = (spent == cost).then_some(batch.requested_at);
        }
        let decision = Decision::Allowed(self.quota_at(now, left - cost));
        let low = left - cost <= self.next_batch_size / PREFETCH_DIVISOR
            && self.next_batch_size >= PREFETCH_DIVISOR;
        if low && self.refused.is_none_or(|refused| now >= refused.until) {
            LocalDecision::RunningLow(decision)
        } else {
            LocalDecision::Decided(decision)
        }
    }

    /// The last quota from the store, as of now, plus the tokens held here.
    fn quota_at(&self, now: Instant, held: u32) -> Quota {
        let (quota, received_at) = self.quota.unwrap_or((Quota::default(), now));
        let reset_after = quota.reset_after.saturating_sub(now.saturating_duration_since(received_at));
        Quota { remaining: quota.remaining + held, reset_after, ..quota }
    }

    /// Drops the oldest batch, and derives the size of the next one from how long it lasted.
    fn retire(&mut self, now: Instant, hold: Duration) {
        let Some(batch) = self.batches.pop_front() else { return };
        let spent = batch.loan.granted() - batch.left;
        let lasted = now.saturating_duration_since(batch.first_spent_at.unwrap_or(now)).as_nanos().max(1);
        let fitting = u128::from(spent) * (hold / BATCH_DURATION_DIVISOR).as_nanos() / lasted;
        // At most doubles, so that a short burst does not take the tokens of others.
        self.next_batch_size =
            u32::try_from(fitting).unwrap_or(u32::MAX).clamp(1, spent.saturating_mul(2).max(1));
    }

    fn receive(&mut self, lent: Lent, request: BorrowRequest, hold: Duration) {
        let pause = request.at + hold / REFUSAL_PAUSE_DIVISOR;
        match lent {
            Lent::Granted { quota, loan } => {
                // A partial grant means that nothing is left.
                let is_partial = loan.granted() < request.max;
                self.refused = is_partial.then_some(StoreRefusal { until: pause, min: 1, quota });
                self.quota = Some((quota, request.answered_at));
                let (left, requested_at) = (loan.granted(), request.at);
                self.batches.push_back(Batch { left, requested_at, first_spent_at: None, loan });
            }
            Lent::Denied { quota, retry_after } => {
                let until = (request.answered_at + retry_after).max(pause);
                self.refused = Some(StoreRefusal { until, min: request.min, quota });
            }
        }
    }

    /// Takes a batch out. If some of it is left, the next one is smaller.
    fn withdraw(&mut self, requested_at: Instant) -> Option<Batch> {
        let at = self.batches.iter().position(|batch| batch.requested_at == requested_at)?;
        let batch = self.batches.remove(at)?;
        if batch.left > 0 {
            self.next_batch_size = (batch.loan.granted() - batch.left).max(1);
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
