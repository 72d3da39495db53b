//! Requests: the server, and the bytes to send.

use std::fmt;

use super::template::Template;

/// A server: scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    pub scheme: Scheme,
    /// An IPv6 address is without brackets.
    pub host: String,
    pub port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    Http,
    Https,
}

hob_units::names!(Scheme { Http = "http", Https = "https" });

impl Origin {
    /// Parses `https://host:port`, without a path.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let url = url::Url::parse(text).map_err(|error| format!("{text:?} is not a URL: {error}"))?;
        let scheme = url.scheme();
        let scheme =
            scheme.parse().map_err(|_| format!("unsupported scheme {scheme}; use http:// or https://"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err("credentials in a URL are not supported; send an `authorization` header".to_owned());
        }
        if !matches!(url.path(), "" | "/") || url.query().is_some() {
            return Err("a target is a scheme, a host and a port, without a path".to_owned());
        }
        let host = url.host_str().ok_or_else(|| format!("{text:?} has no host"))?;
        let port = url.port_or_known_default().unwrap_or(80);
        Ok(Self { scheme, host: host.trim_matches(['[', ']']).to_owned(), port })
    }

    /// The value of the `host` header.
    fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        match (self.scheme, self.port) {
            (Scheme::Http, 80) | (Scheme::Https, 443) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.authority())
    }
}

/// The request of a step.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    /// An index into the origins of the plan.
    pub origin: usize,
    pub path: Template,
    pub headers: Vec<(String, Template)>,
    pub body: Option<Template>,
    /// The `host` header.
    authority: String,
    /// The bytes of the request, if it has no variables.
    fixed: Option<Vec<u8>>,
}

impl Request {
    pub(super) fn new(
        method: String,
        (index, origin): (usize, &Origin),
        path: Template,
        headers: Vec<(String, Template)>,
        body: Option<Template>,
    ) -> Self {
        let varies = path.fixed().is_none()
            || headers.iter().any(|(_, value)| value.fixed().is_none())
            || body.as_ref().is_some_and(|body| body.fixed().is_none());
        let authority = origin.authority();
        let mut request = Self { method, origin: index, path, headers, body, authority, fixed: None };
        if !varies {
            let mut bytes = Vec::new();
            request.write(&mut bytes, &[], &[]);
            request.fixed = Some(bytes);
        }
        request
    }

    /// The bytes of the request, if it has no variables.
    #[must_use]
    pub fn fixed(&self) -> Option<&[u8]> {
        self.fixed.as_deref()
    }

    /// Whether it is a HEAD request, whose response has no body.
    #[must_use]
    pub fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// Writes the request with the values of the variables and the cookies of a user.
    pub fn write(&self, out: &mut Vec<u8>, values: &[String], cookies: &[(String, String)]) {
        out.extend_from_slice(self.method.as_bytes());
        out.push(b' ');
        write_path(out, &self.path.fill(values));
        out.extend_from_slice(b" HTTP/1.1\r\nhost: ");
        out.extend_from_slice(self.authority.as_bytes());
        out.extend_from_slice(b"\r\n");
        for (name, value) in &self.headers {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            write_header(out, &value.fill(values));
            out.extend_from_slice(b"\r\n");
        }
        for (index, (name, value)) in cookies.iter().enumerate() {
            out.extend_from_slice(if index == 0 { b"cookie: " } else { b"; " });
            write_header(out, &format!("{name}={value}"));
        }
        out.extend_from_slice(if cookies.is_empty() { b"" } else { b"\r\n" });
        match &self.body {
            None => out.extend_from_slice(b"\r\n"),
            Some(body) => {
                let body = body.fill(values);
                out.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
                out.extend_from_slice(body.as_bytes());
            }
        }
    }
}

/// Escapes what cannot be in a request line. A raw value may come from a server and must not end the line.
fn write_path(out: &mut Vec<u8>, path: &str) {
    for byte in path.bytes() {
        if byte <= b' ' || byte >= 0x7f {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        } else {
            out.push(byte);
        }
    }
}

fn write_header(out: &mut Vec<u8>, value: &str) {
    out.extend(value.bytes().filter(|byte| *byte >= b' ' && *byte != 0x7f));
}

#[cfg(test)]
mod tests {
    use hob_expression::Escape;

    use super::super::template::Variables;
    use super::*;

    #[test]
    fn value_cannot_inject_a_second_request() {
        let mut variables = Variables::new();
        variables.declare("x");
        let template = |text, escape| Template::parse(text, &variables, escape).unwrap();
        let origin = Origin::parse("http://127.0.0.1:8080").unwrap();
        let headers = vec![("x-id".to_owned(), template("${x}", Escape::Header))];
        let path = template("/a/${x}/${raw:x}", Escape::Url);
        let request = Request::new("GET".into(), (0, &origin), path, headers, None);
        let mut values = vec![String::new(); variables.len()];
        values[variables.find("x").unwrap()] = "1\r\nHost: evil\r\n\r\nGET /b".into();
        let mut out = Vec::new();
        request.write(&mut out, &values, &[("c".into(), "1\r\nd: 2".into())]);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches("\r\n").count(), 5, "{text}");
    }

    #[test]
    fn origin_has_no_path_or_credentials() {
        assert_eq!(Origin::parse("https://example.com").unwrap().port, 443);
        assert_eq!(Origin::parse("http://[::1]:81").unwrap().to_string(), "http://[::1]:81");
        for text in ["", "example.com", "ftp://a", "http://a/b", "http://u:p@a", "http://a?b"] {
            assert!(Origin::parse(text).is_err(), "{text:?}");
        }
    }
}
