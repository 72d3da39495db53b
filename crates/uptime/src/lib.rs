//! Uptime: checks, incidents, alerts, dashboard and status page.
//!
//! A [`monitor`] says what is checked and how often. The [`schedule`] says which monitor is due and which worker holds
//! it; a [`probe`] runs the check; the result changes the monitor's state in one script; an [`incident`] records an
//! outage and alerts the channels of the monitor. A [`status`] page shows monitors to customers. The database is the source of truth: [`Schedule::rebuild`] restores
//! the store from it.

mod card;
mod config;
pub mod database;
mod demo;
mod error;
pub mod incident;
pub mod keys;
mod metrics;
pub mod monitor;
mod pages;
pub mod probe;
mod routes;
pub mod schedule;
pub mod status;
mod uptime;

pub use config::Config;
pub use error::{Error, Result};
pub use monitor::heartbeat::HeartbeatSignal;
pub use schedule::Schedule;
pub use uptime::{AddOutcome, CheckNowOutcome, EditOutcome, MAX_MONITORS, Uptime, topic};

/// The tables of this service.
pub const MIGRATIONS: hob_database::Migrations = hob_database::migrations!("uptime": "0001_monitors", "0002_history", "0003_alerts", "0004_repeated_fences",
        "0005_called_at", "0006_status_pages");
