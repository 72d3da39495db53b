//! The call log in the database: what may have reached an API. Callers that write at the same time share one
//! transaction.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use hob_database::{Database, Isolation, Transaction, UnixMs};
use hob_store::epoch::Epoch;
use tokio::sync::oneshot;

use super::QuotaName;
use crate::database::{calls, quotas};
use crate::error::{Error, Result};

/// A row: calls under one reservation, or calls that others were found to have made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoggedCall {
    pub(crate) id: String,
    pub(crate) quota: QuotaName,
    pub(crate) run: String,
    pub(crate) calls: u32,
    pub(crate) reserved_at: UnixMs,
    /// When the answer came; before that, when it must have come.
    pub(crate) until: UnixMs,
    pub(crate) settled: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum LogEntry {
    /// Reserved in an epoch. Refused when that is over: whoever rebuilt the store has not seen this call.
    Reserved { call: LoggedCall, epoch: Epoch },
    /// Made by others, noticed now.
    Foreign(LoggedCall),
    /// Of its calls so many were made, and ended then; none were if there are 0.
    Settled { id: String, made: u32, ended: UnixMs },
    /// The API refuses until then.
    Blocked { quota: QuotaName, until: UnixMs },
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogOutcome {
    Written,
    /// Its epoch is over.
    StaleEpoch,
}

type WriteResult = Result<LogOutcome, Arc<hob_database::Error>>;

/// An entry, and who waits for it to be written.
type Waiting = (LogEntry, oneshot::Sender<WriteResult>);

#[derive(Clone, Debug)]
pub(crate) struct CallLog {
    database: Database,
    waiting: Arc<Mutex<Vec<Waiting>>>,
    /// Held by the one who writes for all.
    writer: Arc<tokio::sync::Mutex<()>>,
}

impl CallLog {
    pub(crate) fn new(database: &Database) -> Self {
        Self { database: database.clone(), waiting: Arc::default(), writer: Arc::default() }
    }

    /// Writes an entry, together with those of all who wait at that moment.
    pub(crate) async fn write(&self, entry: LogEntry) -> Result<LogOutcome> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push((entry, sender));
        {
            let _writer = self.writer.lock().await;
            let batch = mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            self.write_all(batch).await;
        }
        match receiver.await {
            Ok(answer) => answer.map_err(Error::CallLog),
            // Whoever wrote for all was cancelled half-way.
            Err(_) => Err(hob_database::Error::Uncertain { source: None }.into()),
        }
    }

    async fn write_all(&self, batch: Vec<Waiting>) {
        if batch.is_empty() {
            return;
        }
        let (entries, callers): (Vec<LogEntry>, Vec<_>) = batch.into_iter().unzip();
        let entries = &entries;
        let work = |tx: Transaction| async move {
            let mut written = Vec::with_capacity(entries.len());
            for entry in entries {
                written.push(write_one(&tx, entry).await?);
            }
            Ok::<_, hob_database::Error>(written)
        };
        match self.database.write_with(Isolation::Committed, work).await {
            Ok(written) => callers.into_iter().zip(written).for_each(|(caller, written)| {
                let _ = caller.send(Ok(written));
            }),
            Err(error) => {
                let error = Arc::new(error);
                callers.into_iter().for_each(|caller| {
                    let _ = caller.send(Err(Arc::clone(&error)));
                });
            }
        }
    }
}

async fn write_one(tx: &Transaction, entry: &LogEntry) -> Result<LogOutcome, hob_database::Error> {
    match entry {
        LogEntry::Reserved { call, epoch } if epoch.get() != quotas::lock_epoch(tx, &call.quota).await? => {
            return Ok(LogOutcome::StaleEpoch);
        }
        LogEntry::Reserved { call, .. } | LogEntry::Foreign(call) => calls::insert(tx, call).await?,
        LogEntry::Settled { id, made: 0, .. } => calls::delete(tx, id).await?,
        LogEntry::Settled { id, made, ended } => calls::settle(tx, id, *made, *ended).await?,
        LogEntry::Blocked { quota, until } => quotas::block_until(tx, quota, *until).await?,
    }
    Ok(LogOutcome::Written)
}
