//! The uptime service: its contract on every store and database, the probe against good and hostile targets, alerts, and
//! the API and pages of the running service.

mod alerts;
mod api;
mod badges;
mod browser;
mod dns;
mod flow;
mod foreign;
mod fuzz;
mod harness;
mod heartbeats;
mod history;
mod hostile;
mod http;
mod identity;
mod incidents;
mod mail;
mod memory;
mod model;
mod outbound;
mod pages;
mod rebuild;
mod record;
mod rewind;
mod schedule;
mod secrets;
mod service;
mod status;
mod target;
mod wrong_types;

use hob_fixtures::Needs;

pub(crate) const NEEDS: Needs = Needs {
    schemas: &[("schemas/uptime.toml", include_str!("../../../../schemas/uptime.toml"))],
    migrations: &[hob_uptime::MIGRATIONS],
};
