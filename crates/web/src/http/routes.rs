//! The routes of a service, each with the access that it requires and its entry in the OpenAPI document.

use std::collections::BTreeMap;
use std::convert::Infallible;

use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::http::{Method, StatusCode};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, Route, on};
use tower::util::BoxCloneSyncServiceLayer;
use utoipa::openapi::{OpenApi, RefOr, Schema};
use utoipa_axum::router::UtoipaMethodRouter;

use super::openapi;
use crate::Access;
use crate::access::{Audited, RouteRule, authorize};
use crate::console::NavItem;

/// The routes of a service. Every route requires an [`Access`].
#[derive(Clone)]
pub struct Routes<S = ()> {
    router: Router<S>,
    document: OpenApi,
    entries: Vec<RouteEntry>,
    nav: Vec<NavItem>,
    /// Paths whose handlers check the origin.
    open_paths: Vec<String>,
    conflicts: Vec<String>,
}

/// A route with the access that it requires.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteEntry {
    pub path: String,
    pub method: String,
    pub access: Access,
    /// `None` for routes that only read.
    pub audited: Option<Audited>,
}

impl<S: Clone + Send + Sync + 'static> Routes<S> {
    #[must_use]
    pub fn new() -> Self {
        Self {
            router: Router::new(),
            document: openapi::empty(),
            entries: Vec::new(),
            nav: Vec::new(),
            open_paths: Vec::new(),
            conflicts: Vec::new(),
        }
    }

    /// An operation of the API that only reads: `routes!(list_monitors)`. Its path is complete: `/api/v1/<service>/…`.
    ///
    /// # Panics
    ///
    /// If the operation is not a GET. Operations that change something are registered with [`write`](Self::write).
    #[must_use]
    pub fn api(self, access: Access, routes: UtoipaMethodRouter<S>) -> Self {
        self.operations(access, None, routes)
    }

    /// Operations of the API with methods other than GET, and how they appear in the audit log.
    #[must_use]
    pub fn write(self, access: Access, audited: Audited, routes: UtoipaMethodRouter<S>) -> Self {
        self.operations(access, Some(audited), routes)
    }

    fn operations(
        mut self,
        access: Access,
        audited: Option<Audited>,
        (schemas, paths, handlers): UtoipaMethodRouter<S>,
    ) -> Self {
        let rule = RouteRule { access, audited, is_done: |status| status.is_success() };
        for (path, mut item) in paths.paths {
            let has_several_methods = openapi::operations(&mut item).count() > 1;
            for (method, operation) in openapi::operations(&mut item) {
                assert!(
                    audited.is_some() || method == "GET",
                    "{method} {path} must be registered with `write`"
                );
                let suffix =
                    if has_several_methods { format!("_{}", method.to_lowercase()) } else { String::new() };
                openapi::complete(operation, &path, &suffix, &rule.access);
                self.entries.push(RouteEntry {
                    path: path.clone(),
                    method: method.to_owned(),
                    access: rule.access.clone(),
                    audited,
                });
            }
            self.router = self.router.route(&path, handlers.clone().route_layer(api_guard(rule.clone())));
            match self.document.paths.paths.get_mut(&path) {
                Some(known) => known.merge_operations(item),
                None => drop(self.document.paths.paths.insert(path, item)),
            }
        }
        self.add_schemas(schemas);
        self
    }

    /// A page: `GET`, HTML, not part of the API.
    #[must_use]
    pub fn page<H, T>(self, access: Access, path: &str, handler: H) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
    {
        let rule = RouteRule { access, audited: None, is_done: |_| false };
        self.add(rule, &Method::GET, path, on(MethodFilter::GET, handler))
    }

    /// A WebSocket that pages of other sites may open. The handler checks the [`Origin`](crate::Origin).
    #[must_use]
    pub fn socket<H, T>(mut self, access: Access, path: &str, handler: H) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
    {
        self.open_paths.push(path.to_owned());
        self.page(access, path, handler)
    }

    /// A request that pages of other sites may send. The handler checks the [`Origin`](crate::Origin), and an OPTIONS request
    /// to the same path answers browsers that ask before they send it.
    #[must_use]
    pub fn cross_origin<H, T>(mut self, access: Access, method: &Method, path: &str, handler: H) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
    {
        let audited = (!method.is_safe()).then_some(Audited::No);
        let rule = RouteRule { access, audited, is_done: |_| false };
        let filter = MethodFilter::try_from(method.clone()).expect("a method that axum routes");
        if !self.open_paths.iter().any(|open| open == path) {
            self.open_paths.push(path.to_owned());
        }
        self.add(rule, method, path, on(filter, handler))
    }

    /// The target of a form: `POST`, answered with a redirect, not part of the API.
    #[must_use]
    pub fn action<H, T>(self, access: Access, audited: Audited, path: &str, handler: H) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
    {
        let rule = RouteRule {
            access,
            audited: Some(audited),
            is_done: |status: StatusCode| status.is_redirection(),
        };
        self.add(rule, &Method::POST, path, on(MethodFilter::POST, handler))
    }

    /// A link in the navigation of the console. Its icon is the path of an SVG in a box of 20 by 20.
    #[must_use]
    pub fn nav(mut self, title: &'static str, href: &'static str, icon: &'static str) -> Self {
        self.nav.push(NavItem { title, href, icon });
        self
    }

    /// Both sets of routes.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.router = self.router.merge(other.router);
        self.entries.extend(other.entries);
        self.nav.extend(other.nav);
        self.open_paths.extend(other.open_paths);
        self.conflicts.extend(other.conflicts);
        self.document.paths.merge(other.document.paths);
        self.add_schemas(other.document.components.map(|all| all.schemas).unwrap_or_default());
        self
    }

    /// Sets the state of the handlers.
    #[must_use]
    pub fn with_state<S2>(self, state: S) -> Routes<S2> {
        Routes {
            router: self.router.with_state(state),
            document: self.document,
            entries: self.entries,
            nav: self.nav,
            open_paths: self.open_paths,
            conflicts: self.conflicts,
        }
    }

    /// All routes with the access that they require.
    #[must_use]
    pub fn entries(&self) -> &[RouteEntry] {
        &self.entries
    }

    /// The OpenAPI document.
    #[must_use]
    pub fn document(&self) -> &OpenApi {
        &self.document
    }

    /// Names that two different schemas of the OpenAPI document have in common. One of the two schemas would be lost.
    #[must_use]
    pub fn conflicts(&self) -> &[String] {
        &self.conflicts
    }

    fn add(mut self, rule: RouteRule, method: &Method, path: &str, handler: MethodRouter<S>) -> Self {
        let RouteRule { access, audited, .. } = rule.clone();
        self.router = self.router.route(path, handler.route_layer(page_guard(rule)));
        self.entries.push(RouteEntry { path: path.to_owned(), method: method.to_string(), access, audited });
        self
    }

    fn add_schemas(&mut self, schemas: impl IntoIterator<Item = (String, RefOr<Schema>)>) {
        let components = self.document.components.get_or_insert_default();
        let known: &mut BTreeMap<_, _> = &mut components.schemas;
        for (name, schema) in schemas {
            if known.get(&name).is_some_and(|other| *other != schema) {
                self.conflicts.push(name.clone());
            }
            known.insert(name, schema);
        }
    }
}

/// The parts of an app.
pub(crate) struct Parts {
    pub(crate) router: Router,
    pub(crate) document: OpenApi,
    pub(crate) entries: Vec<RouteEntry>,
    pub(crate) nav: Vec<NavItem>,
    pub(crate) open_paths: Vec<String>,
}

impl Routes {
    pub(crate) fn into_parts(self) -> Parts {
        let Self { router, document, entries, nav, open_paths, conflicts: _ } = self;
        Parts { router, document, entries, nav, open_paths }
    }
}

impl<S: Clone + Send + Sync + 'static> Default for Routes<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> std::fmt::Debug for Routes<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.entries).finish()
    }
}

/// Marks a response of the API: its errors are never rendered as pages.
#[derive(Clone, Copy)]
pub(crate) struct JsonOnly;

async fn mark_json_only(mut response: Response) -> Response {
    response.extensions_mut().insert(JsonOnly);
    response
}

/// Checks a request before its handler. Boxed, so that the check is compiled in this crate only and not again for the
/// state of every service.
type Guard = BoxCloneSyncServiceLayer<Route, Request, Response, Infallible>;

/// Checks the access of declared methods only; other methods get 405 without authentication.
fn page_guard(rule: RouteRule) -> Guard {
    BoxCloneSyncServiceLayer::new(from_fn_with_state(rule, authorize))
}

fn api_guard(rule: RouteRule) -> Guard {
    BoxCloneSyncServiceLayer::new((map_response(mark_json_only), from_fn_with_state(rule, authorize)))
}
