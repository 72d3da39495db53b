//! The API. A handler calls the domain once and turns the outcome into a response.

pub(crate) mod channels;
mod heartbeats;
mod incidents;
mod maintenance;
mod monitors;
mod view;

pub(crate) use monitors::{MonitorQuery, Paused, added_monitor, edited_monitor, find_monitor, set_paused};

use hob_web::{Access, Audit, Audited, Caller, Problem, Routes};
use utoipa_axum::routes;

use crate::keys::MonitorId;
use crate::monitor::check::FieldError;
use crate::uptime::Uptime;

const READ: Access = Access::read("uptime");
const WRITE: Access = Access::write("uptime");

pub(crate) fn routes() -> Routes<Uptime> {
    Routes::new()
        .api(READ, routes!(monitors::list))
        .write(WRITE, Audited::ByHandler, routes!(monitors::add))
        .api(READ, routes!(monitors::show))
        .write(WRITE, Audited::ByHandler, routes!(monitors::put, monitors::patch, monitors::remove))
        .write(WRITE, Audited::As("uptime.monitor.check"), routes!(monitors::check))
        .write(WRITE, Audited::ByHandler, routes!(monitors::pause))
        .write(WRITE, Audited::ByHandler, routes!(monitors::resume))
        .api(READ, routes!(monitors::history))
        .api(READ, routes!(monitors::summary))
        .api(READ, routes!(incidents::list))
        .api(READ, routes!(incidents::show))
        .write(WRITE, Audited::ByHandler, routes!(incidents::acknowledge))
        .write(WRITE, Audited::As("uptime.incident.note"), routes!(incidents::annotate))
        .api(READ, routes!(maintenance::list))
        .write(WRITE, Audited::ByHandler, routes!(maintenance::add))
        .write(WRITE, Audited::ByHandler, routes!(maintenance::remove))
        .write(Access::Public, Audited::No, routes!(heartbeats::done))
        .write(Access::Public, Audited::No, routes!(heartbeats::began))
        .write(Access::Public, Audited::No, routes!(heartbeats::failed))
}

impl Uptime {
    /// Adds an entry to the audit log. The action stays done if this fails.
    pub(crate) async fn audit(&self, caller: &Caller, action: &str, detail: &str) {
        if let Err(error) = Audit::new(self.database()).record(caller.name(), action, detail).await {
            tracing::warn!(%error, action, detail, "audit entry not written");
        }
    }
}

/// Text that is not a valid id is answered like an unknown id.
pub(crate) fn monitor_id(text: &str) -> Result<MonitorId, Problem> {
    MonitorId::new(text).map_err(|_| Problem::not_found("monitor"))
}

/// A problem that names every invalid field.
pub(crate) fn invalid(errors: Vec<FieldError>) -> Problem {
    let mut errors = errors.into_iter();
    let first = errors.next().unwrap_or_else(|| FieldError::new("", "is invalid"));
    errors.fold(Problem::invalid(first.field, first.message), |problem, next| {
        problem.with_field(next.field, next.message)
    })
}
