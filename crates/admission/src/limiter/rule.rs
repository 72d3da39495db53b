//! Rules: which requests a rule matches, what it counts by, and how many requests it allows.

use std::fmt;
use std::time::Duration;

use hob_store::limit::{self, Algorithm, Window};
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Method};

use crate::config::{AppliesTo, Exactness, OnStoreFailure, RuleConfig};
use crate::identity::CountBy;
use crate::keys::{self, Keys};
use crate::limiter::headers::AdvertisedPolicy;
use crate::path::RequestPath;
use crate::route::RouteTemplate;

/// The default of `lease`.
const DEFAULT_LEASE: Duration = Duration::from_secs(1);
const MAX_LEASE: Duration = Duration::from_secs(60);

/// An invalid rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rule {rule:?}: {problem}")]
pub struct BadRule {
    pub rule: String,
    /// The key of [`RuleConfig`] that is wrong.
    pub field: &'static str,
    pub problem: String,
}

/// A checked rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub(crate) name: RuleName,
    pub(crate) scope: Scope,
    pub(crate) count_by: CountBy,
    pub(crate) cost: u32,
    /// The limit that clients see.
    pub(crate) limit: limit::Rule,
    pub(crate) advertised: AdvertisedPolicy,
    pub(crate) accounting: Accounting,
    pub(crate) keyspace: Keyspace,
    pub(crate) mode: RuleMode,
    pub(crate) on_store_failure: OnStoreFailure,
    pub(crate) applies_to: AppliesTo,
}

/// A rule's name, valid in a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleName(String);

/// The requests that a rule matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scope {
    methods: Vec<Method>,
    route: Option<RouteTemplate>,
    headers: Vec<(HeaderName, Option<HeaderValue>)>,
}

/// How a limit is enforced over several instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Accounting {
    Exact,
    Leased {
        /// What the store debits, so that tokens spent up to `hold` later still fit the limit.
        debited: limit::Rule,
        hold: Duration,
    },
}

/// Which keys hold a rule's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keyspace {
    /// The documented keys (G16 G17).
    Public,
    /// Keys with the rule's name in them.
    PerRule,
}

/// What a refusal does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleMode {
    Enforced,
    /// It is counted, and the request is allowed.
    Shadow,
}

impl Rule {
    pub fn new(config: &RuleConfig) -> Result<Self, BadRule> {
        let bad = |field: &'static str| {
            move |problem: String| BadRule { rule: config.name.clone(), field, problem }
        };
        let name = RuleName::new(&config.name).map_err(bad("name"))?;
        let limit = parse_windows(config).map_err(bad("windows"))?;
        let keyspace = if config.public { Keyspace::Public } else { Keyspace::PerRule };
        if config.public {
            check_public(&limit).map_err(bad("public"))?;
        }
        let accounting = match config.exactness {
            Exactness::Exact => Accounting::Exact,
            Exactness::Leased if config.public => {
                return Err(bad("exactness")(
                    "a public rule counts every request, so it cannot be leased; remove exactness or public"
                        .to_owned(),
                ));
            }
            Exactness::Leased => {
                leased_accounting(&limit, config.lease.map_or(DEFAULT_LEASE, hob_units::Period::get))
                    .map_err(bad("lease"))?
            }
        };
        let rule = Self {
            advertised: AdvertisedPolicy::new(&name, limit.windows()),
            name,
            scope: Scope::new(config).map_err(|(field, problem)| bad(field)(problem))?,
            count_by: parse_count_by(config.by.as_deref().unwrap_or("address")).map_err(bad("by"))?,
            cost: config.cost,
            limit,
            accounting,
            keyspace,
            mode: if config.shadow { RuleMode::Shadow } else { RuleMode::Enforced },
            on_store_failure: config.on_store_failure,
            applies_to: config.applies_to,
        };
        let max_cost = rule.max_cost();
        if config.cost == 0 || config.cost > max_cost {
            return Err(bad("cost")(format!("cost must be 1 to {max_cost}, not {}", config.cost)));
        }
        Ok(rule)
    }

    #[must_use]
    pub fn name(&self) -> &RuleName {
        &self.name
    }

    #[must_use]
    pub fn limit(&self) -> &limit::Rule {
        &self.limit
    }

    #[must_use]
    pub fn mode(&self) -> RuleMode {
        self.mode
    }

    /// What a request costs.
    #[must_use]
    pub fn cost(&self) -> u32 {
        self.cost
    }

    /// Whether instances hold tokens, instead of calling the store for every request.
    #[must_use]
    pub fn is_leased(&self) -> bool {
        matches!(self.accounting, Accounting::Leased { .. })
    }

    /// The limit that the store applies: stricter than `limit` for a leased rule.
    pub(crate) fn stored_limit(&self) -> &limit::Rule {
        match &self.accounting {
            Accounting::Exact => &self.limit,
            Accounting::Leased { debited, .. } => debited,
        }
    }

    /// The largest cost that can ever be allowed.
    #[must_use]
    pub fn max_cost(&self) -> u32 {
        self.stored_limit().max_at_once()
    }

    /// Whether a request through the gateway is checked against this rule.
    pub(crate) fn matches(&self, method: &Method, path: &RequestPath<'_>, headers: &HeaderMap) -> bool {
        self.applies_to == AppliesTo::Requests && self.scope.matches(method, path, headers)
    }
}

impl Scope {
    /// The error names the wrong key of the rule.
    fn new(config: &RuleConfig) -> Result<Self, (&'static str, String)> {
        let method = |text: &String| text.parse::<Method>().map_err(|_| format!("invalid method {text:?}"));
        let header = |(name, value): (&String, &String)| {
            let read = name.parse::<HeaderName>().map_err(|_| format!("invalid header name {name:?}"))?;
            let value = match value.as_str() {
                "*" => None,
                text => Some(
                    HeaderValue::from_str(text)
                        .map_err(|_| format!("invalid value {text:?} of header {name}"))?,
                ),
            };
            Ok((read, value))
        };
        Ok(Self {
            methods: config
                .methods
                .iter()
                .map(method)
                .collect::<Result<_, _>>()
                .map_err(|problem| ("methods", problem))?,
            route: config
                .route
                .as_deref()
                .map(RouteTemplate::new)
                .transpose()
                .map_err(|bad| ("route", bad.to_string()))?,
            headers: config
                .header
                .iter()
                .map(header)
                .collect::<Result<_, String>>()
                .map_err(|problem| ("header", problem))?,
        })
    }

    fn matches(&self, method: &Method, path: &RequestPath<'_>, headers: &HeaderMap) -> bool {
        // Some servers accept `post`.
        let same_method = |known: &Method| known.as_str().eq_ignore_ascii_case(method.as_str());
        let same = |(name, value): &(HeaderName, Option<HeaderValue>)| match value {
            None => headers.contains_key(name),
            Some(value) => headers.get_all(name).iter().any(|sent| sent == value),
        };
        (self.methods.is_empty() || self.methods.iter().any(same_method))
            && self.route.as_ref().is_none_or(|route| route.matches(path))
            && self.headers.iter().all(same)
    }
}

fn parse_windows(config: &RuleConfig) -> Result<limit::Rule, String> {
    let windows = config.windows.split(',').map(|window| window.trim().parse::<Window>());
    let windows = windows.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
    let has_burst = windows.iter().any(|window| window.burst.is_some());
    let algorithm = match config.algorithm {
        Some(Algorithm::FixedCounter) => {
            return Err("algorithm must be gcra, sliding_window, sliding_log or fixed_log".to_owned());
        }
        Some(algorithm) if has_burst && algorithm != Algorithm::Gcra => {
            return Err("only algorithm gcra allows a burst".to_owned());
        }
        Some(algorithm) => algorithm,
        None if has_burst => Algorithm::Gcra,
        // What the notation says: never more than the limit in any window.
        None => Algorithm::SlidingLog,
    };
    limit::Rule::new(algorithm, windows).map_err(|error| error.to_string())
}

/// Checks that the documented keys can hold the limit.
fn check_public(limit: &limit::Rule) -> Result<(), String> {
    let max_period = match limit.algorithm() {
        Algorithm::FixedLog => Keys::RATE_LIMIT_TTL_MAX,
        Algorithm::SlidingLog => Keys::SLIDING_LIMIT_TTL_MAX,
        _ => return Err("a public rule needs algorithm fixed_log or sliding_log".to_owned()),
    };
    let max_requests = Keys::RATE_LIMIT_MAX_LEN.min(Keys::SLIDING_LIMIT_MAX_LEN);
    let fits = |window: &Window| window.period <= max_period && u64::from(window.limit) <= max_requests;
    if limit.windows().iter().all(fits) {
        return Ok(());
    }
    Err(format!("windows of a public rule can have at most one day and {max_requests} requests"))
}

/// The limit by which the store debits tokens, such that `limit` holds although tokens are spent later.
///
/// A token that is debited at t is spent in [t, t + hold], or never. With a log, the requests of any window W come from
/// debits within W + hold, so these must fit: each window is longer by the hold. With GCRA, at most burst + rate × T is
/// debited in any time T, so at most burst + rate × (T + hold) is spent in T: the burst is smaller by rate × hold.
fn leased_accounting(limit: &limit::Rule, hold: Duration) -> Result<Accounting, String> {
    if hold.is_zero() || hold > MAX_LEASE {
        return Err("lease must be more than 0 and at most 1m".to_owned());
    }
    let windows = limit.windows().iter().map(|window| match limit.algorithm() {
        Algorithm::Gcra => {
            let meanwhile =
                (u128::from(window.limit) * hold.as_micros()).div_ceil(window.period.as_micros().max(1));
            let burst = u128::from(window.max_at_once(Algorithm::Gcra)).checked_sub(meanwhile);
            match burst.and_then(|burst| u32::try_from(burst).ok()) {
                Some(burst) if burst > 0 => Ok(window.with_burst(burst)),
                _ => Err(format!(
                    "a lease of {hold:?} takes {meanwhile} requests, the whole burst of {window}; use a shorter lease or a larger burst"
                )),
            }
        }
        Algorithm::SlidingLog => Ok(Window::new(window.limit, window.period + hold)),
        other => Err(format!("{other} cannot be leased; use gcra or sliding_log")),
    });
    let windows = windows.collect::<Result<Vec<_>, _>>()?;
    let debited = limit::Rule::new(limit.algorithm(), windows).map_err(|error| error.to_string())?;
    Ok(Accounting::Leased { debited, hold })
}

fn parse_count_by(text: &str) -> Result<CountBy, String> {
    let refuse = || {
        format!("invalid by {text:?}: expected address, everyone, api_key:HEADER or header:HEADER as LABEL")
    };
    let header = |name: &str| name.trim().parse::<HeaderName>().map_err(|_| refuse());
    match text.split_once(':') {
        None if text == "address" => Ok(CountBy::Address),
        None if text == "everyone" => Ok(CountBy::Everyone),
        Some(("api_key", name)) => Ok(CountBy::ApiKey { name: header(name)? }),
        Some(("header", rest)) => {
            let (name, label) = rest.split_once(" as ").ok_or_else(refuse)?;
            let label = label.trim();
            // At least one letter past `f`, so that `user:1` is never taken for an IPv6 address.
            let apart = label.bytes().any(|byte| byte.is_ascii_lowercase() && !byte.is_ascii_hexdigit());
            let plain = label.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') && label != "key";
            if !apart || !plain || label.len() > 32 {
                return Err(format!(
                    "invalid label {label:?}: expected at most 32 lowercase letters or _, with at least one letter after f in the alphabet, and not \"key\""
                ));
            }
            Ok(CountBy::Header { name: header(name)?, label: label.to_owned() })
        }
        _ => Err(refuse()),
    }
}

impl RuleName {
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
        if (1..=64).contains(&text.len()) && text.bytes().all(allowed) {
            Ok(Self(text.to_owned()))
        } else {
            Err("name must have 1 to 64 lowercase letters, digits, '-' or '_'".to_owned())
        }
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// As part of a key.
    #[must_use]
    pub fn key(&self) -> keys::Rule {
        keys::Rule::new(&self.0).expect("rule names are valid in keys")
    }
}

impl fmt::Display for RuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AmbiguousPaths;
    use crate::path::{PathReading, RouteCase};

    fn read(toml: &str) -> Result<Rule, BadRule> {
        Rule::new(&toml::from_str(toml).unwrap())
    }

    fn problem(toml: &str) -> String {
        read(toml).unwrap_err().to_string()
    }

    #[test]
    fn rule_matches_method_route_and_headers() {
        let rule = read(
            "name = \"api\"\nwindows = \"20/1s, 500/1m\"\nmethods = [\"GET\"]\nroute = \"/api/users/:id\"\n\
             header = { x-plan = \"free\", x-trace = \"*\" }",
        );
        let rule = rule.unwrap();
        let matches = |method: &Method, path: &str, headers: &HeaderMap| {
            let reading = PathReading { ambiguous: AmbiguousPaths::Refuse, case: RouteCase::Insensitive };
            rule.matches(method, &RequestPath::parse(path, reading).unwrap(), headers)
        };
        let mut headers = HeaderMap::new();
        headers.insert("x-plan", "free".parse().unwrap());
        assert!(!matches(&Method::GET, "/api/users/7", &headers));
        headers.insert("x-trace", "1".parse().unwrap());
        assert!(matches(&Method::GET, "/api/users/7", &headers));
        assert!(!matches(&Method::POST, "/api/users/7", &headers));
        assert!(!matches(&Method::GET, "/api/users", &headers));
        headers.insert("x-plan", "paid".parse().unwrap());
        assert!(!matches(&Method::GET, "/api/users/7", &headers));
    }

    #[test]
    fn windows_decide_the_default_algorithm() {
        let algorithm = |windows: &str| {
            read(&format!("name = \"a\"\nwindows = \"{windows}\"")).unwrap().limit.algorithm()
        };
        assert_eq!(algorithm("5/15m"), Algorithm::SlidingLog);
        assert_eq!(algorithm("20/1s, 500/1m"), Algorithm::SlidingLog);
        assert_eq!(algorithm("20/1s burst 40, 500/1m"), Algorithm::Gcra);
        assert!(problem("name = \"a\"\nwindows = \"200000/1m\"").contains("use sliding_window or gcra"));
    }

    #[test]
    fn leased_limit_debits_more_strictly() {
        let debited = |toml: &str| match read(toml).unwrap().accounting {
            Accounting::Leased { debited, .. } => debited.windows()[0],
            Accounting::Exact => panic!("exact"),
        };
        let gcra = debited(
            "name = \"a\"\nwindows = \"100/1s burst 250\"\nexactness = \"leased\"\nlease = \"500ms\"",
        );
        assert_eq!(gcra.burst, Some(200));
        let log = debited(
            "name = \"a\"\nwindows = \"100/10s\"\nalgorithm = \"sliding_log\"\nexactness = \"leased\"",
        );
        assert_eq!((log.limit, log.period), (100, Duration::from_secs(11)));
    }

    #[test]
    fn invalid_rules_are_refused_with_a_reason() {
        assert!(problem("name = \"A b\"\nwindows = \"1/1s\"").contains("lowercase"));
        assert!(problem("name = \"a\"\nwindows = \"1/1s\"\ncost = 2").contains("1 to 1, not 2"));
        let public = "name = \"a\"\nwindows = \"1/1s burst 2\"\npublic = true";
        assert!(problem(public).contains("needs algorithm"));
        assert!(
            problem("name = \"a\"\nwindows = \"1/2d\"\npublic = true\nalgorithm = \"sliding_log\"")
                .contains("day")
        );
        assert!(
            problem("name = \"a\"\nwindows = \"10/1s burst 10\"\nexactness = \"leased\"")
                .contains("shorter lease")
        );
        assert!(
            problem("name = \"a\"\nwindows = \"1/1s\"\nby = \"header:x-user as face\"").contains("label")
        );
        assert!(problem("name = \"a\"\nwindows = \"1/1s\"\nby = \"peer\"").contains("invalid by"));
        assert!(problem("name = \"a\"\nwindows = \"1/1s\"\nroute = \"api\"").contains("invalid route"));
        assert!(
            problem("name = \"a\"\nwindows = \"1/1s burst 2\"\nalgorithm = \"sliding_log\"")
                .contains("burst")
        );
    }
}
