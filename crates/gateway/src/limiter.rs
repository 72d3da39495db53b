//! Decides whether a caller may go on: by asking the store, from leased tokens, or, while the store is away, as each
//! rule says.

mod availability;
mod claim;
mod generations;
pub(crate) mod headers;
mod hottest;
mod lease;
mod local;
pub(crate) mod rule;

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
use crate::limiter::rule::{Keeping, Keyspace, Mode, Rule};

use availability::Availability;
pub(crate) use hottest::Hottest;
use lease::{Lender, Pools};
use local::LocalLimits;

/// How long a caller is told to wait when its limit cannot be known.
const AWAY_RETRY: Duration = Duration::from_secs(1);

/// What a rule says about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was counted, or refused.
    Decided(Decision),
    /// The store is away, and the rule is open.
    Unlimited,
    /// The store is away, and the rule is closed.
    Unknown { retry_after: Duration },
}

impl Verdict {
    #[must_use]
    pub fn lets_pass(&self) -> bool {
        match self {
            Self::Decided(decision) => decision.is_allowed(),
            Self::Unlimited => true,
            Self::Unknown { .. } => false,
        }
    }
}

/// A rule and what this instance knows of its callers.
#[derive(Debug)]
pub struct LiveRule {
    rule: Rule,
    /// With the deadline that a request can afford.
    store: Store,
    /// Of a leased rule.
    pools: Option<Pools>,
    local: LocalLimits,
    pub(crate) counts: Counts,
    pub(crate) hottest: Hottest,
}

/// What a rule decided since it was last asked.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) allowed: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) shadowed: AtomicU64,
}

impl LiveRule {
    fn new(rule: Rule, store: &Store, availability: &Arc<Availability>) -> Self {
        let local = LocalLimits::new(&rule.limit);
        let pools = match &rule.keeping {
            Keeping::Exact => None,
            Keeping::Leased { debited, hold } => Some(Pools::new(Lender {
                store: store.clone(),
                availability: Arc::clone(availability),
                rule: debited.clone(),
                hold: *hold,
            })),
        };
        let store = store.clone();
        Self { rule, store, pools, local, counts: Counts::default(), hottest: Hottest::default() }
    }

    /// What the rule says.
    #[must_use]
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    fn note(&self, identity: &Identity, verdict: &Verdict) {
        let count = match (verdict.lets_pass(), self.rule.mode) {
            (true, _) => &self.counts.allowed,
            (false, Mode::Enforced) => &self.counts.refused,
            (false, Mode::Shadow) => &self.counts.shadowed,
        };
        count.fetch_add(1, Relaxed);
        if !verdict.lets_pass() {
            self.hottest.add(identity);
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
    rules: RwLock<Arc<Vec<Arc<LiveRule>>>>,
}

impl Limiter {
    /// `store` has the deadline that a request can afford.
    #[must_use]
    pub fn new(store: Store, keys: Keys, policy: &Policy) -> Self {
        let availability = Arc::new(Availability::new(&store));
        let live = |rule: &Rule| Arc::new(LiveRule::new(rule.clone(), &store, &availability));
        let rules = policy.rules.iter().map(live).collect();
        Self { inner: Arc::new(Inner { store, keys, availability, rules: RwLock::new(Arc::new(rules)) }) }
    }

    /// Puts other rules in force. A rule that stays as it is keeps the tokens that it holds.
    pub fn replace(&self, policy: &Policy, store_within: Duration) {
        let (before, store) = (self.rules(), self.inner.store.with_deadline(store_within));
        let same =
            |old: &&Arc<LiveRule>, rule: &Rule| old.rule == *rule && old.store.deadline() == store_within;
        let renew = |rule: &Rule| match before.iter().find(|old| same(old, rule)) {
            Some(old) => Arc::clone(old),
            None => Arc::new(LiveRule::new(rule.clone(), &store, &self.inner.availability)),
        };
        *self.inner.rules.write() = Arc::new(policy.rules.iter().map(renew).collect());
    }

    /// The rules in force, in their order.
    #[must_use]
    pub fn rules(&self) -> Arc<Vec<Arc<LiveRule>>> {
        Arc::clone(&self.inner.rules.read())
    }

    /// The rule of this name.
    #[must_use]
    pub fn rule(&self, name: &str) -> Option<Arc<LiveRule>> {
        self.rules().iter().find(|live| live.rule.name.as_str() == name).cloned()
    }

    /// Asks a rule about a caller, and counts what it says. `cost` is at most what can pass at once.
    pub async fn ask(&self, live: &Arc<LiveRule>, identity: &Identity, cost: u32) -> Verdict {
        let verdict = self.decide(live, identity, cost).await;
        live.note(identity, &verdict);
        verdict
    }

    /// Gives back the tokens that are held, for a clean stop.
    pub async fn give_back(&self) {
        for live in self.rules().iter() {
            if let Some(pools) = &live.pools {
                pools.give_back_all().await;
            }
        }
    }

    async fn decide(&self, live: &Arc<LiveRule>, identity: &Identity, cost: u32) -> Verdict {
        let rule = &live.rule;
        // Tokens that are held are good without the store. A look takes none.
        if let Some(pools) = live.pools.as_ref().filter(|_| cost > 0) {
            if let Some(decision) = pools.take(identity, cost, || self.key(rule, identity)).await {
                return Verdict::Decided(decision);
            }
        } else if !self.inner.availability.is_away() {
            let (kept, key) = (rule.kept(), self.key(rule, identity));
            let take = || kept.take(&live.store, std::slice::from_ref(&key), cost);
            match claim::ask((&live.store, kept, &key), take).await {
                Ok(decision) => return Verdict::Decided(decision),
                Err(error) => self.inner.availability.failed(&error),
            }
        }
        match rule.on_store_failure {
            OnStoreFailure::Open => Verdict::Unlimited,
            OnStoreFailure::Closed => Verdict::Unknown { retry_after: AWAY_RETRY },
            OnStoreFailure::Local => Verdict::Decided(live.local.take(identity, cost, Instant::now())),
        }
    }

    fn key(&self, rule: &Rule, identity: &Identity) -> Key {
        let (keys, identifier) = (&self.inner.keys, identity.key());
        match (rule.keyspace, rule.limit.algorithm()) {
            (Keyspace::Public, Algorithm::FixedLog) => keys.rate_limit(&identifier),
            (Keyspace::Public, _) => keys.sliding_limit(&identifier),
            (Keyspace::Own, Algorithm::FixedLog | Algorithm::SlidingLog) => {
                keys.limit_log(&rule.name.key(), &identifier)
            }
            (Keyspace::Own, _) => keys.limit_state(&rule.name.key(), &identifier),
        }
    }
}
