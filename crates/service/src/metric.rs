//! Declarations of metrics, for Prometheus and for the page that lists them, and samples that are read on request.

use std::fmt::Write as _;

/// A metric that Hob exports at `/metrics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    pub kind: MetricKind,
    pub name: &'static str,
    pub help: &'static str,
    /// The names of its labels. Their values come from configuration, or from a fixed set.
    pub labels: &'static [&'static str],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram(Buckets),
}

/// The buckets of a histogram of seconds. They are equal on all nodes, so that a query can add the histograms of several
/// nodes and take a quantile of the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buckets {
    /// Sixteen for each power of two. For metrics with few labels.
    Fine,
    /// One for each power of two. For metrics with many labels.
    Coarse,
}

/// The first bucket ends at 2^9 µs, the last one before infinity at 2^26 µs, about a minute.
const POWERS: std::ops::Range<u32> = 9..26;

impl Metric {
    #[must_use]
    pub const fn counter(name: &'static str, help: &'static str) -> Self {
        Self::new(MetricKind::Counter, name, help)
    }

    #[must_use]
    pub const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self::new(MetricKind::Gauge, name, help)
    }

    #[must_use]
    pub const fn histogram(name: &'static str, buckets: Buckets, help: &'static str) -> Self {
        Self::new(MetricKind::Histogram(buckets), name, help)
    }

    const fn new(kind: MetricKind, name: &'static str, help: &'static str) -> Self {
        Self { kind, name, help, labels: &[] }
    }

    /// The same metric with labels.
    #[must_use]
    pub const fn by(self, labels: &'static [&'static str]) -> Self {
        Self { labels, ..self }
    }
}

impl MetricKind {
    /// The word that Prometheus uses.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram(_) => "histogram",
        }
    }
}

impl Buckets {
    /// The upper bounds in seconds. Each is also a bound of the histograms that services keep, which divide each power of
    /// two of microseconds into equal parts.
    #[must_use]
    pub fn bounds(self) -> Vec<f64> {
        let parts = match self {
            Buckets::Fine => 16,
            Buckets::Coarse => 1,
        };
        let of_power = |power: u32| {
            let start = 1_u32 << power;
            (0..parts).map(move |part| f64::from(start + start / parts * part) / 1e6)
        };
        POWERS.flat_map(of_power).chain([f64::from(1_u32 << POWERS.end) / 1e6]).collect()
    }
}

/// Samples in Prometheus's text format that a service reads when `/metrics` is requested. They are for values of objects
/// that come and go, such as monitors: what is not written again is gone.
#[derive(Debug, Default)]
pub struct Samples {
    text: String,
}

impl Samples {
    /// Writes all samples of a gauge, each with its labels.
    pub fn gauge<'a, L>(&mut self, metric: &Metric, samples: impl IntoIterator<Item = (L, f64)>)
    where
        L: AsRef<[(&'static str, &'a str)]>,
    {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        let Metric { name, help, .. } = metric;
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (labels, value) in samples {
            self.text.push_str(name);
            for (at, (label, text)) in labels.as_ref().iter().enumerate() {
                let _ = write!(self.text, "{}{label}=\"", if at == 0 { '{' } else { ',' });
                self.push_escaped(text);
                self.text.push('"');
            }
            let end = if labels.as_ref().is_empty() { "" } else { "}" };
            let _ = writeln!(self.text, "{end} {value}");
        }
        self.text.push('\n');
    }

    fn push_escaped(&mut self, text: &str) {
        for char in text.chars() {
            match char {
                '\\' => self.text.push_str("\\\\"),
                '"' => self.text.push_str("\\\""),
                '\n' => self.text.push_str("\\n"),
                char => self.text.push(char),
            }
        }
    }

    #[must_use]
    pub fn into_text(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_rise_and_coarse_ones_are_fine_ones() {
        let (fine, coarse) = (Buckets::Fine.bounds(), Buckets::Coarse.bounds());
        assert!(fine.is_sorted() && fine.len() == 17 * 16 + 1);
        assert!(coarse.iter().all(|bound| fine.contains(bound)) && coarse.len() == 18);
        assert_eq!((fine[0], fine[1], fine[16]), (0.000_512, 0.000_544, 0.001_024));
    }

    #[test]
    fn labels_are_escaped() {
        let mut samples = Samples::default();
        let metric = Metric::gauge("up", "Whether it is up.");
        samples.gauge(&metric, [([("name", "a\"b\\c\nd"), ("group", "")], 1.0)]);
        samples.gauge(&Metric::gauge("none", "No samples."), std::iter::empty::<([(&str, &str); 0], f64)>());
        samples.gauge(&Metric::gauge("omitted", "Without labels."), [([], 0.5)]);
        let text = "# HELP up Whether it is up.\n# TYPE up gauge\nup{name=\"a\\\"b\\\\c\\nd\",group=\"\"} 1\n\n\
                    # HELP omitted Without labels.\n# TYPE omitted gauge\nomitted 0.5\n\n";
        assert_eq!(samples.into_text(), text);
    }
}
