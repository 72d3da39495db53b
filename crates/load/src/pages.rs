//! The console pages of load.

mod compare;
mod editor;
mod run;
mod run_log;

use askama::Template;
use axum::extract::State;
use hob_database::PageRequest;
use hob_expression::Escape;
use hob_web::components::{Badge, Empty, Pager, Quantity, RelativeTime, Tone, Unit};
use hob_web::{Access, Audited, Console, Page, Paging, Problem, Query, Routes, Scope};

use self::compare::compare;
use self::editor::{add_plan, add_run, check_plan, delete_plan, dry_run, edit_plan, new_plan, plan};
use self::run::{cancel, pause, report_file, resume, run};
use crate::keys::TestId;
use crate::load::Load;
use crate::plan::catalog::PlanEntry;
use crate::routes::SERVICE;
use crate::run::item::{RunFigures, RunItem};
use crate::run::{Run, RunState};

/// What the buttons require.
const MAY_WRITE: Scope = Scope::write(SERVICE);

/// Runs in a list.
const RUNS: u16 = 20;

pub(crate) fn routes() -> Routes<Load> {
    let (read, write) = (Access::read(SERVICE), Access::write(SERVICE));
    Routes::new()
        .page(read.clone(), "/load", home)
        .page(write.clone(), "/load/plans/new", new_plan)
        .action(write.clone(), Audited::As("load.plan.add"), "/load/plans", add_plan)
        .action(write.clone(), Audited::No, "/load/plans/check", check_plan)
        .action(write.clone(), Audited::As("load.plan.dry_run"), "/load/plans/dry-run", dry_run)
        .page(read.clone(), "/load/plans/{id}", plan)
        .action(write.clone(), Audited::As("load.plan.edit"), "/load/plans/{id}", edit_plan)
        .action(write.clone(), Audited::As("load.run.start"), "/load/plans/{id}/runs", add_run)
        .action(write.clone(), Audited::As("load.plan.delete"), "/load/plans/{id}/delete", delete_plan)
        .page(read.clone(), "/load/runs/{id}", run)
        .page(read.clone(), "/load/runs/{id}/report.html", report_file)
        .action(write.clone(), Audited::As("load.run.pause"), "/load/runs/{id}/pause", pause)
        .action(write.clone(), Audited::As("load.run.resume"), "/load/runs/{id}/resume", resume)
        .action(write, Audited::As("load.run.cancel"), "/load/runs/{id}/cancel", cancel)
        .page(read, "/load/compare", compare)
}

#[derive(Template)]
#[template(path = "load.html")]
struct Home {
    plans: Vec<PlanEntry>,
    pager: Pager,
    pending: Vec<Run>,
    runs: Vec<RunItem>,
    may_write: bool,
}

impl Home {
    fn no_plans(&self) -> Empty {
        let empty = Empty::new(
            "No plans yet",
            "A plan defines requests, their rate, and thresholds for the results.",
        );
        if self.may_write { empty.link("New plan", "/load/plans/new") } else { empty }
    }
}

async fn home(
    console: Console,
    State(load): State<Load>,
    Query(paging): Query<Paging>,
) -> Result<Page, Problem> {
    let plans = load.plans(&paging.request()?).await?;
    let pager = Pager {
        first: paging.after.map(|_| "/load".to_owned()),
        next: plans.next.map(|cursor| format!("/load?after={cursor}")),
    };
    let mut pending = load.pending().await?;
    pending.truncate(100);
    let runs = load.run_items(None, &PageRequest::first(RUNS)).await?.rows;
    console
        .page("Load", &Home { plans: plans.rows, pager, pending, runs, may_write: console.may(&MAY_WRITE) })
}

/// The page of a run. The id may come from another client and contain any character.
pub(crate) fn run_path(id: &TestId) -> String {
    format!("/load/runs/{}", Escape::Url.apply(id.as_str()))
}

/// The comparison of a run with the previous run of the same plan, or with one that the reader chooses. `position` counts from
/// 1 in a list with the newest run first.
fn compare_path(runs: &[RunItem], position: &usize) -> String {
    let Some(item) = runs.get(*position - 1) else { return String::new() };
    let previous = runs[*position..].iter().find(|other| other.run.plan_id == item.run.plan_id);
    let encoded = |item: &RunItem| Escape::Url.apply(item.run.id.as_str());
    match previous {
        Some(previous) => format!("/load/compare?a={}&b={}", encoded(previous), encoded(item)),
        None => format!("/load/compare?b={}", encoded(item)),
    }
}

fn rate(figures: &RunFigures) -> Quantity {
    Unit::PerSecond.of(figures.rate)
}

/// A run without a successful request has no latency.
fn p95(figures: &RunFigures) -> Quantity {
    let has_latency = figures.requests > figures.failed;
    Unit::Millis.of(if has_latency { figures.p95 } else { f64::NAN })
}

fn badge(state: &RunState) -> Badge {
    let tone = match state {
        RunState::Pending | RunState::Cancelled => Tone::Idle,
        RunState::Starting | RunState::Running | RunState::Stopping => Tone::Busy,
        RunState::Paused => Tone::Warn,
        RunState::Completed => Tone::Good,
        RunState::Failed | RunState::Lost => Tone::Bad,
    };
    tone.badge(state.as_str())
}
