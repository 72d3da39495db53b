//! Writes results to the database in batches, behind a bounded queue: a slow database delays no check.

use std::time::Duration;

use hob_database::{Database, Error, Isolation, Transaction};
use hob_service::Task;
use tokio::sync::mpsc;

use super::{NewResult, Span};
use crate::database::{results, summaries};
use crate::error::Result;

/// Results that are queued while the database is unavailable: half a minute of 3,000 checks a second.
const MAX_QUEUED: usize = 100_000;
const BATCH: usize = 4000;
/// How long a batch fills.
const BATCH_WINDOW: Duration = Duration::from_millis(250);
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// The sending end of the queue of results.
#[derive(Clone, Debug)]
pub(crate) struct ResultQueue(mpsc::Sender<NewResult>);

/// The receiving end of the queue.
pub(crate) type ResultReceiver = mpsc::Receiver<NewResult>;

pub(crate) fn result_queue() -> (ResultQueue, ResultReceiver) {
    let (sender, receiver) = mpsc::channel(MAX_QUEUED);
    (ResultQueue(sender), receiver)
}

impl ResultQueue {
    /// Queues a result. When the queue is full the result is dropped and counted.
    pub(crate) fn push(&self, result: NewResult) {
        if self.0.try_send(result).is_err() {
            crate::metrics::left_out();
        }
    }
}

/// Writes queued results until the task should stop, and then those that are left.
pub(crate) async fn write_queued(database: &Database, queue: &mut ResultReceiver, task: &Task) {
    let mut batch = Vec::new();
    loop {
        let stopping = task.is_stopping();
        if batch.is_empty() {
            let first = tokio::time::timeout(BATCH_WINDOW, queue.recv_many(&mut batch, BATCH));
            let _ = first.await;
            task.heartbeat();
            if batch.is_empty() {
                if stopping {
                    return;
                }
                continue;
            }
            if batch.len() < BATCH && !stopping {
                tokio::time::sleep(BATCH_WINDOW).await;
                while batch.len() < BATCH
                    && let Ok(result) = queue.try_recv()
                {
                    batch.push(result);
                }
            }
        }
        match write(database, &batch).await {
            Ok(()) => batch.clear(),
            Err(error) => {
                tracing::warn!(%error, results = batch.len(), "failed to write check results, retrying");
                if stopping || !task.pause(AFTER_FAILURE).await {
                    return;
                }
            }
        }
        task.heartbeat();
    }
}

/// Writes results. Idempotent.
pub async fn write(database: &Database, batch: &[NewResult]) -> Result<()> {
    let work = |tx: Transaction| async move {
        results::insert(&tx, batch).await?;
        // A late result changes an hour that is already summarized: that hour and its day are summarized again.
        let oldest = batch.iter().map(|result| result.at.0).min().unwrap_or(i64::MAX);
        summaries::rewind(&tx, Span::Hour.start_of(oldest)).await?;
        Ok::<_, Error>(())
    };
    Ok(database.write_with(Isolation::ReadCommitted, work).await?)
}
