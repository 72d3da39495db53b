//! A service's routes: each entered with the access that it asks for, and with its place in the API document.

use std::collections::BTreeMap;

use axum::Router;
use axum::handler::Handler;
use axum::http::Method;
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};
use utoipa::openapi::{OpenApi, RefOr, Schema};
use utoipa_axum::router::UtoipaMethodRouter;

use super::openapi;
use crate::Access;
use crate::access::gate;
use crate::console::NavItem;

/// The routes of a service. There is no way to add one without saying who may call it.
#[derive(Clone)]
pub struct Routes<S = ()> {
    router: Router<S>,
    document: OpenApi,
    entries: Vec<Entry>,
    nav: Vec<NavItem>,
    /// Paths of WebSockets that look at the page behind them themselves.
    sockets: Vec<String>,
    clashes: Vec<String>,
}

/// One route, as the table of all routes lists it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub path: String,
    pub method: String,
    pub access: Access,
}

impl<S: Clone + Send + Sync + 'static> Routes<S> {
    #[must_use]
    pub fn new() -> Self {
        Self {
            router: Router::new(),
            document: openapi::empty(),
            entries: Vec::new(),
            nav: Vec::new(),
            sockets: Vec::new(),
            clashes: Vec::new(),
        }
    }

    /// Operations of the API, all with the same access: `routes!(list_monitors)`. Their paths are written out,
    /// `/api/v1/<service>/…`.
    #[must_use]
    #[allow(clippy::needless_pass_by_value, reason = "as the other routes are entered")]
    pub fn api(mut self, access: Access, routes: UtoipaMethodRouter<S>) -> Self {
        let (schemas, paths, handlers) = routes;
        for (path, mut item) in paths.paths {
            for (method, operation) in openapi::operations(&mut item) {
                openapi::complete(operation, &path, &access);
                self.entries.push(Entry {
                    path: path.clone(),
                    method: method.to_owned(),
                    access: access.clone(),
                });
            }
            let guarded = guard(handlers.clone(), access.clone()).route_layer(map_response(for_programs));
            self.router = self.router.route(&path, guarded);
            match self.document.paths.paths.get_mut(&path) {
                Some(known) => known.merge_operations(item),
                None => drop(self.document.paths.paths.insert(path, item)),
            }
        }
        self.add_schemas(schemas);
        self
    }

    /// A page: `GET`, answered with HTML, not part of the API.
    #[must_use]
    pub fn page<H, T>(self, access: Access, path: &str, handler: H) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
    {
        self.enter(access, &Method::GET, path, on(MethodFilter::GET, handler))
    }

    /// A WebSocket for pages of other sites, too: the handler takes the [`Origin`](crate::Origin), and decides.
    #[must_use]
    pub fn socket<H, T>(mut self, access: Access, path: &str, handler: H) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
    {
        self.sockets.push(path.to_owned());
        self.page(access, path, handler)
    }

    /// What a form on a page does: `POST`, answered with a redirection, not part of the API.
    #[must_use]
    pub fn action<H, T>(self, access: Access, path: &str, handler: H) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
    {
        self.enter(access, &Method::POST, path, on(MethodFilter::POST, handler))
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
        self.sockets.extend(other.sockets);
        self.clashes.extend(other.clashes);
        self.document.paths.merge(other.document.paths);
        self.add_schemas(other.document.components.map(|all| all.schemas).unwrap_or_default());
        self
    }

    /// Gives the handlers what they extract with `State`.
    #[must_use]
    pub fn with_state<S2>(self, state: S) -> Routes<S2> {
        Routes {
            router: self.router.with_state(state),
            document: self.document,
            entries: self.entries,
            nav: self.nav,
            sockets: self.sockets,
            clashes: self.clashes,
        }
    }

    /// All routes, with what they ask for.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// What the API document says.
    #[must_use]
    pub fn document(&self) -> &OpenApi {
        &self.document
    }

    /// Names that two different schemas of the API document have: one of them would be lost.
    #[must_use]
    pub fn clashes(&self) -> &[String] {
        &self.clashes
    }

    fn enter(mut self, access: Access, method: &Method, path: &str, handler: MethodRouter<S>) -> Self {
        self.router = self.router.route(path, guard(handler, access.clone()));
        self.entries.push(Entry { path: path.to_owned(), method: method.to_string(), access });
        self
    }

    fn add_schemas(&mut self, schemas: impl IntoIterator<Item = (String, RefOr<Schema>)>) {
        let components = self.document.components.get_or_insert_default();
        let known: &mut BTreeMap<_, _> = &mut components.schemas;
        for (name, schema) in schemas {
            if known.get(&name).is_some_and(|other| *other != schema) {
                self.clashes.push(name.clone());
            }
            known.insert(name, schema);
        }
    }
}

/// What an app is made of.
pub(crate) struct Parts {
    pub(crate) router: Router,
    pub(crate) document: OpenApi,
    pub(crate) entries: Vec<Entry>,
    pub(crate) nav: Vec<NavItem>,
    pub(crate) sockets: Vec<String>,
}

impl Routes {
    pub(crate) fn into_parts(self) -> Parts {
        let Self { router, document, entries, nav, sockets, clashes: _ } = self;
        Parts { router, document, entries, nav, sockets }
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

/// Says of an answer that it is for programs, wherever its route is: what fails there is never made a page.
#[derive(Clone, Copy)]
pub(crate) struct ForPrograms;

async fn for_programs(mut response: Response) -> Response {
    response.extensions_mut().insert(ForPrograms);
    response
}

/// Only for methods that there are: others are refused without asking who is calling.
fn guard<S: Clone + Send + Sync + 'static>(handlers: MethodRouter<S>, access: Access) -> MethodRouter<S> {
    handlers.route_layer(from_fn_with_state(access, gate))
}
