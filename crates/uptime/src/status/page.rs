//! The settings of a status page.

use std::fmt;

use hob_database::{Database, Transaction, UnixMs, column};
use serde::{Deserialize, Serialize};
use url::Url;
use utoipa::ToSchema;

use super::password::PasswordHash;
use crate::Config;
use crate::database::{status_pages, subscribers};
use crate::error::Result as UptimeResult;
use crate::monitor::Monitor;
use crate::monitor::check::FieldError;
use crate::monitor::maintenance::is_named;

/// The most pages besides the default one.
pub const MAX_PAGES: u64 = 100;
const MAX_SLUG_BYTES: usize = 64;
const MAX_TITLE_BYTES: usize = 128;
const MAX_MONITORS: usize = 64;
const MAX_LOGO_URL_BYTES: usize = 2048;
/// Of a logo that is part of the page.
const MAX_LOGO_BYTES: usize = 32 * 1024;
const LOGO_KINDS: [&str; 5] = ["image/png;", "image/jpeg;", "image/svg+xml;", "image/webp;", "image/gif;"];

/// The name of a page in its URL: lower-case letters, digits and hyphens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, ToSchema)]
#[serde(transparent)]
pub struct Slug(String);

column!(Slug(String));

/// A status page.
#[derive(Clone, Debug)]
pub struct StatusPage {
    pub slug: Slug,
    pub spec: StatusPageSpec,
    /// `None`: everyone can read it.
    pub(crate) password: Option<PasswordHash>,
    pub created_at: UnixMs,
    pub changed_at: UnixMs,
}

/// A status page as users write it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StatusPageSpec {
    #[schema(min_length = 1, max_length = 128, example = "Shop status")]
    pub title: String,
    /// The URL of an image, or the image itself as a `data:` URL of at most 32 KiB.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(max_length = 32768)]
    pub logo: String,
    /// The colour of links and buttons. It is made darker or lighter if text would be hard to read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(max_length = 7, example = "#0a5cc2")]
    pub accent: String,
    /// Ids, tags and groups of the monitors to show, published or not. If empty: all published monitors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64, value_type = Vec<hob_web::Text128>)]
    pub monitors: Vec<String>,
}

/// A change of the password of a page.
#[derive(Clone, Debug)]
pub(crate) enum PasswordChange {
    Keep,
    Remove,
    Set(PasswordHash),
}

/// The outcome of a request to save a page.
#[derive(Debug)]
pub(crate) enum SaveOutcome {
    Saved(Box<StatusPage>),
    /// There are [`MAX_PAGES`].
    LimitReached,
}

impl Slug {
    pub const DEFAULT: &'static str = "default";

    /// A slug; `None` if the text is not one.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let valid = !text.is_empty() && text.len() <= MAX_SLUG_BYTES && text.bytes().all(fits);
        valid.then(|| Self(text.to_owned()))
    }

    /// The slug of the page with settings from `hob.toml`.
    #[must_use]
    pub fn of_default_page() -> Self {
        Self(Self::DEFAULT.to_owned())
    }

    #[must_use]
    pub fn is_default(&self) -> bool {
        self.0 == Self::DEFAULT
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Slug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StatusPage {
    /// The page with settings from `hob.toml`.
    #[must_use]
    pub fn default_page(config: &Config) -> Self {
        let spec = StatusPageSpec {
            title: config.status_title.clone(),
            logo: config.status_logo.clone(),
            accent: config.status_accent.clone(),
            monitors: Vec::new(),
        };
        let (created_at, changed_at) = (UnixMs(0), UnixMs(0));
        Self { slug: Slug::of_default_page(), spec, password: None, created_at, changed_at }
    }

    /// The path of the page.
    #[must_use]
    pub fn path(&self) -> String {
        if self.slug.is_default() { "/status".to_owned() } else { format!("/status/{}", self.slug) }
    }

    /// Whether the page shows this monitor.
    #[must_use]
    pub fn shows(&self, monitor: &Monitor) -> bool {
        match self.spec.monitors.as_slice() {
            [] => monitor.spec.published,
            names => names.iter().any(|name| is_named(monitor, name)),
        }
    }
}

impl StatusPageSpec {
    /// Every error in the settings.
    pub fn validate(&self) -> Result<(), Vec<FieldError>> {
        let mut errors = Vec::new();
        if self.title.trim().is_empty() || self.title.len() > MAX_TITLE_BYTES {
            errors.push(FieldError::new("title", format!("must have 1 to {MAX_TITLE_BYTES} bytes")));
        }
        if let Err(message) = check_logo(&self.logo) {
            errors.push(FieldError::new("logo", message));
        }
        if let Err(message) = check_accent(&self.accent) {
            errors.push(FieldError::new("accent", message));
        }
        let unfit = |name: &String| name.is_empty() || name.len() > 128;
        if self.monitors.len() > MAX_MONITORS || self.monitors.iter().any(unfit) {
            let message = format!("must have at most {MAX_MONITORS} names of 1 to 128 bytes each");
            errors.push(FieldError::new("monitors", message));
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

/// An empty text, an `http(s)` URL or a `data:` URL of an image.
pub(crate) fn check_logo(logo: &str) -> Result<(), &'static str> {
    const MESSAGE: &str =
        "must be an http or https URL of at most 2048 bytes, or a data: URL of an image of at most 32 KiB";
    let unsafe_text = |c: char| c.is_control() || c.is_whitespace() || "\"'<>;,".contains(c);
    let valid = match logo.strip_prefix("data:") {
        _ if logo.is_empty() => true,
        Some(data) => logo.len() <= MAX_LOGO_BYTES && LOGO_KINDS.iter().any(|kind| data.starts_with(kind)),
        None => {
            let url = Url::parse(logo).ok();
            let fits = logo.len() <= MAX_LOGO_URL_BYTES && !logo.contains(unsafe_text);
            fits && url.is_some_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        }
    };
    if valid { Ok(()) } else { Err(MESSAGE) }
}

/// An empty text, or a colour such as `#0a5cc2`.
pub(crate) fn check_accent(accent: &str) -> Result<(), &'static str> {
    if accent.is_empty() || rgb(accent).is_some() { Ok(()) } else { Err("must be a colour such as #0a5cc2") }
}

/// The parts of a colour such as `#0a5cc2`.
pub(crate) fn rgb(accent: &str) -> Option<[u8; 3]> {
    let digits = accent.strip_prefix('#').filter(|digits| digits.len() == 6 && digits.is_ascii())?;
    let part = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    Some([part(0)?, part(2)?, part(4)?])
}

/// Adds a page, or changes one.
pub(crate) async fn save(
    database: &Database,
    slug: &Slug,
    spec: &StatusPageSpec,
    password: &PasswordChange,
) -> UptimeResult<SaveOutcome> {
    database
        .write(|tx: Transaction| async move {
            let before = status_pages::by_slug(&tx, slug).await?;
            if before.is_none() && status_pages::count(&tx).await? >= MAX_PAGES {
                return Ok(SaveOutcome::LimitReached);
            }
            let page = StatusPage {
                slug: slug.clone(),
                spec: spec.clone(),
                password: match password {
                    PasswordChange::Keep => before.as_ref().and_then(|page| page.password.clone()),
                    PasswordChange::Remove => None,
                    PasswordChange::Set(hash) => Some(hash.clone()),
                },
                created_at: before.map_or(tx.now(), |page| page.created_at),
                changed_at: tx.now(),
            };
            status_pages::put(&tx, &page).await?;
            Ok(SaveOutcome::Saved(Box::new(page)))
        })
        .await
}

/// Removes a page and its subscribers; `false` if there is none with this slug.
pub(crate) async fn remove(database: &Database, slug: &Slug) -> UptimeResult<bool> {
    database
        .write(|tx: Transaction| async move {
            subscribers::delete_all_of(&tx, slug).await?;
            status_pages::delete(&tx, slug).await
        })
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_are_parts_of_a_path() {
        for slug in ["default", "shop-eu", "2026"] {
            assert_eq!(Slug::new(slug).map(|slug| slug.to_string()).as_deref(), Some(slug));
        }
        for text in ["", "Shop", "a/b", "a b", "ü", "..", &"a".repeat(65)] {
            assert_eq!(Slug::new(text), None, "{text}");
        }
    }

    #[test]
    fn logo_is_an_image() {
        for logo in ["", "https://cdn.example/logo.svg", "data:image/png;base64,AAAA"] {
            assert_eq!(check_logo(logo), Ok(()), "{logo}");
        }
        let long = format!("data:image/png;base64,{}", "A".repeat(MAX_LOGO_BYTES));
        for logo in ["logo.svg", "javascript:alert(1)", "data:text/html,x", "https://a.example/; x", &long] {
            assert!(check_logo(logo).is_err(), "{logo}");
        }
    }

    #[test]
    fn accent_is_a_colour() {
        assert_eq!(rgb("#0A5cc2"), Some([10, 92, 194]));
        for accent in ["0a5cc2", "#fff", "#0a5cc", "#0a5ccg", "#0a5cc2;", "#äöü"] {
            assert_eq!(rgb(accent), None, "{accent}");
        }
    }
}
