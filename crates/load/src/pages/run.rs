//! The page of a run: state, report, runners and log.

use askama::Template;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Redirect, Response};
use hob_expression::Escape;
use hob_web::components::{Facts, RelativeTime};
use hob_web::{Console, Page, Path, Problem, Query};

use super::run_log::{LogPage, LogQuery};
use super::{MAY_WRITE, badge, run_path};
use crate::load::Load;
use crate::routes::{RunAction, apply_action, find_run, parse_run_id};
use crate::run::logs::LogLine;
use crate::run::{Run, RunState, Runner};

/// A report contains its stylesheet inline, which the policy of the console forbids.
const REPORT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

#[derive(Template)]
#[template(path = "run.html")]
struct RunPage {
    run: Run,
    plan_name: String,
    /// Rendered HTML.
    body: String,
    runners: Vec<Runner>,
    log: LogPage,
    progress: Option<f64>,
    may_write: bool,
}

impl RunPage {
    /// `2 of 5`: the runners that joined, and the requested ones.
    fn joined(&self) -> String {
        let (joined, requested) = (self.runners.len(), self.run.runners);
        if joined == requested as usize { joined.to_string() } else { format!("{joined} of {requested}") }
    }

    fn facts(&self) -> Facts {
        let facts = Facts::new()
            .code("Run", &self.run.id)
            .text("Message", &self.run.message)
            .text("Run type", &self.run.run_type)
            .text("Plan", format!("version {}", self.run.plan_version))
            .text("Runners", self.joined())
            .markup("Queued", RelativeTime::at(self.run.queued_at.0));
        let facts = match self.progress {
            Some(progress) => facts.text("Progress", format!("{progress:.0} %")),
            None => facts,
        };
        match self.run.start_at {
            Some(start) => facts.markup("Started", RelativeTime::at(start.0)),
            None => facts,
        }
    }
}

pub(super) async fn run(
    console: Console,
    State(load): State<Load>,
    Path(id): Path<String>,
    Query(query): Query<LogQuery>,
) -> Result<Page, Problem> {
    let item = load.run_item(&parse_run_id(&id)?).await?.ok_or_else(|| Problem::not_found("run"))?;
    let run = item.run;
    let report = load.report(&run).await?.filter(|report| report.requests > 0 || run.state.is_final());
    let body = match &report {
        Some(report) => report.body().render().map_err(Problem::internal)?,
        None => String::new(),
    };
    // The log is only a view: without it, the page is still correct.
    let entries = load
        .logs()
        .read(&run.id, query.stream(), 0, u32::MAX)
        .await
        .map(|entries| entries.entries)
        .unwrap_or_default();
    let lines = entries.iter().rev().filter_map(|entry| LogLine::parse(entry));
    let log = LogPage::new(query, lines, &run_path(&run.id));
    let current = load.views().current(&run.id).await.ok().flatten();
    let page = RunPage {
        runners: load.runners(&run).await?,
        log,
        body,
        plan_name: item.plan_name,
        progress: current.map(|current| current.progress),
        run,
        may_write: console.may(&MAY_WRITE),
    };
    let (plan, href) = (page.plan_name.clone(), format!("/load/plans/{}", page.run.plan_id));
    console.page_below(&[(&plan, &href)], &id, &page)
}

pub(super) async fn report_file(
    State(load): State<Load>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let run = find_run(&load, &parse_run_id(&id)?).await?;
    let report = load.report(&run).await?.ok_or_else(|| Problem::not_found("report"))?;
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, REPORT_POLICY),
    ];
    Ok((headers, report.html()).into_response())
}

pub(super) async fn pause(load: State<Load>, id: Path<String>) -> Result<Redirect, Problem> {
    change(&load, &id.0, RunAction::Pause).await
}

pub(super) async fn resume(load: State<Load>, id: Path<String>) -> Result<Redirect, Problem> {
    change(&load, &id.0, RunAction::Resume).await
}

pub(super) async fn cancel(load: State<Load>, id: Path<String>) -> Result<Redirect, Problem> {
    change(&load, &id.0, RunAction::Cancel).await
}

async fn change(load: &Load, id: &str, action: RunAction) -> Result<Redirect, Problem> {
    let run = apply_action(load, &parse_run_id(id)?, action).await?;
    Ok(Redirect::to(&run_path(&run.id)))
}
