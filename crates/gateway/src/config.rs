//! The `[gateway]` section of `hob.toml`. What it says about requests is a [`PolicyConfig`].

use std::net::SocketAddr;
use std::path::Path;

use hob_admission::{AmbiguousPaths, PolicyConfig, RuleConfig};
use hob_net::{ForwardingHeader, Network, ServerTls, client_tls};
use hob_service::Period;
use hob_service::config::Mistakes;
use http::header::HeaderName;
use http::uri::PathAndQuery;

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
    for mistake in config.policy().mistakes() {
        mistakes.add(mistake.field, mistake.message);
    }
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
    /// What the gateway decides about requests.
    #[must_use]
    pub fn policy(&self) -> PolicyConfig {
        PolicyConfig {
            rules: self.rules.clone(),
            allow: self.allow.clone(),
            deny: self.deny.clone(),
            trusted_proxies: self.trusted_proxies.clone(),
            forwarded_header: self.forwarded_header,
            routes: self.routes.clone(),
            case_sensitive_routes: self.case_sensitive_routes,
            ambiguous_paths: self.ambiguous_paths,
            learn_routes: self.learn_routes,
            count_loopback: self.count_loopback.unwrap_or_else(|| self.listens_on_loopback()),
            x_ratelimit: self.x_ratelimit,
        }
    }

    /// Whether the gateway listens, and only on this host.
    fn listens_on_loopback(&self) -> bool {
        !self.upstream.is_empty() && self.listen.ip().is_loopback()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_from_this_host_count_where_all_requests_come_from_it() {
        let counts = |toml: &str| toml::from_str::<Config>(toml).unwrap().policy().count_loopback;
        let upstream = "upstream = [\"http://127.0.0.1:3000\"]\n";
        assert!(counts(upstream));
        assert!(!counts(&format!("{upstream}listen = \"0.0.0.0:7080\"")));
        assert!(!counts(&format!("{upstream}count_loopback = false")));
        assert!(counts(&format!("{upstream}listen = \"0.0.0.0:7080\"\ncount_loopback = true")));
        // Without an upstream, the gateway does not listen: it is a layer in another server.
        assert!(!counts(""));
    }
}
