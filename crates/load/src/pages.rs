//! The console's pages of load tests.

mod compare;
mod editor;
mod run;

use askama::Template;
use axum::extract::State as AxumState;
use hob_database::PageRequest;
use hob_web::look::{Badge, Empty, Pager, Tone, When};
use hob_web::{Access, Console, Page, Paging, Problem, Query, Routes};

use self::compare::compare;
use self::editor::{add_plan, add_run, delete_plan, edit_plan, new_plan, plan};
use self::run::{cancel, pause, report_file, resume, run};
use crate::load::Load;
use crate::plan::catalog::PlanEntry;
use crate::routes::SERVICE;
use crate::run::{Run, State};

const RUNS: u16 = 20;

pub(crate) fn routes() -> Routes<Load> {
    let (read, write) = (Access::read(SERVICE), Access::write(SERVICE));
    Routes::new()
        .page(read.clone(), "/load", home)
        .page(read.clone(), "/load/plans/new", new_plan)
        .action(write.clone(), "/load/plans", add_plan)
        .page(read.clone(), "/load/plans/{id}", plan)
        .action(write.clone(), "/load/plans/{id}", edit_plan)
        .action(write.clone(), "/load/plans/{id}/runs", add_run)
        .action(write.clone(), "/load/plans/{id}/delete", delete_plan)
        .page(read.clone(), "/load/runs/{id}", run)
        .page(read.clone(), "/load/runs/{id}/report.html", report_file)
        .action(write.clone(), "/load/runs/{id}/pause", pause)
        .action(write.clone(), "/load/runs/{id}/resume", resume)
        .action(write, "/load/runs/{id}/cancel", cancel)
        .page(read, "/load/compare", compare)
}

#[derive(Template)]
#[template(path = "load.html")]
struct Home {
    plans: Vec<PlanEntry>,
    pager: Pager,
    waiting: Vec<Run>,
    runs: Vec<Run>,
}

impl Home {
    fn no_plans(&self) -> Empty {
        Empty::new("No plans yet", "A plan says what is requested, how often, and what is good enough.")
            .link("Write one", "/load/plans/new")
    }
}

async fn home(
    console: Console,
    AxumState(tests): AxumState<Load>,
    Query(paging): Query<Paging>,
) -> Result<Page, Problem> {
    let plans = tests.plans(&paging.request()?).await?;
    let pager = Pager {
        first: paging.after.map(|_| "/load".to_owned()),
        next: plans.next.map(|cursor| format!("/load?after={cursor}")),
    };
    let mut waiting = tests.waiting().await?;
    waiting.truncate(100);
    let runs = tests.runs(None, &PageRequest::first(RUNS)).await?.rows;
    console.page("Load tests", &Home { plans: plans.rows, pager, waiting, runs })
}

/// The run of the same plan before the one at this place of a list, counted from 1: the list begins with the newest.
fn before<'a>(runs: &'a [Run], place: &usize) -> Option<&'a Run> {
    let plan = runs.get(*place - 1)?.plan_id;
    runs[*place..].iter().find(|run| run.plan_id == plan)
}

fn badge(state: &State) -> Badge {
    let tone = match state {
        State::Pending | State::Cancelled => Tone::Idle,
        State::Starting | State::Running | State::Stopping => Tone::Busy,
        State::Paused => Tone::Warn,
        State::Completed => Tone::Good,
        State::Failed | State::Lost => Tone::Bad,
    };
    tone.badge(state.to_string().to_lowercase())
}
