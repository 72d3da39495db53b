//! Identifies callers: by an address that a client cannot forge, or by a name from a trusted source.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use hob_net::{ClientAddress, Network};
use http::HeaderMap;
use http::header::HeaderName;
use ipnet::IpNet;
use ring::digest;

use crate::keys::Identifier;

/// What a rule counts requests by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CountBy {
    /// The client's address. An IPv6 client is its /64 network, since one client has all of its addresses.
    #[default]
    Address,
    /// A header that a trusted proxy sets after authentication, as in `user:123`. If the header is missing or comes
    /// from another peer, the address is used.
    Header { name: HeaderName, label: String },
    /// The digest of an API key in a header. A caller can make up keys and gets a new count for each, so such a rule
    /// needs another one by address beside it.
    ApiKey { name: HeaderName },
    /// All clients together.
    Everyone,
}

/// A caller, as written in keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity(String);

impl Identity {
    /// The caller that a request is counted for.
    #[must_use]
    pub fn of(by: &CountBy, client: ClientAddress, headers: &HeaderMap) -> Self {
        let named = match by {
            CountBy::Address => None,
            CountBy::Header { name, label } if client.via_proxy => headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .and_then(|value| Self::new(&format!("{label}:{value}"))),
            CountBy::Header { .. } => None,
            CountBy::ApiKey { name } => headers.get(name).map(|value| Self::from_secret(value.as_bytes())),
            CountBy::Everyone => Some(Self("everyone".to_owned())),
        };
        named.unwrap_or_else(|| Self::from_address(client.address))
    }

    /// A name from elsewhere, such as the API; `None` if it is empty or too long for a key.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        Identifier::new(name).ok().map(|name| Self(name.as_str().to_owned()))
    }

    /// A caller as users write one: an address, or a name such as `user:123`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.parse::<IpAddr>() {
            Ok(address) => Some(Self::from_address(address.to_canonical())),
            Err(_) => Self::new(text),
        }
    }

    fn from_address(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self(address.to_string()),
            IpAddr::V6(address) if address.is_loopback() => Self(address.to_string()),
            IpAddr::V6(address) => Self(network_of(address).to_string()),
        }
    }

    /// The key holds a digest, since many can read the keys.
    fn from_secret(secret: &[u8]) -> Self {
        let digest = digest::digest(&digest::SHA256, secret);
        Self(digest.as_ref()[..16].iter().fold("key:".to_owned(), |text, byte| text + &format!("{byte:02x}")))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn key(&self) -> Identifier {
        Identifier::new(&self.0).expect("checked when it was made")
    }
}

/// The /64 network of an address.
fn network_of(address: Ipv6Addr) -> Ipv6Addr {
    Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Callers on the allow or deny list: addresses, networks, or names such as `user:123`.
#[derive(Clone, Debug, Default)]
pub struct CallerList {
    networks: Vec<IpNet>,
    names: Vec<String>,
}

impl CallerList {
    #[must_use]
    pub fn new(entries: &[String]) -> Self {
        let mut list = Self::default();
        for entry in entries {
            match (entry.parse::<IpNet>(), entry.parse::<IpAddr>()) {
                (Ok(network), _) => list.networks.push(network),
                (_, Ok(address)) => list.networks.push(IpNet::from(address.to_canonical())),
                _ => list.names.push(entry.clone()),
            }
        }
        list
    }

    /// Checks an entry: one that is neither an address, a network nor a name would never match.
    pub(crate) fn check(entry: &str) -> Result<(), String> {
        if entry.parse::<Network>().is_ok() || is_name(entry) {
            return Ok(());
        }
        Err(format!("{entry:?} is not an address, a network or a name such as \"user:123\""))
    }

    #[must_use]
    pub fn contains_address(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&address))
    }

    pub(crate) fn has_names(&self) -> bool {
        !self.names.is_empty()
    }

    #[must_use]
    pub fn contains_identity(&self, identity: &Identity) -> bool {
        self.names.iter().any(|name| name == identity.as_str())
    }
}

/// Whether a text is `everyone`, or a label and a value. A mistyped IPv6 address or network is not.
fn is_name(text: &str) -> bool {
    let is_address = text.bytes().all(|byte| byte.is_ascii_hexdigit() || b":./".contains(&byte))
        && (text.contains('/') || text.matches(':').count() > 1);
    let is_label = |label: &str| {
        label.starts_with(|first: char| first.is_ascii_alphabetic())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
    };
    let is_pair = text.split_once(':').is_some_and(|(label, value)| is_label(label) && !value.is_empty());
    text == "everyone" || (is_pair && !is_address && Identity::new(text).is_some())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(name: &str, values: &[&str]) -> HeaderMap {
        let name: HeaderName = name.parse().unwrap();
        values.iter().map(|value| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
    }

    #[test]
    fn ipv6_client_counts_as_its_network() {
        let by = |address: &str| {
            let client = ClientAddress { address: address.parse().unwrap(), via_proxy: false };
            Identity::of(&CountBy::Address, client, &HeaderMap::new()).to_string()
        };
        assert_eq!(by("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(by("2001:db8:1:2:ffff::"), "2001:db8:1:2::");
        assert_eq!(by("::1"), "::1");
    }

    #[test]
    fn name_is_accepted_from_a_trusted_proxy_only() {
        let by = CountBy::Header { name: "x-user".parse().unwrap(), label: "user".into() };
        let headers = headers("x-user", &["123"]);
        let from = |via_proxy| ClientAddress { address: "203.0.113.7".parse().unwrap(), via_proxy };
        assert_eq!(Identity::of(&by, from(true), &headers).as_str(), "user:123");
        assert_eq!(Identity::of(&by, from(false), &headers).as_str(), "203.0.113.7");
        assert_eq!(Identity::of(&by, from(true), &HeaderMap::new()).as_str(), "203.0.113.7");
    }

    #[test]
    fn api_key_is_never_written_to_redis() {
        let by = CountBy::ApiKey { name: "x-api-key".parse().unwrap() };
        let client = ClientAddress { address: "203.0.113.7".parse().unwrap(), via_proxy: false };
        let identity = Identity::of(&by, client, &headers("x-api-key", &["hunter2"]));
        assert!(identity.as_str().starts_with("key:") && !identity.as_str().contains("hunter2"));
        assert_ne!(identity, Identity::of(&by, client, &headers("x-api-key", &["hunter3"])));
    }

    #[test]
    fn entry_that_can_never_match_is_refused() {
        for entry in
            ["10.0.0.0/8", "10.0.0.1", "2001:db8::/32", "::1", "user:123", "key:00ff", "abc:1", "everyone"]
        {
            assert_eq!(CallerList::check(entry), Ok(()), "{entry}");
        }
        for entry in
            ["", "10.0.0.0/99", "not an ip", "10.0.0", "2001:db8::/129", "fe80::1::2", "user:", ":1", "anna"]
        {
            assert!(CallerList::check(entry).is_err(), "{entry}");
        }
    }
}
