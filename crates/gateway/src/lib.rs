//! Gateway: request metrics and rate limits in front of any HTTP service.
//!
//! The gateway is a reverse proxy for services in any language, a tower layer for services in Rust, and an API for
//! everything else. Instances decide in memory where they can, and share limits and counts through Redis.
//!
//! - [`identity`]: identifies callers.
//! - [`Policy`], [`Rule`]: the checked configuration; [`Limiter`] enforces it.
//! - [`Meter`]: records requests. The counts are flushed to Redis and saved in the database.
//! - [`Statistics`]: reads what all instances counted.

mod admission;
mod card;
mod config;
mod database;
mod demo;
mod error;
mod gateway;
pub mod keys;
mod limiter;
mod metrics;
mod pages;
mod proxy;
mod routes;
mod traffic;

pub use admission::endpoint::{BadTemplate, EndpointId, Endpoints, RouteTemplate};
pub use admission::identity;
pub use admission::layer::{GatewayLayer, GatewayService};
pub use admission::policy::{BadPolicy, Policy};
pub use admission::{Admission, CheckedRequest, Refusal};
pub use config::{AmbiguousPaths, AppliesTo, Config, Exactness, OnStoreFailure, RuleConfig};
pub use error::Error;
pub use gateway::{Gateway, MIGRATIONS};
pub use limiter::headers::RateLimitHeaders;
pub use limiter::rule::{BadRule, Rule, RuleMode, RuleName};
pub use limiter::{ActiveRule, Limiter, Verdict};
pub use traffic::histogram::{Bucket, Histogram};
pub use traffic::meter::{ConnectionGuard, Meter, RequestOutcome};
pub use traffic::statistics::{
    EndpointStatistics, HourCount, InstanceStatistics, MinuteLatency, RuleStatistics, Statistics, Summary,
};
