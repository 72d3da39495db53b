//! The hosts that a secret may be sent to.
//!
//! Host names are compared as text and not resolved: otherwise the owner of an unlisted name could make it match by
//! pointing it at the address of a listed host.

use std::fmt;
use std::str::FromStr;

use url::{Host, Url};

/// `example.com`, `*.example.com`, `10.0.0.7` or `[::1]`. With `:port` it matches that port only, otherwise every port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    host: Pattern,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Exactly(Host),
    /// Every subdomain, at any depth, but not the name itself.
    SubdomainsOf(String),
}

/// The host and port that a secret is sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    host: Host,
    /// If `None`, only patterns without a port match.
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a host: write example.com, *.example.com or example.com:443, without a scheme or a path"
)]
pub struct HostPatternError(String);

impl HostPattern {
    #[must_use]
    pub fn matches(&self, destination: &Destination) -> bool {
        let port_fits = self.port.is_none() || self.port == destination.port;
        port_fits
            && match (&self.host, &destination.host) {
                (Pattern::Exactly(host), found) => host == found,
                (Pattern::SubdomainsOf(parent), Host::Domain(name)) => name
                    .strip_suffix(parent.as_str())
                    .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
                (Pattern::SubdomainsOf(_), _) => false,
            }
    }
}

impl Destination {
    /// The host and port of a URL. `None` if it has no host.
    #[must_use]
    pub fn of_url(url: &Url) -> Option<Self> {
        Self::new(url.host_str()?, url.port_or_known_default())
    }

    /// `host` is a name or an address. Brackets around IPv6 are optional.
    #[must_use]
    pub fn new(host: &str, port: Option<u16>) -> Option<Self> {
        Some(Self { host: parse_host(host)?, port })
    }

    /// The destination that a `Host` header names. If the header has no port, the port of `self` is used.
    #[must_use]
    pub fn with_host_header(&self, header: &str) -> Option<Self> {
        let (host, port) = split_port(header)?;
        Some(Self { host: parse_host(host)?, port: port.or(self.port) })
    }
}

/// Checks a setting that is a host without a port: `example.com`, `10.0.0.7` or `[::1]`.
pub fn check_host(text: &str) -> Result<(), String> {
    match parse_host(text).filter(|_| !text.contains('*')) {
        Some(_) => Ok(()),
        None => Err(format!("{text:?} is not a host; write example.com, without a scheme, a port or a path")),
    }
}

/// Checks a setting that is a host with a port: `example.com:443`, `10.0.0.7:53` or `[::1]:53`.
pub fn check_host_and_port(text: &str) -> Result<(), String> {
    match split_port(text) {
        Some((host, Some(port))) if port > 0 && check_host(host).is_ok() => Ok(()),
        _ => Err(format!("{text:?} is not a host with a port; write example.com:443")),
    }
}

/// Checks a setting that is an origin: `https://shop.example` or `https://shop.example:8443`.
pub fn check_origin(text: &str) -> Result<(), String> {
    let is_origin = Url::parse(text).is_ok_and(|url| {
        let is_bare = matches!(url.path(), "" | "/") && url.query().is_none() && url.fragment().is_none();
        url.has_host() && is_bare && url.username().is_empty() && url.password().is_none()
    });
    if is_origin {
        Ok(())
    } else {
        Err(format!("{text:?} is not an origin; write https://shop.example, without a path"))
    }
}

/// Normalizes a host for comparison: lower case, Punycode, no trailing dot.
fn parse_host(text: &str) -> Option<Host> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let host = if bare.contains(':') { Host::parse(&format!("[{bare}]")) } else { Host::parse(bare) };
    match host.ok()? {
        Host::Domain(name) => {
            let name = name.strip_suffix('.').unwrap_or(&name);
            (!name.is_empty()).then(|| Host::Domain(name.to_owned()))
        }
        address => Some(address),
    }
}

/// Splits off the port. An IPv6 address with a port must be in brackets.
fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    let after_address = text.rfind(']').map_or(0, |at| at + 1);
    match text[after_address..].rfind(':') {
        // Several colons without brackets: an IPv6 address.
        Some(_) if after_address == 0 && text.matches(':').count() > 1 => Some((text, None)),
        Some(at) => {
            let (host, port) = text.split_at(after_address + at);
            Some((host, Some(port[1..].parse().ok()?)))
        }
        None => Some((text, None)),
    }
}

impl FromStr for HostPattern {
    type Err = HostPatternError;

    fn from_str(text: &str) -> Result<Self, HostPatternError> {
        let bad = || HostPatternError(text.to_owned());
        let (host, port) = split_port(text).ok_or_else(bad)?;
        let host = match host.strip_prefix("*.") {
            Some(parent) => match parse_host(parent) {
                Some(Host::Domain(parent)) => Pattern::SubdomainsOf(parent),
                _ => return Err(bad()),
            },
            None => Pattern::Exactly(parse_host(host).filter(|_| !host.contains('*')).ok_or_else(bad)?),
        };
        Ok(Self { host, port })
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Pattern::Exactly(host) => write!(f, "{host}")?,
            Pattern::SubdomainsOf(parent) => write!(f, "*.{parent}")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

as_text!(HostPattern);

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, url: &str) -> bool {
        let pattern: HostPattern = pattern.parse().unwrap();
        pattern.matches(&Destination::of_url(&url.parse().unwrap()).unwrap())
    }

    #[test]
    fn host_is_matched_by_name_and_port() {
        for (pattern, url) in [
            ("hooks.slack.com", "https://hooks.slack.com/T0"),
            ("Hooks.Slack.com", "https://HOOKS.slack.COM./T0"),
            ("hooks.slack.com", "http://hooks.slack.com:8080/"),
            ("hooks.slack.com:443", "https://hooks.slack.com/"),
            ("hooks.slack.com:8080", "http://hooks.slack.com:8080/"),
            ("*.example.com", "https://a.example.com/"),
            ("*.example.com", "https://a.b.example.com/"),
            ("*.example.com:443", "https://a.example.com/"),
            ("10.0.0.7", "http://10.0.0.7/"),
            ("10.0.0.7:80", "http://10.0.0.7/"),
            ("::1", "http://[::1]:9/"),
            ("[::1]:9", "http://[::1]:9/"),
            ("bücher.example", "https://xn--bcher-kva.example/"),
            ("db.example:5432", "postgres://u:p@DB.example:5432/x"),
        ] {
            assert!(matches(pattern, url), "{pattern} {url}");
        }
    }

    #[test]
    fn similar_host_is_not_matched() {
        for (pattern, url) in [
            ("slack.com", "https://hooks.slack.com/"),
            ("slack.com", "https://slack.com.evil.example/"),
            ("slack.com", "https://slack.com@evil.example/"),
            ("slack.com", "https://evilslack.com/"),
            ("*.example.com", "https://example.com/"),
            ("*.example.com", "https://evilexample.com/"),
            ("*.example.com", "https://a.example.com.evil.example/"),
            ("slack.com:443", "http://slack.com/"),
            ("slack.com:443", "https://slack.com:8443/"),
            ("db.example:5432", "postgres://db.example/x"),
            ("localhost", "http://127.0.0.1/"),
            ("[::1]:9", "http://[::1]:10/"),
        ] {
            assert!(!matches(pattern, url), "{pattern} {url}");
        }
    }

    #[test]
    fn host_header_is_a_destination() {
        let to = Destination::new("10.0.0.7", Some(8443)).unwrap();
        assert_eq!(to.with_host_header("shop.example").unwrap().to_string(), "shop.example:8443");
        assert_eq!(to.with_host_header("shop.example:1").unwrap().to_string(), "shop.example:1");
        assert_eq!(to.with_host_header("[::1]").unwrap().to_string(), "[::1]:8443");
        assert_eq!(to.with_host_header("a b"), None);
    }

    #[test]
    fn invalid_pattern_is_refused() {
        for text in [
            "",
            "*",
            "*.",
            "*.1.2.3.4",
            "a.*.example",
            "https://a.example",
            "a.example/x",
            "u@a.example",
            "a.example:",
            "a.example:x",
            "a.example:70000",
            "a b",
            ".",
        ] {
            assert!(text.parse::<HostPattern>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn pattern_is_printed_as_it_is_read() {
        for text in ["a.example", "*.a.example", "a.example:443", "[::1]:9", "10.0.0.7"] {
            assert_eq!(text.parse::<HostPattern>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn hosts_and_origins_of_settings_are_checked() {
        for host in ["example.com", "localhost", "10.0.0.7", "[::1]", "::1", "bücher.example"] {
            assert_eq!(check_host(host), Ok(()), "{host}");
        }
        for host in ["", "a b", "https://example.com", "example.com:80", "example.com/a", "*.example.com"] {
            assert!(check_host(host).is_err(), "{host}");
        }
        for target in ["example.com:443", "10.0.0.7:53", "[::1]:53"] {
            assert_eq!(check_host_and_port(target), Ok(()), "{target}");
        }
        for target in ["foo", "foo:", "foo:0", "foo:99999", ":80", "::1", "https://a.example:443"] {
            assert!(check_host_and_port(target).is_err(), "{target}");
        }
        for origin in ["https://shop.example", "http://localhost:3000/", "capacitor://localhost"] {
            assert_eq!(check_origin(origin), Ok(()), "{origin}");
        }
        for origin in
            ["", "shop.example", "https://", "https://shop.example/a", "https://a@shop.example", "null"]
        {
            assert!(check_origin(origin).is_err(), "{origin}");
        }
    }
}
