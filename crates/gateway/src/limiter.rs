//! Decides whether a caller may go on: by asking the store, from leased tokens, or, while the store is away, as each
//! rule says.

mod availability;
mod foreign_key;
pub(crate) mod headers;
mod lease;
mod local;
mod recent_map;
pub(crate) mod rule;
mod top_refused;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hob_schema::Key;
use hob_store::Store;
use hob_store::limit::{Algorithm, Decision};
use parking_lot::RwLock;

use crate::admission::identity::Identity;
use crate::admission::policy::Policy;
use crate::config::OnStoreFailure;
use crate::keys::Keys;
use crate::limiter::rule::{Accounting, Keyspace, Rule, RuleMode};

use availability::Availability;
use lease::{TokenPools, TokenSource};
use local::LocalLimits;
pub(crate) use top_refused::TopRefused;

/// How long a caller is told to wait when its limit cannot be known.
const RETRY_AFTER_UNAVAILABLE: Duration = Duration::from_secs(1);

/// What a rule says about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was counted, or refused.
    Decided(Decision),
    /// The store is away, and the rule is open.
    Unlimited,
    /// The store is away, and the rule is closed.
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

/// A rule and what this instance knows of its callers.
#[derive(Debug)]
pub struct ActiveRule {
    rule: Rule,
    /// With the deadline that a request can afford.
    store: Store,
    /// Of a leased rule.
    pools: Option<TokenPools>,
    local: LocalLimits,
    pub(crate) counts: DecisionCounts,
    pub(crate) top_refused: TopRefused,
}

/// What a rule decided since it was last asked.
#[derive(Debug, Default)]
pub(crate) struct DecisionCounts {
    pub(crate) allowed: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) shadowed: AtomicU64,
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
        Self {
            rule,
            store,
            pools,
            local,
            counts: DecisionCounts::default(),
            top_refused: TopRefused::default(),
        }
    }

    /// What the rule says.
    #[must_use]
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    fn count_decision(&self, identity: &Identity, verdict: &Verdict) {
        let count = match (verdict.is_allowed(), self.rule.mode) {
            (true, _) => &self.counts.allowed,
            (false, RuleMode::Enforced) => &self.counts.refused,
            (false, RuleMode::Shadow) => &self.counts.shadowed,
        };
        count.fetch_add(1, Relaxed);
        if !verdict.is_allowed() {
            self.top_refused.add(identity);
        }
    }
}

/// Keeps the rules of the policy in force. Clones are handles to the same.
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
    /// `store` has the deadline that a request can afford.
    #[must_use]
    pub fn new(store: Store, keys: Keys, policy: &Policy) -> Self {
        let availability = Arc::new(Availability::new(&store));
        let active = |rule: &Rule| Arc::new(ActiveRule::new(rule.clone(), &store, &availability));
        let rules = policy.rules.iter().map(active).collect();
        Self { inner: Arc::new(Inner { store, keys, availability, rules: RwLock::new(Arc::new(rules)) }) }
    }

    /// Puts other rules in force. A rule that stays as it is keeps the tokens that it holds.
    pub fn replace(&self, policy: &Policy, store_within: Duration) {
        let (current, store) = (self.rules(), self.inner.store.with_deadline(store_within));
        let same =
            |old: &&Arc<ActiveRule>, rule: &Rule| old.rule == *rule && old.store.deadline() == store_within;
        let renew = |rule: &Rule| match current.iter().find(|old| same(old, rule)) {
            Some(old) => Arc::clone(old),
            None => Arc::new(ActiveRule::new(rule.clone(), &store, &self.inner.availability)),
        };
        *self.inner.rules.write() = Arc::new(policy.rules.iter().map(renew).collect());
    }

    /// The rules in force, in their order.
    #[must_use]
    pub fn rules(&self) -> Arc<Vec<Arc<ActiveRule>>> {
        Arc::clone(&self.inner.rules.read())
    }

    /// The rule of this name.
    #[must_use]
    pub fn rule(&self, name: &str) -> Option<Arc<ActiveRule>> {
        self.rules().iter().find(|active| active.rule.name.as_str() == name).cloned()
    }

    /// Asks a rule about a caller, and counts what it says. `cost` is at most what can pass at once.
    pub async fn check(&self, active: &Arc<ActiveRule>, identity: &Identity, cost: u32) -> Verdict {
        let verdict = self.decide(active, identity, cost).await;
        active.count_decision(identity, &verdict);
        verdict
    }

    /// Gives back the tokens that are held, for a clean stop.
    pub async fn return_tokens(&self) {
        for active in self.rules().iter() {
            if let Some(pools) = &active.pools {
                pools.return_all().await;
            }
        }
    }

    async fn decide(&self, active: &Arc<ActiveRule>, identity: &Identity, cost: u32) -> Verdict {
        let rule = &active.rule;
        // Tokens that are held are good without the store. A look takes none.
        if let Some(pools) = active.pools.as_ref().filter(|_| cost > 0) {
            if let Some(decision) = pools.take(identity, cost, || self.key(rule, identity)).await {
                return Verdict::Decided(decision);
            }
        } else if !self.inner.availability.is_unavailable() {
            let (stored_limit, key) = (rule.stored_limit(), self.key(rule, identity));
            let take = || stored_limit.take(&active.store, std::slice::from_ref(&key), cost);
            match foreign_key::call_with_retry((&active.store, stored_limit, &key), take).await {
                Ok(decision) => return Verdict::Decided(decision),
                Err(error) => self.inner.availability.record_failure(&error),
            }
        }
        match rule.on_store_failure {
            OnStoreFailure::Open => Verdict::Unlimited,
            OnStoreFailure::Closed => Verdict::Unavailable { retry_after: RETRY_AFTER_UNAVAILABLE },
            OnStoreFailure::Local => Verdict::Decided(active.local.take(identity, cost, Instant::now())),
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
