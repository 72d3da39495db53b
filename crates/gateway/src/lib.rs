//! Gateway: request metrics and rate limits in front of any HTTP service.
//!
//! The gateway is a reverse proxy for services in any language, a tower layer for services in Rust, and an API for
//! everything else. Instances decide in memory where they can, and share limits and counts through Redis.
//!
//! - [`hob_admission`]: decides about a request, for the proxy, the API and [`Gateway::layer`].
//! - [`Meter`]: records requests. The counts are flushed to Redis and saved in the database.
//! - [`Statistics`]: reads what all instances counted.

mod card;
mod config;
mod database;
mod demo;
mod error;
mod gateway;
mod metrics;
mod pages;
mod proxy;
mod routes;
mod traffic;

pub use config::Config;
pub use error::Error;
pub use gateway::{Gateway, MIGRATIONS};
pub use hob_admission::{EndpointId, RequestOutcome, keys};
pub use traffic::endpoints::Endpoints;
pub use traffic::histogram::{Bucket, Histogram};
pub use traffic::meter::{ConnectionGuard, Meter};
pub use traffic::statistics::{
    EndpointStatistics, HourCount, HourTraffic, InstanceStatistics, MinuteLatency, RuleStatistics,
    Statistics, Summary,
};
