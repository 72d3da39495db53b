//! Load: plans, a queue of runs, an HTTP load generator on several nodes, live metrics and reports.

mod card;
mod config;
mod database;
mod demo;
mod error;
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
pub use hob_load_generator::{
    Backoffs, Fault, GeneratorSecond, HEAT_ROWS, LatencyHistogram, LatencySummary, LocalRun, Second,
    StepSecond, ThresholdResult, TimelinePoint, Totals, generator, per_cent,
};
pub use keys::{Keys, MetricType, PlanId as KeyPlanId, RunType as RunTypeId, SessionId, TestId};
pub use load::{Activity, DryRunOutcome, Load, QueueOutcome, RunRequest};
pub use plan::cache::{Cache, CachedGroup, CachedPlan};
pub use plan::catalog::{EditOutcome, PlanEntry, PlanId};
pub use results::comparison::{Comparison, Group, Row};
pub use results::report::{FaultCount, HistogramBar, Report, RunnerCount, StepReport};
pub use run::coordinator::LiveSecond;
pub use run::item::{RunFigures, RunItem};
pub use run::lifecycle::Transition;
pub use run::logs::{LogLevel, LogLine, LogStream, RunLogs};
pub use run::pending::PendingQueue;
pub use run::views::{CurrentMetrics, LiveSample, Notification, Progress, Registration, RunStatus, RunViews};
pub use run::{Ending, PublicStatus, Run, RunEvent, RunState, Runner, RunnerState};

/// The tables of load.
pub const MIGRATIONS: hob_database::Migrations =
    hob_database::migrations!("load": "0001_load", "0002_files", "0003_users", "0004_figures");
