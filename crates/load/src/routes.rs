//! The API: `/api/v1/load/…`.

mod live;
mod plans;
mod results;
mod runs;

use hob_database::UnixMs;
use hob_web::{Access, Problem, Routes};
use utoipa_axum::routes;

use crate::keys::TestId;
use crate::load::Load;
use crate::run::Run;

pub(crate) use runs::{RunAction, apply_action, queue_run};

/// The name of the service in scopes and as the topic of live pages.
pub(crate) const SERVICE: &str = "load";

pub(crate) fn routes() -> Routes<Load> {
    let (read, write) = (Access::read(SERVICE), Access::write(SERVICE));
    Routes::new()
        .api(read.clone(), routes!(plans::list_plans))
        .api(write.clone(), routes!(plans::add_plan))
        .api(read.clone(), routes!(plans::show_plan))
        .api(write.clone(), routes!(plans::edit_plan))
        .api(write.clone(), routes!(plans::delete_plan))
        .api(write.clone(), routes!(runs::add_run))
        .api(read.clone(), routes!(runs::list_runs))
        .api(read.clone(), routes!(runs::show_run))
        .api(write.clone(), routes!(runs::cancel_run))
        .api(write.clone(), routes!(runs::pause_run))
        .api(write, routes!(runs::resume_run))
        .api(read.clone(), routes!(results::timeline))
        .api(read.clone(), routes!(results::logs))
        .api(read.clone(), routes!(results::report))
        .api(read, routes!(live::watch))
}

pub(crate) fn parse_run_id(text: &str) -> Result<TestId, Problem> {
    TestId::new(text).map_err(|_| Problem::not_found("run"))
}

pub(crate) async fn find_run(load: &Load, id: &TestId) -> Result<Run, Problem> {
    load.run(id).await?.ok_or_else(|| Problem::not_found("run"))
}

/// The local time, for display only.
pub(crate) fn now() -> UnixMs {
    UnixMs(jiff::Timestamp::now().as_millisecond())
}
