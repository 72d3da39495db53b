//! Plans: the editor with its versions, and the form that queues a run.

use askama::Template;
use axum::extract::State as AxumState;
use axum::response::{IntoResponse, Redirect, Response};
use hob_database::{PageRequest, UnixMs};
use hob_web::look::{Choice, Field, Tone, When};
use hob_web::{Console, Form, Page, Path, Problem, Query};
use serde::Deserialize;

use super::{RUNS, badge, before};
use crate::load::{Load, Wish};
use crate::plan::catalog::{EditOutcome, PlanEntry, PlanId};
use crate::plan::{Files, Format, Mistake, Plan, Written};
use crate::routes::queue;
use crate::run::Run;

const EXAMPLE: &str = include_str!("example.toml");

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
pub(super) struct Draft {
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
        let line = mistake.as_ref().map(|mistake| format!("line {}", mistake.at.line));
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
        tests: &Load,
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

pub(super) async fn new_plan(console: Console) -> Result<Page, Problem> {
    console.page("New plan", &Editor::new(&Written::toml(EXAMPLE), None))
}

pub(super) async fn add_plan(
    console: Console,
    AxumState(tests): AxumState<Load>,
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
pub(super) struct Version {
    version: Option<u32>,
}

pub(super) async fn plan(
    console: Console,
    AxumState(tests): AxumState<Load>,
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

pub(super) async fn edit_plan(
    console: Console,
    AxumState(tests): AxumState<Load>,
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
        Ok(EditOutcome::Saved(_)) => Ok(Redirect::to(&format!("/load/plans/{id}")).into_response()),
        Ok(EditOutcome::NotFound) => Err(Problem::not_found("plan")),
        Ok(EditOutcome::Conflict(version)) => {
            Err(Problem::conflict(format!("The plan has the version {version} by now.")))
        }
        Err(crate::Error::Plan(mistake)) => {
            let editor = Editor::of(&tests, id, version, &draft, Some(mistake)).await?;
            Ok(console.page(editor.title(), &editor)?.into_response())
        }
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn delete_plan(
    AxumState(tests): AxumState<Load>,
    Path(id): Path<i64>,
) -> Result<Redirect, Problem> {
    tests.delete_plan(PlanId(id)).await?;
    Ok(Redirect::to("/load"))
}

/// What the form for a run sends; fields may be empty.
#[derive(Debug, Deserialize)]
pub(super) struct RunForm {
    run_type: String,
    priority: String,
    runners: String,
    max_users: String,
}

pub(super) async fn add_run(
    AxumState(tests): AxumState<Load>,
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
