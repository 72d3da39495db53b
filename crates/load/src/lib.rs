//! Load tests: plans, a queue of runs, runners with a generator of their own, live metrics, reports.

mod card;
mod config;
mod database;
mod demo;
mod error;
pub mod generator;
mod keys;
mod load;
mod metrics;
mod pages;
pub mod plan;
mod results;
mod routes;
mod run;

pub use config::Config;
pub use error::Error;
pub use keys::{Keys, MetricType, PlanId as KeyPlanId, RunType as RunTypeId, SessionId, TestId};
pub use load::{Accepted, Load, Wish};
pub use plan::cache::{Cache, CachedGroup, CachedPlan};
pub use plan::catalog::{EditOutcome, PlanEntry, PlanId};
pub use results::codec::BadBytes;
pub use results::histogram::{Spread, Summary};
pub use results::report::{Bar, FaultCount, Report, StepReport};
pub use results::second::{Fault, General, Second, StepSecond};
pub use results::totals::{HEAT_ROWS, Point, Tally, Verdict, per_cent};
pub use run::coordinator::LiveSecond;
pub use run::lifecycle::Transition;
pub use run::local::LocalRun;
pub use run::logs::{Level, Line, Logs, Ring};
pub use run::pending::Queue;
pub use run::views::{Current, Notification, Sample, Shown, Status, Views};
pub use run::{Ending, Event, Run, Runner, RunnerState, State};

/// The tables of load tests.
pub const MIGRATIONS: hob_database::Migrations = hob_database::migrations!("load": "0001_load", "0002_files");
