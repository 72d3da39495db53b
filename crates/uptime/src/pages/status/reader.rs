//! The reader of a status page: which page, in which language and time zone, and with which password.

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};
use hob_web::{Problem, cookie_values};

use crate::status::{Language, Slug, StatusPage, Zone};

const ZONE_COOKIE: &str = "hob_zone";
const YEAR_S: u32 = 31_536_000;

/// An extractor.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    pub(super) slug: Slug,
    pub(super) language: Language,
    pub(super) zone: Zone,
    /// The reader has chosen the zone with the form of the page.
    chose_zone: bool,
    headers: HeaderMap,
}

impl<S: Send + Sync> FromRequestParts<S> for Reader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let params = RawPathParams::from_request_parts(parts, state).await;
        let slug = match params.iter().flat_map(|params| params.iter()).find(|(name, _)| *name == "slug") {
            Some((_, slug)) => Slug::new(slug).ok_or_else(|| Problem::not_found("status page"))?,
            None => Slug::of_default_page(),
        };
        let query = parts.uri.query().unwrap_or_default();
        let asked = url::form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "zone");
        let chosen = asked.and_then(|(_, zone)| Zone::named(zone.trim()));
        let known = || cookie_values(&parts.headers, ZONE_COOKIE).find_map(Zone::named);
        let chose_zone = chosen.is_some();
        Ok(Self {
            slug,
            language: Language::of(&parts.headers),
            zone: chosen.or_else(known).unwrap_or_else(Zone::utc),
            chose_zone,
            headers: parts.headers.clone(),
        })
    }
}

impl Reader {
    /// Whether the page has no password, or the reader has entered it.
    pub(super) fn may_read(&self, page: &StatusPage) -> bool {
        let Some(password) = &page.password else { return true };
        let (name, now_s) = (cookie_name(&page.slug), hob_units::unix_time().as_secs());
        let mut cookies = cookie_values(&self.headers, &name);
        cookies.any(|cookie| password.accepts_cookie(&page.slug, cookie, now_s))
    }

    /// Remembers the time zone that the reader has chosen.
    pub(super) fn zone_cookie(&self) -> Option<HeaderValue> {
        let text = format!("{ZONE_COOKIE}={}; Path=/status; Max-Age={YEAR_S}; SameSite=Lax", self.zone.name);
        self.chose_zone.then(|| HeaderValue::from_str(&text).ok()).flatten()
    }
}

pub(super) fn cookie_name(slug: &Slug) -> String {
    format!("hob_status_{slug}")
}
