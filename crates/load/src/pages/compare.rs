//! Comparison of two runs, as a whole and by step.

use askama::Template;
use axum::extract::State;
use hob_database::PageRequest;
use hob_web::chart::Unit;
use hob_web::components::{Choice, Field, Quantity};
use hob_web::{Console, Page, Problem, Query};
use serde::Deserialize;

use super::run_path;
use crate::keys::TestId;
use crate::load::Load;
use crate::results::charts::ComparedCharts;
use crate::results::histogram::LatencySummary;
use crate::results::report::{Report, StepReport};
use crate::results::totals::per_cent;
use crate::routes::parse_run_id;
use crate::run::item::RunItem;

/// Runs to choose from.
const RUNS: u16 = 100;

#[derive(Template)]
#[template(path = "compare.html")]
struct Compare {
    a: Field,
    b: Field,
    comparison: Option<Comparison>,
}

/// Two runs with their reports.
struct Comparison {
    a: TestId,
    b: TestId,
    charts: ComparedCharts,
    groups: Vec<Group>,
}

/// The rows of all steps or of one.
struct Group {
    name: String,
    rows: Vec<Row>,
}

/// A value of both runs. A run without the step, or without a successful request, has none.
struct Row {
    name: &'static str,
    unit: Unit,
    values: (Option<f64>, Option<f64>),
}

impl Row {
    fn first(&self) -> Quantity {
        self.unit.of(self.values.0.unwrap_or(f64::NAN))
    }

    fn second(&self) -> Quantity {
        self.unit.of(self.values.1.unwrap_or(f64::NAN))
    }

    fn change(&self) -> String {
        match self.values {
            (Some(before), Some(after)) if before != 0.0 => {
                // Adding 0 turns -0 into +0.
                let change = ((after - before) / before * 1000.0).round() / 10.0 + 0.0;
                format!("{change:+.1} %")
            }
            _ => "–".to_owned(),
        }
    }
}

impl Comparison {
    fn new(ids: (TestId, TestId), a: &Report, b: &Report) -> Self {
        let mut all = rows((Some(&Measured::of(a)), Some(&Measured::of(b))));
        let rate = Row { name: "Rate", unit: Unit::PerSecond, values: (Some(a.rate), Some(b.rate)) };
        all.insert(1, rate);
        let mut groups = vec![Group { name: "All steps".to_owned(), rows: all }];
        let only_in_b = b.steps.iter().filter(|step| a.steps.iter().all(|other| other.name != step.name));
        for step in a.steps.iter().chain(only_in_b) {
            let of = |report: &Report| {
                report.steps.iter().find(|other| other.name == step.name).map(Measured::of_step)
            };
            let (in_a, in_b) = (of(a), of(b));
            groups.push(Group { name: step.name.clone(), rows: rows((in_a.as_ref(), in_b.as_ref())) });
        }
        Self { a: ids.0, b: ids.1, charts: ComparedCharts::new([a, b]), groups }
    }
}

/// What is compared.
struct Measured {
    requests: u64,
    failed: u64,
    latency: LatencySummary,
}

impl Measured {
    fn of(report: &Report) -> Self {
        Self { requests: report.requests, failed: report.failed, latency: report.latency }
    }

    fn of_step(step: &StepReport) -> Self {
        Self { requests: step.requests, failed: step.failed, latency: step.latency }
    }
}

fn rows((a, b): (Option<&Measured>, Option<&Measured>)) -> Vec<Row> {
    let row = |name, unit, value: &dyn Fn(&Measured) -> Option<f64>| Row {
        name,
        unit,
        values: (a.and_then(value), b.and_then(value)),
    };
    let latency = |name, value: fn(&LatencySummary) -> f64| {
        row(name, Unit::Millis, &|of| (of.requests > of.failed).then(|| value(&of.latency)))
    };
    vec![
        row("Requests", Unit::Count, &|of| Some(of.requests as f64)),
        row("Failed", Unit::Ratio, &|of| (of.requests > 0).then(|| per_cent(of.failed, of.requests) / 100.0)),
        latency("p50", |latency| latency.p50),
        latency("p95", |latency| latency.p95),
        latency("p99", |latency| latency.p99),
        latency("p99.9", |latency| latency.p999),
        latency("Max", |latency| latency.max),
    ]
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
        (Some((a, a_report)), Some((b, b_report))) => Some(Comparison::new((a, b), &a_report, &b_report)),
        _ => None,
    };
    let choices: Vec<Choice> = items.iter().filter(|item| item.figures.is_some()).map(choice).collect();
    let page = Compare {
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
