//! The API: `/api/v1/load/…`.

mod live;
mod plans;
mod results;
mod runs;

use hob_web::{Access, Audited, Problem, Routes};
use utoipa_axum::routes;

use crate::keys::TestId;
use crate::load::Load;
use crate::run::Run;

pub(crate) use plans::run_once;
pub(crate) use runs::{RunAction, apply_action, queue_run};

/// The name of the service in scopes and as the topic of live pages.
pub(crate) const SERVICE: &str = "load";

pub(crate) fn routes() -> Routes<Load> {
    let (read, write) = (Access::read(SERVICE), Access::write(SERVICE));
    Routes::new()
        .api(read.clone(), routes!(plans::list_plans))
        .write(write.clone(), Audited::As("load.plan.add"), routes!(plans::add_plan))
        .write(write.clone(), Audited::As("load.plan.dry_run"), routes!(plans::dry_run))
        .api(read.clone(), routes!(plans::show_plan))
        .write(write.clone(), Audited::As("load.plan.edit"), routes!(plans::edit_plan))
        .write(write.clone(), Audited::As("load.plan.delete"), routes!(plans::delete_plan))
        .write(write.clone(), Audited::As("load.run.start"), routes!(runs::add_run))
        .api(read.clone(), routes!(runs::list_runs))
        .api(read.clone(), routes!(runs::show_run))
        .write(write.clone(), Audited::As("load.run.cancel"), routes!(runs::cancel_run))
        .write(write.clone(), Audited::As("load.run.pause"), routes!(runs::pause_run))
        .write(write, Audited::As("load.run.resume"), routes!(runs::resume_run))
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
