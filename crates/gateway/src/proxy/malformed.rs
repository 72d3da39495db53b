//! Requests that are refused because servers read them in different ways. The path is checked by `admission`, and what
//! is not HTTP at all by hyper.

use hob_admission::Refusal;
use http::header::{CONTENT_LENGTH, HOST, HeaderValue, TRANSFER_ENCODING};
use http::uri::Authority;
use http::{HeaderMap, Method, Request, Uri, Version};
use hyper::body::Body;

use super::headers::Scheme;

/// Why a request is malformed; `None` if it is not.
pub(crate) fn find<B>(request: &Request<B>, scheme: Scheme) -> Option<Refusal> {
    let chunked = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    let codings = request.headers().get_all(TRANSFER_ENCODING);
    if !is_valid_host(request, scheme) {
        Some(Refusal::InvalidHost)
    } else if codings.iter().count() > 1 || !codings.iter().all(chunked) {
        Some(Refusal::UnsupportedTransferCoding)
    } else {
        None
    }
}

/// Whether there is one host: in the target, in a Host header, or the same in both. RFC 9112 requires the header for
/// HTTP/1.1, and HTTP/1.0 may have none.
fn is_valid_host<B>(request: &Request<B>, scheme: Scheme) -> bool {
    let mut hosts = request.headers().get_all(HOST).iter();
    let (header, second) = (hosts.next(), hosts.next());
    if second.is_some() {
        return false;
    }
    let target = request.uri();
    // Only the target of CONNECT is a host alone.
    if target.authority().is_some() && target.scheme().is_none() && request.method() != Method::CONNECT {
        return false;
    }
    let default_port = if is_https(target, scheme) { 443 } else { 80 };
    match (target.authority().map(host_and_port), header.map(parse_host)) {
        (Some(None), _) | (_, Some(None)) => false,
        (Some(Some(target)), Some(Some(header))) => is_same(target, header, default_port),
        (Some(Some(_)), None) => request.version() != Version::HTTP_11,
        (None, Some(Some(_))) => true,
        (None, None) => request.version() == Version::HTTP_10,
    }
}

fn is_https(target: &Uri, scheme: Scheme) -> bool {
    target.scheme_str().map_or(scheme == Scheme::Https, |scheme| scheme == "https")
}

/// A host in lower case, and its port.
type HostAndPort = (String, Option<u16>);

fn is_same((one, one_port): HostAndPort, (other, other_port): HostAndPort, default_port: u16) -> bool {
    one == other && one_port.unwrap_or(default_port) == other_port.unwrap_or(default_port)
}

/// The value of a Host header; `None` if it is invalid. It may be empty.
fn parse_host(value: &HeaderValue) -> Option<HostAndPort> {
    if value.is_empty() {
        return Some((String::new(), None));
    }
    host_and_port(&Authority::try_from(value.as_bytes()).ok()?)
}

/// `None` with a user name, which servers may take for the host.
fn host_and_port(authority: &Authority) -> Option<HostAndPort> {
    let has_user = authority.as_str().contains('@');
    (!has_user).then(|| (authority.host().to_ascii_lowercase(), authority.port_u16()))
}

/// Sets the headers that say where the body ends. They are those of the body that was read, whatever the client sent,
/// so that the upstream finds the same end.
pub(crate) fn describe_body(headers: &mut HeaderMap, body: &impl Body) {
    let declared = headers.remove(CONTENT_LENGTH).is_some();
    match body.size_hint().exact() {
        Some(0) if !declared => {}
        Some(length) => {
            headers.insert(CONTENT_LENGTH, length.into());
        }
        None if body.is_end_stream() => {}
        None => {
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
    }
}
