//! What other sites embed: a badge, and a widget without scripts.

use askama::Template;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use hob_web::components::{Badge, Tone};
use hob_web::{BaseUrl, CONTENT_SECURITY_POLICY, Problem};

use super::reader::Reader;
use super::view::Head;
use super::{HTML, readable};
use crate::pages::PublicState;
use crate::pages::badge::{self, BAD, FAIR, GOOD, UNKNOWN};
use crate::schedule::state::MonitorState;
use crate::status::language::Words;
use crate::uptime::Uptime;

/// Systems that the widget names.
const MAX_NAMED: usize = 10;
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const CACHE: HeaderValue = HeaderValue::from_static("public, max-age=30");

#[derive(Template)]
#[template(path = "uptime/status_widget.html")]
struct Widget<'a> {
    head: Head,
    /// The absolute URL of the page.
    page: String,
    tone: Tone,
    banner: &'static str,
    old: Option<String>,
    /// Systems that are not up.
    affected: Vec<(String, Badge)>,
    words: &'a Words,
}

/// The state of all systems as an image.
pub(super) async fn badge(State(uptime): State<Uptime>, reader: Reader) -> Result<Response, Problem> {
    let status = readable(&uptime, &reader).await?;
    let words = reader.language.words();
    let (tone, text) = status.overall(words);
    let color = match tone {
        Tone::Good => GOOD,
        Tone::Bad => BAD,
        Tone::Warn | Tone::Busy => FAIR,
        Tone::Idle => UNKNOWN,
    };
    let badge = badge::Badge { label: words.status, text: text.to_owned(), color };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("image/svg+xml; charset=utf-8")),
        (header::CACHE_CONTROL, CACHE),
        (header::VARY, HeaderValue::from_static("accept-language")),
        (RESOURCE_POLICY, HeaderValue::from_static("cross-origin")),
    ];
    Ok((headers, badge.draw()).into_response())
}

/// A small page for a frame on another site.
pub(super) async fn widget(
    State(uptime): State<Uptime>,
    reader: Reader,
    base: BaseUrl,
) -> Result<Response, Problem> {
    let status = readable(&uptime, &reader).await?;
    let words = reader.language.words();
    let (tone, banner) = status.overall(words);
    let is_up = |state: PublicState| {
        matches!(state, PublicState::Checked(MonitorState::Up | MonitorState::Suspect | MonitorState::Paused))
    };
    let affected = status.systems.iter().filter(|monitor| !is_up(status.state(monitor))).take(MAX_NAMED);
    let html = Widget {
        head: Head::new(&status.page, &reader),
        page: base.join(&status.page.path()),
        tone,
        banner,
        old: status.old(&reader),
        affected: affected
            .map(|monitor| (monitor.spec.name.clone(), status.state(monitor).view(words)))
            .collect(),
        words,
    };
    let policy = CONTENT_SECURITY_POLICY.replace("frame-ancestors 'none'", "frame-ancestors *");
    let headers = [
        (header::CONTENT_TYPE, HTML),
        (header::CACHE_CONTROL, CACHE),
        (header::VARY, HeaderValue::from_static("accept-language")),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_str(&policy).map_err(Problem::internal)?),
        (RESOURCE_POLICY, HeaderValue::from_static("cross-origin")),
    ];
    Ok((headers, html.render().map_err(Problem::internal)?).into_response())
}
