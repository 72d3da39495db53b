//! Status pages for customers: they need no JavaScript and no sign-in, and may be cached.
//!
//! A page is rendered from a [`PublicStatus`], which every node keeps in memory: while the store or the database is away, the
//! page shows the last one and says how old it is.

mod accent;
mod days;
mod embed;
mod feed;
mod locked;
mod public;
mod reader;
mod subscribe;
mod view;

pub(crate) use public::{StatusCache, start};

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use hob_web::{Access, Audited, Problem, Query, Routes};
use serde::Deserialize;

use crate::status::StatusPage;
use crate::uptime::Uptime;
use public::{PublicStatus, current};
use reader::Reader;

const CACHE: HeaderValue = HeaderValue::from_static("public, max-age=15");
const PRIVATE: HeaderValue = HeaderValue::from_static("private, no-store");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

pub(super) fn routes() -> Routes<Uptime> {
    Routes::new()
        .page(Access::Public, "/status", show)
        .page(Access::Public, "/status/{slug}", show)
        .page(Access::Public, "/status.rss", feed::rss)
        .page(Access::Public, "/status.atom", feed::atom)
        .page(Access::Public, "/status/{slug}/feed.rss", feed::rss)
        .page(Access::Public, "/status/{slug}/feed.atom", feed::atom)
        .page(Access::Public, "/status/{slug}/badge.svg", embed::badge)
        .page(Access::Public, "/status/{slug}/widget", embed::widget)
        .page(Access::Public, "/status/{slug}/accent.css", accent::stylesheet)
        .action(Access::Public, Audited::No, "/status/{slug}/unlock", locked::unlock)
        .action(Access::Public, Audited::No, "/status/{slug}/subscribe", subscribe::subscribe)
        .page(Access::Public, "/status/{slug}/confirm", subscribe::confirm_page)
        .action(Access::Public, Audited::No, "/status/{slug}/confirm", subscribe::confirm)
        .page(Access::Public, "/status/{slug}/unsubscribe", subscribe::unsubscribe_page)
        .action(Access::Public, Audited::No, "/status/{slug}/unsubscribe", subscribe::unsubscribe)
        .page(Access::Public, "/status-assets/status.css", async || {
            asset("text/css; charset=utf-8", include_str!("../../assets/status.css"))
        })
        .page(Access::Public, "/status-assets/status.js", async || {
            asset("text/javascript; charset=utf-8", include_str!("../../assets/status.js"))
        })
}

fn asset(kind: &'static str, text: &'static str) -> impl IntoResponse + use<> {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=600")),
        // For the widget, which other sites embed.
        (
            header::HeaderName::from_static("cross-origin-resource-policy"),
            HeaderValue::from_static("cross-origin"),
        ),
    ];
    (headers, text)
}

/// Number of the page, from 1, and the result of a form.
#[derive(Debug, Deserialize)]
struct PageQuery {
    #[serde(default = "first")]
    page: usize,
    #[serde(default)]
    notice: String,
}

fn first() -> usize {
    1
}

async fn show(
    State(uptime): State<Uptime>,
    reader: Reader,
    Query(query): Query<PageQuery>,
) -> Result<Response, Problem> {
    let status = current(&uptime, &reader.slug).await?;
    if !reader.may_read(&status.page) {
        return locked::page(&status.page, &reader, None);
    }
    if !(1..=status.pages()).contains(&query.page) {
        return Err(Problem::not_found("page"));
    }
    let has_mail = uptime.config().smtp.is_some();
    let html = status.html(&reader, query.page, &query.notice, has_mail)?;
    let mut response = html_response(&status, html);
    if let Some(cookie) = reader.zone_cookie() {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

/// A response with a page: only pages without a password are cached.
fn html_response(status: &PublicStatus, html: String) -> Response {
    let mut response = html.into_response();
    add_page_headers(response.headers_mut(), &status.page, HTML, cache_control(&status.page));
    response
}

fn cache_control(page: &StatusPage) -> HeaderValue {
    if page.password.is_some() { PRIVATE } else { CACHE }
}

fn add_page_headers(headers: &mut HeaderMap, page: &StatusPage, kind: HeaderValue, cache: HeaderValue) {
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CACHE_CONTROL, cache);
    headers.insert(header::VARY, HeaderValue::from_static("accept-language, cookie"));
    if let Some(policy) = view::logo_policy(&page.spec.logo) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
}

/// A page with this slug exists, and the reader may see it.
async fn readable(uptime: &Uptime, reader: &Reader) -> Result<Arc<PublicStatus>, Problem> {
    let status = current(uptime, &reader.slug).await?;
    if reader.may_read(&status.page) { Ok(status) } else { Err(Problem::not_found("status page")) }
}
