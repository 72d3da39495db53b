//! An app: all routes with the middleware around them.

use std::collections::{BTreeSet, HashMap};

use axum::extract::DefaultBodyLimit;
use axum::http::{Extensions, HeaderMap, StatusCode, Version};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::{Extension, Router};
use futures_util::FutureExt;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{DefaultPredicate, Predicate as _};
use utoipa::openapi::OpenApi;

use super::listener;
use crate::console::AppContext;
use crate::console::assets;
use crate::http::routes::Parts;
use crate::http::{docs, openapi};
use crate::server::middleware::{
    Limits, identify_sender, limit, panic_response, present_problems, refuse_forwarded_if_open, same_origin,
    security_headers, trace,
};
use crate::{Access, Problem, RouteEntry, Routes, Web, access, live};

/// All routes of a server.
pub struct App {
    web: Web,
    router: Router,
    document: OpenApi,
    entries: Vec<RouteEntry>,
    /// Cancelled when streams should end.
    stopping: CancellationToken,
}

/// Whether the data is real or a demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataKind {
    Real,
    Demo,
}

impl App {
    /// The given routes and those of this crate.
    #[must_use]
    pub fn new(web: &Web, routes: Routes, data: DataKind) -> Self {
        let own = assets::routes().merge(access::routes(web)).merge(live::routes(web.changes().clone()));
        let routes = routes.merge(own);
        let routes = docs::routes(routes.document()).merge(routes);
        web.set_services(services(routes.entries()));
        let Parts { router, document, entries, nav, open_paths } = routes.into_parts();
        let stopping = CancellationToken::new();
        let frame = AppContext::new(web.clone(), nav, pages(&entries), open_paths, data, stopping.clone());
        let router = with_middleware(router, web, frame);
        Self { web: web.clone(), router, document, entries, stopping }
    }

    /// All routes with the access that they require.
    #[must_use]
    pub fn entries(&self) -> &[RouteEntry] {
        &self.entries
    }

    /// API routes that are missing in the OpenAPI document.
    #[must_use]
    pub fn undocumented(&self) -> Vec<RouteEntry> {
        openapi::missing(&self.document, &self.entries)
    }

    /// The OpenAPI document.
    #[must_use]
    pub fn document(&self) -> &OpenApi {
        &self.document
    }

    /// Serves requests until `stop` is cancelled, then waits for running requests within `[server] drain_timeout`.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) {
        let (config, tls, streams) = (self.web.config(), self.web.tls(), self.stopping);
        // Streams are ended here, because they would not end by themselves.
        let end_streams = stop.clone().cancelled_owned().map(|()| streams.cancel());
        tokio::join!(listener::serve(&config, tls, self.router, listener, stop), end_streams);
    }
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.entries).finish()
    }
}

/// The access that each page requires.
fn pages(entries: &[RouteEntry]) -> HashMap<String, Access> {
    let pages = entries.iter().filter(|entry| entry.method == "GET");
    pages.map(|entry| (entry.path.clone(), entry.access.clone())).collect()
}

/// The services that appear in required scopes.
fn services(entries: &[RouteEntry]) -> BTreeSet<String> {
    let service = |entry: &RouteEntry| match &entry.access {
        Access::Scope(scope) => scope.service().map(str::to_owned),
        _ => None,
    };
    entries.iter().filter_map(service).collect()
}

/// Whether the parts of a response may wait for each other, as compression lets them do.
fn may_be_buffered(_: StatusCode, _: Version, headers: &HeaderMap, _: &Extensions) -> bool {
    headers.get("x-accel-buffering").is_none_or(|buffering| buffering != "no")
}

/// Adds the middleware, outermost first.
fn with_middleware(router: Router, web: &Web, frame: AppContext) -> Router {
    let config = web.config();
    let limits = Limits::new(config.max_requests, config.request_timeout.get());
    let all = ServiceBuilder::new()
        .layer(Extension(frame))
        .layer(from_fn(identify_sender))
        .layer(from_fn_with_state(web.context().tracer.clone(), trace))
        .layer(from_fn(security_headers))
        .layer(CompressionLayer::new().compress_when(DefaultPredicate::new().and(may_be_buffered)))
        .layer(from_fn(present_problems))
        .layer(CatchPanicLayer::custom(panic_response))
        .layer(from_fn(refuse_forwarded_if_open))
        .layer(from_fn(same_origin))
        .layer(from_fn_with_state(limits, limit))
        .layer(DefaultBodyLimit::max(config.max_body_kib as usize * 1024));
    router
        .fallback(async || Problem::new(StatusCode::NOT_FOUND, "Page not found."))
        .method_not_allowed_fallback(async || {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed.")
        })
        .layer(all)
}
