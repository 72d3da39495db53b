//! The difference between two reports, as a whole and by step.

use std::fmt::Write as _;

use hob_load_generator::{LatencySummary, per_cent};
use hob_web::components::{Quantity, Unit};

use super::report::{Report, StepReport};

/// Two reports side by side.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// All steps together, then each step.
    pub groups: Vec<Group>,
}

/// The rows of all steps or of one.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    pub name: String,
    pub rows: Vec<Row>,
}

/// A value of both runs. A run without the step, or without a successful request, has none.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub name: &'static str,
    unit: Unit,
    values: (Option<f64>, Option<f64>),
    /// Whether a higher value is worse, and more than noise: high percentiles and the share of failed requests.
    is_judged: bool,
}

impl Row {
    pub(crate) fn first(&self) -> Quantity {
        self.unit.of(self.values.0.unwrap_or(f64::NAN))
    }

    pub(crate) fn second(&self) -> Quantity {
        self.unit.of(self.values.1.unwrap_or(f64::NAN))
    }

    pub(crate) fn change(&self) -> String {
        match self.values {
            (Some(before), Some(after)) if before != 0.0 => {
                // Adding 0 turns -0 into +0.
                let change = ((after - before) / before * 1000.0).round() / 10.0 + 0.0;
                format!("{change:+.1} %")
            }
            _ => "–".to_owned(),
        }
    }

    /// Whether the second value is higher than the first by more than this many per cent. A first value of 0 may not grow.
    fn grew_by_more_than(&self, per_cent: f64) -> bool {
        match self.values {
            (Some(before), Some(after)) => self.is_judged && after > before * (1.0 + per_cent / 100.0),
            // No request was successful any more; the share of failed requests shows it.
            _ => false,
        }
    }
}

impl Comparison {
    #[must_use]
    pub fn new(a: &Report, b: &Report) -> Self {
        let mut all = rows((Some(&Measured::of(a)), Some(&Measured::of(b))));
        let values = (Some(a.rate), Some(b.rate));
        all.insert(1, Row { name: "Rate", unit: Unit::PerSecond, values, is_judged: false });
        let mut groups = vec![Group { name: "All steps".to_owned(), rows: all }];
        let only_in_b = b.steps.iter().filter(|step| a.steps.iter().all(|other| other.name != step.name));
        for step in a.steps.iter().chain(only_in_b) {
            let of = |report: &Report| {
                report.steps.iter().find(|other| other.name == step.name).map(Measured::of_step)
            };
            let (in_a, in_b) = (of(a), of(b));
            groups.push(Group { name: step.name.clone(), rows: rows((in_a.as_ref(), in_b.as_ref())) });
        }
        Self { groups }
    }

    /// What has grown by more than this many per cent, one line each: p95, p99 and the share of failed requests, of all
    /// steps and of each. If there were no failed requests before, every failed request counts.
    #[must_use]
    pub fn regressions(&self, per_cent: f64) -> Vec<String> {
        let mut found = Vec::new();
        for group in &self.groups {
            for row in group.rows.iter().filter(|row| row.grew_by_more_than(per_cent)) {
                let (name, first, second) = (row.name, row.first(), row.second());
                found.push(format!("{}: {name} grew from {first} to {second}", group.name));
            }
        }
        found
    }

    /// A table for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = format!("  {:<12}{:>12}{:>12}{:>12}\n", "", "A", "B", "change");
        for group in &self.groups {
            let _ = writeln!(out, "{}", group.name);
            for row in &group.rows {
                let (first, second) = (row.first().to_string(), row.second().to_string());
                let _ = writeln!(out, "  {:<12}{first:>12}{second:>12}{:>12}", row.name, row.change());
            }
        }
        out
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
    let row = |name, unit, is_judged, value: &dyn Fn(&Measured) -> Option<f64>| Row {
        name,
        unit,
        values: (a.and_then(value), b.and_then(value)),
        is_judged,
    };
    let latency = |name, is_judged, value: fn(&LatencySummary) -> f64| {
        row(name, Unit::Millis, is_judged, &|of| (of.requests > of.failed).then(|| value(&of.latency)))
    };
    let failed = |of: &Measured| (of.requests > 0).then(|| per_cent(of.failed, of.requests) / 100.0);
    vec![
        row("Requests", Unit::Count, false, &|of| Some(of.requests as f64)),
        row("Failed", Unit::Ratio, true, &failed),
        latency("p50", false, |latency| latency.p50),
        latency("p95", true, |latency| latency.p95),
        latency("p99", true, |latency| latency.p99),
        latency("p99.9", false, |latency| latency.p999),
        latency("Max", false, |latency| latency.max),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(before: f64, after: f64) -> Row {
        Row { name: "p95", unit: Unit::Millis, values: (Some(before), Some(after)), is_judged: true }
    }

    #[test]
    fn growth_is_judged_in_per_cent() {
        assert!(row(100.0, 111.0).grew_by_more_than(10.0));
        assert!(!row(100.0, 110.0).grew_by_more_than(10.0));
        assert!(!row(100.0, 10.0).grew_by_more_than(0.0));
        assert!(row(0.0, 0.01).grew_by_more_than(50.0));
        assert!(!row(0.0, 0.0).grew_by_more_than(0.0));
        let other = Row { is_judged: false, ..row(1.0, 100.0) };
        assert!(!other.grew_by_more_than(10.0));
    }
}
