//! Limits of checks: addresses that are allowed, and the size of responses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;
use rustls_pki_types::CertificateDer;

#[derive(Clone, Debug)]
pub struct Limits {
    pub targets: Targets,
    /// A check fails if the response body is larger.
    pub max_body_bytes: usize,
    /// Certificate authorities that are trusted besides the public ones.
    pub roots: Vec<CertificateDer<'static>>,
    /// Default: the name servers of the system.
    pub name_server: Option<SocketAddr>,
}

/// Addresses that checks may connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Targets {
    All,
    /// Only public addresses, and these networks. For deployments where users who add monitors must not reach the
    /// network of the node.
    Public {
        allowed: Vec<IpNet>,
    },
}

impl Default for Limits {
    fn default() -> Self {
        Self { targets: Targets::All, max_body_bytes: 1 << 20, roots: Vec::new(), name_server: None }
    }
}

impl Targets {
    #[must_use]
    pub fn allow(&self, address: IpAddr) -> bool {
        match self {
            Self::All => true,
            Self::Public { allowed } => {
                is_public(address) || allowed.iter().any(|net| net.contains(&address))
            }
        }
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => match embedded_v4(address) {
            Some(inner) => is_public_v4(inner),
            None => is_public_v6(address),
        },
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let reserved = match (a, b, c) {
        // This network, reserved; carrier-grade NAT; protocol assignments; benchmarks.
        (0 | 240.., _, _) | (100, 64..=127, _) | (192, 0, 0) | (198, 18 | 19, _) => true,
        // 6to4 relay anycast.
        (192, 88, 99) => true,
        _ => false,
    };
    !(reserved
        || address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation())
}

/// The IPv4 address that is embedded in an IPv6 address.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match (a, b, c, d, e, f) {
        // IPv4-mapped, and NAT64.
        (0, 0, 0, 0, 0, 0xffff) | (0x64, 0xff9b, 0, 0, 0, 0) => Some(v4(g, h)),
        // 6to4.
        (0x2002, ..) => Some(v4(b, c)),
        _ => None,
    }
}

/// Global unicast is 2000::/3, except for Teredo, other protocol assignments and documentation.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    let reserved = matches!((a, b), (0x2001, 0..=0x01ff | 0x0db8) | (0x3fff, 0..=0x0fff));
    a & 0xe000 == 0x2000 && !reserved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_purpose_addresses_are_not_public() {
        let public = Targets::Public { allowed: Vec::new() };
        for address in
            ["1.1.1.1", "100.63.255.255", "172.32.0.1", "192.0.1.1", "2606:4700::1111", "64:ff9b::101:101"]
        {
            assert!(public.allow(address.parse().unwrap()), "{address}");
        }
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "192.0.0.8",
            "192.0.2.1",
            "192.168.1.1",
            "198.19.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!public.allow(address.parse().unwrap()), "{address}");
            assert!(Targets::All.allow(address.parse().unwrap()));
        }
    }

    #[test]
    fn allowed_network_does_not_allow_others() {
        let targets = Targets::Public { allowed: vec!["10.1.0.0/16".parse().unwrap()] };
        assert!(targets.allow("10.1.2.3".parse().unwrap()));
        assert!(!targets.allow("10.2.2.3".parse().unwrap()));
    }
}
