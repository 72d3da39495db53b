//! Uptime: checks, incidents, alerts, dashboard and status page.

pub mod assertion;
pub mod check;
pub mod probe;
