//! Results go into the database in batches, behind a bounded queue: a slow database delays no check.

use std::time::Duration;

use hob_database::{Database, Isolation, Transaction, UnixMs, sql};
use hob_service::Task;
use tokio::sync::mpsc;

use super::{Finding, HOUR_MS};
use crate::error::Result;

/// Results that wait while the database is away: about half a minute at 3,000 checks a second.
const WAITING: usize = 100_000;
const BATCH: usize = 4000;
/// How long a batch gathers.
const GATHER: Duration = Duration::from_millis(250);
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Where results are handed in.
#[derive(Clone, Debug)]
pub(crate) struct Intake(mpsc::Sender<Finding>);

/// The other end of the queue.
pub(crate) type Waiting = mpsc::Receiver<Finding>;

pub(crate) fn intake() -> (Intake, Waiting) {
    let (sender, receiver) = mpsc::channel(WAITING);
    (Intake(sender), receiver)
}

impl Intake {
    /// Hands a result in. When the queue is full it is left out of the history, and counted as such.
    pub(crate) fn put(&self, finding: Finding) {
        if self.0.try_send(finding).is_err() {
            crate::metrics::left_out();
        }
    }
}

/// Writes what waits until the task should stop, and then what is left.
pub(crate) async fn write_results(database: &Database, waiting: &mut Waiting, task: &Task) {
    let mut batch = Vec::new();
    loop {
        let stopping = task.stopping();
        if batch.is_empty() {
            let first = tokio::time::timeout(GATHER, waiting.recv_many(&mut batch, BATCH));
            let _ = first.await;
            task.beat();
            if batch.is_empty() {
                if stopping {
                    return;
                }
                continue;
            }
            if batch.len() < BATCH && !stopping {
                tokio::time::sleep(GATHER).await;
                while batch.len() < BATCH
                    && let Ok(finding) = waiting.try_recv()
                {
                    batch.push(finding);
                }
            }
        }
        match write(database, &batch).await {
            Ok(()) => batch.clear(),
            Err(error) => {
                tracing::warn!(%error, results = batch.len(), "results wait for the database");
                if stopping || !task.pause(AFTER_FAILURE).await {
                    return;
                }
            }
        }
        task.beat();
    }
}

/// Writes results; those that are there already stay as they are.
pub async fn write(database: &Database, batch: &[Finding]) -> Result<()> {
    let work = |tx: Transaction| async move {
        let mut rows = Vec::with_capacity(batch.len());
        for Finding { monitor, at, fence, state, latency_us, error } in batch {
            rows.push((monitor, *at, *fence, state.as_str(), *latency_us, error.as_deref()));
        }
        let head = "INSERT INTO uptime_result (monitor_id, at, fence, state, latency_us, error)";
        tx.insert_all(head, rows, "ON CONFLICT DO NOTHING").await?;
        // What comes late into an hour that was summed makes that hour, and its day, be summed again.
        let oldest = batch.iter().map(|finding| finding.at.0).min().unwrap_or(i64::MAX);
        let again = sql("UPDATE uptime_summed SET until = $1 WHERE until > $1");
        tx.execute(again.bind(UnixMs(oldest - oldest.rem_euclid(HOUR_MS)))).await?;
        Ok::<_, hob_database::Error>(())
    };
    Ok(database.write_with(Isolation::Committed, work).await?)
}
