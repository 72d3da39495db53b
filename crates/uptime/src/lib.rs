//! Uptime: checks, incidents, alerts, dashboard and status page.
//!
//! What is watched is a [`monitor`]; its [`schedule`] says when its turn is and who checks it; a [`check`] is run by a
//! probe; [`record`] moves how it stands ([`state`]), and what others read of it, in one script; an [`incident`] keeps
//! its outages. The store is disposable: [`rebuild`](Schedule::rebuild) brings it back from the database.

pub mod alert;
pub mod apply;
pub mod assertion;
mod badge;
pub mod board;
mod card;
pub mod check;
mod config;
mod demo;
mod error;
mod grid;
mod heartbeat;
pub mod history;
pub mod incident;
pub mod keys;
pub mod maintenance;
mod memory;
mod metrics;
pub mod monitor;
mod network;
mod pages;
mod permit;
pub mod probe;
mod rebuild;
pub mod record;
mod roster;
mod routes;
pub mod schedule;
pub mod state;
mod tend;
mod uptime;
mod worker;

pub use config::Config;
pub use error::{Error, Result};
pub use heartbeat::Signal;
pub use schedule::Schedule;
pub use uptime::{Added, Changed, Checked, MOST_MONITORS, Uptime, topic};

/// The tables of this service.
pub const MIGRATIONS: hob_database::Migrations =
    hob_database::migrations!("uptime": "0001_monitors", "0002_history", "0003_alerts");
