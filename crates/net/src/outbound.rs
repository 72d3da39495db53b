//! Decides which addresses Hob may connect to when an API user chooses the host. This prevents server-side request
//! forgery.
//!
//! An API user must not be able to reach hosts that only the server can reach: a cloud's metadata service, which hands
//! out credentials, or services on the server's own machine and network. The policy is checked after name resolution,
//! and Hob connects to one of the checked addresses, because a second lookup could return a different one (DNS
//! rebinding).

mod class;
mod network;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};

use tokio::net::{TcpStream, lookup_host};

pub use class::AddressClass;
pub use network::{Network, NetworkError};

/// The addresses that may be connected to. Clones share one policy, which can be replaced.
#[derive(Clone, Debug, Default)]
pub struct Outbound(Arc<RwLock<Arc<OutboundPolicy>>>);

/// Addresses that are allowed besides public ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutboundPolicy {
    pub internal: InternalAddresses,
    /// Networks that are allowed, whatever the class of the address.
    pub allow: Vec<Network>,
}

/// Whether loopback, private and reserved addresses are allowed without being listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InternalAddresses {
    /// For a server whose users are on the same machine, because they can connect to these addresses themselves.
    #[default]
    Allowed,
    Denied,
}

/// An address that may not be connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot connect to {address}: {class} addresses are not allowed; to allow it, add it to [outbound] allow"
)]
pub struct AddressDenied {
    pub address: IpAddr,
    pub class: AddressClass,
}

/// Why a connection could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OutboundError {
    #[error(transparent)]
    Denied(#[from] AddressDenied),
    #[error("cannot resolve {host}: {source}")]
    Resolve { host: String, source: io::Error },
    #[error("cannot resolve {host}: no address found")]
    NoAddress { host: String },
    #[error("cannot connect to {address}: {source}")]
    Connect { address: SocketAddr, source: io::Error },
}

impl Outbound {
    #[must_use]
    pub fn new(policy: OutboundPolicy) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(policy))))
    }

    /// Replaces the policy of all clones. Open connections are kept.
    pub fn replace(&self, policy: OutboundPolicy) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
    }

    pub fn check(&self, address: IpAddr) -> Result<(), AddressDenied> {
        self.policy().check(address)
    }

    /// Keeps only the allowed addresses. If all are denied, the error names the first one.
    pub fn allowed(&self, addresses: Vec<IpAddr>) -> Result<Vec<IpAddr>, AddressDenied> {
        let policy = self.policy();
        let mut denied = None;
        let is_allowed = |address: &IpAddr| match policy.check(*address) {
            Ok(()) => true,
            Err(error) => {
                denied.get_or_insert(error);
                false
            }
        };
        let allowed: Vec<IpAddr> = addresses.into_iter().filter(is_allowed).collect();
        match denied {
            Some(denied) if allowed.is_empty() => Err(denied),
            _ => Ok(allowed),
        }
    }

    /// The allowed addresses of a host, at least one. Connect to these, not to the name.
    pub async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, OutboundError> {
        let found = lookup_host((host, port)).await;
        let found = found.map_err(|source| OutboundError::Resolve { host: host.to_owned(), source })?;
        let mut found: Vec<SocketAddr> = found.collect();
        let allowed = self.allowed(found.iter().map(SocketAddr::ip).collect())?;
        if allowed.is_empty() {
            return Err(OutboundError::NoAddress { host: host.to_owned() });
        }
        found.retain(|address| allowed.contains(&address.ip()));
        Ok(found)
    }

    /// Connects to the first allowed address of a host that accepts a connection.
    pub async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, OutboundError> {
        let mut last = OutboundError::NoAddress { host: host.to_owned() };
        for address in self.resolve(host, port).await? {
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(source) => last = OutboundError::Connect { address, source },
            }
        }
        Err(last)
    }

    fn policy(&self) -> Arc<OutboundPolicy> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl OutboundPolicy {
    fn check(&self, address: IpAddr) -> Result<(), AddressDenied> {
        let effective = class::effective_address(address);
        let class = AddressClass::of(effective);
        let by_class = match class {
            AddressClass::Public => true,
            AddressClass::Loopback | AddressClass::Private | AddressClass::Reserved => {
                self.internal == InternalAddresses::Allowed
            }
            AddressClass::LinkLocal
            | AddressClass::Metadata
            | AddressClass::Unspecified
            | AddressClass::Multicast
            | AddressClass::Broadcast => false,
        };
        if by_class || self.allow.iter().any(|network| network.contains(effective)) {
            return Ok(());
        }
        Err(AddressDenied { address, class })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::net::TcpListener;

    use super::*;

    fn outbound(internal: InternalAddresses, allow: &[&str]) -> Outbound {
        Outbound::new(OutboundPolicy {
            internal,
            allow: allow.iter().map(|net| net.parse().unwrap()).collect(),
        })
    }

    fn allows(outbound: &Outbound, address: &str) -> bool {
        outbound.check(address.parse().unwrap()).is_ok()
    }

    const DENIED_UNLESS_LISTED: [&str; 22] = [
        "0.0.0.0",
        "0.1.2.3",
        "100.100.100.200",
        "168.63.129.16",
        "169.254.0.1",
        "169.254.169.254",
        "169.254.170.2",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::ffff:0.0.0.0",
        "::ffff:169.254.169.254",
        "::169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "fd00:ec2::254",
        "fd20:ce::254",
        "fe80::1",
        "fe80::a9fe:a9fe",
        "febf::1",
        "ff02::1",
    ];

    const INTERNAL: [&str; 20] = [
        "10.0.0.1",
        "100.64.0.1",
        "127.0.0.1",
        "127.9.9.9",
        "172.16.0.1",
        "192.0.0.8",
        "192.0.2.1",
        "192.168.1.1",
        "198.19.0.1",
        "240.0.0.1",
        "::1",
        "::ffff:127.0.0.1",
        "::127.0.0.1",
        "64:ff9b::a00:1",
        "2002:7f00:1::",
        "2001::1",
        "2001:db8::1",
        "fc00::1",
        "fd12::1",
        "fec0::1",
    ];

    const PUBLIC: [&str; 8] = [
        "1.1.1.1",
        "100.63.255.255",
        "169.253.255.255",
        "172.32.0.1",
        "192.0.1.1",
        "2606:4700::1111",
        "64:ff9b::101:101",
        "2002:101:101::1",
    ];

    #[test]
    fn class_decides_unless_the_address_is_listed() {
        let (lenient, strict) = (Outbound::default(), outbound(InternalAddresses::Denied, &[]));
        for address in PUBLIC {
            assert!(allows(&lenient, address) && allows(&strict, address), "{address}");
        }
        for address in INTERNAL {
            assert!(allows(&lenient, address) && !allows(&strict, address), "{address}");
        }
        for address in DENIED_UNLESS_LISTED {
            assert!(!allows(&lenient, address) && !allows(&strict, address), "{address}");
        }
        for address in INTERNAL.iter().chain(&DENIED_UNLESS_LISTED) {
            assert!(
                allows(&outbound(InternalAddresses::Denied, &["0.0.0.0/0", "::/0"]), address),
                "{address}"
            );
        }
    }

    #[test]
    fn listed_network_allows_its_addresses_in_every_form_and_no_others() {
        let listed = outbound(InternalAddresses::Denied, &["10.1.0.0/16", "169.254.169.254"]);
        for address in ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::a01:203", "169.254.169.254"] {
            assert!(allows(&listed, address), "{address}");
        }
        for address in ["10.2.2.3", "::ffff:10.2.2.3", "169.254.169.253", "127.0.0.1"] {
            assert!(!allows(&listed, address), "{address}");
        }
        // An IPv6 network does not allow the IPv4 addresses that IPv6 addresses contain.
        assert!(!allows(&outbound(InternalAddresses::Denied, &["::/0"]), "::ffff:169.254.169.254"));
    }

    #[test]
    fn refusal_names_address_class_and_setting() {
        let local = Outbound::default();
        let refused = local.check("169.254.169.254".parse().unwrap()).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "cannot connect to 169.254.169.254: link-local addresses are not allowed; to allow it, add it to [outbound] allow"
        );
        let refused = local.check("fd00:ec2::254".parse().unwrap()).unwrap_err();
        assert!(refused.to_string().contains(": cloud metadata addresses are"), "{refused}");
    }

    #[test]
    fn denied_addresses_of_a_name_are_left_out() {
        let strict = outbound(InternalAddresses::Denied, &[]);
        let addresses = |list: &[&str]| list.iter().map(|address| address.parse().unwrap()).collect();
        assert_eq!(strict.allowed(addresses(&["10.0.0.1", "1.1.1.1"])), Ok(addresses(&["1.1.1.1"])));
        let refused = strict.allowed(addresses(&["10.0.0.1", "127.0.0.1"])).unwrap_err();
        assert_eq!(refused.class, AddressClass::Private);
        assert_eq!(strict.allowed(Vec::new()), Ok(Vec::new()));
    }

    #[tokio::test]
    async fn connection_is_opened_to_allowed_addresses_only() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let outbound = Outbound::default();
        let connected = outbound.clone().connect("localhost", port).await.unwrap();
        assert!(connected.peer_addr().unwrap().ip().is_loopback());
        outbound.replace(OutboundPolicy { internal: InternalAddresses::Denied, allow: Vec::new() });
        // getaddrinfo also reads addresses in forms such as 127.1.
        for host in ["localhost", "127.0.0.1", "127.1", "::1", "0.0.0.0", "0"] {
            let refused = outbound.connect(host, port).await;
            assert!(matches!(refused, Err(OutboundError::Denied(_))), "{host}: {refused:?}");
        }
    }

    proptest! {
        #[test]
        fn ipv6_address_is_treated_like_the_ipv4_address_that_it_contains(v4: [u8; 4], rest: [u16; 5]) {
            let v4 = std::net::Ipv4Addr::from(v4);
            let [high, low] = [v4.to_bits() >> 16, v4.to_bits() & 0xffff].map(|half| half as u16);
            let forms = [
                [0, 0, 0, 0, 0, 0xffff, high, low],
                [0x64, 0xff9b, 0, 0, 0, 0, high, low],
                [0x2002, high, low, rest[0], rest[1], rest[2], rest[3], rest[4]],
            ];
            for policy in [Outbound::default(), outbound(InternalAddresses::Denied, &["10.0.0.0/8"])] {
                let expected = policy.check(v4.into()).map_err(|denied| denied.class);
                for form in forms {
                    let found = policy.check(IpAddr::from(form)).map_err(|denied| denied.class);
                    prop_assert_eq!(expected, found, "{:?}", form);
                }
            }
        }

        #[test]
        fn link_local_address_is_denied_unless_listed(bits: u128, host: u16) {
            let v6 = std::net::Ipv6Addr::from((bits >> 10) | (0xfe80 << 112));
            let v4 = std::net::Ipv4Addr::from(0xa9fe_0000 | u32::from(host));
            for address in [IpAddr::from(v6), IpAddr::from(v4)] {
                let refused = Outbound::default().check(address).unwrap_err();
                prop_assert_eq!(refused.class, AddressClass::LinkLocal);
            }
        }

        #[test]
        fn address_allowed_by_the_strict_policy_is_allowed_by_the_default(bits: u128, v4: u32) {
            for address in [IpAddr::from(std::net::Ipv6Addr::from(bits)), std::net::Ipv4Addr::from(v4).into()] {
                let by_strict = outbound(InternalAddresses::Denied, &[]).check(address).is_ok();
                prop_assert!(!by_strict || Outbound::default().check(address).is_ok(), "{}", address);
            }
        }
    }
}
