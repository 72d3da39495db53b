//! Plans: the editor with its versions and dry runs, and the form that queues a run.

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use hob_database::{PageRequest, UnixMs};
use hob_web::components::{Choice, Field, Quantity, RelativeTime, Tone, Unit};
use hob_web::{AuditDetail, Console, Form, Json, Page, Path, Problem, Query};
use serde::{Deserialize, Serialize};

use super::{MAY_WRITE, RUNS, badge, compare_path, p95, rate, run_path};
use crate::generator::DryRun;
use crate::load::{Load, RunRequest};
use crate::plan::catalog::{EditOutcome, PlanEntry, PlanId};
use crate::plan::{Format, Mistake, Plan, PlanFiles, PlanSource};
use crate::routes::{queue_run, run_once};
use crate::run::item::RunItem;

const EXAMPLE: &str = include_str!("example.toml");

/// Plans to start from: name and label.
const TEMPLATES: [(&str, &str); 2] = [("rate", "A constant rate"), ("shop", "A shop with several scenarios")];

/// The editor: a new plan, or a version of one.
#[derive(Template)]
#[template(path = "plan.html")]
struct Editor {
    plan: Option<PlanEntry>,
    version: u32,
    mistake: Option<Mistake>,
    dry_run: Option<Result<DryRun, String>>,
    /// The text is not saved.
    is_draft: bool,
    action: String,
    source: Field,
    format: Field,
    files: PlanFiles,
    file_name: Field,
    file: Field,
    run_type: Field,
    priority: Field,
    runners: Field,
    max_users: Field,
    versions: Vec<(u32, UnixMs)>,
    runs: Vec<RunItem>,
    may_write: bool,
}

/// The form of the editor.
#[derive(Debug, Deserialize)]
pub(super) struct PlanForm {
    source: String,
    format: Format,
    /// The saved plan that is edited, and the version that was opened.
    plan: Option<i64>,
    version: Option<u32>,
    /// A file to add or replace, if not empty.
    #[serde(default)]
    file_name: String,
    #[serde(default)]
    file: String,
}

impl PlanForm {
    /// The source of the plan, with the file of the form and the files of the opened version, which may not be the newest.
    async fn to_source(&self, load: &Load) -> Result<PlanSource, Problem> {
        let files = match (self.plan.map(PlanId), self.version) {
            (None, _) => None,
            (Some(id), Some(version)) => load.plan_version(id, version).await?.map(|plan| plan.files),
            (Some(id), None) => load.plan(id).await?.map(|plan| plan.files),
        };
        let mut files = files.unwrap_or_default();
        let name = self.file_name.trim();
        if !name.is_empty() {
            files.put(name, &self.file);
        }
        Ok(PlanSource { source: self.source.clone(), format: self.format, files })
    }
}

impl Editor {
    fn new(draft: &PlanSource, mistake: Option<Mistake>) -> Self {
        let line = mistake.as_ref().map(|mistake| format!("line {}", mistake.at.line));
        let choices = [("toml", "TOML"), ("json", "JSON")].map(|(value, label)| choice(value, label)).into();
        Self {
            plan: None,
            version: 0,
            is_draft: mistake.is_some(),
            mistake,
            dry_run: None,
            action: "/load/plans".to_owned(),
            source: Field::lines("source", "Plan")
                .value(&draft.source)
                .error(line)
                .max_length(Plan::MAX_BYTES)
                .required(),
            format: Field::choice("format", "Format", choices).value(draft.format),
            files: draft.files.clone(),
            file_name: Field::text("file_name", "File name").placeholder("users.csv"),
            file: Field::lines("file", "Content")
                .max_length(PlanFiles::MAX_BYTES)
                .hint("Adds or replaces the file of this name. Empty content removes it."),
            run_type: Field::text("run_type", "Run type"),
            priority: Field::number("priority", "Priority").value(0).between(-1000, 1000),
            runners: Field::number("runners", "Runners").value(1).between(1, 64),
            max_users: Field::number("max_users", "Max. users").between(1, 20_000),
            versions: Vec::new(),
            runs: Vec::new(),
            may_write: true,
        }
    }

    /// The editor of a saved plan.
    async fn of(
        load: &Load,
        id: PlanId,
        version: Option<u32>,
        draft: &PlanSource,
        mistake: Option<Mistake>,
    ) -> Result<Self, Problem> {
        let entry = load.plan_entry(id).await?.ok_or_else(|| Problem::not_found("plan"))?;
        let run_types = draft.read().map(|plan| plan.run_types).unwrap_or_default();
        let choices = run_types.iter().map(|run_type| choice(&run_type.name, &run_type.name)).collect();
        let mut editor = Self::new(draft, mistake);
        editor.action = format!("/load/plans/{id}");
        editor.run_type = Field::choice("run_type", "Run type", choices);
        editor.version = version.unwrap_or(entry.version);
        editor.versions = load.plan_versions(id).await?;
        editor.runs = load.run_items(Some(id), &PageRequest::first(RUNS)).await?.rows;
        editor.plan = Some(entry);
        Ok(editor)
    }

    /// The file of a form that is not saved, so that it is not lost.
    fn with_file(mut self, form: &PlanForm) -> Self {
        self.file_name = self.file_name.value(&form.file_name);
        self.file = self.file.value(&form.file);
        self
    }

    fn title(&self) -> &str {
        self.plan.as_ref().map_or("New plan", |plan| &plan.name)
    }
}

fn choice(value: &str, label: &str) -> Choice {
    Choice { value: value.to_owned(), label: label.to_owned() }
}

#[derive(Debug, Deserialize)]
pub(super) struct TemplateQuery {
    template: Option<String>,
}

pub(super) async fn new_plan(console: Console, Query(query): Query<TemplateQuery>) -> Result<Page, Problem> {
    let text = match query.template.as_deref() {
        Some("shop") => include_str!("../demo/shop.toml"),
        _ => EXAMPLE,
    };
    console.page("New plan", &Editor::new(&PlanSource::toml(text), None))
}

/// The first mistake of a plan, or what it would do.
#[derive(Debug, Serialize)]
pub(super) struct PlanCheck {
    line: Option<usize>,
    message: String,
}

/// Checks a plan while it is written. Nothing is saved or sent.
pub(super) async fn check_plan(
    State(load): State<Load>,
    Form(form): Form<PlanForm>,
) -> Result<Json<PlanCheck>, Problem> {
    Ok(Json(match form.to_source(&load).await?.read() {
        Ok(plan) => {
            let run_types = plan.run_types.iter().map(|run_type| run_type.name.as_str());
            let message = format!(
                "The plan is valid: {} scenarios with {} steps, run types {}.",
                plan.scenarios.len(),
                plan.steps.len(),
                run_types.collect::<Vec<_>>().join(", ")
            );
            PlanCheck { line: None, message }
        }
        Err(mistake) => PlanCheck { line: Some(mistake.at.line), message: mistake.to_string() },
    }))
}

/// Sends the requests of a plan once, and shows the editor again with the result. Nothing is saved.
pub(super) async fn dry_run(
    console: Console,
    State(load): State<Load>,
    Form(form): Form<PlanForm>,
) -> Result<Response, Problem> {
    let draft = form.to_source(&load).await?;
    let (mistake, result) = match draft.read() {
        Ok(_) => (None, Some(run_once(&load, &draft, None).await)),
        Err(mistake) => (Some(mistake), None),
    };
    let editor = match form.plan {
        Some(id) => Editor::of(&load, PlanId(id), form.version, &draft, mistake).await?,
        None => Editor::new(&draft, mistake),
    };
    let mut editor = editor.with_file(&form);
    let detail = match &result {
        Some(Ok(result)) => AuditDetail::Of(result.plan.clone()),
        _ => AuditDetail::Unchanged,
    };
    editor.dry_run = result.map(|result| result.map_err(|problem| reason(&problem)));
    editor.is_draft = true;
    Ok((detail, console.page(editor.title(), &editor)?).into_response())
}

/// Why there was no dry run.
fn reason(problem: &Problem) -> String {
    problem.errors().first().map_or_else(|| problem.detail().to_owned(), |error| error.message.clone())
}

pub(super) async fn add_plan(
    console: Console,
    State(load): State<Load>,
    Form(form): Form<PlanForm>,
) -> Result<Response, Problem> {
    let draft = form.to_source(&load).await?;
    match load.add_plan(&draft).await {
        Ok(id) => {
            let page = Redirect::to(&format!("/load/plans/{id}"));
            Ok((AuditDetail::Of(id.to_string()), page).into_response())
        }
        Err(crate::Error::Plan(mistake)) => {
            let editor = Editor::new(&draft, Some(mistake)).with_file(&form);
            Ok(console.page("New plan", &editor)?.into_response())
        }
        Err(error) => Err(error.into()),
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct VersionQuery {
    version: Option<u32>,
}

pub(super) async fn plan(
    console: Console,
    State(load): State<Load>,
    Path(id): Path<i64>,
    Query(query): Query<VersionQuery>,
) -> Result<Page, Problem> {
    let id = PlanId(id);
    let entry = load.plan_entry(id).await?.ok_or_else(|| Problem::not_found("plan"))?;
    let version = query.version.unwrap_or(entry.version);
    let draft = load.plan_version(id, version).await?.ok_or_else(|| Problem::not_found("version"))?;
    let mut editor = Editor::of(&load, id, Some(version), &draft, None).await?;
    editor.may_write = console.may(&MAY_WRITE);
    console.page(editor.title(), &editor)
}

pub(super) async fn edit_plan(
    console: Console,
    State(load): State<Load>,
    Path(id): Path<i64>,
    Form(form): Form<PlanForm>,
) -> Result<Response, Problem> {
    let form = PlanForm { plan: Some(id), ..form };
    let (id, version, draft) = (PlanId(id), form.version, form.to_source(&load).await?);
    match load.edit_plan(id, None, &draft).await {
        Ok(EditOutcome::Saved(_)) => Ok(Redirect::to(&format!("/load/plans/{id}")).into_response()),
        Ok(EditOutcome::NotFound) => Err(Problem::not_found("plan")),
        Ok(EditOutcome::Conflict(version)) => Err(Problem::conflict(format!(
            "The plan was edited in the meantime; its newest version is {version}."
        ))),
        Err(crate::Error::Plan(mistake)) => {
            let editor = Editor::of(&load, id, version, &draft, Some(mistake)).await?.with_file(&form);
            Ok(console.page(editor.title(), &editor)?.into_response())
        }
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn delete_plan(State(load): State<Load>, Path(id): Path<i64>) -> Result<Redirect, Problem> {
    load.delete_plan(PlanId(id)).await?;
    Ok(Redirect::to("/load"))
}

/// The form that queues a run; fields may be empty.
#[derive(Debug, Deserialize)]
pub(super) struct RunForm {
    run_type: String,
    priority: String,
    runners: String,
    max_users: String,
}

pub(super) async fn add_run(
    State(load): State<Load>,
    Path(id): Path<i64>,
    Form(form): Form<RunForm>,
) -> Result<Redirect, Problem> {
    let number = |field: &str, text: &str| match text.trim() {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| Problem::invalid(field, "must be a whole number")),
    };
    let request = RunRequest {
        run_type: Some(form.run_type).filter(|name| !name.is_empty()),
        priority: number("priority", &form.priority)?.unwrap_or(0),
        max_users: number("max_users", &form.max_users)?.and_then(|users: i32| u32::try_from(users).ok()),
        runners: number("runners", &form.runners)?.and_then(|runners: i32| u32::try_from(runners).ok()),
    };
    let run = queue_run(&load, PlanId(id), &request).await?;
    Ok(Redirect::to(&run_path(&run.id)))
}
