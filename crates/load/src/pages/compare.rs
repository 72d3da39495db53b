//! Comparison of two runs.

use askama::Template;
use axum::extract::State;
use hob_web::chart::Unit;
use hob_web::components::Quantity;
use hob_web::{Console, Page, Problem, Query};
use serde::Deserialize;

use crate::load::Load;
use crate::results::charts::Charts;
use crate::results::histogram::LatencySummary;
use crate::results::report::Report;
use crate::routes::{find_run, parse_run_id};

#[derive(Template)]
#[template(path = "compare.html")]
struct Compare {
    a_id: String,
    b_id: String,
    a: Charts,
    b: Charts,
    rows: Vec<Row>,
}

/// A value of both runs.
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
pub(super) struct CompareQuery {
    a: String,
    b: String,
}

pub(super) async fn compare(
    console: Console,
    State(load): State<Load>,
    Query(pair): Query<CompareQuery>,
) -> Result<Page, Problem> {
    let mut reports = Vec::new();
    for id in [&pair.a, &pair.b] {
        let run = find_run(&load, &parse_run_id(id)?).await?;
        reports.push(load.report(&run).await?.ok_or_else(|| Problem::not_found("report"))?);
    }
    let (a, b) = (&reports[0], &reports[1]);
    let latency = |name, value: fn(&LatencySummary) -> f64| Row {
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
    console.page("Compare runs", &page)
}
