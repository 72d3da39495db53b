//! Load tests: plans, a queue of runs, runners with a generator of their own, live metrics, reports.

mod cache;
mod card;
mod charts;
mod conductor;
mod config;
mod demo;
mod error;
pub mod generator;
mod keys;
mod live;
mod load;
mod local;
mod logs;
mod metrics;
mod pages;
pub mod plan;
mod plans;
mod queue;
mod report;
mod routes;
mod run;
mod runner;
mod runs;
mod second;
mod spread;
mod tally;
mod views;
mod wire;

pub use cache::{Cache, CachedGroup, CachedPlan};
pub use conductor::LiveSecond;
pub use config::Config;
pub use error::Error;
pub use keys::{Keys, MetricType, PlanId as KeyPlanId, RunType as RunTypeId, SessionId, TestId};
pub use load::{Accepted, Load, Wish};
pub use local::LocalRun;
pub use logs::{Level, Line, Logs, Ring};
pub use plans::{Edited, PlanEntry, PlanId};
pub use queue::Queue;
pub use report::{Bar, FaultCount, Report, StepReport};
pub use run::{Ending, Event, Run, Runner, RunnerState, State};
pub use runs::{Changed, NewRun, Queued, Standing};
pub use second::{Fault, General, Second, StepSecond};
pub use spread::{Spread, Summary};
pub use tally::{HEAT_ROWS, Point, Tally, Verdict, per_cent};
pub use views::{Current, Notification, Sample, Shown, Status, Views};
pub use wire::BadBytes;

/// The tables of load tests.
pub const MIGRATIONS: hob_database::Migrations = hob_database::migrations!("load": "0001_load", "0002_files");
