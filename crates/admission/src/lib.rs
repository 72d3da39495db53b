//! Decides about HTTP requests: who sent one, and whether rate limits allow it. All instances of a program share the limits
//! through Redis or Valkey, and a tower layer enforces them.
//!
//! ```
//! use std::convert::Infallible;
//! use std::net::SocketAddr;
//!
//! use hob_admission::{Admission, Limiter, Policy, PolicyConfig, RuleConfig, keys::Keys};
//! use hob_schema::Layout;
//! use hob_store::{Address, Store};
//! use http::{Request, Response, StatusCode};
//! use tower::{Service as _, ServiceBuilder};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Or redis://…: Address::parse("redis://127.0.0.1:6379").
//! let store = Store::open(&Address::Embedded)?;
//! let rules = vec![RuleConfig::new("api", "2/1m")];
//! let policy = Policy::new(&PolicyConfig { rules, ..PolicyConfig::default() })?;
//! let limiter = Limiter::new(store, Keys::new(Layout::Plain), &policy);
//! let admission = Admission::new(policy, limiter, None);
//!
//! let hello = tower::service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new("hello")));
//! let mut service = ServiceBuilder::new().layer(admission.layer()).service(hello);
//! for expected in [StatusCode::OK, StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
//!     let peer: SocketAddr = "203.0.113.7:4711".parse()?;
//!     let response = service.call(Request::builder().uri("/").extension(peer).body(())?).await?;
//!     assert_eq!(response.status(), expected);
//!     assert_eq!(response.headers()["ratelimit-policy"], "\"api\";q=2;w=60");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! - [`PolicyConfig`], [`RuleConfig`]: rules, lists of callers and trusted proxies, as in the section `[gateway]` of Hob's
//!   configuration. [`Policy`] is the checked form.
//! - [`Limiter`] enforces rules: by a call to the store, from tokens that the store has debited in advance, or, while the store
//!   is unavailable, as the rule says.
//! - [`Admission`] checks requests. [`Admission::layer`] is the tower layer; other servers call [`Admission::admit`]. A refused
//!   request gets a 429 with `Retry-After`, `RateLimit` and `RateLimit-Policy`.
//! - [`RequestCounter`] counts the checked requests by endpoint, for metrics.
//!
//! Only requests over HTTP need the rest: [`Limiter::check`] limits anything that has a caller.

mod admission;
mod config;
mod counter;
mod identity;
pub mod keys;
mod layer;
mod limiter;
mod path;
mod policy;
mod route;

pub use admission::{Admission, CheckedRequest, Refusal};
pub use config::{
    AmbiguousPaths, AppliesTo, Exactness, OnStoreFailure, PolicyConfig, PolicyMistake, RuleConfig,
};
pub use counter::{EndpointId, RequestCounter, RequestOutcome};
pub use identity::{CallerList, CountBy, Identity};
pub use layer::{AdmissionLayer, AdmissionService};
pub use limiter::headers::RateLimitHeaders;
pub use limiter::rule::{BadRule, Rule, RuleMode, RuleName};
pub use limiter::{ActiveRule, Decisions, Limiter, Verdict};
pub use policy::{BadPolicy, Policy};
pub use route::{BadTemplate, RouteTemplate};
