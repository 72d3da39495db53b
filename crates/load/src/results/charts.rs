//! The charts of a report, and of two reports.

use std::ops::Range;

use hob_load_generator::{LatencySummary, TimelinePoint};
use hob_web::chart::{HeatMap, Histogram, Line, Unit};
use hob_web::components::{Markup, Tone};

use crate::results::report::Report;

/// The charts of one report.
#[derive(Clone, Debug)]
pub(crate) struct Charts {
    pub(crate) rate: Markup,
    pub(crate) users: Markup,
    pub(crate) latency: Markup,
    pub(crate) heat: Markup,
    pub(crate) histogram: Markup,
}

impl Charts {
    pub(crate) fn new(report: &Report) -> Self {
        Self {
            rate: rate(report),
            users: users(report),
            latency: latency(report),
            heat: heat(report),
            histogram: histogram(report),
        }
    }
}

/// Charts of two runs, from the start of each. Both runs have the same scale, because they are in the same chart.
#[derive(Clone, Debug)]
pub(crate) struct ComparedCharts {
    pub(crate) rate: Markup,
    pub(crate) failed: Markup,
    pub(crate) p50: Markup,
    pub(crate) p95: Markup,
    pub(crate) p99: Markup,
}

impl ComparedCharts {
    pub(crate) fn new(runs: [&Report; 2]) -> Self {
        let count = |title, value: fn(&TimelinePoint) -> u64| {
            compared(runs, title, Unit::PerSecond, |point| Some(value(point) as f64))
        };
        let latency = |title, value: fn(&LatencySummary) -> f64| {
            compared(runs, title, Unit::Millis, |point| latency_of(point, value))
        };
        Self {
            rate: count("Requests per second", |point| point.requests),
            failed: count("Failed requests per second", |point| point.failed),
            p50: latency("p50 from the intended start", |latency| latency.p50),
            p95: latency("p95 from the intended start", |latency| latency.p95),
            p99: latency("p99 from the intended start", |latency| latency.p99),
        }
    }
}

fn compared(
    runs: [&Report; 2],
    title: &str,
    unit: Unit,
    value: impl Fn(&TimelinePoint) -> Option<f64>,
) -> Markup {
    let end = |report: &&Report| u64::from(report.seconds) * 1000;
    let length_ms = runs.iter().map(end).max().unwrap_or(0);
    let step = runs.iter().map(|report| step_ms(report)).max().unwrap_or(1000);
    let mut chart = Line::elapsed(length_ms).title(title).unit(unit).every(step);
    for (name, report) in ["A", "B"].into_iter().zip(runs) {
        let point = |point: &TimelinePoint| ((u64::from(point.second) + 1) * 1000, value(point));
        chart = chart.series(name, points(report).iter().map(point));
    }
    chart.render()
}

/// The points without a last second that was not complete: its values are not per second.
fn points(report: &Report) -> &[TimelinePoint] {
    match report.points.split_last() {
        Some((last, before)) if last.ran_ms < 1000 && !before.is_empty() => before,
        _ => &report.points,
    }
}

/// When the second of a point ended.
fn at(report: &Report, point: &TimelinePoint) -> u64 {
    u64::try_from(report.started_at).unwrap_or(0) + (u64::from(point.second) + 1) * 1000
}

fn range(report: &Report) -> Range<u64> {
    let start = u64::try_from(report.started_at).unwrap_or(0);
    start..start + (u64::from(report.seconds) + 1) * 1000
}

fn line(report: &Report, title: &str, unit: Unit) -> Line {
    Line::new(range(report)).title(title).unit(unit).every(step_ms(report))
}

fn step_ms(report: &Report) -> u64 {
    let gap = report.points.windows(2).map(|pair| pair[1].second - pair[0].second).max().unwrap_or(1);
    u64::from(gap.max(1)) * 1000
}

/// A value of each second.
fn series<'a>(
    report: &'a Report,
    value: impl Fn(&TimelinePoint) -> f64 + 'a,
) -> impl Iterator<Item = (u64, f64)> + 'a {
    points(report).iter().map(move |point| (at(report, point), value(point)))
}

fn rate(report: &Report) -> Markup {
    line(report, "Requests per second", Unit::PerSecond)
        .series("requests", series(report, |point| point.requests as f64))
        .toned("failed", Tone::Bad, series(report, |point| point.failed as f64))
        .render()
}

fn users(report: &Report) -> Markup {
    line(report, "Users", Unit::Count).series("active", series(report, |point| point.users as f64)).render()
}

fn latency(report: &Report) -> Markup {
    let of = |value: fn(&LatencySummary) -> f64| {
        points(report).iter().map(move |point| (at(report, point), latency_of(point, value)))
    };
    line(report, "Latency from the intended start", Unit::Millis)
        .series("p50", of(|latency| latency.p50))
        .series("p95", of(|latency| latency.p95))
        .series("p99", of(|latency| latency.p99))
        .render()
}

/// A second without successful requests is a gap, not zero.
fn latency_of(point: &TimelinePoint, value: fn(&LatencySummary) -> f64) -> Option<f64> {
    (point.requests > point.failed).then(|| value(&point.latency))
}

fn heat(report: &Report) -> Markup {
    let used =
        |row: &usize| report.points.iter().any(|point| point.heat.get(*row).is_some_and(|count| *count > 0));
    let rows = report.points.first().map_or(0, |point| point.heat.len());
    let (low, high) = ((0..rows).find(used).unwrap_or(0), (0..rows).rfind(used).unwrap_or(0));
    let labels =
        (low..=high).map(|row| Unit::Millis.of(0.01 * 10_f64.powf((row + 1) as f64 / 4.0)).to_string());
    let mut map = HeatMap::new(range(report), step_ms(report), labels).title("Latency heat map");
    for point in &report.points {
        for (row, count) in point.heat.iter().enumerate().skip(low).take(high - low + 1) {
            map = map.count(at(report, point) - 1, row - low, *count);
        }
    }
    map.render()
}

fn histogram(report: &Report) -> Markup {
    let mut chart = Histogram::new(Unit::Millis).title("Latency distribution");
    let mut low = report.latency.min;
    for bar in &report.histogram {
        chart = chart.bin(low..bar.up_to, bar.count);
        low = bar.up_to;
    }
    for (name, value) in [("p50", report.latency.p50), ("p99", report.latency.p99)] {
        chart = chart.mark(name, value);
    }
    chart.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(seconds: &[(u64, u32)]) -> Report {
        let plan = crate::plan::Plan::quick(
            "http://127.0.0.1:1/",
            crate::plan::LoadModel::rate(1.0, std::time::Duration::from_secs(9), 1),
        );
        let mut report = Report::new(&plan.unwrap(), 0, 0, &crate::Totals::default());
        report.seconds = seconds.len() as u32;
        let point = |(second, (requests, ran_ms)): (usize, &(u64, u32))| TimelinePoint {
            second: second as u32,
            requests: *requests,
            ran_ms: *ran_ms,
            ..TimelinePoint::default()
        };
        report.points = seconds.iter().enumerate().map(point).collect();
        report
    }

    #[test]
    fn legend_does_not_show_a_second_that_was_not_complete() {
        let chart = rate(&report(&[(50, 1000), (60, 1000), (3, 40)])).to_string();
        let shown = |requests: f64| chart.contains(&Unit::PerSecond.of(requests).to_string());
        assert!(shown(60.0) && !shown(3.0), "{chart}");
        assert_eq!(points(&report(&[(3, 40)])).len(), 1, "the only second is shown");
    }

    #[test]
    fn compared_runs_have_one_scale() {
        let (slow, fast) = (report(&[(10, 1000), (20, 1000)]), report(&[(400, 1000)]));
        let chart = ComparedCharts::new([&slow, &fast]).rate.to_string();
        for text in ["A <b>", "B <b>", "400", "0:02"] {
            assert!(chart.contains(text), "{text} is not in {chart}");
        }
    }
}
