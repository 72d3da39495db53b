//! Starts spans, and the exporter that sends them.

use std::sync::Arc;

use crate::collector::Collector;
use crate::context::TraceContext;
use crate::exporter::{Exporter, Queue};
use crate::span::{Span, SpanKind};

/// Starts spans. Clones share the exporter.
#[derive(Clone, Debug)]
pub struct Tracer {
    sample_ratio: f64,
    exporter: Option<Arc<Exporter>>,
}

impl Tracer {
    /// A tracer that records nothing. A trace that the gateway starts is sampled with the given probability, for the
    /// programs behind it.
    #[must_use]
    pub fn off(sample_ratio: f64) -> Self {
        Self { sample_ratio, exporter: None }
    }

    /// Starts to export spans, in a task of the current runtime. A trace that starts here is sampled with the given
    /// probability; a span with a parent is sampled if the parent is.
    #[must_use]
    pub fn start(sample_ratio: f64, collector: Collector) -> Self {
        Self { sample_ratio, exporter: Some(Arc::new(Exporter::start(collector))) }
    }

    /// Starts a span: a child of `parent`, or the first of a new trace.
    pub fn span(&self, kind: SpanKind, parent: Option<TraceContext>) -> Span {
        let Some(exporter) = &self.exporter else { return Span::none() };
        let context = parent.map_or_else(|| self.new_trace(), |parent| parent.child());
        let queue: &Arc<Queue> = exporter.queue();
        Span::start(kind, parent, context, queue)
    }

    /// The context of a new trace.
    #[must_use]
    pub fn new_trace(&self) -> TraceContext {
        TraceContext::start(self.sample_ratio)
    }

    /// Sends the spans that wait, and stops. Takes at most five seconds.
    pub async fn stop(&self) {
        if let Some(exporter) = &self.exporter {
            exporter.stop().await;
        }
    }
}

/// A tracer that is off.
impl Default for Tracer {
    fn default() -> Self {
        Self::off(1.0)
    }
}
