//! The console's pages of load tests.

use askama::Template;
use axum::extract::State as AxumState;
use axum::http::header;
use axum::response::{IntoResponse, Redirect, Response};
use hob_records::{PageRequest, UnixMs};
use hob_web::chart::Unit;
use hob_web::look::{Badge, Choice, Empty, Facts, Field, Pager, Quantity, Tone, When};
use hob_web::{Access, Console, Form, Page, Paging, Path, Problem, Query, Routes};
use serde::Deserialize;

use crate::charts::Charts;
use crate::load_tests::{LoadTests, Wish};
use crate::logs::{Level, Line, Ring};
use crate::plan::{Files, Format, Mistake, Plan, Written};
use crate::plans::{Edited, PlanEntry, PlanId};
use crate::report::Report;
use crate::routes::{Act, SERVICE, act, find, queue, run_id};
use crate::run::{Run, Runner, State};
use crate::spread::Summary;

const EXAMPLE: &str = include_str!("pages/example.toml");
const RUNS: u16 = 20;
const LINES: usize = 100;

pub(crate) fn routes(tests: &LoadTests) -> Routes {
    let (read, write) = (Access::read(SERVICE), Access::write(SERVICE));
    Routes::new()
        .nav("Load tests", "/load")
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
        .with_state(tests.clone())
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
    AxumState(tests): AxumState<LoadTests>,
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

/// The editor: a new plan, or a version of one.
#[derive(Template)]
#[template(path = "plan.html")]
struct Editor {
    plan: Option<PlanEntry>,
    version: u32,
    mistake: Option<Mistake>,
    action: String,
    source: Field,
    format: Field,
    files: Files,
    file_name: Field,
    file: Field,
    run_type: Field,
    priority: Field,
    runners: Field,
    max_users: Field,
    versions: Vec<(u32, UnixMs)>,
    runs: Vec<Run>,
}

/// What the editor's form sends.
#[derive(Debug, Deserialize)]
struct Draft {
    source: String,
    format: Format,
    version: Option<u32>,
    /// A file to be put beside those that the plan has, if it has a name.
    #[serde(default)]
    file_name: String,
    #[serde(default)]
    file: String,
}

impl Draft {
    /// The plan that it makes of one with these files.
    fn written(&self, mut files: Files) -> Written {
        let name = self.file_name.trim();
        if !name.is_empty() {
            files.put(name, &self.file);
        }
        Written { source: self.source.clone(), format: self.format, files }
    }
}

impl Editor {
    fn new(draft: &Written, mistake: Option<Mistake>) -> Self {
        let line = mistake.as_ref().map(|mistake| format!("line {}", mistake.line));
        let choices = [("toml", "TOML"), ("json", "JSON")].map(|(value, label)| choice(value, label)).into();
        Self {
            plan: None,
            version: 0,
            mistake,
            action: "/load/plans".to_owned(),
            source: Field::lines("source", "Plan")
                .value(&draft.source)
                .error(line)
                .most(Plan::MOST_BYTES)
                .required(),
            format: Field::choice("format", "Language", choices).value(draft.format),
            files: draft.files.clone(),
            file_name: Field::text("file_name", "Name of a file").placeholder("users.csv"),
            file: Field::lines("file", "What is in it").most(Files::MOST_BYTES).hint(
                "Put beside the plan, or in the place of the file of that name; an empty one is taken away.",
            ),
            run_type: Field::text("run_type", "Kind"),
            priority: Field::number("priority", "Priority").value(0).between(-1000, 1000),
            runners: Field::number("runners", "Runners").value(1).between(1, 64),
            max_users: Field::number("max_users", "At most users").between(1, 20_000),
            versions: Vec::new(),
            runs: Vec::new(),
        }
    }

    /// The editor of a plan that is there.
    async fn of(
        tests: &LoadTests,
        id: PlanId,
        version: Option<u32>,
        draft: &Written,
        mistake: Option<Mistake>,
    ) -> Result<Self, Problem> {
        let entry = tests.plan_entry(id).await?.ok_or_else(|| Problem::not_found("plan"))?;
        let kinds = draft.read().map(|plan| plan.run_types).unwrap_or_default();
        let kinds: Vec<Choice> = kinds.iter().map(|kind| choice(&kind.name, &kind.name)).collect();
        let mut editor = Self::new(draft, mistake);
        editor.action = format!("/load/plans/{id}");
        editor.run_type = Field::choice("run_type", "Kind", kinds);
        editor.version = version.unwrap_or(entry.version);
        editor.versions = tests.plan_versions(id).await?;
        editor.runs = tests.runs(Some(id), &PageRequest::first(RUNS)).await?.rows;
        editor.plan = Some(entry);
        Ok(editor)
    }

    fn title(&self) -> &str {
        self.plan.as_ref().map_or("New plan", |plan| &plan.name)
    }
}

fn choice(value: &str, label: &str) -> Choice {
    Choice { value: value.to_owned(), label: label.to_owned() }
}

async fn new_plan(console: Console) -> Result<Page, Problem> {
    console.page("New plan", &Editor::new(&Written::toml(EXAMPLE), None))
}

async fn add_plan(
    console: Console,
    AxumState(tests): AxumState<LoadTests>,
    Form(draft): Form<Draft>,
) -> Result<Response, Problem> {
    let draft = draft.written(Files::default());
    match tests.add_plan(&draft).await {
        Ok(id) => Ok(Redirect::to(&format!("/load/plans/{id}")).into_response()),
        Err(crate::Error::Plan(mistake)) => {
            let editor = Editor::new(&draft, Some(mistake));
            Ok(console.page("New plan", &editor)?.into_response())
        }
        Err(error) => Err(error.into()),
    }
}

#[derive(Debug, Deserialize)]
struct Version {
    version: Option<u32>,
}

async fn plan(
    console: Console,
    AxumState(tests): AxumState<LoadTests>,
    Path(id): Path<i64>,
    Query(wanted): Query<Version>,
) -> Result<Page, Problem> {
    let id = PlanId(id);
    let entry = tests.plan_entry(id).await?.ok_or_else(|| Problem::not_found("plan"))?;
    let version = wanted.version.unwrap_or(entry.version);
    let draft = tests.plan_version(id, version).await?.ok_or_else(|| Problem::not_found("version"))?;
    let editor = Editor::of(&tests, id, Some(version), &draft, None).await?;
    console.page(editor.title(), &editor)
}

async fn edit_plan(
    console: Console,
    AxumState(tests): AxumState<LoadTests>,
    Path(id): Path<i64>,
    Form(draft): Form<Draft>,
) -> Result<Response, Problem> {
    let id = PlanId(id);
    // The version that was opened gives the files, though it may not be the newest.
    let before = match draft.version {
        Some(version) => tests.plan_version(id, version).await?.map(|plan| plan.files),
        None => tests.plan(id).await?.map(|plan| plan.files),
    };
    let (version, draft) = (draft.version, draft.written(before.unwrap_or_default()));
    match tests.edit_plan(id, None, &draft).await {
        Ok(Edited::Version(_)) => Ok(Redirect::to(&format!("/load/plans/{id}")).into_response()),
        Ok(Edited::Gone) => Err(Problem::not_found("plan")),
        Ok(Edited::Outdated(version)) => {
            Err(Problem::conflict(format!("The plan has the version {version} by now.")))
        }
        Err(crate::Error::Plan(mistake)) => {
            let editor = Editor::of(&tests, id, version, &draft, Some(mistake)).await?;
            Ok(console.page(editor.title(), &editor)?.into_response())
        }
        Err(error) => Err(error.into()),
    }
}

async fn delete_plan(
    AxumState(tests): AxumState<LoadTests>,
    Path(id): Path<i64>,
) -> Result<Redirect, Problem> {
    tests.delete_plan(PlanId(id)).await?;
    Ok(Redirect::to("/load"))
}

/// What the form for a run sends; fields may be empty.
#[derive(Debug, Deserialize)]
struct RunForm {
    run_type: String,
    priority: String,
    runners: String,
    max_users: String,
}

async fn add_run(
    AxumState(tests): AxumState<LoadTests>,
    Path(id): Path<i64>,
    Form(form): Form<RunForm>,
) -> Result<Redirect, Problem> {
    let number = |field: &str, text: &str| match text.trim() {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| Problem::invalid(field, "a whole number")),
    };
    let wish = Wish {
        run_type: Some(form.run_type).filter(|kind| !kind.is_empty()),
        priority: number("priority", &form.priority)?.unwrap_or(0),
        max_users: number("max_users", &form.max_users)?.and_then(|users: i32| u32::try_from(users).ok()),
        runners: number("runners", &form.runners)?.and_then(|runners: i32| u32::try_from(runners).ok()),
    };
    let run = queue(&tests, PlanId(id), &wish).await?;
    Ok(Redirect::to(&format!("/load/runs/{}", run.id)))
}

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
struct LevelWanted {
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

async fn run(
    console: Console,
    AxumState(tests): AxumState<LoadTests>,
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

async fn report_file(
    AxumState(tests): AxumState<LoadTests>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let run = find(&tests, &run_id(&id)?).await?;
    let report = tests.report(&run).await?.ok_or_else(|| Problem::not_found("report"))?;
    let kind = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
    Ok((kind, report.html()).into_response())
}

async fn pause(tests: AxumState<LoadTests>, id: Path<String>) -> Result<Redirect, Problem> {
    change(&tests, &id.0, Act::Pause).await
}

async fn resume(tests: AxumState<LoadTests>, id: Path<String>) -> Result<Redirect, Problem> {
    change(&tests, &id.0, Act::Resume).await
}

async fn cancel(tests: AxumState<LoadTests>, id: Path<String>) -> Result<Redirect, Problem> {
    change(&tests, &id.0, Act::Cancel).await
}

async fn change(tests: &LoadTests, id: &str, what: Act) -> Result<Redirect, Problem> {
    let run = act(tests, &run_id(id)?, what).await?;
    Ok(Redirect::to(&format!("/load/runs/{}", run.id)))
}

#[derive(Template)]
#[template(path = "compare.html")]
struct Compare {
    a_id: String,
    b_id: String,
    a: Charts,
    b: Charts,
    rows: Vec<Row>,
}

/// A number of both runs.
struct Row {
    name: &'static str,
    unit: Unit,
    values: (f64, f64),
}

impl Row {
    fn first(&self) -> Quantity {
        self.unit.of(self.values.0)
    }

    fn second(&self) -> Quantity {
        self.unit.of(self.values.1)
    }

    fn change(&self) -> String {
        let (before, after) = self.values;
        if before == 0.0 {
            return "–".to_owned();
        }
        format!("{:+.1} %", (after - before) / before * 100.0)
    }
}

#[derive(Debug, Deserialize)]
struct Pair {
    a: String,
    b: String,
}

async fn compare(
    console: Console,
    AxumState(tests): AxumState<LoadTests>,
    Query(pair): Query<Pair>,
) -> Result<Page, Problem> {
    let mut reports = Vec::new();
    for id in [&pair.a, &pair.b] {
        let run = find(&tests, &run_id(id)?).await?;
        reports.push(tests.report(&run).await?.ok_or_else(|| Problem::not_found("report"))?);
    }
    let (a, b) = (&reports[0], &reports[1]);
    let latency = |name, value: fn(&Summary) -> f64| Row {
        name,
        unit: Unit::Millis,
        values: (value(&a.latency), value(&b.latency)),
    };
    let number = |name, unit, value: fn(&Report) -> f64| Row { name, unit, values: (value(a), value(b)) };
    let rows = vec![
        number("Requests", Unit::Count, |report| report.requests as f64),
        number("Rate", Unit::PerSecond, |report| report.rate),
        number("Failed", Unit::Ratio, |report| report.error_rate / 100.0),
        latency("p50", |latency| latency.p50),
        latency("p95", |latency| latency.p95),
        latency("p99", |latency| latency.p99),
        latency("p99.9", |latency| latency.p999),
        latency("Max", |latency| latency.max),
    ];
    let page = Compare { a: Charts::new(a), b: Charts::new(b), rows, a_id: pair.a, b_id: pair.b };
    console.page("Two runs side by side", &page)
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

fn level(level: &Level) -> Badge {
    match level {
        Level::Info => Tone::Idle.badge("info"),
        Level::Warn => Tone::Warn.badge("warn"),
        Level::Error => Tone::Bad.badge("error"),
    }
}
