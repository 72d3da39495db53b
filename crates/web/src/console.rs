//! The layout of all console pages.

pub(crate) mod assets;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use askama::Template;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, Uri, header};
use axum::response::{IntoResponse, Response};

use tokio_util::sync::CancellationToken;

use crate::{Access, Caller, DataKind, Problem, Scope, Web};

/// A link in the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NavItem {
    pub title: &'static str,
    pub href: &'static str,
    /// The path of an SVG in a box of 20 by 20.
    pub icon: &'static str,
}

impl NavItem {
    /// The key that opens the page after `g`: the first letter of the title.
    fn shortcut(&self) -> Option<char> {
        self.title.chars().next().map(|letter| letter.to_ascii_lowercase())
    }
}

/// Renders a page into the layout. An extractor.
#[derive(Clone, Debug)]
pub struct Console {
    frame: AppContext,
    path: String,
    kind: PageKind,
    caller: Option<Caller>,
}

/// Whether a page can be requested again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageKind {
    /// The address shows the page.
    Addressed,
    /// The answer to a form. Its address may show another page, or none.
    Answer,
}

/// A rendered page.
#[derive(Clone, Debug)]
pub struct Page(String);

/// The state that all requests of an app share. Every request carries it as an extension.
#[derive(Clone)]
pub(crate) struct AppContext(Arc<AppContextInner>);

struct AppContextInner {
    web: Web,
    nav: Vec<NavItem>,
    /// The access that each page requires.
    pages: HashMap<String, Access>,
    /// Paths whose handlers check the origin.
    open_paths: Vec<String>,
    data: DataKind,
    stopping: CancellationToken,
}

/// Whether the visitor is signed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SignInState {
    /// The server has no admin token, so everyone on this machine has access.
    NotRequired,
    SignedIn,
    /// The navigation is hidden.
    SignedOut,
}

/// The HTML document around the body of a page.
#[derive(Template)]
#[template(path = "layout.html")]
struct Layout<'a> {
    title: &'a str,
    /// The pages above this one: name and address.
    crumbs: &'a [(&'a str, &'a str)],
    nav: &'a [NavItem],
    /// The `href` of the active navigation item; empty if there is none.
    here: &'a str,
    who: Option<&'a str>,
    sign_in_state: SignInState,
    /// Whether to link the access pages.
    admin: bool,
    demo: bool,
    /// Whether there is a page that searches everything.
    may_search: bool,
    path: &'a str,
    /// Whether the page is updated while it is open.
    is_live: bool,
    /// Rendered HTML.
    body: &'a str,
}

impl Console {
    /// Renders a page with this body. The page is below that of its service.
    pub fn page(&self, title: &str, body: &impl Template) -> Result<Page, Problem> {
        self.page_below(&[], title, body)
    }

    /// Renders a page that is below other pages of its service, given by name and address.
    pub fn page_below(
        &self,
        above: &[(&str, &str)],
        title: &str,
        body: &impl Template,
    ) -> Result<Page, Problem> {
        let body = body.render().map_err(Problem::internal)?;
        let nav: Vec<NavItem> =
            self.frame.0.nav.iter().copied().filter(|item| self.may_open(item.href)).collect();
        let here = here(&nav, &self.path);
        let section = nav.iter().find(|item| item.href == here && here != self.path);
        let section = section.filter(|_| here != "/").map(|item| (item.title, item.href));
        let above = section.into_iter().chain(above.iter().copied());
        // The answer to a form may be the page of its service.
        let crumbs: Vec<(&str, &str)> = above.filter(|(name, _)| *name != title).collect();
        let layout = Layout {
            title,
            crumbs: &crumbs,
            nav: &nav,
            here,
            who: self.caller.as_ref().map(Caller::name),
            sign_in_state: self.sign_in_state(),
            admin: self.may(&Scope::Admin),
            demo: self.frame.0.data == DataKind::Demo,
            may_search: self.frame.0.pages.contains_key("/search") && self.may_open("/search"),
            path: &self.path,
            is_live: self.kind == PageKind::Addressed,
            body: &body,
        };
        layout.render().map(Page).map_err(Problem::internal)
    }

    fn sign_in_state(&self) -> SignInState {
        match &self.caller {
            _ if self.frame.web().authenticator().is_open() => SignInState::NotRequired,
            Some(_) => SignInState::SignedIn,
            None => SignInState::SignedOut,
        }
    }

    /// The caller, if authenticated.
    #[must_use]
    pub fn caller(&self) -> Option<&Caller> {
        self.caller.as_ref()
    }

    /// Whether the caller has this scope, to hide buttons.
    #[must_use]
    pub fn may(&self, scope: &Scope) -> bool {
        self.caller.as_ref().is_some_and(|caller| caller.may(scope))
    }

    /// Whether the caller may open this page, to hide links and content.
    #[must_use]
    pub fn may_open(&self, path: &str) -> bool {
        match self.frame.0.pages.get(path) {
            _ if self.sign_in_state() == SignInState::NotRequired => true,
            Some(Access::Public) => true,
            Some(Access::Authenticated) => self.caller.is_some(),
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

/// The longest `href` that is a prefix of the path.
fn here<'a>(nav: &'a [NavItem], path: &str) -> &'a str {
    let holds = |item: &&NavItem| match path.strip_prefix(item.href) {
        Some(rest) => rest.is_empty() || (rest.starts_with('/') && item.href != "/"),
        None => false,
    };
    nav.iter().filter(holds).max_by_key(|item| item.href.len()).map_or("", |item| item.href)
}

impl AppContext {
    pub(crate) fn new(
        web: Web,
        nav: Vec<NavItem>,
        pages: HashMap<String, Access>,
        open_paths: Vec<String>,
        data: DataKind,
        stopping: CancellationToken,
    ) -> Self {
        Self(Arc::new(AppContextInner { web, nav, pages, open_paths, data, stopping }))
    }

    pub(crate) fn web(&self) -> &Web {
        &self.0.web
    }

    /// Whether the handler at this path checks the origin.
    pub(crate) fn accepts_other_origins(&self, path: &str) -> bool {
        self.0.open_paths.iter().any(|open| open == path)
    }

    /// Cancelled when streams should end.
    pub(crate) fn stopping(&self) -> &CancellationToken {
        &self.0.stopping
    }

    pub(crate) fn console(&self, method: &Method, uri: &Uri, caller: Option<Caller>) -> Console {
        let kind = if method.is_safe() { PageKind::Addressed } else { PageKind::Answer };
        Console { frame: self.clone(), path: uri.path().to_owned(), kind, caller }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Console {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let Some(frame) = parts.extensions.get::<AppContext>() else {
            return Err(Problem::internal("the route of this page was not registered through `App`"));
        };
        Ok(frame.console(&parts.method, &parts.uri, parts.extensions.get().cloned()))
    }
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        let headers = [
            (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
            // Pages are specific to the caller and the moment.
            (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        ];
        (headers, self.0).into_response()
    }
}

impl fmt::Debug for AppContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame").field("nav", &self.0.nav).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_specific_navigation_item_is_active() {
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
