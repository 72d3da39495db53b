//! Pipelines fetch items from APIs with call quotas, resumably and with many workers.
//!
//! A [`Plan`](plan::Plan) describes where items come from, which request is made for each, and where the results
//! go. A [`Run`](run::Run) executes it. Runs and items are rows in the database: nodes claim items under leases, reserve
//! every call against a [quota](quota::Quotas) that all users of a credential share, and commit each result once.

mod card;
mod config;
mod database;
mod demo;
mod error;
pub mod keys;
mod metrics;
mod pages;
mod pipeline;
pub mod plan;
pub mod quota;
mod routes;
pub mod run;
mod sink;

pub use config::Config;
pub use demo::fake_api;
pub use error::{Error, Result};
pub use pipeline::Pipelines;
pub use plan::StoredPlan;
pub use plan::retry::FailureClass;
pub use run::item::{ItemState, ItemSummary, Progress};
pub use run::preview::{PreviewItem, PreviewRequest};
pub use run::runs::Runs;
pub use sink::{ColumnType, Output};

/// The tables of pipelines.
pub const MIGRATIONS: hob_database::Migrations = hob_database::migrations!("pipeline": "0001_pipeline", "0002_tally", "0003_result", "0004_variables", "0005_call_number");
