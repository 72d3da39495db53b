//! The API. A handler asks the domain one thing, and chooses words for what it answers.

pub(crate) mod channels;
mod heartbeats;
mod incidents;
mod maintenance;
mod monitors;
mod view;

pub(crate) use monitors::{Paused, Wanted, added, changed, known, set_paused};

use hob_web::{Access, Audit, Caller, Problem, Routes};
use utoipa_axum::routes;

use crate::keys::MonitorId;
use crate::monitor::check::Invalid;
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
    /// Writes down who did what. That it was done is not undone when this fails.
    pub(crate) async fn note(&self, caller: &Caller, what: &str, detail: &str) {
        if let Err(error) = Audit::new(self.database()).record(caller.name(), what, detail).await {
            tracing::warn!(%error, what, detail, "not in the audit trail");
        }
    }
}

/// What cannot be an id is nobody's id.
pub(crate) fn monitor_id(text: &str) -> Result<MonitorId, Problem> {
    MonitorId::new(text).map_err(|_| Problem::not_found("monitor"))
}

/// All that is wrong, each at its field.
pub(crate) fn invalid(wrong: Vec<Invalid>) -> Problem {
    let mut wrong = wrong.into_iter();
    let first = wrong.next().unwrap_or_else(|| Invalid::new("", "cannot be"));
    wrong.fold(Problem::invalid(first.field, first.message), |problem, next| {
        problem.with_field(next.field, next.message)
    })
}
