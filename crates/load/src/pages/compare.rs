//! Comparison of two runs, as a whole and by step.

use askama::Template;
use axum::extract::State;
use hob_database::PageRequest;
use hob_web::components::{Choice, Empty, Field};
use hob_web::{Console, Page, Problem, Query};
use serde::Deserialize;

use super::run_path;
use crate::keys::TestId;
use crate::load::Load;
use crate::results::charts::ComparedCharts;
use crate::results::comparison::{Comparison, Group};
use crate::results::report::Report;
use crate::routes::parse_run_id;
use crate::run::item::RunItem;

/// Runs to choose from.
const RUNS: u16 = 100;

#[derive(Template)]
#[template(path = "compare.html")]
struct Compare {
    a: Field,
    b: Field,
    comparison: Option<ComparedRuns>,
    /// There is nothing to compare.
    lacks_runs: bool,
}

impl Compare {
    fn too_few(&self) -> Empty {
        let empty = Empty::new("Too few runs", "A comparison needs two runs that have measured something.");
        empty.link("Plans and runs", "/load")
    }
}

/// Two runs with their reports.
struct ComparedRuns {
    a: TestId,
    b: TestId,
    charts: ComparedCharts,
    groups: Vec<Group>,
}

impl ComparedRuns {
    fn new(ids: (TestId, TestId), a: &Report, b: &Report) -> Self {
        let groups = Comparison::new(a, b).groups;
        Self { a: ids.0, b: ids.1, charts: ComparedCharts::new([a, b]), groups }
    }
}

/// The runs to compare; without both, the page only offers a choice.
#[derive(Debug, Deserialize)]
pub(super) struct CompareQuery {
    #[serde(default)]
    a: String,
    #[serde(default)]
    b: String,
}

pub(super) async fn compare(
    console: Console,
    State(load): State<Load>,
    Query(pair): Query<CompareQuery>,
) -> Result<Page, Problem> {
    let mut items = load.run_items(None, &PageRequest::first(RUNS)).await?.rows;
    let (a, b) = (find(&load, &mut items, &pair.a).await?, find(&load, &mut items, &pair.b).await?);
    let comparison = match (a, b) {
        (Some((a, a_report)), Some((b, b_report))) => Some(ComparedRuns::new((a, b), &a_report, &b_report)),
        _ => None,
    };
    let choices: Vec<Choice> = items.iter().filter(|item| item.figures.is_some()).map(choice).collect();
    let page = Compare {
        lacks_runs: choices.len() < 2,
        a: Field::choice("a", "Run A", choices.clone()).value(&pair.a),
        b: Field::choice("b", "Run B", choices).value(&pair.b),
        comparison,
    };
    console.page("Compare runs", &page)
}

/// The run of the query with its report; an older run is added to those to choose from.
async fn find(load: &Load, items: &mut Vec<RunItem>, id: &str) -> Result<Option<(TestId, Report)>, Problem> {
    if id.is_empty() {
        return Ok(None);
    }
    let id = parse_run_id(id)?;
    let item = load.run_item(&id).await?.ok_or_else(|| Problem::not_found("run"))?;
    let report = load.report(&item.run).await?.ok_or_else(|| Problem::not_found("report"))?;
    if items.iter().all(|listed| listed.run.id != id) {
        items.push(item);
    }
    Ok(Some((id, report)))
}

fn choice(item: &RunItem) -> Choice {
    let queued = jiff::Timestamp::from_millisecond(item.run.queued_at.0).unwrap_or_default();
    let queued = queued.strftime("%b %-d %H:%M:%S UTC");
    Choice {
        value: item.run.id.to_string(),
        label: format!("{}, {queued}, {}", item.plan_name, item.run.state.to_string().to_lowercase()),
    }
}
