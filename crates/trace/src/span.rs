//! A span: an operation with its attributes, from its start until it is dropped.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1 as proto;
use proto::Status;
use proto::span::SpanKind as Kind;
use proto::status::StatusCode;

use crate::attribute;
use crate::context::TraceContext;
use crate::exporter::Queue;

/// Longer texts in attributes are cut.
const MAX_TEXT_BYTES: usize = 1024;

tokio::task_local! {
    static CURRENT: TraceContext;
}

/// The span whose work the calling task does, if it runs in [`Span::scope`].
#[must_use]
pub fn current() -> Option<TraceContext> {
    CURRENT.try_with(|context| *context).ok()
}

/// An operation that may be recorded. It ends when it is dropped, also if its task is cancelled.
#[derive(Debug)]
#[must_use = "a span ends when it is dropped"]
pub struct Span {
    context: Option<TraceContext>,
    record: Option<Box<SpanRecord>>,
}

/// The role of an operation in its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Handles a request.
    Server,
    /// Calls another program.
    Client,
    /// Sends a message.
    Producer,
}

/// A span that is recorded.
#[derive(Debug)]
pub struct SpanRecord {
    span: proto::Span,
    started: Instant,
    queue: Arc<Queue>,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum AttributeValue {
    Text(String),
    Integer(i64),
}

impl Span {
    /// Not a span: nothing is recorded.
    pub fn none() -> Self {
        Self { context: None, record: None }
    }

    /// A span that is recorded if its trace is sampled.
    pub(crate) fn start(
        kind: SpanKind,
        parent: Option<TraceContext>,
        context: TraceContext,
        queue: &Arc<Queue>,
    ) -> Self {
        let record = context.sampled.then(|| {
            let span = proto::Span {
                trace_id: context.trace_id.to_vec(),
                span_id: context.span_id.to_vec(),
                parent_span_id: parent.map(|parent| parent.span_id.to_vec()).unwrap_or_default(),
                kind: kind.to_proto().into(),
                flags: u32::from(context.sampled),
                start_time_unix_nano: nanoseconds_now(),
                ..proto::Span::default()
            };
            Box::new(SpanRecord { span, started: Instant::now(), queue: Arc::clone(queue) })
        });
        Self { context: Some(context), record }
    }

    /// The context to pass on. `None` if the tracer is off.
    #[must_use]
    pub fn context(&self) -> Option<TraceContext> {
        self.context
    }

    /// Describes the operation. The closure is called only if the span is recorded.
    pub fn describe(&mut self, describe: impl FnOnce(&mut SpanRecord)) {
        if let Some(record) = &mut self.record {
            describe(record);
        }
    }

    /// Runs `work` with this span as the [`current`] one.
    pub async fn scope<F: Future>(&self, work: F) -> F::Output {
        match self.context {
            Some(context) => CURRENT.scope(context, work).await,
            None => work.await,
        }
    }
}

impl SpanRecord {
    /// The name: a class of operations, such as `GET /users/{id}`, not a single one.
    pub fn set_name(&mut self, name: impl Into<String>) {
        self.span.name = name.into();
    }

    pub(crate) fn set_state(&mut self, tracestate: String) {
        self.span.trace_state = tracestate;
    }

    /// Sets an attribute that is not set yet.
    pub fn set(&mut self, key: &'static str, value: impl Into<AttributeValue>) {
        self.span.attributes.push(key_value(key, value));
    }

    /// The operation has failed. `kind` is a status or a word from a fixed set, `message` explains it.
    pub fn fail(&mut self, kind: &str, message: impl Into<String>) {
        self.set(attribute::ERROR_TYPE, kind);
        self.span.status = Some(Status { code: StatusCode::Error.into(), message: cut(message.into()) });
    }
}

impl Drop for SpanRecord {
    fn drop(&mut self) {
        let mut span = std::mem::take(&mut self.span);
        // Not the time of day, which may have been set back.
        let took = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or_default();
        span.end_time_unix_nano = span.start_time_unix_nano.saturating_add(took);
        self.queue.push(span);
    }
}

impl SpanKind {
    fn to_proto(self) -> Kind {
        match self {
            Self::Server => Kind::Server,
            Self::Client => Kind::Client,
            Self::Producer => Kind::Producer,
        }
    }
}

impl From<&str> for AttributeValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for AttributeValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u16> for AttributeValue {
    fn from(number: u16) -> Self {
        Self::Integer(number.into())
    }
}

impl From<u32> for AttributeValue {
    fn from(number: u32) -> Self {
        Self::Integer(number.into())
    }
}

impl From<u64> for AttributeValue {
    fn from(number: u64) -> Self {
        Self::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

pub(crate) fn key_value(key: &str, value: impl Into<AttributeValue>) -> KeyValue {
    let value = match value.into() {
        AttributeValue::Text(text) => Value::StringValue(cut(text)),
        AttributeValue::Integer(number) => Value::IntValue(number),
    };
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
    text
}

fn nanoseconds_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
