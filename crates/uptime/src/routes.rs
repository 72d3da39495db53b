//! The API. A handler calls the domain once and turns the outcome into a response.

pub(crate) mod channels;
mod heartbeats;
mod incidents;
mod maintenance;
mod monitors;
mod view;

pub(crate) use monitors::{MonitorQuery, Paused, added_monitor, edited_monitor, find_monitor, set_paused};

use hob_web::{Access, Audit, Caller, Problem, Routes};
use utoipa_axum::routes;

use crate::keys::MonitorId;
use crate::monitor::check::FieldError;
use crate::uptime::Uptime;

const READ: Access = Access::read("uptime");
const WRITE: Access = Access::write("uptime");

pub(crate) fn routes() -> Routes<Uptime> {
    Routes::new()
        .api(READ, routes!(monitors::list))
        .api(WRITE, routes!(monitors::add))
        .api(READ, routes!(monitors::show))
        .api(WRITE, routes!(monitors::put, monitors::patch, monitors::remove))
        .api(WRITE, routes!(monitors::check))
        .api(WRITE, routes!(monitors::pause))
        .api(WRITE, routes!(monitors::resume))
        .api(READ, routes!(monitors::history))
        .api(READ, routes!(monitors::summary))
        .api(READ, routes!(incidents::list))
        .api(READ, routes!(incidents::show))
        .api(WRITE, routes!(incidents::acknowledge))
        .api(WRITE, routes!(incidents::annotate))
        .api(READ, routes!(maintenance::list))
        .api(WRITE, routes!(maintenance::add))
        .api(WRITE, routes!(maintenance::remove))
        .api(Access::Public, routes!(heartbeats::done))
        .api(Access::Public, routes!(heartbeats::began))
        .api(Access::Public, routes!(heartbeats::failed))
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
