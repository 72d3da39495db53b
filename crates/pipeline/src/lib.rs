//! Pipelines: quota-bound, resumable fetching with many workers.
//!
//! A [`Plan`](definition::Plan) says where items come from, what is asked about each, and where the results go. A run of
//! it lives in the database, item by item, for as long as it takes: nodes claim items under leases, reserve every call
//! against a [quota](quota::Quotas) that all who use the same credential share, and commit what came of it once.

mod attempt;
mod books;
mod card;
mod config;
pub mod definition;
mod demo;
mod drive;
mod error;
mod extract;
mod fetch;
pub mod forecast;
mod item;
pub mod keys;
mod metrics;
mod pages;
mod permit;
mod pipeline;
pub mod quota;
mod retry;
mod routes;
pub mod run;
mod seed;
mod sink;
pub mod standin;
mod template;
mod view;

pub use books::Books;
pub use config::Config;
pub use error::{Error, Result};
pub use item::{ItemFacts, ItemState, Progress};
pub use pipeline::{Pipelines, StoredPlan};
pub use retry::Class;
pub use sink::Output;

/// The tables of pipelines.
pub const MIGRATIONS: hob_database::Migrations =
    hob_database::migrations!("pipeline": "0001_pipeline", "0002_tally", "0003_result");
