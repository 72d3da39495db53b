//! Thresholds: `p99 < 300ms`, `error_rate < 1%`, `login: p95 < 200ms`. A run that misses one fails;
//! with `abort_after` it ends early. Latencies are those of successful requests.

use std::time::Duration;

/// A condition that a run must meet.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    /// As written in the plan.
    pub text: String,
    /// `None` for all steps.
    pub step: Option<String>,
    pub metric: ThresholdMetric,
    pub bound: Bound,
    /// Aborts the run if the threshold is missed after this time.
    pub abort_after: Option<Duration>,
}

/// The value that is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ThresholdMetric {
    /// A quantile of the latency from the intended start, in milliseconds; 0.99 for p99.
    Quantile(f64),
    MeanMs,
    MaxMs,
    /// Per cent of the requests.
    ErrorRate,
    /// Requests per second.
    Rate,
}

/// The condition for the value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    Below(f64),
    AtMost(f64),
    Above(f64),
    AtLeast(f64),
}

impl Bound {
    #[must_use]
    pub fn holds(self, value: f64) -> bool {
        match self {
            Self::Below(limit) => value < limit,
            Self::AtMost(limit) => value <= limit,
            Self::Above(limit) => value > limit,
            Self::AtLeast(limit) => value >= limit,
        }
    }
}

impl Threshold {
    /// The highest error rate of a plan that does not set one, in per cent.
    pub const MAX_ERROR_RATE: f64 = 5.0;

    /// Applies to plans without a threshold for the error rate of all steps, so that a run against a dead target fails.
    pub(super) fn default_error_rate() -> Self {
        Self {
            text: format!("error_rate <= {}% (default)", Self::MAX_ERROR_RATE),
            step: None,
            metric: ThresholdMetric::ErrorRate,
            bound: Bound::AtMost(Self::MAX_ERROR_RATE),
            abort_after: None,
        }
    }

    pub(super) fn parse(text: &str, abort_after: Option<Duration>) -> Result<Self, String> {
        let (step, condition) = match text.rsplit_once(": ") {
            Some((step, condition)) => (Some(step.trim().to_owned()), condition),
            None => (None, text),
        };
        let at =
            condition.find(['<', '>']).ok_or("a threshold needs a comparison, such as \"p99 < 300ms\"")?;
        let metric = metric(condition[..at].trim())?;
        let (sign, rest) = condition[at..].split_at(if condition[at + 1..].starts_with('=') { 2 } else { 1 });
        let value = value(metric, rest.trim())?;
        let bound = match sign {
            "<" => Bound::Below(value),
            "<=" => Bound::AtMost(value),
            ">" => Bound::Above(value),
            _ => Bound::AtLeast(value),
        };
        Ok(Self { text: text.to_owned(), step, metric, bound, abort_after })
    }
}

fn metric(name: &str) -> Result<ThresholdMetric, String> {
    let quantile = || name.strip_prefix('p')?.parse::<f64>().ok().filter(|p| (0.0..100.0).contains(p));
    match name {
        "mean" | "avg" => Ok(ThresholdMetric::MeanMs),
        "max" => Ok(ThresholdMetric::MaxMs),
        "error_rate" => Ok(ThresholdMetric::ErrorRate),
        "rate" => Ok(ThresholdMetric::Rate),
        _ => quantile()
            .map(|p| ThresholdMetric::Quantile((p * 1e4).round() / 1e6))
            .ok_or_else(|| format!("unknown metric {name:?}; use p50, p99.9, mean, max, error_rate or rate")),
    }
}

fn value(metric: ThresholdMetric, text: &str) -> Result<f64, String> {
    let units: &[(&str, f64)] = match metric {
        ThresholdMetric::Quantile(_) | ThresholdMetric::MeanMs | ThresholdMetric::MaxMs => {
            &[("us", 0.001), ("ms", 1.0), ("s", 1000.0)]
        }
        ThresholdMetric::ErrorRate => &[("%", 1.0)],
        ThresholdMetric::Rate => &[("/s", 1.0)],
    };
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (text[..digits].parse::<f64>(), text[digits..].trim());
    match (number, units.iter().find(|(name, _)| *name == unit)) {
        (Ok(number), Some((_, factor))) => Ok(number * factor),
        _ => {
            let names: Vec<String> = units.iter().map(|(name, _)| format!("1{name}")).collect();
            Err(format!("{text:?} is not a valid value; write one such as {}", names.join(" or ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_parsed() {
        for (text, metric, bound) in [
            ("p99 < 300ms", ThresholdMetric::Quantile(0.99), Bound::Below(300.0)),
            ("p99.9 <= 1.5s", ThresholdMetric::Quantile(0.999), Bound::AtMost(1500.0)),
            ("error_rate < 1%", ThresholdMetric::ErrorRate, Bound::Below(1.0)),
            ("rate>=100/s", ThresholdMetric::Rate, Bound::AtLeast(100.0)),
        ] {
            let threshold = Threshold::parse(text, None).unwrap();
            assert_eq!((threshold.metric, threshold.bound), (metric, bound), "{text}");
        }
        let threshold = Threshold::parse("log in: max > 5us", None).unwrap();
        assert_eq!((threshold.step.as_deref(), threshold.bound), (Some("log in"), Bound::Above(0.005)));
    }

    #[test]
    fn invalid_thresholds_are_rejected() {
        for text in
            ["", "p99", "p99 < ", "p99 < 300", "p100 < 1s", "speed < 1s", "error_rate < 5ms", "rate > 5%"]
        {
            assert!(Threshold::parse(text, None).is_err(), "{text:?}");
        }
    }
}
