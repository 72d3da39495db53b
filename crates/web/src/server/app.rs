//! An app: all routes behind everything that all requests pass.

use std::collections::{BTreeSet, HashMap};

use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::{Extension, Router};
use futures_util::FutureExt;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use utoipa::openapi::OpenApi;

use super::listener;
use crate::console::Frame;
use crate::console::assets;
use crate::http::routes::Parts;
use crate::http::{docs, openapi};
use crate::server::middleware::{Limits, limit, panicked, present, same_origin, secure, trace};
use crate::{Access, Entry, Problem, Routes, Web, access, live};

/// Everything that one server answers.
pub struct App {
    web: Web,
    router: Router,
    document: OpenApi,
    entries: Vec<Entry>,
    /// Cancelled when streams should end.
    stopping: CancellationToken,
}

/// Whether what is shown is real.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Real,
    Demo,
}

impl App {
    /// The routes of all services, and the program's own.
    #[must_use]
    pub fn new(web: &Web, routes: Routes, stage: Stage) -> Self {
        let own = assets::routes().merge(access::routes(web)).merge(live::routes(web.changes().clone()));
        let routes = routes.merge(own);
        let routes = docs::routes(routes.document()).merge(routes);
        web.learn(services(routes.entries()));
        let Parts { router, document, entries, nav, sockets } = routes.into_parts();
        let stopping = CancellationToken::new();
        let frame = Frame::new(web.clone(), nav, pages(&entries), sockets, stage, stopping.clone());
        let router = dressed(router, web, frame);
        Self { web: web.clone(), router, document, entries, stopping }
    }

    /// All routes, with what they ask for.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The routes of the API that its document does not have.
    #[must_use]
    pub fn undocumented(&self) -> Vec<Entry> {
        openapi::missing(&self.document, &self.entries)
    }

    /// What the API document says.
    #[must_use]
    pub fn document(&self) -> &OpenApi {
        &self.document
    }

    /// Answers until `stop` is cancelled and what was under way is done, or has had its time.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) {
        let (config, tls, streams) = (self.web.config(), self.web.tls(), self.stopping);
        // Streams would go on for ever otherwise.
        let end_streams = stop.clone().cancelled_owned().map(|()| streams.cancel());
        tokio::join!(listener::serve(&config, tls, self.router, listener, stop), end_streams);
    }
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.entries).finish()
    }
}

/// What each page asks for.
fn pages(entries: &[Entry]) -> HashMap<String, Access> {
    let pages = entries.iter().filter(|entry| entry.method == "GET");
    pages.map(|entry| (entry.path.clone(), entry.access.clone())).collect()
}

/// The services that the routes ask for scopes of.
fn services(entries: &[Entry]) -> BTreeSet<String> {
    let service = |entry: &Entry| match &entry.access {
        Access::Scope(scope) => scope.service().map(str::to_owned),
        _ => None,
    };
    entries.iter().filter_map(service).collect()
}

/// The router with all that requests pass, outermost first.
fn dressed(router: Router, web: &Web, frame: Frame) -> Router {
    let config = web.config();
    let limits = Limits::new(config.max_requests, config.answer_within.get());
    let all = ServiceBuilder::new()
        .layer(Extension(frame))
        .layer(from_fn(trace))
        .layer(from_fn(secure))
        .layer(CompressionLayer::new())
        .layer(from_fn(present))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn(same_origin))
        .layer(from_fn_with_state(limits, limit))
        .layer(DefaultBodyLimit::max(config.max_body_kib as usize * 1024));
    router
        .fallback(async || Problem::new(StatusCode::NOT_FOUND, "There is nothing at this address."))
        .method_not_allowed_fallback(async || {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "This address does not know that method.")
        })
        .layer(all)
}
