//! The `[gateway]` section of `hob.toml`, as it is written; [`Policy`](crate::Policy) is what is made of it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use hob_service::Period;
use hob_store::limit::Algorithm;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::admission::identity::ForwardingHeader;

hob_service::section! {
    /// A reverse proxy that counts requests and limits callers.
    pub struct Config("gateway") {
        /// Where clients connect.
        pub listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 7080)),
        /// Where requests go: one or more addresses as in "http://127.0.0.1:3000" or "https://shop.example". Without
        /// one, nothing listens.
        pub upstream: Vec<String> = Vec::new(),
        /// The authorities that https upstreams are trusted by, a PEM file; where it is not said, those of the web.
        pub upstream_roots: Option<String> = None,
        /// A path that a healthy upstream answers below 500; asked every `health_every`. Empty: never asked.
        pub health_path: String = String::new(),
        /// How often each upstream is asked for `health_path`.
        pub health_every: Period = Period::from_secs(5),
        /// The certificate chain, a PEM file. With `tls_key` clients connect with TLS.
        pub tls_certificate: Option<String> = None,
        /// The private key, a PEM file.
        pub tls_key: Option<String> = None,
        /// How long connecting to an upstream may take.
        pub connect_within: Period = Period::from_secs(3),
        /// How long an upstream may take until it begins to answer.
        pub answer_within: Period = Period::from_secs(60),
        /// How often a request that may be repeated is sent to another upstream when one failed.
        pub retries: u32 = 1,
        /// The most connections of clients at once; more wait.
        pub connections: u32 = 10_000,
        /// How long a client may take to send the head of a request. A connection without a request is closed after
        /// this time, or twice it at the latest.
        pub head_within: Period = Period::from_secs(15),
        /// How long a client may leave unread what it is sent.
        pub unread_within: Period = Period::from_secs(30),
        /// How long requests may continue after the gateway begins to stop.
        pub drain_within: Period = Period::from_secs(5),
        /// Networks of proxies in front, whose word about where a request came from is taken.
        pub trusted_proxies: Vec<IpNet> = Vec::new(),
        /// The header that they write: "x_forwarded_for" or "forwarded".
        pub chain: ForwardingHeader = ForwardingHeader::XForwardedFor,
        /// Route templates that requests are counted by, as in "/api/users/:id". Other paths count as they are.
        pub routes: Vec<String> = Vec::new(),
        /// Whether numbers and UUIDs in other paths are counted as ":id".
        pub learn_routes: bool = false,
        /// Whether requests from this host are counted.
        pub count_loopback: bool = false,
        /// What this instance is called in the metrics; the node's name where it is not said.
        pub instance: Option<String> = None,
        /// How often what was counted is written to the database.
        pub checkpoint_every: Period = Period::from_secs(10),
        /// Callers that no rule limits: addresses, networks, or names such as "user:123".
        pub allow: Vec<String> = Vec::new(),
        /// Callers that are always refused.
        pub deny: Vec<String> = Vec::new(),
        /// Whether answers also carry X-RateLimit-Limit, -Remaining and -Reset.
        pub x_ratelimit: bool = false,
        /// How long a limit may wait for the store before `on_store_failure` decides.
        pub store_within: Period = Period::from_millis(100),
        /// The limits: tables [[gateway.rules]] with name, windows ("20/1s, 500/1m"), and at will methods, route,
        /// header, by, cost, algorithm, exactness, lease, public, shadow, on_store_failure, applies_to.
        pub rules: Vec<RuleConfig> = Vec::new(),
    }
}

/// A limit, as it is written.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleConfig {
    /// What it is called: in keys, metrics, header fields.
    pub name: String,
    /// How many requests in how long: `20/1s, 500/1m burst 50`.
    pub windows: String,
    /// Only these methods; empty: all.
    #[serde(default)]
    pub methods: Vec<String>,
    /// Only this route: a template (`/api/users/:id`), at will with a `*` at its end.
    #[serde(default)]
    pub route: Option<String>,
    /// Only requests with these values in these headers; `*` is any value.
    #[serde(default)]
    pub header: BTreeMap<String, String>,
    /// What is counted by: `address`, `everyone`, `api_key:x-api-key`, or `header:x-user-id as user`.
    #[serde(default)]
    pub by: Option<String>,
    /// What a request costs.
    #[serde(default = "one")]
    pub cost: u32,
    #[serde(default = "gcra")]
    pub algorithm: Algorithm,
    #[serde(default)]
    pub exactness: Exactness,
    /// With `exactness = "leased"`: how long tokens may be held.
    #[serde(default)]
    pub lease: Option<Period>,
    /// Whether this is the one rule whose state stands in the documented keys.
    #[serde(default)]
    pub public: bool,
    /// Decide and count, but let everything pass.
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
            algorithm: Algorithm::Gcra,
            exactness: Exactness::Exact,
            lease: None,
            public: false,
            shadow: false,
            on_store_failure: OnStoreFailure::Open,
            applies_to: AppliesTo::Requests,
        }
    }
}

/// How exactly a limit is kept over all instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exactness {
    /// Every request asks the store.
    #[default]
    Exact,
    /// Instances hold tokens that the store has debited before, and decide in memory. Never more than the limit,
    /// a little less.
    Leased,
}

/// What happens to requests while the store does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnStoreFailure {
    /// They pass.
    #[default]
    Open,
    /// They are refused.
    Closed,
    /// Each instance keeps the limit by itself.
    Local,
}

/// What asks a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AppliesTo {
    /// Requests through the gateway, and the API.
    #[default]
    Requests,
    /// The API only.
    Checks,
}

fn one() -> u32 {
    1
}

fn gcra() -> Algorithm {
    Algorithm::Gcra
}
