//! The `[gateway]` section of `hob.toml`. [`Policy`](crate::Policy) is its checked form.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use hob_net::{Network, ServerTls, client_tls};
use hob_service::Period;
use hob_service::config::Mistakes;
use hob_store::limit::Algorithm;
use http::header::HeaderName;
use http::uri::PathAndQuery;
use serde::{Deserialize, Serialize};

use crate::admission::identity::ForwardingHeader;
use crate::admission::policy::Policy;
use crate::keys::InstanceId;
use crate::proxy::{certificate, check_upstream};

hob_service::section! {
    /// A reverse proxy that counts requests and limits their rate.
    pub struct Config("gateway") {
        /// The address that clients connect to.
        pub listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 7080)),
        /// The servers that requests are forwarded to, such as "http://127.0.0.1:3000" or "https://shop.example". If
        /// empty, the gateway does not listen.
        pub upstream: Vec<String> = Vec::new(),
        /// A PEM file with the root certificates that https upstreams are verified against. Default:
        /// Mozilla's roots.
        pub upstream_ca_file: Option<String> = None,
        /// The health check: a path that a healthy upstream answers with a status below 500. Empty: no health checks.
        pub health_path: String = String::new(),
        /// The interval between health checks of an upstream.
        pub health_interval: Period = Period::from_secs(5) => Period::from_millis(100)..,
        /// A PEM file with the certificate chain. With `tls_key`, clients connect with TLS. Read again on SIGHUP.
        pub tls_certificate: Option<String> = None,
        /// A PEM file with the private key.
        pub tls_key: Option<String> = None,
        /// The timeout for connecting to an upstream.
        pub connect_timeout: Period = Period::from_secs(3) => Period::from_millis(1)..,
        /// The timeout for the first byte of an upstream's response. It starts again with every part of the body that the
        /// client sends, so that a long upload does not time out.
        pub response_timeout: Period = Period::from_secs(60) => Period::from_millis(1)..,
        /// How many other upstreams a request without a body is sent to after a failure. If the failed upstream may have
        /// seen the request, only idempotent methods are sent again.
        pub retries: u32 = 1,
        /// The protocols that a client may upgrade its connection to. What it sends after an upgrade is neither counted nor
        /// limited. Other upgrades are ignored, and the request is forwarded without them.
        pub upgrades: Vec<String> = vec!["websocket".to_owned()],
        /// The maximum number of client connections; further ones wait.
        pub max_connections: u32 = 10_000 => 1..,
        /// The timeout for the head of a request. An idle connection is closed after this time, at most twice it.
        pub header_timeout: Period = Period::from_secs(15) => Period::from_millis(1)..,
        /// The timeout for a client that does not read its response.
        pub write_timeout: Period = Period::from_secs(30) => Period::from_millis(1)..,
        /// How long requests may continue after the gateway begins to stop.
        pub drain_timeout: Period = Period::from_secs(5),
        /// The networks and addresses of proxies in front, whose forwarding header is trusted.
        pub trusted_proxies: Vec<Network> = Vec::new(),
        /// The forwarding header: "x_forwarded_for" or "forwarded".
        pub forwarded_header: ForwardingHeader = ForwardingHeader::XForwardedFor,
        /// Route templates such as "/api/users/:id": matching requests count as one endpoint. Other paths are endpoints
        /// themselves.
        pub routes: Vec<String> = Vec::new(),
        /// Whether routes, also those of rules, distinguish upper and lower case. Many servers do not, and a limit on
        /// "/login" must apply to "/LOGIN" then.
        pub case_sensitive_routes: bool = false,
        /// What happens to requests whose path servers read in different ways, because of %2f, %5c, a backslash, an
        /// escaped control character or an invalid escape: "refuse" with status 400, or "allow".
        pub ambiguous_paths: AmbiguousPaths = AmbiguousPaths::Refuse,
        /// Whether numbers and UUIDs in other paths are counted as ":id".
        pub learn_routes: bool = false,
        /// Whether requests from this host are counted. Default: true if `listen` is a loopback address, where all requests
        /// come from this host.
        pub count_loopback: Option<bool> = None,
        /// The name of this instance in the metrics. Default: the node's name.
        pub instance: Option<String> = None,
        /// The interval between two checkpoints of the totals to the database.
        pub checkpoint_interval: Period = Period::from_secs(10) => Period::from_millis(100)..,
        /// Callers that no rule limits: addresses, networks, or names such as "user:123".
        pub allow: Vec<String> = Vec::new(),
        /// Callers that are always refused: addresses, networks, or names that a rule counts by.
        pub deny: Vec<String> = Vec::new(),
        /// Whether responses also have X-RateLimit-Limit, -Remaining and -Reset.
        pub x_ratelimit: bool = false,
        /// The timeout for a limit's call to Redis; then `on_store_failure` applies to the request.
        pub store_timeout: Period = Period::from_millis(100) => Period::from_millis(1)..,
        /// Rate limits, as tables [[gateway.rules]] with name and windows ("20/1s, 500/1m"). Optional: methods, route,
        /// header, by, cost, algorithm, exactness, lease, public, shadow, on_store_failure, applies_to.
        pub rules: Vec<RuleConfig> = Vec::new(),
    }
    check check;
    check_files check_files;
}

fn check(config: &Config, mistakes: &mut Mistakes) {
    mistakes.check_each("upstream", &config.upstream, |address| check_upstream(address));
    if !config.health_path.is_empty() {
        mistakes.check("health_path", check_health_path(&config.health_path));
    }
    mistakes.check_tls_pair(config.tls_certificate.as_ref(), config.tls_key.as_ref());
    let check_upgrade = |name: &String| match name.parse::<HeaderName>() {
        Ok(_) => Ok(()),
        Err(_) => Err(format!("{name:?} is not the name of a protocol, such as \"websocket\"")),
    };
    mistakes.check_each("upgrades", &config.upgrades, check_upgrade);
    if let Some(instance) = &config.instance {
        mistakes.check("instance", InstanceId::new(instance.as_str()));
    }
    Policy::check(config, mistakes);
}

/// A path that can be sent in a request.
fn check_health_path(path: &str) -> Result<(), &'static str> {
    if !path.starts_with('/') {
        return Err("must start with /");
    }
    if path.contains('#') || path.parse::<PathAndQuery>().is_err() {
        return Err("is not a path of a URL; escape spaces and other special characters, such as %20");
    }
    Ok(())
}

fn check_files(config: &Config, mistakes: &mut Mistakes) {
    if let Some(path) = &config.upstream_ca_file {
        mistakes.check("upstream_ca_file", client_tls(Some(Path::new(path))));
    }
    if let Ok(Some(files)) = certificate(config) {
        mistakes.check("tls_certificate", ServerTls::read(files));
    }
}

impl Config {
    /// Whether the gateway listens, and only on this host.
    pub(crate) fn listens_on_loopback(&self) -> bool {
        !self.upstream.is_empty() && self.listen.ip().is_loopback()
    }
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
