//! Classes of addresses, from the IANA special-purpose address registries.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The kind of host that an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressClass {
    Public,
    Loopback,
    /// A private network, or a network behind carrier-grade NAT.
    Private,
    /// Reserved for documentation, benchmarks, protocols and tunnels; not used by public hosts.
    Reserved,
    LinkLocal,
    /// A cloud's metadata service whose address is not link-local.
    Metadata,
    /// `0.0.0.0/8` and `::`. On Linux, a connection to `0.0.0.0` or `::` reaches the local machine.
    Unspecified,
    Multicast,
    Broadcast,
}

/// The metadata services of Alibaba Cloud, Azure and Oracle Cloud. Those of all other clouds have link-local addresses.
const METADATA_V4: [Ipv4Addr; 3] =
    [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(192, 0, 0, 192)];

/// Google Cloud and Scaleway. For AWS, see [`class_v6`].
const METADATA_V6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42)];

impl AddressClass {
    /// The class of an address that [`effective_address`] has returned.
    pub(super) fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => class_v4(address),
            IpAddr::V6(address) => class_v6(address),
        }
    }
}

/// The address that a connection would reach: if an IPv6 address contains an IPv4 address, that IPv4 address, otherwise
/// the address itself.
pub(super) fn effective_address(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(inner) => embedded_v4(inner).map_or(address, IpAddr::V4),
    }
}

fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match (a, b, c, d, e, f) {
        // `::` and `::1` are not IPv4 addresses.
        (0, 0, 0, 0, 0, 0) if g == 0 && h <= 1 => None,
        // IPv4-compatible, IPv4-mapped, NAT64, and NAT64 in a local network.
        (0, 0, 0, 0, 0, 0 | 0xffff) | (0x64, 0xff9b, 0, 0, 0, 0) | (0x64, 0xff9b, 1, ..) => Some(v4(g, h)),
        // 6to4.
        (0x2002, ..) => Some(v4(b, c)),
        _ => None,
    }
}

fn class_v4(address: Ipv4Addr) -> AddressClass {
    let [a, b, c, _] = address.octets();
    match (a, b, c) {
        _ if address.is_link_local() => AddressClass::LinkLocal,
        _ if METADATA_V4.contains(&address) => AddressClass::Metadata,
        _ if address.is_broadcast() => AddressClass::Broadcast,
        _ if address.is_multicast() => AddressClass::Multicast,
        (0, ..) => AddressClass::Unspecified,
        (127, ..) => AddressClass::Loopback,
        (100, 64..=127, _) => AddressClass::Private,
        _ if address.is_private() => AddressClass::Private,
        // Protocol assignments; 6to4 relays; benchmarks; future use.
        (192, 0, 0) | (192, 88, 99) | (198, 18 | 19, _) | (240.., ..) => AddressClass::Reserved,
        _ if address.is_documentation() => AddressClass::Reserved,
        _ => AddressClass::Public,
    }
}

fn class_v6(address: Ipv6Addr) -> AddressClass {
    let [a, b, ..] = address.segments();
    match (a, b) {
        _ if METADATA_V6.contains(&address) => AddressClass::Metadata,
        // Everything in this network is a service of AWS: metadata, credentials, DNS, time.
        (0xfd00, 0xec2) => AddressClass::Metadata,
        _ if address.is_unspecified() => AddressClass::Unspecified,
        _ if address.is_loopback() => AddressClass::Loopback,
        (0xfe80..=0xfebf, _) => AddressClass::LinkLocal,
        (0xff00.., _) => AddressClass::Multicast,
        // Unique local, and the deprecated site-local range.
        (0xfc00..=0xfdff | 0xfec0..=0xfeff, _) => AddressClass::Private,
        // Teredo and other protocol assignments; documentation.
        (0x2001, 0..=0x01ff | 0x0db8) | (0x3fff, 0..=0x0fff) => AddressClass::Reserved,
        (0x2000..=0x3fff, _) => AddressClass::Public,
        _ => AddressClass::Reserved,
    }
}

impl fmt::Display for AddressClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "public",
            Self::Loopback => "loopback",
            Self::Private => "private",
            Self::Reserved => "reserved",
            Self::LinkLocal => "link-local",
            Self::Metadata => "cloud metadata",
            Self::Unspecified => "unspecified",
            Self::Multicast => "multicast",
            Self::Broadcast => "broadcast",
        })
    }
}
