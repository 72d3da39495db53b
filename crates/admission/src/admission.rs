//! Decides about a request before it is forwarded, the same way for the proxy and the tower layer: who sent it, which
//! endpoint it counts as, and whether the rules allow it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hob_net::{ClientAddress, ForwardingHeader};
use http::{HeaderMap, Method, StatusCode};
use parking_lot::RwLock;

use crate::counter::{EndpointId, RequestCounter, RequestOutcome};
use crate::identity::Identity;
use crate::limiter::headers::{RateLimitHeaders, XRateLimit};
use crate::limiter::rule::RuleMode;
use crate::limiter::{ActiveRule, Limiter};
use crate::path::RequestPath;
use crate::policy::Policy;
use crate::route::endpoint_path;

/// The status that a request is counted with when its client disconnects before the response.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// Checks requests and counts them. Clones share their state.
#[derive(Clone, Debug)]
pub struct Admission {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    active: RwLock<Arc<ActivePolicy>>,
    limiter: Limiter,
    counter: Option<Arc<dyn RequestCounter>>,
}

/// A policy and its rules, replaced together. A request keeps the ones it started with until it is finished.
#[derive(Debug)]
struct ActivePolicy {
    policy: Policy,
    rules: Arc<Vec<Arc<ActiveRule>>>,
}

/// A request after its check. It is counted when its response is known.
#[derive(Debug)]
pub struct CheckedRequest {
    /// The client's address, and the header it was read from.
    pub client: ClientAddress,
    pub forwarding_header: ForwardingHeader,
    /// Sent with the response, whether the request is refused or not.
    pub limit_headers: Option<RateLimitHeaders>,
    pub refusal: Option<Refusal>,
    /// The rule that refused the request.
    pub refused_by: Option<Arc<ActiveRule>>,
    x_ratelimit: XRateLimit,
    sample: Option<PendingSample>,
}

/// Why a request is not forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Over a limit.
    Limited,
    /// Redis is unavailable, and the rule has `on_store_failure = "closed"`.
    LimitUnavailable,
    /// The caller is on the deny list.
    Denied,
    /// Servers read the path in different ways.
    AmbiguousPath,
    /// There is no Host, more than one, or another one in the target.
    InvalidHost,
    /// The body has another transfer coding than `chunked`.
    UnsupportedTransferCoding,
}

hob_units::names!(Refusal {
    Limited = "limited",
    LimitUnavailable = "limit_unavailable",
    Denied = "denied",
    AmbiguousPath = "ambiguous_path",
    InvalidHost = "invalid_host",
    UnsupportedTransferCoding = "unsupported_transfer_coding",
});

impl Refusal {
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::Limited => StatusCode::TOO_MANY_REQUESTS,
            Self::LimitUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Denied => StatusCode::FORBIDDEN,
            Self::AmbiguousPath | Self::InvalidHost => StatusCode::BAD_REQUEST,
            Self::UnsupportedTransferCoding => StatusCode::NOT_IMPLEMENTED,
        }
    }

    /// The body of the response.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Limited => "Too many requests. See Retry-After.",
            Self::LimitUnavailable => "The rate limiter is unavailable. See Retry-After.",
            Self::Denied => "Forbidden.",
            Self::AmbiguousPath => {
                "The path is ambiguous: it has an invalid escape, a backslash, or an escaped separator or control character."
            }
            Self::InvalidHost => "The request must have exactly one valid Host, the same as in its target.",
            Self::UnsupportedTransferCoding => "The only supported transfer coding is chunked.",
        }
    }
}

#[derive(Debug)]
struct PendingSample {
    counter: Arc<dyn RequestCounter>,
    endpoint: EndpointId,
    outcome: RequestOutcome,
    started: Instant,
}

impl Admission {
    /// `limiter` enforces the rules of `policy`; `counter` counts the requests.
    #[must_use]
    pub fn new(policy: Policy, limiter: Limiter, counter: Option<Arc<dyn RequestCounter>>) -> Self {
        let active = RwLock::new(Arc::new(ActivePolicy { policy, rules: limiter.rules() }));
        Self { inner: Arc::new(Inner { active, limiter, counter }) }
    }

    /// Applies another policy to the next requests. `store_timeout` is how long a request waits for the store.
    pub fn replace(&self, policy: Policy, store_timeout: Duration) {
        let mut active = self.inner.active.write();
        self.inner.limiter.replace(&policy, store_timeout);
        *active = Arc::new(ActivePolicy { policy, rules: self.inner.limiter.rules() });
    }

    #[must_use]
    pub fn limiter(&self) -> &Limiter {
        &self.inner.limiter
    }

    /// Checks a request.
    pub async fn admit(
        &self,
        peer: SocketAddr,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> CheckedRequest {
        self.check(peer, (method, path, headers), None).await
    }

    /// Checks a request. One that the server has found malformed is refused, and counted like every refused request.
    pub async fn check(
        &self,
        peer: SocketAddr,
        (method, path, headers): (&Method, &str, &HeaderMap),
        malformed: Option<Refusal>,
    ) -> CheckedRequest {
        let started = Instant::now();
        let active = Arc::clone(&self.inner.active.read());
        let policy = &active.policy;
        let client = policy.trusted_proxies.client_address(peer, headers);
        let x_ratelimit = if policy.x_ratelimit { XRateLimit::Sent } else { XRateLimit::Omitted };
        let is_counted = policy.count_loopback || !client.address.is_loopback();
        let forwarding_header = policy.trusted_proxies.header;
        let mut checked = CheckedRequest {
            client,
            forwarding_header,
            limit_headers: None,
            refusal: None,
            refused_by: None,
            x_ratelimit,
            sample: None,
        };
        let path = RequestPath::parse(path, policy.path_reading).ok();
        if policy.is_denied(client, headers) {
            checked.refusal = Some(Refusal::Denied);
        } else if malformed.is_some() {
            checked.refusal = malformed;
        } else if let Some(path) = &path {
            if !policy.allow.contains_address(client.address) {
                self.check_rules(&active, (method, path, headers), &mut checked).await;
            }
        } else {
            checked.refusal = Some(Refusal::AmbiguousPath);
        }
        // The same requests are counted in every key.
        if let Some(counter) = self.inner.counter.as_ref().filter(|_| is_counted) {
            let endpoint = path.map_or(EndpointId::OTHER, |path| {
                counter.endpoint(method, &endpoint_path(&policy.templates, policy.id_detection, &path))
            });
            let outcome =
                if checked.refusal.is_some() { RequestOutcome::Refused } else { RequestOutcome::Allowed };
            checked.sample = Some(PendingSample { counter: Arc::clone(counter), endpoint, outcome, started });
        }
        checked
    }

    /// Every rule that matches the request must allow it. The first refusal ends the check, and takes back what the rules
    /// before it have counted.
    async fn check_rules(
        &self,
        ActivePolicy { policy, rules }: &ActivePolicy,
        (method, path, headers): (&Method, &RequestPath<'_>, &HeaderMap),
        checked: &mut CheckedRequest,
    ) {
        let (limiter, client) = (&self.inner.limiter, checked.client);
        let matching = rules.iter().filter(|active| active.rule().matches(method, path, headers));
        let matching =
            matching.map(|active| (active, Identity::of(&active.rule().count_by, client, headers)));
        let matching: Vec<(&Arc<ActiveRule>, Identity)> =
            matching.filter(|(_, identity)| !policy.allow.contains_identity(identity)).collect();
        let last = matching.len().saturating_sub(1);
        let mut counted = Vec::new();
        for (index, (active_rule, identity)) in matching.into_iter().enumerate() {
            let rule = active_rule.rule();
            let verdict = if index < last {
                let (verdict, provisional) =
                    limiter.check_provisionally(active_rule, &identity, rule.cost).await;
                counted.extend(provisional);
                verdict
            } else {
                limiter.check(active_rule, &identity, rule.cost).await
            };
            if rule.mode() == RuleMode::Shadow {
                continue;
            }
            let limit_headers = RateLimitHeaders::new(rule, &verdict);
            if !verdict.is_allowed() {
                checked.refusal = Some(if limit_headers.quota.is_some() {
                    Refusal::Limited
                } else {
                    Refusal::LimitUnavailable
                });
                checked.limit_headers = Some(limit_headers);
                checked.refused_by = Some(Arc::clone(active_rule));
                limiter.give_back(counted).await;
                return;
            }
            let is_tighter = |other: &RateLimitHeaders| limit_headers.remaining() < other.remaining();
            if checked.limit_headers.as_ref().is_none_or(is_tighter) {
                checked.limit_headers = Some(limit_headers);
            }
        }
    }
}

impl CheckedRequest {
    /// The endpoint that the request counts as. `None` if it is not counted.
    #[must_use]
    pub fn endpoint(&self) -> Option<EndpointId> {
        self.sample.as_ref().map(|sample| sample.endpoint)
    }

    /// Adds the rate limit headers to a response.
    pub fn write_headers(&self, headers: &mut HeaderMap) {
        if let Some(limit_headers) = &self.limit_headers {
            limit_headers.write(headers, self.x_ratelimit);
        }
    }

    /// Counts the request with the status of its response.
    pub fn finish(mut self, status: StatusCode) {
        self.count(status.as_u16());
    }

    fn count(&mut self, status: u16) {
        if let Some(PendingSample { counter, endpoint, outcome, started }) = self.sample.take() {
            counter.record(endpoint, status, outcome, started, Instant::now());
        }
    }
}

impl Drop for CheckedRequest {
    /// A request whose client disconnected before the response is counted too.
    fn drop(&mut self) {
        self.count(CLIENT_CLOSED_REQUEST);
    }
}

impl RateLimitHeaders {
    /// What is left of the limit; the maximum if that is not known.
    fn remaining(&self) -> u32 {
        self.quota.map_or(u32::MAX, |quota| quota.remaining)
    }
}
