//! The frame around all pages of the console.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use askama::Template;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};

use tokio_util::sync::CancellationToken;

use crate::{Access, Caller, Problem, Scope, Stage, Web};

/// A link in the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NavItem {
    pub title: &'static str,
    pub href: &'static str,
}

/// The icons of links, as paths in a box of 20 by 20.
const ICONS: [(&str, &str); 8] = [
    ("/", "M3 9.5 10 3l7 6.5M5 8v8.5h10V8"),
    ("/gateway", "M3 6h9m-3-3 3 3-3 3m8 5H8m3-3-3 3 3 3"),
    ("/uptime", "M2.5 11h3.5l2-6 3.5 10 2.2-4h3.8"),
    ("/chat", "M3.5 4h13v9.5H9L5.5 16.5v-3h-2z"),
    ("/load", "M3 16a7.5 7.5 0 1 1 14 0M10 12l3.5-4.5"),
    ("/pipelines", "M3 5h5v4H3zm9 6h5v4h-5zM8 7h2.5q2 0 2 2v2"),
    ("/keys", "M12.5 3.5a4 4 0 1 0 .1 8 4 4 0 0 0-.1-8zM9.6 10.4 3.5 16.5M5.5 14.5l2 2"),
    (
        "/health",
        "M10 16.5S3 12.3 3 7.6C3 5 5 3.7 6.7 3.7c1.5 0 2.7 1 3.3 2.2.6-1.2 1.8-2.2 3.3-2.2C15 3.7 17 5 17 7.6c0 4.7-7 8.9-7 8.9z",
    ),
];

impl NavItem {
    /// The path of its icon; a ring for what nobody foresaw.
    fn icon(&self) -> &'static str {
        let known = ICONS.iter().find(|(href, _)| *href == self.href);
        known.map_or("M10 7a3 3 0 1 0 0 6 3 3 0 0 0 0-6z", |(_, icon)| icon)
    }
}

/// Renders a page into the frame; an extractor.
#[derive(Clone, Debug)]
pub struct Console {
    frame: Frame,
    path: String,
    caller: Option<Caller>,
}

/// A page that was rendered.
#[derive(Clone, Debug)]
pub struct Page(String);

/// What all pages of an app have in common. Every request carries it.
#[derive(Clone)]
pub(crate) struct Frame(Arc<Inside>);

struct Inside {
    web: Web,
    nav: Vec<NavItem>,
    /// What each page asks for.
    pages: HashMap<String, Access>,
    /// Paths of WebSockets that look at the page behind them themselves.
    sockets: Vec<String>,
    stage: Stage,
    stopping: CancellationToken,
}

/// Where who is looking stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entrance {
    /// There is no door: everybody on this machine is inside.
    Open,
    /// Signed in.
    Inside,
    /// Not signed in, and shown nothing of what is inside.
    Outside,
}

/// The document around a page's body.
#[derive(Template)]
#[template(path = "layout.html")]
struct Layout<'a> {
    title: &'a str,
    nav: &'a [NavItem],
    /// The `href` of the navigation that the page belongs to; empty for none.
    here: &'a str,
    who: Option<&'a str>,
    entrance: Entrance,
    /// Whether who is looking may see who may do what.
    admin: bool,
    demo: bool,
    path: &'a str,
    /// HTML already.
    body: &'a str,
}

impl Console {
    /// The page with this body. A handler answers with it.
    pub fn page(&self, title: &str, body: &impl Template) -> Result<Page, Problem> {
        let body = body.render().map_err(Problem::internal)?;
        let nav: Vec<NavItem> =
            self.frame.0.nav.iter().copied().filter(|item| self.may_open(item.href)).collect();
        let layout = Layout {
            title,
            nav: &nav,
            here: here(&nav, &self.path),
            who: self.caller.as_ref().map(Caller::name),
            entrance: self.entrance(),
            admin: self.may(&Scope::Admin),
            demo: self.frame.0.stage == Stage::Demo,
            path: &self.path,
            body: &body,
        };
        layout.render().map(Page).map_err(Problem::internal)
    }

    fn entrance(&self) -> Entrance {
        match &self.caller {
            _ if self.frame.web().door().is_open() => Entrance::Open,
            Some(_) => Entrance::Inside,
            None => Entrance::Outside,
        }
    }

    /// Who is looking.
    #[must_use]
    pub fn caller(&self) -> Option<&Caller> {
        self.caller.as_ref()
    }

    /// Whether who is looking may do this: for buttons that only some are shown.
    #[must_use]
    pub fn may(&self, scope: &Scope) -> bool {
        self.caller.as_ref().is_some_and(|caller| caller.may(scope))
    }

    /// Whether who is looking may open this page: for links and for what is told of it elsewhere.
    #[must_use]
    pub fn may_open(&self, path: &str) -> bool {
        match self.frame.0.pages.get(path) {
            _ if self.entrance() == Entrance::Open => true,
            Some(Access::Public) => true,
            Some(Access::Known) => self.caller.is_some(),
            Some(Access::Scope(scope)) => self.may(scope),
            None => false,
        }
    }

    /// The path of the page.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }
}

/// The longest `href` that the path is at or below.
fn here<'a>(nav: &'a [NavItem], path: &str) -> &'a str {
    let holds = |item: &&NavItem| match path.strip_prefix(item.href) {
        Some(rest) => rest.is_empty() || (rest.starts_with('/') && item.href != "/"),
        None => false,
    };
    nav.iter().filter(holds).max_by_key(|item| item.href.len()).map_or("", |item| item.href)
}

impl Frame {
    pub(crate) fn new(
        web: Web,
        nav: Vec<NavItem>,
        pages: HashMap<String, Access>,
        sockets: Vec<String>,
        stage: Stage,
        stopping: CancellationToken,
    ) -> Self {
        Self(Arc::new(Inside { web, nav, pages, sockets, stage, stopping }))
    }

    pub(crate) fn web(&self) -> &Web {
        &self.0.web
    }

    /// Whether there is a WebSocket at a path whose handler decides which pages may open it.
    pub(crate) fn has_open_socket(&self, path: &str) -> bool {
        self.0.sockets.iter().any(|socket| socket == path)
    }

    /// Cancelled when streams should end.
    pub(crate) fn stopping(&self) -> &CancellationToken {
        &self.0.stopping
    }

    pub(crate) fn console(&self, uri: &Uri, caller: Option<Caller>) -> Console {
        Console { frame: self.clone(), path: uri.path().to_owned(), caller }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Console {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let Some(frame) = parts.extensions.get::<Frame>() else {
            return Err(Problem::internal("a page was asked for outside of an app"));
        };
        Ok(frame.console(&parts.uri, parts.extensions.get().cloned()))
    }
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        let headers = [
            (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
            // What is shown is true now, and perhaps for this person only.
            (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        ];
        (headers, self.0).into_response()
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame").field("nav", &self.0.nav).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_belongs_to_the_nearest_link_above_it() {
        let item = |href| NavItem { title: "", href };
        let nav = [item("/"), item("/load"), item("/load/runs")];
        for (path, expected) in [
            ("/", "/"),
            ("/load", "/load"),
            ("/load/1", "/load"),
            ("/load/runs/2", "/load/runs"),
            ("/loads", ""),
        ] {
            assert_eq!(here(&nav, path), expected, "{path}");
        }
    }
}
