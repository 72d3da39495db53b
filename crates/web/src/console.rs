//! The frame around all pages of the console.

pub(crate) mod assets;

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
    /// The path of an SVG in a box of 20 by 20.
    pub icon: &'static str,
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
        let item = |href| NavItem { title: "", href, icon: "" };
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
