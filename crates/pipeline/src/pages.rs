//! Console pages: runs with their progress, quotas with their usage, failures with samples.

use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::response::Redirect;
use hob_database::{PageRequest, UnixMs};
use hob_web::chart::Bars;
use hob_web::components::{CopyButton, Empty, Field, Markup, Quantity, RelativeTime, Tone, Unit};
use hob_web::{Access, AuditDetail, Audited, Console, Form, Json, Page, Path, Problem, Query, Routes, Scope};
use serde::{Deserialize, Serialize};

use crate::database::{claims, throughput};
use crate::error::Result;
use crate::pipeline::Pipelines;
use crate::plan::retry::FailureClass;
use crate::plan::{Plan, PlanName, StoredPlan};
use crate::quota::{QuotaName, QuotaUsage, millis};
use crate::routes::run_id;
use crate::run::forecast::{Forecast, PlanCost};
use crate::run::item::{self, ItemState, ItemSummary, Progress};
use crate::run::preview::PreviewItem;
use crate::run::{Run, RunAction, RunId, RunState};
use crate::sink::Output;

/// Time range and resolution of the charts.
pub(crate) const CHART_RANGE: Duration = Duration::from_secs(1800);
pub(crate) const CHART_STEP: Duration = item::THROUGHPUT_STEP;
pub(crate) const CHART_POINTS: usize = (CHART_RANGE.as_millis() / CHART_STEP.as_millis()) as usize;
/// Runs on the overview page. Older ones are available through the API.
pub(crate) const RUNS_SHOWN: u16 = 25;
const SAMPLES_PER_CLASS: u16 = 5;
/// A plan to start from.
const TEMPLATE: &str = include_str!("../../../examples/pipelines/courtlistener.toml");

pub(crate) fn routes() -> Routes<Pipelines> {
    let (read, write) = (|| Access::read("pipelines"), || Access::write("pipelines"));
    Routes::new()
        .page(read(), "/pipelines", overview)
        .action(write(), Audited::As("pipeline.plan.save"), "/pipelines", save_plan)
        .action(write(), Audited::No, "/pipelines/check", check_plan)
        .action(write(), Audited::No, "/pipelines/dry-run", dry_run)
        .action(write(), Audited::As("pipeline.run.start"), "/pipelines/{plan}/start", start)
        .page(read(), "/pipelines/runs/{id}", show_run)
        .action(write(), Audited::As("pipeline.run.change"), "/pipelines/runs/{id}/{action}", change)
}

#[derive(Template)]
#[template(path = "pipelines.html")]
struct Overview {
    runs: Vec<RunRow>,
    plans: Vec<StoredPlan>,
    quotas: Vec<QuotaPanel>,
    new_plan: Field,
    dry_run: Option<DryRun>,
    /// The text of the new plan is not saved.
    is_draft: bool,
    may_write: bool,
    empty: Empty,
}

/// What a run of the new plan would do.
struct DryRun {
    name: PlanName,
    quota: QuotaName,
    cost: PlanCost,
    items: Vec<PreviewItem>,
}

struct RunRow {
    run: Run,
    progress: Progress,
    /// Expected time until the run is done, if known.
    remaining: Option<Quantity>,
}

struct QuotaPanel {
    usage: QuotaUsage,
    history: Markup,
}

#[derive(Template)]
#[template(path = "pipeline_run.html")]
struct RunPage {
    run: Run,
    progress: Progress,
    forecast: Option<Forecast>,
    quota: Option<QuotaPanel>,
    throughput: Markup,
    outputs: Vec<Output>,
    workers: Vec<Worker>,
    failures: Vec<FailureGroup>,
    may_write: bool,
}

struct Worker {
    name: String,
    items: u64,
    since: UnixMs,
}

struct FailureGroup {
    class: FailureClass,
    dead_letters: u64,
    waiting: u64,
    samples: Vec<ItemSummary>,
}

#[derive(Deserialize)]
struct PlanForm {
    source: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ChangeForm {
    class: Option<String>,
}

#[derive(Deserialize)]
struct TemplateQuery {
    template: Option<String>,
    /// The saved plan to edit.
    plan: Option<PlanName>,
}

async fn overview(
    State(pipelines): State<Pipelines>,
    console: Console,
    Query(query): Query<TemplateQuery>,
) -> Result<Page, Problem> {
    let draft = match (&query.plan, query.template.as_deref()) {
        (Some(plan), _) => pipelines.plan(plan).await?.text,
        (None, Some("courtlistener")) => TEMPLATE.to_owned(),
        _ => String::new(),
    };
    let page = pipelines.overview((&draft, None), may_write(&console)).await?;
    console.page("Pipelines", &page)
}

/// Saves the plan, or shows the page again with the error.
async fn save_plan(
    State(pipelines): State<Pipelines>,
    console: Console,
    Form(form): Form<PlanForm>,
) -> Result<Result<(AuditDetail, Redirect), Page>, Problem> {
    let invalid = match pipelines.put_plan(&form.source).await {
        Ok(plan) => {
            pipelines.notify_pages();
            return Ok(Ok((AuditDetail::Of(plan.name.to_string()), Redirect::to("/pipelines"))));
        }
        Err(error) => mistake(error)?,
    };
    let mut page = pipelines.overview((&form.source, Some(invalid)), may_write(&console)).await?;
    page.is_draft = true;
    console.page("Pipelines", &page).map(Err)
}

/// The text of an error that the author of a plan can correct.
fn mistake(error: crate::Error) -> Result<String, Problem> {
    match error {
        crate::Error::Plan(_)
        | crate::Error::Invalid { .. }
        | crate::Error::Secret { .. }
        | crate::Error::NotFound { .. } => Ok(error.to_string()),
        // Without the folder of the server.
        crate::Error::File { source, .. } => Ok(format!("cannot read the file of the source: {source}")),
        error => Err(error.into()),
    }
}

/// Shows the page again with what a run of the plan would do. Nothing is saved or sent.
async fn dry_run(
    State(pipelines): State<Pipelines>,
    console: Console,
    Form(form): Form<PlanForm>,
) -> Result<Page, Problem> {
    let (result, error) = match pipelines.dry_run(&form.source).await {
        Ok(result) => (Some(result), None),
        Err(error) => (None, Some(mistake(error)?)),
    };
    let mut page = pipelines.overview((&form.source, error), may_write(&console)).await?;
    (page.dry_run, page.is_draft) = (result, true);
    console.page("Pipelines", &page)
}

/// The first mistake of a plan, or what it would do.
#[derive(Debug, Serialize)]
struct PlanCheck {
    line: Option<usize>,
    message: String,
}

/// Checks a plan while it is written. Nothing is saved or sent.
async fn check_plan(Form(form): Form<PlanForm>) -> Json<PlanCheck> {
    Json(match Plan::parse(&form.source) {
        Ok(plan) => {
            let message = format!(
                "The plan is valid: {} steps, {} sinks, quota {}.",
                plan.steps.len(),
                plan.sinks.len(),
                plan.quota
            );
            PlanCheck { line: None, message }
        }
        Err(error) => PlanCheck { line: Some(error.line), message: error.to_string() },
    })
}

async fn start(State(pipelines): State<Pipelines>, Path(plan): Path<String>) -> Result<Redirect, Problem> {
    let plan = plan.parse().map_err(|_| Problem::not_found("pipeline"))?;
    let run = pipelines.start_run(&plan, None).await?;
    pipelines.notify_pages();
    Ok(Redirect::to(&href(&run.id)))
}

async fn show_run(
    State(pipelines): State<Pipelines>,
    console: Console,
    Path(id): Path<String>,
) -> Result<Page, Problem> {
    let page = pipelines.run_page(&run_id(&id)?, may_write(&console)).await?;
    console.page(&format!("Run {id}"), &page)
}

async fn change(
    State(pipelines): State<Pipelines>,
    Path((id, action)): Path<(String, String)>,
    Form(form): Form<ChangeForm>,
) -> Result<Redirect, Problem> {
    let id = run_id(&id)?;
    let action = match action.as_str() {
        "pause" => RunAction::Pause,
        "resume" => RunAction::Resume,
        "cancel" => RunAction::Cancel,
        "archive" => RunAction::Archive,
        "replay" => RunAction::Replay,
        _ => return Err(Problem::not_found("action")),
    };
    if action == RunAction::Replay {
        let class = form.class.filter(|class| !class.is_empty());
        let class = class.map(|class| class.parse::<FailureClass>()).transpose();
        let class = class.map_err(|error| Problem::invalid("class", error.to_string()))?;
        pipelines.replay(&id, class).await?;
    } else {
        pipelines.apply(&id, action).await?;
    }
    Ok(Redirect::to(&if action == RunAction::Archive { "/pipelines".to_owned() } else { href(&id) }))
}

fn may_write(console: &Console) -> bool {
    console.may(&Scope::Write("pipelines".into()))
}

pub(crate) fn href(run: &RunId) -> String {
    let id: String = url::form_urlencoded::byte_serialize(run.as_str().as_bytes()).collect();
    format!("/pipelines/runs/{id}")
}

fn tone(state: &RunState) -> Tone {
    match state {
        RunState::Running => Tone::Busy,
        RunState::Completed => Tone::Good,
        RunState::Paused => Tone::Warn,
        RunState::Cancelled | RunState::Archived => Tone::Idle,
    }
}

impl Pipelines {
    async fn dry_run(&self, text: &str) -> Result<DryRun> {
        let plan = Plan::parse(text)?;
        let (cost, items) = (self.cost(&plan).await?, self.preview(&plan).await?);
        Ok(DryRun { name: plan.name, quota: plan.quota, cost, items })
    }

    /// The page with the text of a new plan, and its error.
    async fn overview(&self, (draft, error): (&str, Option<String>), may_write: bool) -> Result<Overview> {
        let mut runs = Vec::new();
        for run in self.runs(&PageRequest::first(RUNS_SHOWN)).await?.rows {
            let progress = self.progress(&run.id).await?;
            let forecast = self.forecast_of(&run).await;
            let remaining = forecast.and_then(|forecast| forecast.duration).map(|[_, expected, _]| expected);
            runs.push(RunRow { run, progress, remaining: remaining.map(Quantity::duration) });
        }
        let mut quotas = Vec::new();
        for definition in self.quotas().all().await? {
            quotas.push(self.quota_panel(self.quotas().usage(&definition.name).await?).await?);
        }
        let new_plan =
            Field::lines("source", "Plan").hint("TOML. See docs/pipelines.md for an example.").required();
        let new_plan = new_plan.value(draft).error(error);
        let empty = Empty::new("No runs yet", "Save a plan below and start it, or run one from a terminal.")
            .command("hob pipeline run FILE.toml");
        let plans = self.plans().await?;
        Ok(Overview { runs, plans, quotas, new_plan, dry_run: None, is_draft: false, may_write, empty })
    }

    async fn run_page(&self, id: &RunId, may_write: bool) -> Result<RunPage> {
        let (run, progress) = (self.run(id).await?, self.progress(id).await?);
        let forecast = self.forecast_of(&run).await;
        let quota = crate::plan::Plan::parse(&run.text)?.quota;
        let quota = match self.quotas().usage(&quota).await {
            Ok(usage) => Some(self.quota_panel(usage).await?),
            Err(_) => None,
        };
        let mut failures = Vec::new();
        for class in FailureClass::ALL {
            let count = |state| -> u64 {
                let of = progress.failures.iter().filter(|(of, is, _)| *of == class && *is == state);
                of.map(|(_, _, count)| count).sum()
            };
            let (dead_letters, waiting) = (count(ItemState::Quarantined), count(ItemState::Waiting));
            if dead_letters + waiting > 0 {
                let samples =
                    self.items(id, None, Some(class), &PageRequest::first(SAMPLES_PER_CLASS)).await?.rows;
                failures.push(FailureGroup { class, dead_letters, waiting, samples });
            }
        }
        let (throughput, workers) = (self.throughput(id).await?, self.workers(id).await?);
        let outputs = self.outputs(id).await?;
        Ok(RunPage { run, progress, forecast, quota, throughput, outputs, workers, failures, may_write })
    }

    /// The forecast of an unfinished run; `None` also while the quota is unavailable.
    async fn forecast_of(&self, run: &Run) -> Option<Forecast> {
        match run.state {
            RunState::Running | RunState::Paused => self.forecast(&run.id).await.ok(),
            RunState::Completed | RunState::Cancelled | RunState::Archived => None,
        }
    }

    async fn quota_panel(&self, usage: QuotaUsage) -> Result<QuotaPanel> {
        let history =
            self.quotas().history(&usage.definition.name, usage.now.minus(CHART_RANGE), CHART_STEP).await?;
        let history = bar_chart("Calls", usage.now, &history);
        Ok(QuotaPanel { usage, history })
    }

    async fn throughput(&self, id: &RunId) -> Result<Markup> {
        let now = UnixMs::now();
        let history = throughput::since(&self.shared.context.database, id, now.minus(CHART_RANGE)).await?;
        Ok(bar_chart("Items", now, &history))
    }

    async fn workers(&self, id: &RunId) -> Result<Vec<Worker>> {
        let rows = claims::workers(&self.shared.context.database, id).await?;
        Ok(rows.into_iter().map(|(name, items, since)| Worker { name, items, since }).collect())
    }
}

fn bar_chart(what: &str, now: UnixMs, history: &[(UnixMs, u64)]) -> Markup {
    let points = history.iter().map(|(at, count)| (unix_ms(*at), *count as f64));
    let title = format!("{what} per {} s", CHART_STEP.as_secs());
    let bars = Bars::new(chart_window(now), millis(CHART_STEP)).title(title).unit(Unit::Count).height(120);
    bars.series(what, points).render()
}

/// The time range of a chart in whole steps, including the current one.
pub(crate) fn chart_window(now: UnixMs) -> std::ops::Range<u64> {
    let end = unix_ms(now) / millis(CHART_STEP) * millis(CHART_STEP) + millis(CHART_STEP);
    end.saturating_sub(millis(CHART_RANGE))..end
}

pub(crate) fn unix_ms(time: UnixMs) -> u64 {
    u64::try_from(time.0).unwrap_or(0)
}

impl RunRow {
    fn finished(&self) -> u64 {
        self.progress.of(ItemState::Done) + self.progress.of(ItemState::Quarantined)
    }
}

impl RunPage {
    /// The actions that the state allows: path segment and button label.
    fn actions(&self) -> Vec<(&'static str, &'static str)> {
        let all = [
            (RunAction::Pause, "pause", "Pause"),
            (RunAction::Resume, "resume", "Resume"),
            (RunAction::Cancel, "cancel", "Cancel"),
            (RunAction::Archive, "archive", "Archive"),
        ];
        let possible = all.into_iter().filter(|(action, ..)| self.run.state.after(*action).is_some());
        possible.map(|(_, word, label)| (word, label)).collect()
    }

    fn remaining_time(&self) -> Option<[Quantity; 3]> {
        self.forecast.as_ref()?.duration.map(|bounds| bounds.map(Quantity::duration))
    }

    fn may_replay(&self) -> bool {
        self.may_write && self.run.state.after(RunAction::Replay).is_some()
    }

    /// Steps with their items by state.
    fn steps(&self) -> Vec<(&str, [u64; 4])> {
        let mut steps: Vec<(&str, [u64; 4])> = Vec::new();
        for (step, state, count) in &self.progress.steps {
            if steps.last().is_none_or(|(last, _)| last != step) {
                steps.push((step, [0; 4]));
            }
            if let Some((_, counts)) = steps.last_mut() {
                counts[*state as usize] = *count;
            }
        }
        steps
    }
}
