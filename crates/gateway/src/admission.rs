//! What happens to a request before it is passed on, the same for the proxy and for the tower layer: who sent it, what
//! it is counted under, whether it may go on.

pub(crate) mod endpoint;
pub mod identity;
pub(crate) mod layer;
pub(crate) mod policy;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderMap, Method, StatusCode};
use parking_lot::RwLock;

use crate::admission::endpoint::{EndpointId, Endpoints, counted_path};
use crate::admission::identity::{Chain, Identity, Origin};
use crate::admission::policy::Policy;
use crate::limiter::headers::{Fields, XRateLimit};
use crate::limiter::rule::Mode;
use crate::limiter::{Limiter, LiveRule};
use crate::traffic::meter::{Meter, Outcome};

/// What a request is counted with whose client did not wait for the answer.
const CLIENT_LEFT: u16 = 499;

/// Decides about requests and counts them. Clones are handles to the same.
#[derive(Clone, Debug)]
pub struct Admission {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    in_force: RwLock<Arc<InForce>>,
    limiter: Limiter,
    meter: Arc<Meter>,
    endpoints: Arc<Endpoints>,
}

/// A policy and its rules, replaced together. A request is judged by the ones that it found, however long that takes.
#[derive(Debug)]
struct InForce {
    policy: Policy,
    rules: Arc<Vec<Arc<LiveRule>>>,
}

/// A request that was looked at. It is counted when its answer is known.
#[derive(Debug)]
pub struct Admitted {
    /// Where the request comes from, and the header that this was read from.
    pub(crate) origin: Origin,
    pub(crate) chain: Chain,
    /// The client is told so in any case.
    pub fields: Option<Fields>,
    pub refusal: Option<Refusal>,
    x_ratelimit: XRateLimit,
    ticket: Option<Ticket>,
}

/// Why a request is not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is over a limit.
    Limited,
    /// The limit cannot be known, and the rule is closed.
    Unknown,
    /// The caller is on the list of those that are always refused.
    Denied,
}

impl Refusal {
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::Limited => StatusCode::TOO_MANY_REQUESTS,
            Self::Unknown => StatusCode::SERVICE_UNAVAILABLE,
            Self::Denied => StatusCode::FORBIDDEN,
        }
    }

    /// What a client reads.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Limited => "Too many requests. See Retry-After.",
            Self::Unknown => "The limit cannot be known right now. See Retry-After.",
            Self::Denied => "Refused.",
        }
    }
}

#[derive(Debug)]
struct Ticket {
    meter: Arc<Meter>,
    endpoint: EndpointId,
    outcome: Outcome,
    began: Instant,
}

impl Admission {
    #[must_use]
    pub fn new(policy: Policy, limiter: Limiter, meter: Arc<Meter>, endpoints: Arc<Endpoints>) -> Self {
        let in_force = RwLock::new(Arc::new(InForce { policy, rules: limiter.rules() }));
        Self { inner: Arc::new(Inner { in_force, limiter, meter, endpoints }) }
    }

    /// Puts another policy in force, for the next request. `store_within` is how long that may wait for the store.
    pub fn replace(&self, policy: Policy, store_within: Duration) {
        let mut in_force = self.inner.in_force.write();
        self.inner.limiter.replace(&policy, store_within);
        *in_force = Arc::new(InForce { policy, rules: self.inner.limiter.rules() });
    }

    #[must_use]
    pub fn meter(&self) -> &Arc<Meter> {
        &self.inner.meter
    }

    #[must_use]
    pub fn limiter(&self) -> &Limiter {
        &self.inner.limiter
    }

    /// Looks at a request.
    pub async fn admit(
        &self,
        peer: SocketAddr,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Admitted {
        let began = Instant::now();
        let in_force = Arc::clone(&self.inner.in_force.read());
        let policy = &in_force.policy;
        let origin = policy.trust.origin(peer, headers);
        let x_ratelimit = if policy.x_ratelimit { XRateLimit::Sent } else { XRateLimit::Omitted };
        let counted = policy.count_loopback || !origin.address.is_loopback();
        let chain = policy.trust.chain;
        let mut admitted = Admitted { origin, chain, fields: None, refusal: None, x_ratelimit, ticket: None };
        if policy.deny.has_address(origin.address) {
            admitted.refusal = Some(Refusal::Denied);
        } else if !policy.allow.has_address(origin.address) {
            self.ask_rules(&in_force, (method, path, headers), &mut admitted).await;
        }
        // One rule for what is counted, in every family.
        if counted {
            let path = counted_path(&policy.templates, policy.learn, path);
            let endpoint = self.inner.endpoints.id(method, &path);
            let outcome = if admitted.refusal.is_some() { Outcome::Refused } else { Outcome::Passed };
            admitted.ticket = Some(Ticket { meter: Arc::clone(&self.inner.meter), endpoint, outcome, began });
        }
        admitted
    }

    /// Every rule that is about the request must let it pass; the first that does not ends it.
    async fn ask_rules(
        &self,
        InForce { policy, rules }: &InForce,
        (method, path, headers): (&Method, &str, &HeaderMap),
        admitted: &mut Admitted,
    ) {
        for live in rules.iter() {
            let rule = live.rule();
            if !rule.is_about(method, path, headers) {
                continue;
            }
            let identity = Identity::of(&rule.by, admitted.origin, headers);
            if policy.deny.has_name(&identity) {
                admitted.refusal = Some(Refusal::Denied);
                return;
            }
            if policy.allow.has_name(&identity) {
                continue;
            }
            let verdict = self.inner.limiter.ask(live, &identity, rule.cost).await;
            if rule.mode() == Mode::Shadow {
                continue;
            }
            let fields = Fields::new(rule, &verdict);
            if !verdict.lets_pass() {
                admitted.refusal =
                    Some(if fields.quota.is_some() { Refusal::Limited } else { Refusal::Unknown });
                admitted.fields = Some(fields);
                return;
            }
            let tighter = |told: &Fields| fields.left() < told.left();
            if admitted.fields.as_ref().is_none_or(tighter) {
                admitted.fields = Some(fields);
            }
        }
    }
}

impl Admitted {
    /// Tells the client about its limit.
    pub fn tell(&self, headers: &mut HeaderMap) {
        if let Some(fields) = &self.fields {
            fields.write(headers, self.x_ratelimit);
        }
    }

    /// Counts the request, now that its answer is known.
    pub fn answered(mut self, status: StatusCode) {
        self.count(status.as_u16());
    }

    fn count(&mut self, status: u16) {
        if let Some(Ticket { meter, endpoint, outcome, began }) = self.ticket.take() {
            meter.record(endpoint, status, outcome, began, Instant::now());
        }
    }
}

impl Drop for Admitted {
    /// A client that left before its answer is counted too.
    fn drop(&mut self) {
        self.count(CLIENT_LEFT);
    }
}

impl Fields {
    /// What is left of the limit, as far as it is known.
    fn left(&self) -> u32 {
        self.quota.map_or(u32::MAX, |quota| quota.remaining)
    }
}
