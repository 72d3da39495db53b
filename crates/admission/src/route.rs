//! Routes: a request is counted under the first template that matches, otherwise under its path.

use crate::path::{self, RequestPath};

/// A route template: `/api/users/:id`, or `/static/*` for everything below `/static`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteTemplate {
    text: String,
    segments: Vec<Segment>,
    open_ended: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(String),
    Any,
}

/// An invalid route template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid route {0:?}: expected /, then at most 199 ASCII characters without spaces, as in /api/users/:id or /static/*"
)]
pub struct BadTemplate(pub String);

impl RouteTemplate {
    pub fn new(text: &str) -> Result<Self, BadTemplate> {
        let fits =
            text.starts_with('/') && text.len() <= 200 && text.bytes().all(|byte| byte > b' ' && byte < 127);
        let (body, open_ended) = match text.strip_suffix("/*") {
            Some(body) => (body, true),
            None => (text, false),
        };
        if !fits || body.contains('*') {
            return Err(BadTemplate(text.to_owned()));
        }
        let segment = |part: &str| match part.strip_prefix(':') {
            Some(_) => Segment::Any,
            None => Segment::Literal(part.to_owned()),
        };
        let segments = path::segments(&path::normalize(body)).map(segment).collect();
        Ok(Self { text: text.to_owned(), segments, open_ended })
    }

    pub(crate) fn matches(&self, path: &RequestPath<'_>) -> bool {
        let matches_reading = |reading: &str| {
            let mut parts = path::segments(reading);
            let matches_next = |segment: &Segment| match (segment, parts.next()) {
                (Segment::Literal(text), Some(part)) => path.is_same_segment(text, part),
                (Segment::Any, Some(_)) => true,
                (_, None) => false,
            };
            self.segments.iter().all(matches_next) && (self.open_ended || parts.next().is_none())
        };
        path.readings().any(matches_reading)
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// The path part of an endpoint's name.
#[must_use]
pub(crate) fn endpoint_path<'p>(
    templates: &'p [RouteTemplate],
    detection: IdDetection,
    path: &'p RequestPath<'_>,
) -> std::borrow::Cow<'p, str> {
    match templates.iter().find(|template| template.matches(path)) {
        Some(template) => template.as_str().into(),
        None if detection == IdDetection::On => replace_ids(path.as_str()),
        None => path.as_str().into(),
    }
}

/// Whether ids in paths that match no template are replaced by `:id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdDetection {
    Off,
    On,
}

fn replace_ids(path: &str) -> std::borrow::Cow<'_, str> {
    if !path.split('/').any(is_id) {
        return path.into();
    }
    let parts: Vec<&str> = path.split('/').map(|part| if is_id(part) { ":id" } else { part }).collect();
    parts.join("/").into()
}

/// A number, or at least 16 hexadecimal digits and dashes, such as a UUID or a digest.
fn is_id(part: &str) -> bool {
    let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let hex = part.len() >= 16 && part.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    digits || hex
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AmbiguousPaths;
    use crate::path::{PathReading, RouteCase};

    fn parse(path: &str) -> RequestPath<'_> {
        let reading = PathReading { ambiguous: AmbiguousPaths::Refuse, case: RouteCase::Insensitive };
        RequestPath::parse(path, reading).unwrap()
    }

    fn matches(template: &str, path: &str) -> bool {
        RouteTemplate::new(template).unwrap().matches(&parse(path))
    }

    #[test]
    fn template_matches_whole_segments() {
        assert!(matches("/api/users/:id", "/api/users/7"));
        for path in ["/api/users", "/api/users/", "/api/users/7/posts", "/api/userss/7"] {
            assert!(!matches("/api/users/:id", path), "{path}");
        }
        assert!(matches("/static/*", "/static/a/b.css"));
        assert!(matches("/static/*", "/static"));
        assert!(matches("/*", "/"));
        assert!(!matches("/static/*", "/statics/a"));
        assert!(matches("/", "/"));
        assert!(!matches("/", "/a"));
    }

    /// Templates are normalised like paths.
    #[test]
    fn template_matches_every_spelling() {
        for template in ["/Files/a%20b/", "//files/a%20b", "/files/%61%20b", "/files;x/./a%20b"] {
            for path in ["/files/a%20b", "/FILES/%61%20b/"] {
                assert!(matches(template, path), "{template} {path}");
            }
        }
    }

    #[test]
    fn invalid_templates_are_refused() {
        for text in ["", "api", "/a b", "/a/*/b", "/é", &format!("/{}", "x".repeat(200))] {
            assert!(RouteTemplate::new(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn ids_are_replaced_only_if_enabled() {
        let path = |detection, path: &str| endpoint_path(&[], detection, &parse(path)).into_owned();
        assert_eq!(path(IdDetection::Off, "/forum/questions/123"), "/forum/questions/123");
        assert_eq!(path(IdDetection::On, "/forum/questions/123"), "/forum/questions/:id");
        assert_eq!(path(IdDetection::On, "/u/507f1f77bcf86cd799439011/x"), "/u/:id/x");
        assert_eq!(path(IdDetection::On, "/v2/face"), "/v2/face");
    }
}
