//! What the operator or the program configures. [`Policy`](crate::Policy) is its checked form.

use std::collections::BTreeMap;

use hob_net::{ForwardingHeader, Network};
use hob_store::limit::Algorithm;
use hob_units::Period;
use serde::{Deserialize, Serialize};

/// Rules, lists of callers, and how requests are read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyConfig {
    pub rules: Vec<RuleConfig>,
    /// Callers that no rule limits: addresses, networks, or names such as `user:123`.
    pub allow: Vec<String>,
    /// Callers that are always refused: addresses, networks, or names that a rule counts by.
    pub deny: Vec<String>,
    /// The proxies in front, whose forwarding header is trusted.
    pub trusted_proxies: Vec<Network>,
    pub forwarded_header: ForwardingHeader,
    /// Route templates such as `/api/users/:id`: matching requests count as one endpoint.
    pub routes: Vec<String>,
    /// Whether routes, also those of rules, distinguish upper and lower case.
    pub case_sensitive_routes: bool,
    pub ambiguous_paths: AmbiguousPaths,
    /// Whether numbers and UUIDs in paths that match no template are counted as `:id`.
    pub learn_routes: bool,
    /// Whether a [`RequestCounter`](crate::RequestCounter) counts requests from this host.
    pub count_loopback: bool,
    /// Whether responses also have `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    pub x_ratelimit: bool,
}

/// A mistake in a [`PolicyConfig`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyMistake {
    /// Such as `rules[2].windows`.
    pub field: String,
    pub message: String,
}

/// A rule, as configured.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleConfig {
    /// The rule's name in keys, metrics and headers.
    pub name: String,
    /// Requests per period: `20/1s, 500/1m burst 50`.
    pub windows: String,
    /// Only these methods; empty: all.
    #[serde(default)]
    pub methods: Vec<String>,
    /// Only this route: a template such as `/api/users/:id` or `/api/*`.
    #[serde(default)]
    pub route: Option<String>,
    /// Only requests whose headers have these values; `*` matches any value.
    #[serde(default)]
    pub header: BTreeMap<String, String>,
    /// What requests are counted by: `address`, `everyone`, `api_key:x-api-key`, or `header:x-user-id as user`.
    #[serde(default)]
    pub by: Option<String>,
    /// What one request costs.
    #[serde(default = "one")]
    pub cost: u32,
    /// Default: `sliding_log`, which never allows more than the limit in any window; `gcra` if a window has a burst.
    #[serde(default)]
    pub algorithm: Option<Algorithm>,
    #[serde(default)]
    pub exactness: Exactness,
    /// With `exactness = "leased"`: how long an instance may hold tokens.
    #[serde(default)]
    pub lease: Option<Period>,
    /// Whether the state is in the documented keys, for at most one rule per algorithm.
    #[serde(default)]
    pub public: bool,
    /// Decide and count, but refuse nothing.
    #[serde(default)]
    pub shadow: bool,
    #[serde(default)]
    pub on_store_failure: OnStoreFailure,
    #[serde(default)]
    pub applies_to: AppliesTo,
}

impl RuleConfig {
    /// An enforced, exact limit by address on all requests.
    #[must_use]
    pub fn new(name: &str, windows: &str) -> Self {
        Self {
            name: name.to_owned(),
            windows: windows.to_owned(),
            methods: Vec::new(),
            route: None,
            header: BTreeMap::new(),
            by: None,
            cost: 1,
            algorithm: None,
            exactness: Exactness::Exact,
            lease: None,
            public: false,
            shadow: false,
            on_store_failure: OnStoreFailure::Open,
            applies_to: AppliesTo::Requests,
        }
    }
}

/// How exactly a limit is enforced over all instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exactness {
    /// Every request is a call to Redis.
    #[default]
    Exact,
    /// Instances hold tokens that Redis has debited in advance, and decide in memory. Admits at most the limit, usually
    /// slightly less.
    Leased,
}

/// What happens to requests while Redis is unavailable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnStoreFailure {
    /// They are allowed.
    #[default]
    Open,
    /// They are refused.
    Closed,
    /// Each instance enforces the limit by itself.
    Local,
}

/// What happens to requests with an ambiguous path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AmbiguousPaths {
    /// They are refused with status 400.
    #[default]
    Refuse,
    /// They are forwarded. A rule applies if one way to read the path matches its route.
    Allow,
}

/// Where a rule is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AppliesTo {
    /// Requests through the gateway, and checks over the API.
    #[default]
    Requests,
    /// Checks over the API only.
    Checks,
}

fn one() -> u32 {
    1
}
