//! Axes: the positions of values and times, and their labels.

use std::ops::Range;

use super::canvas::WIDTH;
use crate::components::{MAX_VALUE, Unit, timestamp};

/// A mark on an axis, between 0 and 1.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) label: String,
}

/// An axis of values.
#[derive(Clone, Debug)]
pub(super) struct ValueAxis {
    low: f64,
    high: f64,
    pub(super) ticks: Vec<Tick>,
}

/// Where an axis begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Base {
    #[default]
    Zero,
    /// At the smallest value, for values in a narrow range.
    Least,
}

impl ValueAxis {
    /// An axis that contains all the values, extended to round numbers, with about four steps.
    pub(super) fn over(values: impl Iterator<Item = f64>, unit: Unit, base: Base) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            if let Some(value) = sane(value) {
                (low, high) = (low.min(value), high.max(value));
            }
        }
        if low > high {
            (low, high) = (0.0, 0.0);
        }
        if base == Base::Zero {
            (low, high) = (low.min(0.0), high.max(0.0));
        }
        if high - low < f64::EPSILON * high.abs().max(1e-6) {
            high = low + if low == 0.0 { least_span(unit) } else { low.abs() * 0.1 };
        }
        let step = step(unit, (high - low) / 4.0);
        let (first, last) = ((low / step).floor(), (high / step - 1e-9).ceil());
        let (low, high) = (first * step, last * step);
        let magnitude = unit.magnitude(low.abs().max(high.abs()));
        let decimals = (0..3).find(|decimals| is_whole(step / magnitude.size * 10_f64.powi(*decimals)));
        let decimals = decimals.unwrap_or(3) as usize;
        let marks = (last - first).clamp(1.0, 12.0) as u32;
        let ticks = (0..=marks).map(|mark| {
            let value = low + f64::from(mark) * step;
            let label =
                if value.abs() < step / 2.0 { "0".to_owned() } else { magnitude.label(value, decimals) };
            Tick { at: f64::from(mark) / f64::from(marks), label }
        });
        Self { low, high, ticks: ticks.collect() }
    }

    /// The position of a value between the ends of the axis, from 0 to 1.
    pub(super) fn at(&self, value: f64) -> f64 {
        ((value.clamp(-MAX_VALUE, MAX_VALUE) - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// The distance of a value from the top of a plot with this height, in pixels.
    pub(super) fn y(&self, value: f64, height: f64) -> f64 {
        height * (1.0 - self.at(value))
    }
}

/// A number that charts can calculate with.
pub(super) fn sane(value: f64) -> Option<f64> {
    value.is_finite().then(|| value.clamp(-MAX_VALUE, MAX_VALUE))
}

fn is_whole(number: f64) -> bool {
    (number - number.round()).abs() < 1e-6
}

/// The range of an axis if all values are zero.
fn least_span(unit: Unit) -> f64 {
    match unit {
        Unit::Bytes | Unit::BytesPerSecond => 1024.0,
        Unit::Ratio => 1.0,
        Unit::Millis => 4.0,
        Unit::Count | Unit::PerSecond => 4.0,
    }
}

/// The smallest round step that is at least `least`.
fn step(unit: Unit, least: f64) -> f64 {
    const MINUTES_MS: &[f64] = &[15e3, 30e3, 60e3, 120e3, 300e3, 600e3, 900e3, 1800e3];
    const HOURS_MS: &[f64] = &[3600e3, 7200e3, 10_800e3, 21_600e3, 43_200e3, 86_400e3];
    match unit {
        Unit::Bytes | Unit::BytesPerSecond => least.max(1.0).log2().ceil().exp2(),
        Unit::Millis if least > 10e3 => {
            let round = MINUTES_MS.iter().chain(HOURS_MS).copied().find(|step| *step >= least);
            round.unwrap_or_else(|| decimal_step(least / 86_400e3) * 86_400e3)
        }
        _ => decimal_step(least),
    }
}

/// 1, 2 or 5 times a power of ten.
fn decimal_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.max(1e-9).log10().floor());
    [1.0, 2.0, 5.0]
        .into_iter()
        .map(|digit| digit * power)
        .find(|step| *step >= least * 0.999_999)
        .unwrap_or(10.0 * power)
}

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The distances between labels of a time axis.
const TIME_STEPS: &[u64] = &[
    100,
    200,
    500,
    SECOND,
    2 * SECOND,
    5 * SECOND,
    10 * SECOND,
    15 * SECOND,
    30 * SECOND,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    7 * DAY,
    14 * DAY,
    28 * DAY,
    91 * DAY,
    182 * DAY,
    364 * DAY,
];

/// Maximum number of labels on a time axis.
const MAX_TIME_LABELS: u64 = 6;

/// An axis of time: Unix milliseconds, shown in UTC, or milliseconds since a start.
#[derive(Clone, Debug)]
pub(super) struct TimeAxis {
    start_ms: u64,
    span_ms: u64,
    labels: TimeLabels,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeLabels {
    Clock,
    Elapsed,
}

impl TimeAxis {
    /// An empty or reversed range becomes a range of one millisecond.
    pub(super) fn new(range: &Range<u64>) -> Self {
        let span_ms = range.end.saturating_sub(range.start).max(1);
        Self { start_ms: range.start, span_ms, labels: TimeLabels::Clock }
    }

    /// Times since a start.
    pub(super) fn elapsed(length_ms: u64) -> Self {
        Self { labels: TimeLabels::Elapsed, ..Self::new(&(0..length_ms)) }
    }

    pub(super) fn start_ms(&self) -> u64 {
        self.start_ms
    }

    pub(super) fn end_ms(&self) -> u64 {
        self.start_ms.saturating_add(self.span_ms)
    }

    pub(super) fn span_ms(&self) -> u64 {
        self.span_ms
    }

    pub(super) fn holds(&self, at_ms: u64) -> bool {
        (self.start_ms..=self.end_ms()).contains(&at_ms)
    }

    /// The position of a time in the plot, limited to its edges.
    pub(super) fn x(&self, at_ms: u64) -> f64 {
        let inside = at_ms.saturating_sub(self.start_ms).min(self.span_ms);
        WIDTH * inside as f64 / self.span_ms as f64
    }

    pub(super) fn ticks(&self) -> Vec<Tick> {
        let step = TIME_STEPS.iter().copied().find(|step| self.span_ms / step <= MAX_TIME_LABELS);
        let step = step.unwrap_or(self.span_ms / MAX_TIME_LABELS);
        let first = self.start_ms.div_ceil(step).saturating_mul(step);
        let marks = (0..=MAX_TIME_LABELS).map(|mark| first.saturating_add(mark * step));
        marks
            .take_while(|at_ms| *at_ms <= self.end_ms())
            .map(|at_ms| Tick { at: self.x(at_ms) / WIDTH, label: self.label(at_ms, step) })
            .collect()
    }

    /// `from 12:00 to 13:00 UTC`, for the summary.
    pub(super) fn words(&self) -> String {
        match self.labels {
            TimeLabels::Clock => format!("from {} to {} UTC", moment(self.start_ms), moment(self.end_ms())),
            TimeLabels::Elapsed => format!("from 0:00 to {}", elapsed(self.end_ms(), SECOND)),
        }
    }

    /// A time as it is shown in a tooltip.
    pub(super) fn moment(&self, at_ms: u64) -> String {
        match self.labels {
            TimeLabels::Clock => format!("{} UTC", moment(at_ms)),
            TimeLabels::Elapsed => elapsed(at_ms, SECOND),
        }
    }

    /// A label with the precision of the step.
    fn label(&self, at_ms: u64, step: u64) -> String {
        match self.labels {
            TimeLabels::Clock => clock(at_ms, step),
            TimeLabels::Elapsed => elapsed(at_ms, step),
        }
    }
}

/// `1:05` or `2:01:05`, with tenths of a second if the step is shorter than a second.
fn elapsed(ms: u64, step: u64) -> String {
    let (hours, minutes, seconds) = (ms / HOUR, ms % HOUR / MINUTE, ms % MINUTE / SECOND);
    let tenths = if step < SECOND { format!(".{}", ms % SECOND / 100) } else { String::new() };
    match hours {
        0 => format!("{minutes}:{seconds:02}{tenths}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}{tenths}"),
    }
}

/// A label with the precision of the step.
fn clock(at_ms: u64, step: u64) -> String {
    let format = match step {
        step if step >= 91 * DAY => "%b %Y",
        step if step >= DAY => "%b %-d",
        _ if at_ms.is_multiple_of(DAY) => "%b %-d",
        step if step >= MINUTE => "%H:%M",
        step if step >= SECOND => "%H:%M:%S",
        _ => "%H:%M:%S.%1f",
    };
    timestamp(at_ms).strftime(format).to_string()
}

/// A time as it is shown in a tooltip, without its time zone.
pub(super) fn moment(at_ms: u64) -> String {
    timestamp(at_ms).strftime("%b %-d %H:%M:%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: u64 = 1_763_208_000_000;

    fn labels(values: &[f64], unit: Unit) -> Vec<String> {
        let axis = ValueAxis::over(values.iter().copied(), unit, Base::Zero);
        axis.ticks.iter().map(|tick| tick.label.replace('\u{a0}', " ")).collect()
    }

    #[test]
    fn values_get_round_labels_in_their_unit() {
        assert_eq!(labels(&[3.0, 87.0], Unit::Millis), ["0", "50 ms", "100 ms"]);
        assert_eq!(labels(&[1_700.0], Unit::Millis), ["0", "0.5 s", "1.0 s", "1.5 s", "2.0 s"]);
        assert_eq!(labels(&[150_000.0], Unit::Millis), ["0", "1 min", "2 min", "3 min"]);
        assert_eq!(labels(&[3_000.0], Unit::Bytes), ["0", "1 KiB", "2 KiB", "3 KiB"]);
        assert_eq!(labels(&[0.4], Unit::Ratio), ["0", "10 %", "20 %", "30 %", "40 %"]);
        assert_eq!(labels(&[-2.0, 2.0], Unit::Count), ["-2", "-1", "0", "1", "2"]);
        assert_eq!(labels(&[], Unit::Count), ["0", "1", "2", "3", "4"]);
    }

    #[test]
    fn axis_may_begin_at_its_least_value() {
        let axis = ValueAxis::over([0.9991, 1.0].into_iter(), Unit::Ratio, Base::Least);
        assert!(axis.at(0.9991) < 0.3 && axis.at(1.0) > 0.9, "{axis:?}");
    }

    #[test]
    fn elapsed_times_count_from_zero() {
        let at =
            |length| TimeAxis::elapsed(length).ticks().into_iter().map(|tick| tick.label).collect::<Vec<_>>();
        assert_eq!(at(30 * SECOND), ["0:00", "0:05", "0:10", "0:15", "0:20", "0:25", "0:30"]);
        assert_eq!(at(2 * HOUR), ["0:00", "30:00", "1:00:00", "1:30:00", "2:00:00"]);
        assert_eq!(at(SECOND)[1], "0:00.2");
        let axis = TimeAxis::elapsed(65 * SECOND);
        assert_eq!((axis.words().as_str(), axis.moment(64_900).as_str()), ("from 0:00 to 1:05", "1:04"));
    }

    #[test]
    fn moments_get_labels_at_round_times() {
        let at = |range: Range<u64>| {
            TimeAxis::new(&range).ticks().into_iter().map(|tick| tick.label).collect::<Vec<_>>()
        };
        assert_eq!(at(NOON + 1..NOON + HOUR), ["12:10", "12:20", "12:30", "12:40", "12:50", "13:00"]);
        assert_eq!(at(NOON..NOON + 3 * SECOND).first().map(String::as_str), Some("12:00:00.0"));
        assert_eq!(at(NOON - DAY..NOON), ["12:00", "18:00", "Nov 15", "06:00", "12:00"]);
        assert!(at(0..u64::MAX).len() as u64 <= MAX_TIME_LABELS + 1);
        assert_eq!(at(NOON + 7..NOON + 7), Vec::<String>::new());
    }
}
