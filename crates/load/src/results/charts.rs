//! The charts of a report.

use std::ops::Range;

use hob_web::chart::{HeatMap, Histogram, Line, Unit};
use hob_web::components::{Markup, Tone};

use crate::results::report::Report;
use crate::results::totals::TimelinePoint;

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
    report.points.iter().map(move |point| (at(report, point), value(point)))
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
    // A second without successful requests is a gap, not zero.
    let of = |value: fn(&TimelinePoint) -> f64| {
        report
            .points
            .iter()
            .map(move |point| (at(report, point), (point.requests > point.failed).then(|| value(point))))
    };
    line(report, "Latency from the intended start", Unit::Millis)
        .series("p50", of(|point| point.latency.p50))
        .series("p95", of(|point| point.latency.p95))
        .series("p99", of(|point| point.latency.p99))
        .render()
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
