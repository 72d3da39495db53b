//! A run while it runs and after: what it does, its report, its runners, its log.

use askama::Template;
use axum::extract::State as AxumState;
use axum::http::header;
use axum::response::{IntoResponse, Redirect, Response};
use hob_web::look::{Badge, Facts, Tone, When};
use hob_web::{Console, Page, Path, Problem, Query};
use serde::Deserialize;

use super::badge;
use crate::load::Load;
use crate::routes::{Act, act, find, run_id};
use crate::run::logs::{Level, Line, Ring};
use crate::run::{Run, Runner, State};

const LINES: usize = 100;
/// A report carries its style within it, as the console's pages must not, and nothing else.
const REPORT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

#[derive(Template)]
#[template(path = "run.html")]
struct RunPage {
    run: Run,
    /// HTML already.
    body: String,
    runners: Vec<Runner>,
    lines: Vec<Line>,
    /// The level that is looked at; all, if none.
    level: Option<Level>,
    progress: Option<f64>,
}

impl RunPage {
    fn facts(&self) -> Facts {
        let facts = Facts::new()
            .text("What", &self.run.message)
            .text("Kind", &self.run.run_type)
            .text("Plan", format!("version {}", self.run.plan_version))
            .shown("Queued", When::at(self.run.queued_at.0));
        let facts = match self.progress {
            Some(progress) => facts.text("Progress", format!("{progress:.0} %")),
            None => facts,
        };
        match self.run.start_at {
            Some(start) => facts.shown("Started", When::at(start.0)),
            None => facts,
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct LevelWanted {
    level: Option<String>,
}

/// The levels of the log, as links name them.
const LEVELS: [(&str, &str, Option<Level>); 4] = [
    ("", "All", None),
    ("?level=info", "Info", Some(Level::Info)),
    ("?level=warn", "Warnings", Some(Level::Warn)),
    ("?level=error", "Errors", Some(Level::Error)),
];

impl LevelWanted {
    fn level(&self) -> Option<Level> {
        match self.level.as_deref() {
            Some("info") => Some(Level::Info),
            Some("warn") => Some(Level::Warn),
            Some("error") => Some(Level::Error),
            _ => None,
        }
    }
}

pub(super) async fn run(
    console: Console,
    AxumState(tests): AxumState<Load>,
    Path(id): Path<String>,
    Query(wanted): Query<LevelWanted>,
) -> Result<Page, Problem> {
    let run = find(&tests, &run_id(&id)?).await?;
    let level = wanted.level();
    // Errors have a ring of their own, from which no other line pushes them out.
    let ring = if level == Some(Level::Error) { Ring::Errors } else { Ring::All };
    let report = tests.report(&run).await?.filter(|report| report.requests > 0 || run.state.is_final());
    let body = match &report {
        Some(report) => report.body().render().map_err(Problem::internal)?,
        None => String::new(),
    };
    // Only a view; without it the page is still the truth.
    let entries = tests
        .logs()
        .read(&run.id, ring, 0, u32::MAX)
        .await
        .map(|entries| entries.entries)
        .unwrap_or_default();
    let lines = entries.iter().rev().filter_map(|entry| serde_json::from_slice::<Line>(entry).ok());
    let lines = lines.filter(|line| level.is_none_or(|level| line.level == level)).take(LINES);
    let current = tests.views().current(&run.id).await.ok().flatten();
    let page = RunPage {
        runners: tests.runners(&run).await?,
        lines: lines.collect(),
        body,
        level,
        progress: current.map(|current| current.progress),
        run,
    };
    console.page(&id, &page)
}

pub(super) async fn report_file(
    AxumState(tests): AxumState<Load>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let run = find(&tests, &run_id(&id)?).await?;
    let report = tests.report(&run).await?.ok_or_else(|| Problem::not_found("report"))?;
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, REPORT_POLICY),
    ];
    Ok((headers, report.html()).into_response())
}

pub(super) async fn pause(tests: AxumState<Load>, id: Path<String>) -> Result<Redirect, Problem> {
    change(&tests, &id.0, Act::Pause).await
}

pub(super) async fn resume(tests: AxumState<Load>, id: Path<String>) -> Result<Redirect, Problem> {
    change(&tests, &id.0, Act::Resume).await
}

pub(super) async fn cancel(tests: AxumState<Load>, id: Path<String>) -> Result<Redirect, Problem> {
    change(&tests, &id.0, Act::Cancel).await
}

async fn change(tests: &Load, id: &str, what: Act) -> Result<Redirect, Problem> {
    let run = act(tests, &run_id(id)?, what).await?;
    Ok(Redirect::to(&format!("/load/runs/{}", run.id)))
}

fn level(level: &Level) -> Badge {
    match level {
        Level::Info => Tone::Idle.badge("info"),
        Level::Warn => Tone::Warn.badge("warn"),
        Level::Error => Tone::Bad.badge("error"),
    }
}
