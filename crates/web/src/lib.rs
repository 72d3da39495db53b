//! The HTTP layer of all services: routes, errors, access control, the layout of the console, charts, live updates, the
//! OpenAPI document and the server.
//!
//! A service provides its [`Routes`]. Every route requires an [`Access`]. A handler that fails returns a [`Problem`], which
//! API clients receive as `application/problem+json` and browsers as a page. [`Console`] renders pages into the layout.
//! [`Web`] holds the shared state (tokens, sessions, the audit log), and an [`App`] serves everything.
//!
//! ```
//! use askama::Template;
//! use axum::extract::State;
//! use hob_web::{Access, Console, Json, Page, Path, Problem, Routes};
//! use serde::Serialize;
//! use utoipa::ToSchema;
//!
//! #[derive(Clone)]
//! struct Garden(Vec<String>);
//!
//! #[derive(Serialize, ToSchema)]
//! struct Gnome {
//!     name: String,
//! }
//!
//! /// One gnome.
//! #[utoipa::path(get, path = "/api/v1/garden/gnomes/{name}", params(("name" = String, Path)),
//!     responses((status = 200, body = Gnome)))]
//! async fn gnome(State(garden): State<Garden>, Path(name): Path<String>) -> Result<Json<Gnome>, Problem> {
//!     if garden.0.contains(&name) { Ok(Json(Gnome { name })) } else { Err(Problem::not_found("gnome")) }
//! }
//!
//! #[derive(Template)]
//! #[template(source = "<p>{{ count }} gnomes</p>", ext = "html")]
//! struct Lawn {
//!     count: u32,
//! }
//!
//! async fn lawn(console: Console) -> Result<Page, Problem> {
//!     console.page("Garden", &Lawn { count: 1 })
//! }
//!
//! fn routes(garden: Garden) -> Routes {
//!     Routes::new()
//!         .nav("Garden", "/garden", "M10 3v14")
//!         .api(Access::read("garden"), utoipa_axum::routes!(gnome))
//!         .page(Access::read("garden"), "/garden", lawn)
//!         .with_state(garden)
//! }
//! # let _ = routes(Garden(vec![]));
//! ```

mod access;
pub mod chart;
pub mod components;
mod config;
mod console;
mod error;
mod http;
pub mod live;
mod server;
mod service;
mod web;
pub mod webhook;

pub use access::audit::{self, Audit};
pub use access::jwks;
pub use access::oidc::{Issuer, OidcConfig, RedirectUrl, RoleRule, Roles, SignInConfig};
pub use access::{
    Access, ApiKeyCheck, AuditDetail, Audited, BadScope, Caller, Credential, CredentialWatch, NewToken,
    ProtectedUrl, Role, Scope, Scopes, Token, TokenCreation, TokenId, Tokens, cookie_values, random_secret,
};
pub use config::Config;
/// The URL of an asset, for pages with their own layout: `asset("hob.css")`.
pub use console::assets::href as asset;
pub use console::{Console, NavItem, Page};
pub use error::Error;
pub use http::extract::{Form, Json, Path, Query, read_json};
pub use http::list::{List, Paging, Text, Text64, Text128, Text512, Text1000, Text4096, Text524288, Time};
pub use http::problem::{FieldError, Problem};
pub use http::routes::{RouteEntry, Routes};
pub use live::Changes;
pub use server::app::{App, DataKind};
pub use server::listener::Peer;
pub use server::middleware::{BaseUrl, CONTENT_SECURITY_POLICY, ClientAddress, Origin};
pub use server::stopping::Stopping;
pub use service::card::{Card, CardProblem, Figure};
pub use service::memory_usage::MemoryUsage;
pub use service::search::{MAX_SEARCH_HITS, SearchHit};
pub use service::{AnyService, Registration, Service, ServiceError};
pub use web::Web;

/// The stylesheet of the console, for standalone documents.
pub const STYLESHEET: &str = include_str!("../assets/hob.css");

/// The tables of tokens, sessions and the audit log.
pub const MIGRATIONS: hob_database::Migrations =
    hob_database::migrations!("web": "0001_access", "0002_users");
