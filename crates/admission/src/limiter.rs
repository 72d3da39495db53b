//! Enforces rules: by a call to the store, from leased tokens, or, while the store is unavailable, as the rule's
//! `on_store_failure` says.

mod availability;
pub(crate) mod headers;
mod known_quotas;
mod lease;
mod local;
pub(crate) mod rule;
mod top_refused;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hob_store::limit::{Algorithm, Decision, Lent, Loan};
use hob_store::{Key, Store};
use parking_lot::RwLock;

use crate::config::OnStoreFailure;
use crate::identity::Identity;
use crate::keys::Keys;
use crate::limiter::rule::{Accounting, Keyspace, Rule, RuleMode};
use crate::policy::Policy;

use availability::Availability;
use known_quotas::KnownQuotas;
use lease::{BatchId, Spent, TokenPools, TokenSource};
use local::LocalLimits;
use top_refused::TopRefused;

/// `Retry-After` when the store is unavailable.
const RETRY_AFTER_UNAVAILABLE: Duration = Duration::from_secs(1);

/// How long after a check a request can be given back.
const GIVE_BACK_WITHIN: Duration = Duration::from_secs(5);

/// A rule's decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Decided by the limit.
    Decided(Decision),
    /// Allowed, because the store is unavailable and the rule is open.
    Unlimited,
    /// Refused, because the store is unavailable and the rule is closed.
    Unavailable { retry_after: Duration },
}

impl Verdict {
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        match self {
            Self::Decided(decision) => decision.is_allowed(),
            Self::Unlimited => true,
            Self::Unavailable { .. } => false,
        }
    }
}

/// Whether a later rule may still refuse a request that this one allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Later {
    MayRefuse,
    Nothing,
}

/// What a rule has counted for a request, until all other rules have allowed it too.
#[derive(Debug)]
pub(crate) struct Counted {
    active: Arc<ActiveRule>,
    identity: Identity,
    cost: u32,
    by: CountedBy,
}

#[derive(Debug)]
enum CountedBy {
    Store(Loan),
    Tokens(BatchId),
    LocalLimits,
}

/// A rule with its state in this instance.
#[derive(Debug)]
pub struct ActiveRule {
    rule: Rule,
    /// With the deadline for requests.
    store: Store,
    /// Only for a leased rule.
    pools: Option<TokenPools>,
    local: LocalLimits,
    /// Only for an exact rule that is open without the store.
    known: Option<KnownQuotas>,
    counts: DecisionCounts,
    top_refused: TopRefused,
}

/// Decisions since they were last taken.
#[derive(Debug, Default)]
struct DecisionCounts {
    allowed: AtomicU64,
    refused: AtomicU64,
    shadowed: AtomicU64,
}

/// What a rule has decided since the last [`ActiveRule::take_decisions`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    pub allowed: u64,
    pub refused: u64,
    /// Allowed by a shadow rule that would refuse.
    pub shadowed: u64,
}

impl ActiveRule {
    fn new(rule: Rule, store: &Store, availability: &Arc<Availability>) -> Self {
        let local = LocalLimits::new(&rule.limit);
        let pools = match &rule.accounting {
            Accounting::Exact => None,
            Accounting::Leased { debited, hold } => Some(TokenPools::new(TokenSource {
                store: store.clone(),
                availability: Arc::clone(availability),
                rule: debited.clone(),
                hold: *hold,
            })),
        };
        let store = store.clone();
        let known = (pools.is_none() && rule.on_store_failure == OnStoreFailure::Open)
            .then(|| KnownQuotas::new(&rule.limit));
        Self {
            rule,
            store,
            pools,
            local,
            known,
            counts: DecisionCounts::default(),
            top_refused: TopRefused::default(),
        }
    }

    #[must_use]
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// The decisions of this instance since the last call.
    #[must_use]
    pub fn take_decisions(&self) -> Decisions {
        let [allowed, refused, shadowed] =
            [&self.counts.allowed, &self.counts.refused, &self.counts.shadowed]
                .map(|count| count.swap(0, Relaxed));
        Decisions { allowed, refused, shadowed }
    }

    /// The callers that were refused most since the last call, and about how often.
    #[must_use]
    pub fn take_top_refused(&self) -> HashMap<Identity, u64> {
        self.top_refused.take()
    }

    fn count_decision(&self, identity: &Identity, verdict: &Verdict) {
        let count = match (verdict.is_allowed(), self.rule.mode) {
            (true, _) => &self.counts.allowed,
            (false, RuleMode::Enforced) => &self.counts.refused,
            (false, RuleMode::Shadow) => &self.counts.shadowed,
        };
        // Before the count, with which it is published.
        if !verdict.is_allowed() {
            self.top_refused.add(identity);
        }
        count.fetch_add(1, Relaxed);
    }
}

/// Enforces the rules of the current policy. Clones share their state.
#[derive(Clone, Debug)]
pub struct Limiter {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    keys: Keys,
    availability: Arc<Availability>,
    rules: RwLock<Arc<Vec<Arc<ActiveRule>>>>,
}

impl Limiter {
    /// `store` has the deadline for requests.
    #[must_use]
    pub fn new(store: Store, keys: Keys, policy: &Policy) -> Self {
        let availability = Arc::new(Availability::new(&store));
        let active = |rule: &Rule| Arc::new(ActiveRule::new(rule.clone(), &store, &availability));
        let rules = policy.rules.iter().map(active).collect();
        Self { inner: Arc::new(Inner { store, keys, availability, rules: RwLock::new(Arc::new(rules)) }) }
    }

    /// Replaces the rules. A rule that did not change keeps its tokens.
    pub fn replace(&self, policy: &Policy, store_timeout: Duration) {
        let (current, store) = (self.rules(), self.inner.store.with_deadline(store_timeout));
        let same =
            |old: &&Arc<ActiveRule>, rule: &Rule| old.rule == *rule && old.store.deadline() == store_timeout;
        let renew = |rule: &Rule| match current.iter().find(|old| same(old, rule)) {
            Some(old) => Arc::clone(old),
            None => Arc::new(ActiveRule::new(rule.clone(), &store, &self.inner.availability)),
        };
        *self.inner.rules.write() = Arc::new(policy.rules.iter().map(renew).collect());
    }

    /// The current rules, in the order of the configuration.
    #[must_use]
    pub fn rules(&self) -> Arc<Vec<Arc<ActiveRule>>> {
        Arc::clone(&self.inner.rules.read())
    }

    #[must_use]
    pub fn rule(&self, name: &str) -> Option<Arc<ActiveRule>> {
        self.rules().iter().find(|active| active.rule.name.as_str() == name).cloned()
    }

    /// Checks a caller against a rule and counts the decision. `cost` must not exceed [`Rule::max_cost`].
    pub async fn check(&self, active: &Arc<ActiveRule>, identity: &Identity, cost: u32) -> Verdict {
        let (verdict, _) = self.decide(active, identity, cost, Later::Nothing).await;
        active.count_decision(identity, &verdict);
        verdict
    }

    /// The same for a request that a later rule may refuse: what was counted can be given back.
    pub(crate) async fn check_provisionally(
        &self,
        active: &Arc<ActiveRule>,
        identity: &Identity,
        cost: u32,
    ) -> (Verdict, Option<Counted>) {
        let (verdict, by) = self.decide(active, identity, cost, Later::MayRefuse).await;
        active.count_decision(identity, &verdict);
        let counted = |by| Counted { active: Arc::clone(active), identity: identity.clone(), cost, by };
        (verdict, by.map(counted))
    }

    /// What a caller has left, without counting a request.
    pub async fn peek(&self, active: &Arc<ActiveRule>, identity: &Identity) -> Verdict {
        self.decide(active, identity, 0, Later::Nothing).await.0
    }

    /// Takes back what rules have counted for a request that another rule has refused. If that fails, it stays counted.
    pub(crate) async fn give_back(&self, all: Vec<Counted>) {
        for Counted { active, identity, cost, by } in all {
            let rule = &active.rule;
            match by {
                CountedBy::LocalLimits => active.local.give_back(&identity, cost),
                CountedBy::Tokens(batch) => {
                    if let Some(pools) = &active.pools {
                        pools.put_back(&identity, cost, batch);
                    }
                }
                CountedBy::Store(loan) => {
                    let (key, unused) = (self.key(rule, &identity), (cost, loan));
                    let given = rule.stored_limit().give_back(&active.store, &key, unused, GIVE_BACK_WITHIN);
                    if let Err(error) = given.await {
                        self.inner.availability.record_failure(&error);
                    }
                }
            }
        }
    }

    /// Returns unspent tokens to the store, for a clean stop.
    pub async fn return_tokens(&self) {
        for active in self.rules().iter() {
            if let Some(pools) = &active.pools {
                pools.return_all().await;
            }
        }
    }

    async fn decide(
        &self,
        active: &Arc<ActiveRule>,
        identity: &Identity,
        cost: u32,
        later: Later,
    ) -> (Verdict, Option<CountedBy>) {
        let rule = &active.rule;
        // Held tokens are valid while the store is unavailable. A cost of 0 only reads the quota.
        if let Some(pools) = active.pools.as_ref().filter(|_| cost > 0) {
            if let Some(Spent { decision, batch }) =
                pools.take(identity, cost, || self.key(rule, identity)).await
            {
                return (Verdict::Decided(decision), batch.map(CountedBy::Tokens));
            }
        } else if !self.inner.availability.is_unavailable() {
            match self.call_store(active, &self.key(rule, identity), cost, later).await {
                Ok((decision, loan)) => {
                    if let Some(known) = &active.known {
                        known.record(identity, &decision, Instant::now());
                    }
                    return (Verdict::Decided(decision), loan.map(CountedBy::Store));
                }
                Err(error) => self.inner.availability.record_failure(&error),
            }
        }
        match rule.on_store_failure {
            OnStoreFailure::Open => match &active.known {
                Some(known) if !self.inner.availability.is_outage() => {
                    (Verdict::Decided(known.take(identity, cost, Instant::now())), None)
                }
                _ => (Verdict::Unlimited, None),
            },
            OnStoreFailure::Closed => (Verdict::Unavailable { retry_after: RETRY_AFTER_UNAVAILABLE }, None),
            OnStoreFailure::Local => {
                let decision = active.local.take(identity, cost, Instant::now());
                let counted = decision.is_allowed().then_some(CountedBy::LocalLimits);
                (Verdict::Decided(decision), counted)
            }
        }
    }

    async fn call_store(
        &self,
        ActiveRule { rule, store, .. }: &ActiveRule,
        key: &Key,
        cost: u32,
        later: Later,
    ) -> hob_store::Result<(Decision, Option<Loan>)> {
        let limit = rule.stored_limit();
        match later {
            Later::Nothing => Ok((limit.take(store, std::slice::from_ref(key), cost).await?, None)),
            Later::MayRefuse => Ok(match limit.take_returnable(store, key, cost).await? {
                Lent::Granted { quota, loan } => (Decision::Allowed(quota), Some(loan)),
                Lent::Denied { quota, retry_after } => (Decision::Denied { quota, retry_after }, None),
            }),
        }
    }

    fn key(&self, rule: &Rule, identity: &Identity) -> Key {
        let (keys, identifier) = (&self.inner.keys, identity.key());
        match (rule.keyspace, rule.limit.algorithm()) {
            (Keyspace::Public, Algorithm::FixedLog) => keys.rate_limit(&identifier),
            (Keyspace::Public, _) => keys.sliding_limit(&identifier),
            (Keyspace::PerRule, Algorithm::FixedLog | Algorithm::SlidingLog) => {
                keys.limit_log(&rule.name.key(), &identifier)
            }
            (Keyspace::PerRule, _) => keys.limit_state(&rule.name.key(), &identifier),
        }
    }
}
