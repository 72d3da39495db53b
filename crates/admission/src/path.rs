//! The path of a request as rules, routes and counters read it. The upstream gets the path as the client sent it.
//!
//! Servers accept many spellings of one path: `/API/login`, `//api/login/`, `/api/%6cogin`, `/api/./login;x`. A limit on
//! `/api/login` must apply to all of them, so they are brought into one form first. Some spellings have no single
//! meaning: `%2f` is a separator to some servers and a character to others. A request with such a path is refused,
//! unless `ambiguous_paths` allows it.

use std::borrow::Cow;

use crate::config::AmbiguousPaths;

/// How paths are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathReading {
    pub(crate) ambiguous: AmbiguousPaths,
    pub(crate) case: RouteCase,
}

/// Whether routes distinguish upper and lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteCase {
    Insensitive,
    Sensitive,
}

/// A path that servers read in different ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AmbiguousPath;

/// The path of a request: `/` and segments without dot segments, parameters, repeated or trailing slashes. Characters
/// that may be in a segment are literal, all others are percent-encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestPath<'p> {
    normal: Cow<'p, str>,
    /// The path as read by servers that keep dot segments, or that decode an allowed `%2f`. A route that matches any
    /// reading matches the request, so that no server sees a route that a rule did not.
    other_readings: Vec<String>,
    case: RouteCase,
}

impl<'p> RequestPath<'p> {
    pub(crate) fn parse(path: &'p str, reading: PathReading) -> Result<Self, AmbiguousPath> {
        let PathReading { ambiguous, case } = reading;
        // `*`, or nothing in a CONNECT request.
        if is_plain(path) || !path.starts_with('/') {
            return Ok(Self { normal: path.into(), other_readings: Vec::new(), case });
        }
        let encoded = encode(path, ambiguous)?;
        let resolved = resolve(&encoded, ambiguous)?;
        let mut other_readings = Vec::from_iter(resolved.with_dots);
        if ambiguous == AmbiguousPaths::Allow && (encoded.contains("%2F") || encoded.contains("%5C")) {
            let decoded = encoded.replace("%2F", "/").replace("%5C", "/");
            let resolved = resolve(&decoded, ambiguous)?;
            other_readings.push(resolved.normal);
            other_readings.extend(resolved.with_dots);
        }
        Ok(Self { normal: resolved.normal.into(), other_readings, case })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.normal
    }

    /// Every way to read the path.
    pub(crate) fn readings(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&*self.normal).chain(self.other_readings.iter().map(String::as_str))
    }

    pub(crate) fn is_same_segment(&self, one: &str, other: &str) -> bool {
        match self.case {
            RouteCase::Insensitive => one.eq_ignore_ascii_case(other),
            RouteCase::Sensitive => one == other,
        }
    }
}

/// The segments of a normalised path.
pub(crate) fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|segment| !segment.is_empty())
}

/// The normalised form of a path that the operator has written, such as a route template.
pub(crate) fn normalize(path: &str) -> Cow<'_, str> {
    let reading = PathReading { ambiguous: AmbiguousPaths::Allow, case: RouteCase::Sensitive };
    RequestPath::parse(path, reading).map_or(path.into(), |path| path.normal)
}

/// Whether the path is normalised and has no escapes, as most are.
fn is_plain(path: &str) -> bool {
    let mut before = b' ';
    for byte in path.bytes() {
        let is_next = match byte {
            b'/' => before != b'/',
            b'.' => before != b'/',
            _ => is_segment_char(byte),
        };
        if !is_next {
            return false;
        }
        before = byte;
    }
    path.starts_with('/') && (before != b'/' || path.len() == 1)
}

/// What RFC 3986 allows in a segment without an escape, except `;`.
fn is_segment_char(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,=:@".contains(&byte)
}

/// Decodes the escapes of segment characters, and encodes everything else but `/` and `;`.
fn encode(path: &str, ambiguous: AmbiguousPaths) -> Result<String, AmbiguousPath> {
    let allowed = ambiguous == AmbiguousPaths::Allow;
    let mut encoded = String::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let (byte, escaped) = match (byte, escaped_byte(rest)) {
            (b'%', Some(escaped)) => {
                rest = &rest[2..];
                (escaped, true)
            }
            (byte, _) => (byte, false),
        };
        let is_ambiguous = match byte {
            b'/' => escaped,
            b'%' => !escaped,
            b'\\' => true,
            _ => byte.is_ascii_control(),
        };
        if is_ambiguous && !allowed {
            return Err(AmbiguousPath);
        }
        if is_segment_char(byte) || (!escaped && matches!(byte, b'/' | b';')) {
            encoded.push(byte.into());
        } else {
            encoded.push_str(percent_encoding::percent_encode_byte(byte));
        }
    }
    Ok(encoded)
}

/// The byte that the two digits after a `%` stand for.
fn escaped_byte(digits: &[u8]) -> Option<u8> {
    let [high, low, ..] = digits else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
}

struct Resolved {
    normal: String,
    /// With its dot segments, if it has any.
    with_dots: Option<String>,
}

/// Removes parameters, dot segments and empty segments.
fn resolve(encoded: &str, ambiguous: AmbiguousPaths) -> Result<Resolved, AmbiguousPath> {
    let allowed = ambiguous == AmbiguousPaths::Allow;
    let (mut normal, mut all, mut has_dots) = (Vec::new(), Vec::new(), false);
    for segment in encoded.split('/').skip(1) {
        let (name, parameter) = match segment.split_once(';') {
            Some((name, parameter)) => (name, Some(parameter)),
            None => (segment, None),
        };
        // `..;x` is a dot segment for some servers only, and `;x` an empty one.
        if parameter.is_some() && matches!(name, "" | "." | "..") && !allowed {
            return Err(AmbiguousPath);
        }
        match name {
            "." => {}
            ".." => {
                // In `/a//../b`, `..` removes the empty segment, or `a` if slashes are merged first.
                if normal.last() == Some(&"") && !allowed {
                    return Err(AmbiguousPath);
                }
                while normal.pop() == Some("") {}
            }
            name => normal.push(name),
        }
        has_dots |= matches!(name, "." | "..");
        all.push(name);
    }
    Ok(Resolved { normal: join(&normal), with_dots: has_dots.then(|| join(&all)) })
}

fn join(segments: &[&str]) -> String {
    let mut path = String::new();
    for segment in segments.iter().filter(|segment| !segment.is_empty()) {
        path.push('/');
        path.push_str(segment);
    }
    if path.is_empty() { "/".to_owned() } else { path }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REFUSE: PathReading =
        PathReading { ambiguous: AmbiguousPaths::Refuse, case: RouteCase::Insensitive };
    const ALLOW: PathReading = PathReading { ambiguous: AmbiguousPaths::Allow, ..REFUSE };

    fn normal(path: &str) -> String {
        RequestPath::parse(path, REFUSE).unwrap_or_else(|_| panic!("{path} is ambiguous")).normal.into_owned()
    }

    #[test]
    fn spellings_of_a_path_have_one_form() {
        for path in [
            "/api/auth/login",
            "/api/auth/login/",
            "/api/auth/login//",
            "//api/auth/login",
            "/api///auth/login",
            "/./api/auth/login",
            "/api/./auth/login/.",
            "/../api/auth/login",
            "/../../api/auth/login",
            "/x/../api/auth/login",
            "/api/x/y/../../auth/login",
            "/api/auth/login/x/..",
            "/api/auth/%6cogin",
            "/api/auth/%6Cogin",
            "/%61%70%69/%61uth/login",
            "/%2e/api/auth/login",
            "/x/%2e%2E/api/auth/login",
            "/x/.%2e/api/auth/login",
            "/api/auth/login;x",
            "/api/auth/login;jsessionid=1;y",
            "/api;v=1/auth;/login",
            "/api/auth/login;x/",
        ] {
            assert_eq!(normal(path), "/api/auth/login", "{path}");
        }
        assert_eq!(normal("/"), "/");
        assert_eq!(normal("/.."), "/");
        assert_eq!(normal("*"), "*");
    }

    #[test]
    fn characters_are_literal_or_encoded_but_not_both() {
        for (path, expected) in [
            ("/%40me/a%3ab%2C(%31)", "/@me/a:b,(1)"),
            ("/a b", "/a%20b"),
            ("/a%20b", "/a%20b"),
            ("/\u{e9}", "/%C3%A9"),
            ("/%c3%a9", "/%C3%A9"),
            ("/a|b{c}", "/a%7Cb%7Bc%7D"),
            ("/a%7cb%7Bc%7d", "/a%7Cb%7Bc%7D"),
            ("/a%3bx", "/a%3Bx"),
            ("/a%3fx", "/a%3Fx"),
            ("/%2561", "/%2561"),
            ("/...", "/..."),
            ("/.well-known/x", "/.well-known/x"),
        ] {
            assert_eq!(normal(path), expected, "{path}");
        }
    }

    #[test]
    fn ambiguous_paths_are_refused_unless_allowed() {
        for path in [
            "/api%2fauth",
            "/api%2Fauth",
            "/api%5cauth",
            "/api\\auth",
            "/api%00",
            "/api/auth%0a",
            "/api%7f",
            "/api%",
            "/api%6",
            "/api%zz",
            "/api%+1",
            "/api/auth/..;/login",
            "/api/%2e%2e;/login",
            "/api/;x/../login",
            "/api/auth//../login",
            "/api/auth//./../login",
            "//..",
        ] {
            assert_eq!(RequestPath::parse(path, REFUSE), Err(AmbiguousPath), "{path}");
            assert!(RequestPath::parse(path, ALLOW).is_ok(), "{path}");
        }
    }

    /// A server that does not resolve dot segments sees the route before them.
    #[test]
    fn path_with_dot_segments_has_two_readings() {
        let readings = |path, reading| {
            let path = RequestPath::parse(path, reading).unwrap();
            path.readings().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(readings("/a/b", REFUSE), ["/a/b"]);
        assert_eq!(readings("/graphql/..", REFUSE), ["/", "/graphql/.."]);
        assert_eq!(readings("/a/%2e/b", REFUSE), ["/a/b", "/a/./b"]);
        assert_eq!(readings("/api/auth%2flogin", ALLOW), ["/api/auth%2Flogin", "/api/auth/login"]);
        assert_eq!(readings("/api/auth\\login", ALLOW), ["/api/auth%5Clogin", "/api/auth/login"]);
    }

    /// Paths in which everything that matters is frequent.
    fn any_path() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            prop::sample::select(vec![
                "/", "//", ".", "..", "/../", "/./", "%2e", "%2E.", ";", ";x=1", "%2f", "%5C", "\\", "%",
                "%6", "%6c", "%41", "%00", "%25", "%3b", "a", "API", "\u{e9}", "|", "*", "%c3%a9", "%0a",
            ])
            .prop_map(str::to_owned),
            any::<String>(),
        ];
        prop::collection::vec(part, 0..12).prop_map(|parts| format!("/{}", parts.concat()))
    }

    proptest! {
        #[test]
        fn normalizing_is_idempotent(path in any_path(), allow: bool) {
            let reading = if allow { ALLOW } else { REFUSE };
            if let Ok(once) = RequestPath::parse(&path, reading) {
                let twice = RequestPath::parse(once.as_str(), reading).expect("a normalised path is not ambiguous");
                prop_assert_eq!(once.as_str(), twice.as_str());
            }
        }

        /// The short cut for plain paths changes nothing.
        #[test]
        fn plain_path_is_normalised(path in any_path()) {
            if is_plain(&path) {
                prop_assert_eq!(resolve(&encode(&path, AmbiguousPaths::Refuse).unwrap(), AmbiguousPaths::Refuse).unwrap().normal, path);
            }
        }

        /// No spelling of a segment's characters, and no detour, leads to another path.
        #[test]
        fn spelling_does_not_change_the_path(
            segments in prop::collection::vec("[a-z0-9@.~_-]{1,8}", 1..5),
            spelling in prop::collection::vec(0..7_u8, 40),
        ) {
            prop_assume!(segments.iter().all(|segment| !matches!(segment.as_str(), "." | "..")));
            let mut spelling = spelling.into_iter().cycle();
            let mut spelled = String::new();
            for segment in &segments {
                spelled.push_str(match spelling.next() {
                    Some(0) => "//",
                    Some(1) => "/./",
                    Some(2) => "/x/../",
                    Some(3) => "/%2e/",
                    _ => "/",
                });
                for byte in segment.bytes() {
                    match spelling.next() {
                        Some(0) => spelled.push_str(&format!("%{byte:02x}")),
                        Some(1) => spelled.push_str(&format!("%{byte:02X}")),
                        _ => spelled.push(byte.into()),
                    }
                }
                if spelling.next() == Some(0) {
                    spelled.push_str(";x=1");
                }
            }
            prop_assert_eq!(normal(&spelled), format!("/{}", segments.join("/")));
        }
    }
}
