//! Rewrites headers: removes hop-by-hop headers, and replaces forwarding headers from untrusted peers.

use http::header::{
    CONNECTION, COOKIE, EXPECT, FORWARDED, HOST, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::{HeaderMap, Uri, Version};

use hob_net::{ClientAddress, ForwardingHeader};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The scheme that a client uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

hob_units::names!(Scheme { Http = "http", Https = "https" });

/// Removes hop-by-hop headers, including those listed in `Connection`. Returns the protocols of an upgrade.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) -> Vec<String> {
    let listed: Vec<HeaderName> = list(headers, CONNECTION).filter_map(|name| name.parse().ok()).collect();
    let upgrade = if listed.contains(&UPGRADE) {
        list(headers, UPGRADE).map(str::to_owned).collect()
    } else {
        Vec::new()
    };
    // `TE: trailers` is the one value that is forwarded.
    let trailers = headers.get_all(TE).iter().any(|value| value.as_bytes().eq_ignore_ascii_case(b"trailers"));
    for name in listed.iter().filter(|name| **name != HOST).chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    upgrade
}

/// The elements of a header that is a list.
fn list(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim).filter(|element| !element.is_empty())
}

/// Adds the upgrade headers to a request or to a 101 response.
pub(crate) fn keep_upgrade(headers: &mut HeaderMap, protocols: &[String]) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    let protocols = HeaderValue::try_from(protocols.join(", "));
    headers.insert(UPGRADE, protocols.expect("parts of header values are a valid header value"));
}

/// Where a request comes from.
pub(crate) struct RequestSource<'a> {
    /// The address of the connection.
    pub(crate) peer: &'a HeaderValue,
    pub(crate) client: ClientAddress,
    pub(crate) forwarding_header: ForwardingHeader,
    pub(crate) scheme: Scheme,
}

/// Turns the headers of a client's request into those for the upstream.
pub(crate) fn rewrite_request(
    headers: &mut HeaderMap,
    (uri, version): (&Uri, Version),
    source: &RequestSource<'_>,
) {
    let RequestSource { peer, client, forwarding_header, scheme } = source;
    headers.remove(EXPECT);
    if version == Version::HTTP_2 {
        join_cookies(headers);
    }
    // HTTP/2, and HTTP/1.1 with an absolute target, have the host in the target.
    if let Some(authority) = uri.authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        headers.insert(HOST, host);
    }
    if !client.via_proxy {
        for name in [X_FORWARDED_FOR, X_FORWARDED_PROTO, X_FORWARDED_HOST, FORWARDED] {
            headers.remove(name);
        }
    }
    match forwarding_header {
        ForwardingHeader::XForwardedFor => append(headers, X_FORWARDED_FOR, (*peer).clone()),
        ForwardingHeader::Forwarded => {
            let peer = peer.to_str().unwrap_or_default();
            let node = if peer.contains(':') { format!("\"[{peer}]\"") } else { peer.to_owned() };
            let hop = HeaderValue::try_from(format!("for={node};proto={}", scheme.as_str()));
            append(headers, FORWARDED, hop.expect("an address is a valid header value"));
        }
    }
    if !headers.contains_key(X_FORWARDED_PROTO) {
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(scheme.as_str()));
    }
    if !headers.contains_key(X_FORWARDED_HOST)
        && let Some(host) = headers.get(HOST).cloned()
    {
        headers.insert(X_FORWARDED_HOST, host);
    }
    let real = if client.via_proxy { HeaderValue::try_from(client.address.to_string()).ok() } else { None };
    headers.insert(X_REAL_IP, real.unwrap_or_else(|| (*peer).clone()));
    headers
        .append(VIA, HeaderValue::from_static(if version == Version::HTTP_2 { "2 hob" } else { "1.1 hob" }));
}

/// HTTP/2 may split cookies over several lines; HTTP/1.1 requires one.
fn join_cookies(headers: &mut HeaderMap) {
    let lines: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if lines.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&lines.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}

fn append(headers: &mut HeaderMap, name: HeaderName, last: HeaderValue) {
    let before: Vec<&[u8]> = headers.get_all(&name).iter().map(HeaderValue::as_bytes).collect();
    let joined = if before.is_empty() {
        Ok(last)
    } else {
        HeaderValue::from_bytes(&[before, vec![last.as_bytes()]].concat().join(&b", "[..]))
    };
    if let Ok(value) = joined {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    fn rewritten(lines: &[(&'static str, &'static str)], via_proxy: bool, version: Version) -> HeaderMap {
        let mut headers = headers(lines);
        let address = if via_proxy { "203.0.113.7" } else { "198.51.100.1" }.parse().unwrap();
        let client = ClientAddress { address, via_proxy };
        let peer = HeaderValue::from_static("198.51.100.1");
        let source = RequestSource {
            peer: &peer,
            client,
            forwarding_header: ForwardingHeader::XForwardedFor,
            scheme: Scheme::Https,
        };
        rewrite_request(&mut headers, (&Uri::from_static("/path"), version), &source);
        headers
    }

    #[test]
    fn hop_by_hop_headers_are_removed() {
        let mut headers = headers(&[
            ("connection", "close, x-secret, Host"),
            ("x-secret", "1"),
            ("host", "a"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("te", "trailers"),
            ("proxy-authorization", "Basic x"),
            ("accept", "*/*"),
        ]);
        assert_eq!(strip_hop_by_hop(&mut headers), Vec::<String>::new());
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["accept", "host", "te"]);
    }

    #[test]
    fn requested_upgrade_is_returned() {
        let mut headers = headers(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]);
        assert_eq!(strip_hop_by_hop(&mut headers), ["websocket"]);
        let mut headers = self::headers(&[("connection", "upgrade"), ("upgrade", "h2c,, websocket ")]);
        assert_eq!(strip_hop_by_hop(&mut headers), ["h2c", "websocket"]);
        let mut headers = self::headers(&[("upgrade", "h2c")]);
        assert_eq!(strip_hop_by_hop(&mut headers), Vec::<String>::new());
        assert!(headers.is_empty());
    }

    #[test]
    fn forwarding_headers_of_an_untrusted_client_are_replaced() {
        let lines = [
            ("x-forwarded-for", "10.0.0.1"),
            ("forwarded", "for=10.0.0.1"),
            ("x-real-ip", "10.0.0.1"),
            ("host", "a"),
        ];
        let headers_sent = rewritten(&lines, false, Version::HTTP_11);
        assert_eq!(headers_sent["x-forwarded-for"], "198.51.100.1");
        assert_eq!(headers_sent["x-real-ip"], "198.51.100.1");
        assert_eq!(
            (&headers_sent["x-forwarded-proto"], &headers_sent["x-forwarded-host"]),
            (&"https".parse().unwrap(), &"a".parse().unwrap())
        );
        assert!(!headers_sent.contains_key("forwarded"));
    }

    #[test]
    fn forwarding_headers_of_a_trusted_proxy_are_kept() {
        let headers_sent = rewritten(
            &[("x-forwarded-for", "203.0.113.7"), ("x-forwarded-proto", "http")],
            true,
            Version::HTTP_11,
        );
        assert_eq!(headers_sent["x-forwarded-for"], "203.0.113.7, 198.51.100.1");
        assert_eq!(headers_sent["x-forwarded-proto"], "http");
    }

    #[test]
    fn split_http2_cookies_are_joined() {
        let headers_sent = rewritten(&[("cookie", "a=1"), ("cookie", "b=2")], false, Version::HTTP_2);
        assert_eq!(headers_sent.get_all("cookie").iter().collect::<Vec<_>>(), ["a=1; b=2"]);
        assert_eq!(headers_sent["via"], "2 hob");
    }
}
