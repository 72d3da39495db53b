//! The API. A handler calls the domain once and turns the outcome into a response.

mod apply;
pub(crate) mod channels;
mod heartbeats;
pub(crate) mod incidents;
mod maintenance;
mod monitors;
pub(crate) mod status_pages;
mod view;

pub(crate) use monitors::{MonitorQuery, Paused, added_monitor, edited_monitor, find_monitor, set_paused};

use hob_web::{Access, Audited, Problem, Routes};
use utoipa_axum::routes;

use crate::keys::MonitorId;
use crate::monitor::check::FieldError;
use crate::uptime::Uptime;

const READ: Access = Access::read("uptime");
const WRITE: Access = Access::write("uptime");

pub(crate) fn routes() -> Routes<Uptime> {
    Routes::new()
        .api(READ, routes!(monitors::list))
        .write(WRITE, Audited::As("uptime.apply"), routes!(apply::apply))
        .write(WRITE, Audited::As("uptime.monitor.add"), routes!(monitors::add))
        .api(READ, routes!(monitors::show))
        .write(WRITE, Audited::As("uptime.monitor.put"), routes!(monitors::put))
        .write(WRITE, Audited::As("uptime.monitor.edit"), routes!(monitors::patch))
        .write(WRITE, Audited::As("uptime.monitor.delete"), routes!(monitors::remove))
        .write(WRITE, Audited::As("uptime.monitor.check"), routes!(monitors::check))
        .write(WRITE, Audited::As("uptime.monitor.pause"), routes!(monitors::pause))
        .write(WRITE, Audited::As("uptime.monitor.resume"), routes!(monitors::resume))
        .api(READ, routes!(monitors::history))
        .api(READ, routes!(monitors::summary))
        .api(READ, routes!(incidents::list))
        .api(READ, routes!(incidents::show))
        .write(WRITE, Audited::As("uptime.incident.acknowledge"), routes!(incidents::acknowledge))
        .write(WRITE, Audited::As("uptime.incident.note"), routes!(incidents::annotate))
        .write(WRITE, Audited::As("uptime.incident.update"), routes!(incidents::publish))
        .api(READ, routes!(status_pages::list))
        .api(READ, routes!(status_pages::show))
        .write(WRITE, Audited::As("uptime.page.put"), routes!(status_pages::put))
        .write(WRITE, Audited::As("uptime.page.delete"), routes!(status_pages::remove))
        .api(READ, routes!(maintenance::list))
        .write(WRITE, Audited::As("uptime.maintenance.add"), routes!(maintenance::add))
        .write(WRITE, Audited::As("uptime.maintenance.delete"), routes!(maintenance::remove))
        .write(Access::Public, Audited::No, routes!(heartbeats::done))
        .write(Access::Public, Audited::No, routes!(heartbeats::began))
        .write(Access::Public, Audited::No, routes!(heartbeats::failed))
}

pub(crate) fn monitor_id(text: &str) -> Result<MonitorId, Problem> {
    MonitorId::new(text).map_err(|error| Problem::invalid("id", error.to_string()))
}

/// A problem that names every invalid field.
pub(crate) fn invalid(errors: Vec<FieldError>) -> Problem {
    let mut errors = errors.into_iter();
    let first = errors.next().unwrap_or_else(|| FieldError::new("", "is invalid"));
    errors.fold(Problem::invalid(first.field, first.message), |problem, next| {
        problem.with_field(next.field, next.message)
    })
}
