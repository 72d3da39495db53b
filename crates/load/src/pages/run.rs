//! The page of a run: state, report, runners and log.

use askama::Template;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Redirect, Response};
use hob_expression::Escape;
use hob_web::components::{Badge, Facts, RelativeTime, Tone};
use hob_web::{Console, Page, Path, Problem, Query};
use serde::Deserialize;

use super::{MAY_WRITE, badge, run_path};
use crate::load::Load;
use crate::routes::{RunAction, apply_action, find_run, parse_run_id};
use crate::run::logs::{LogLevel, LogLine, LogStream};
use crate::run::{Run, RunState, Runner};

const LINES: usize = 100;
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
    lines: Vec<LogLine>,
    /// The selected level; `None` for all.
    level: Option<LogLevel>,
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

#[derive(Debug, Deserialize)]
pub(super) struct LevelQuery {
    level: Option<String>,
}

/// The query, the label and the level of each filter of the log.
const LEVELS: [(&str, &str, Option<LogLevel>); 4] = [
    ("", "All", None),
    ("?level=info", "Info", Some(LogLevel::Info)),
    ("?level=warn", "Warnings", Some(LogLevel::Warn)),
    ("?level=error", "Errors", Some(LogLevel::Error)),
];

impl LevelQuery {
    fn level(&self) -> Option<LogLevel> {
        match self.level.as_deref() {
            Some("info") => Some(LogLevel::Info),
            Some("warn") => Some(LogLevel::Warn),
            Some("error") => Some(LogLevel::Error),
            _ => None,
        }
    }
}

pub(super) async fn run(
    console: Console,
    State(load): State<Load>,
    Path(id): Path<String>,
    Query(query): Query<LevelQuery>,
) -> Result<Page, Problem> {
    let item = load.run_item(&parse_run_id(&id)?).await?.ok_or_else(|| Problem::not_found("run"))?;
    let run = item.run;
    let level = query.level();
    // Errors have their own list, so that other lines cannot displace them.
    let stream = if level == Some(LogLevel::Error) { LogStream::Errors } else { LogStream::All };
    let report = load.report(&run).await?.filter(|report| report.requests > 0 || run.state.is_final());
    let body = match &report {
        Some(report) => report.body().render().map_err(Problem::internal)?,
        None => String::new(),
    };
    // The log is only a view: without it, the page is still correct.
    let entries = load
        .logs()
        .read(&run.id, stream, 0, u32::MAX)
        .await
        .map(|entries| entries.entries)
        .unwrap_or_default();
    let lines = entries.iter().rev().filter_map(|entry| LogLine::parse(entry));
    let lines = lines.filter(|line| level.is_none_or(|level| line.level == level)).take(LINES);
    let current = load.views().current(&run.id).await.ok().flatten();
    let page = RunPage {
        runners: load.runners(&run).await?,
        lines: lines.collect(),
        body,
        level,
        plan_name: item.plan_name,
        progress: current.map(|current| current.progress),
        run,
        may_write: console.may(&MAY_WRITE),
    };
    console.page(&id, &page)
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

fn level(level: &LogLevel) -> Badge {
    match level {
        LogLevel::Info => Tone::Idle.badge("info"),
        LogLevel::Warn => Tone::Warn.badge("warn"),
        LogLevel::Error => Tone::Bad.badge("error"),
    }
}
