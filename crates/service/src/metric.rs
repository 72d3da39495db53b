//! Declarations of metrics, for Prometheus and for the page that lists them.

/// A metric that Hob exports at `/metrics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    pub kind: MetricKind,
    pub name: &'static str,
    pub help: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
    /// Quantiles of recent values, with sum and count.
    Summary,
}

impl Metric {
    #[must_use]
    pub const fn counter(name: &'static str, help: &'static str) -> Self {
        Self { kind: MetricKind::Counter, name, help }
    }

    #[must_use]
    pub const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { kind: MetricKind::Gauge, name, help }
    }

    #[must_use]
    pub const fn summary(name: &'static str, help: &'static str) -> Self {
        Self { kind: MetricKind::Summary, name, help }
    }
}
