//! Spans of requests, checks, calls and messages, which a node exports to an OpenTelemetry collector; and W3C Trace
//! Context, with which a trace continues in other programs.
//!
//! Nothing is recorded unless the operator has configured a collector: a [`Tracer`] that is off creates empty [`Span`]s.
//! A finished span goes into a bounded queue, and one task sends the queue in batches. A collector that is slow or away
//! costs spans, which are counted, and never delays the work that is traced.
//!
//! The spans are OpenTelemetry's Protobuf messages from the start. Its SDK would convert them, needs a separate thread, and
//! does not count what it drops.

pub mod attribute;
mod collector;
mod context;
mod exporter;
mod http;
mod span;
mod tracer;

pub use collector::{Collector, CollectorError};
pub use context::{TraceContext, TraceContextError};
pub use span::{AttributeValue, Span, SpanKind, SpanRecord, current};
pub use tracer::Tracer;
