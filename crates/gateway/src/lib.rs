//! Gateway: request metrics and rate limits in front of any HTTP service.
//!
//! A reverse proxy for services in any language, a tower layer for services in Rust, and an API for everybody else.
//! Every instance decides in memory what it can, and all of them share one picture through the store.
//!
//! - [`identity`]: who a client is.
//! - [`Policy`], [`Rule`]: what the configuration says; [`Limiter`] keeps it.
//! - [`Meter`]: records requests; what it counts is flushed to the store and saved in the database.
//! - [`Picture`]: reads what all instances counted.

mod admission;
mod card;
mod config;
mod demo;
mod error;
mod foreign;
mod gateway;
mod histogram;
pub mod identity;
pub mod keys;
mod layer;
mod limiter;
mod meter;
mod metrics;
mod pages;
mod picture;
mod policy;
mod proxy;
mod publish;
mod refusal;
mod route;
mod routes;
mod rule;
mod tally;

pub use admission::{Admission, Admitted, Refusal};
pub use config::{AppliesTo, Config, Exactness, OnStoreFailure, RuleConfig};
pub use error::Error;
pub use gateway::{Gateway, MIGRATIONS};
pub use histogram::{Bucket, Histogram};
pub use layer::{Admitting, GatewayLayer};
pub use limiter::{Limiter, LiveRule, Verdict};
pub use meter::{Connected, Meter, Outcome};
pub use picture::{
    EndpointPicture, HourCount, InstancePicture, LimitPicture, MinuteLatency, Picture, Summary,
};
pub use policy::{BadPolicy, Policy};
pub use refusal::Fields;
pub use route::{BadTemplate, EndpointId, Endpoints, Template};
pub use rule::{BadRule, Mode, Rule, RuleName};
