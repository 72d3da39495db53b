//! The queue of finished spans, and the task that sends it to the collector.

use std::sync::Arc;
use std::time::Duration;

use hob_units::Backoff;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::collector::Collector;

/// The most spans that wait. More are dropped.
const MAX_QUEUE: usize = 8192;
/// The most spans in one request.
const MAX_BATCH: usize = 1024;
/// How long a span waits for others.
const MAX_DELAY: Duration = Duration::from_secs(1);
/// How often a batch is sent again.
const MAX_RETRIES: u32 = 2;
const RETRY_BACKOFF: Backoff =
    Backoff::exponential(Duration::from_secs(1), Duration::from_secs(5)).with_jitter(0.5..1.0);
/// How long the last spans may take when the process stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

const EXPORTED: &str = "hob_trace_spans_exported_total";
const DROPPED: &str = "hob_trace_spans_dropped_total";

/// Takes finished spans.
#[derive(Debug)]
pub(crate) struct Queue {
    sender: mpsc::Sender<Span>,
}

/// The task that sends spans, and its queue.
#[derive(Debug)]
pub(crate) struct Exporter {
    queue: Arc<Queue>,
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Queue {
    /// Adds a span. Never waits: a span that does not fit is dropped and counted.
    pub(crate) fn push(&self, span: Span) {
        if self.sender.try_send(span).is_err() {
            metrics::counter!(DROPPED).increment(1);
        }
    }
}

impl Exporter {
    pub(crate) fn start(collector: Collector) -> Self {
        let (sender, spans) = mpsc::channel(MAX_QUEUE);
        let stop = CancellationToken::new();
        let worker = Worker { collector, spans, stop: stop.clone(), state: CollectorState::Answers };
        let task = Mutex::new(Some(tokio::spawn(worker.run_until_stopped())));
        Self { queue: Queue { sender }.into(), stop, task }
    }

    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        let task = self.task.lock().take();
        if let Some(task) = task {
            let _ = task.await;
        }
    }
}

struct Worker {
    collector: Collector,
    spans: mpsc::Receiver<Span>,
    stop: CancellationToken,
    state: CollectorState,
}

/// The result of the last export. The log has one line for each change.
#[derive(PartialEq, Eq)]
enum CollectorState {
    Answers,
    Fails,
}

impl Worker {
    async fn run_until_stopped(self) {
        let stop = self.stop.clone();
        let too_late = async {
            stop.cancelled().await;
            sleep(STOP_TIMEOUT).await;
        };
        tokio::select! {
            () = self.run() => {}
            () = too_late => tracing::warn!("spans were not exported before the process stopped"),
        }
    }

    /// Sends batches until the process stops and the queue is empty.
    async fn run(mut self) {
        loop {
            let batch = self.next_batch().await;
            if batch.is_empty() {
                return;
            }
            self.export(batch).await;
        }
    }

    /// Waits for the next spans. Returns an empty batch when the process stops and all spans are sent.
    async fn next_batch(&mut self) -> Vec<Span> {
        let mut batch = Vec::new();
        if self.receive(&mut batch).await > 0 {
            let send_at = Instant::now() + MAX_DELAY;
            while batch.len() < MAX_BATCH {
                match timeout_at(send_at, self.receive(&mut batch)).await {
                    Ok(0) | Err(_) => break,
                    Ok(_) => {}
                }
            }
        }
        batch
    }

    /// Adds spans to a batch and returns how many. Returns 0 when the process stops and the queue is empty.
    async fn receive(&mut self, batch: &mut Vec<Span>) -> usize {
        let room = MAX_BATCH - batch.len();
        let Self { spans, stop, .. } = self;
        let received = stop.run_until_cancelled(spans.recv_many(batch, room)).await;
        match received {
            Some(received) => received,
            None => {
                // What is in the queue can still be received.
                spans.close();
                spans.recv_many(batch, room).await
            }
        }
    }

    async fn export(&mut self, batch: Vec<Span>) {
        let count = batch.len() as u64;
        let body = self.collector.encode(batch);
        let mut backoff = RETRY_BACKOFF;
        loop {
            match self.collector.send(body.clone()).await {
                Ok(rejected) => {
                    metrics::counter!(EXPORTED).increment(count.saturating_sub(rejected));
                    metrics::counter!(DROPPED).increment(rejected);
                    if std::mem::replace(&mut self.state, CollectorState::Answers) == CollectorState::Fails {
                        tracing::info!("collector accepts spans again");
                    }
                    return;
                }
                Err(error) => {
                    if std::mem::replace(&mut self.state, CollectorState::Fails) == CollectorState::Answers {
                        tracing::warn!(%error, "failed to export spans");
                    }
                    if !error.is_transient() || backoff.attempts() == MAX_RETRIES {
                        metrics::counter!(DROPPED).increment(count);
                        return;
                    }
                    sleep(backoff.next()).await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[test]
    fn span_that_does_not_fit_is_dropped_and_counted() {
        let (sender, _spans) = mpsc::channel(2);
        let queue = Queue { sender };
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || (0..5).for_each(|_| queue.push(Span::default())));
        let page = recorder.handle().render();
        assert!(page.contains("hob_trace_spans_dropped_total 3"), "{page}");
    }
}
