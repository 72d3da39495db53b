//! The address of a client behind trusted proxies, which the client cannot forge.
//!
//! The address is that of the connection. If the connection comes from a trusted proxy, the address is the right-most
//! hop in the forwarding header that is not a trusted proxy. Hops further left are not verified and are ignored.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use http::header::{FORWARDED, HeaderName, HeaderValue};
use ipnet::IpNet;

/// Maximum number of hops that are read; the rest of a longer chain is ignored.
const MAX_HOPS: usize = 32;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Proxies whose forwarding header is trusted.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies {
    pub networks: Vec<IpNet>,
    pub header: ForwardingHeader,
}

/// The header in which trusted proxies list the hops of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForwardingHeader {
    /// `X-Forwarded-For: client, proxy`.
    #[default]
    XForwardedFor,
    /// RFC 7239: `Forwarded: for=client, for=proxy`.
    Forwarded,
}

/// The address of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress {
    /// In canonical form: an IPv4 address is never mapped to IPv6.
    pub address: IpAddr,
    /// Whether the connection comes from a trusted proxy.
    pub via_proxy: bool,
}

impl TrustedProxies {
    /// The address of the client. The headers of an untrusted peer have no effect.
    #[must_use]
    pub fn client_address(&self, peer: SocketAddr, headers: &HeaderMap) -> ClientAddress {
        let peer = peer.ip().to_canonical();
        if !self.trusts(peer) {
            return ClientAddress { address: peer, via_proxy: false };
        }
        let mut client = peer;
        for hop in self.hops(headers).take(MAX_HOPS) {
            // If a trusted proxy does not name a client address, the proxy itself is the client.
            let Some(address) = hop else { break };
            client = address;
            if !self.trusts(address) {
                break;
            }
        }
        ClientAddress { address: client, via_proxy: true }
    }

    /// Whether a trusted proxy says that the client uses HTTPS: `X-Forwarded-Proto`, or `proto` in `Forwarded`. If
    /// several proxies have added a value, the left-most value describes the connection of the client.
    #[must_use]
    pub fn is_https(&self, peer: SocketAddr, headers: &HeaderMap) -> bool {
        let name = match self.header {
            ForwardingHeader::XForwardedFor => X_FORWARDED_PROTO,
            ForwardingHeader::Forwarded => FORWARDED,
        };
        let line = headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let first = line.split(',').next().unwrap_or_default();
        let scheme = match self.header {
            ForwardingHeader::XForwardedFor => Some(first.trim()),
            ForwardingHeader::Forwarded => parameter(first, "proto"),
        };
        self.trusts(peer.ip().to_canonical())
            && scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"))
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&address))
    }

    /// The hops from the nearest to the farthest; `None` for a hop that is not an address.
    fn hops<'h>(&self, headers: &'h HeaderMap) -> impl Iterator<Item = Option<IpAddr>> + 'h {
        let (name, read): (_, fn(&str) -> Option<IpAddr>) = match self.header {
            ForwardingHeader::XForwardedFor => (X_FORWARDED_FOR, parse_address),
            ForwardingHeader::Forwarded => (FORWARDED, forwarded_for),
        };
        let lines: Vec<&HeaderValue> = headers.get_all(name).iter().collect();
        lines.into_iter().rev().flat_map(move |line| {
            let hops: Vec<Option<IpAddr>> = match line.to_str() {
                Ok(text) => text.rsplit(',').take(MAX_HOPS).map(|hop| read(hop.trim())).collect(),
                Err(_) => vec![None],
            };
            hops
        })
    }
}

/// The `for` of one element of a `Forwarded` header.
fn forwarded_for(element: &str) -> Option<IpAddr> {
    parameter(element, "for").and_then(parse_address)
}

/// A parameter of one element of a `Forwarded` header.
fn parameter<'e>(element: &'e str, wanted: &str) -> Option<&'e str> {
    element.split(';').find_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        name.trim().eq_ignore_ascii_case(wanted).then(|| value.trim().trim_matches('"'))
    })
}

/// `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:4711`.
fn parse_address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse::<IpAddr>().or_else(|_| text.parse::<SocketAddr>().map(|socket| socket.ip()));
    address.ok().map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn trust(header: ForwardingHeader) -> TrustedProxies {
        let networks = ["10.0.0.0/8", "127.0.0.1/32", "2001:db8:ffff::/48"].map(|net| net.parse().unwrap());
        TrustedProxies { networks: networks.to_vec(), header }
    }

    fn headers(name: &str, values: &[&str]) -> HeaderMap {
        let name: HeaderName = name.parse().unwrap();
        values.iter().map(|value| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
    }

    fn client(peer: &str, forwarded: &[&str]) -> String {
        let peer = SocketAddr::new(peer.parse().unwrap(), 4711);
        trust(ForwardingHeader::XForwardedFor)
            .client_address(peer, &headers("x-forwarded-for", forwarded))
            .address
            .to_string()
    }

    #[test]
    fn right_most_untrusted_hop_is_the_client() {
        assert_eq!(client("10.1.1.1", &["6.6.6.6, 203.0.113.7, 10.2.2.2"]), "203.0.113.7");
        assert_eq!(client("10.1.1.1", &["6.6.6.6", "203.0.113.7", "10.2.2.2"]), "203.0.113.7");
        assert_eq!(client("10.1.1.1", &["10.9.9.9, 10.2.2.2"]), "10.9.9.9");
        assert_eq!(client("10.1.1.1", &[]), "10.1.1.1");
    }

    #[test]
    fn proxy_that_names_no_address_is_the_client() {
        assert_eq!(client("10.1.1.1", &["203.0.113.7, unknown"]), "10.1.1.1");
        assert_eq!(client("10.1.1.1", &["203.0.113.7, _hidden, 10.2.2.2"]), "10.2.2.2");
    }

    #[test]
    fn mapped_ipv4_address_is_the_same_client() {
        assert_eq!(client("::ffff:10.1.1.1", &["::ffff:203.0.113.7"]), "203.0.113.7");
        assert_eq!(client("::ffff:198.51.100.1", &["203.0.113.7"]), "198.51.100.1");
    }

    #[test]
    fn forwarded_header_is_read_with_ports_and_brackets() {
        let peer = "10.1.1.1:1".parse().unwrap();
        for (line, client) in [
            ("for=6.6.6.6, for=\"[2001:db8::7]:80\";proto=https", "2001:db8::7"),
            ("For=203.0.113.7;by=10.1.1.1", "203.0.113.7"),
            ("for=203.0.113.7:99", "203.0.113.7"),
            ("proto=https", "10.1.1.1"),
        ] {
            let found =
                trust(ForwardingHeader::Forwarded).client_address(peer, &headers("forwarded", &[line]));
            assert_eq!(found.address.to_string(), client, "{line}");
        }
    }

    #[test]
    fn https_is_believed_from_a_trusted_proxy_only() {
        let is_https = |header, peer: &str, name: &str, value: &str| {
            trust(header).is_https(SocketAddr::new(peer.parse().unwrap(), 1), &headers(name, &[value]))
        };
        let (x, standard) = (ForwardingHeader::XForwardedFor, ForwardingHeader::Forwarded);
        for (header, peer, name, value, expected) in [
            (x, "10.1.1.1", "x-forwarded-proto", "https", true),
            (x, "::ffff:10.1.1.1", "x-forwarded-proto", "HTTPS", true),
            (x, "10.1.1.1", "x-forwarded-proto", "https, http", true),
            (x, "10.1.1.1", "x-forwarded-proto", "http", false),
            (x, "10.1.1.1", "x-forwarded-proto", "http, https", false),
            (x, "203.0.113.7", "x-forwarded-proto", "https", false),
            (x, "10.1.1.1", "forwarded", "proto=https", false),
            (standard, "10.1.1.1", "forwarded", "for=203.0.113.7;proto=https", true),
            (
                standard,
                "10.1.1.1",
                "forwarded",
                "for=203.0.113.7;Proto=\"https\", for=10.1.1.1;proto=http",
                true,
            ),
            (standard, "10.1.1.1", "forwarded", "for=203.0.113.7", false),
            (standard, "203.0.113.7", "forwarded", "proto=https", false),
        ] {
            assert_eq!(is_https(header, peer, name, value), expected, "{peer} {name}: {value}");
        }
    }

    fn any_text() -> impl Strategy<Value = String> {
        prop::collection::vec(0x20_u8..0x7f, 0..80)
            .prop_map(|bytes| bytes.into_iter().map(char::from).collect())
    }

    fn any_header() -> impl Strategy<Value = (HeaderName, HeaderValue)> {
        let names = ["x-forwarded-for", "forwarded", "x-real-ip", "x-user", "cf-connecting-ip"];
        let name = prop::sample::select(names.to_vec()).prop_map(HeaderName::from_static);
        let address = any::<u32>().prop_map(|bits| IpAddr::from(bits.to_be_bytes()).to_string());
        let value = prop_oneof![
            any_text(),
            address.clone(),
            address.prop_map(|address| format!("for={address}, for=\"[::ffff:10.0.0.1]\"")),
            Just("10.0.0.1, 10.0.0.2".to_owned()),
        ];
        (name, value.prop_filter_map("no value", |value| HeaderValue::from_str(&value).ok()))
    }

    proptest! {
        /// Whatever headers an untrusted peer sends, its own address counts.
        #[test]
        fn untrusted_client_cannot_forge_its_address(
            peer in any::<u32>(), sent in prop::collection::vec(any_header(), 0..6), standard: bool,
        ) {
            let header = if standard { ForwardingHeader::Forwarded } else { ForwardingHeader::XForwardedFor };
            let trust = trust(header);
            let peer = IpAddr::from(peer.to_be_bytes());
            prop_assume!(!trust.trusts(peer));
            let headers: HeaderMap = sent.into_iter().collect();
            let client = trust.client_address(SocketAddr::new(peer, 1), &headers);
            prop_assert_eq!(client, ClientAddress { address: peer, via_proxy: false });
        }

        /// A trusted proxy appends the address that it sees; that address counts.
        #[test]
        fn client_behind_a_proxy_cannot_forge_its_address(
            client in any::<u32>(), sent in any_text(), standard: bool,
        ) {
            let (header, name) = if standard {
                (ForwardingHeader::Forwarded, "forwarded")
            } else {
                (ForwardingHeader::XForwardedFor, "x-forwarded-for")
            };
            let trust = trust(header);
            let client = IpAddr::from(client.to_be_bytes());
            prop_assume!(!trust.trusts(client));
            let added = if standard { format!("for={client}") } else { client.to_string() };
            // Proxies append the address as a new header line, or to the client's line.
            for lines in [vec![sent.trim().to_owned(), added.clone()], vec![format!("{sent}, {added}").trim().to_owned()]] {
                let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
                let found = trust.client_address("10.0.0.1:1".parse().unwrap(), &headers(name, &lines));
                prop_assert_eq!(found.address, client);
            }
        }
    }
}
