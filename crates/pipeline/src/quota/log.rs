//! The call log in the database: every call that may have reached an API. Concurrent writes share one transaction.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use hob_database::{Database, Isolation, Transaction, UnixMs};
use hob_store::epoch::{Epoch, Fence};
use tokio::sync::oneshot;

use super::QuotaName;
use crate::database::{calls, quotas};
use crate::error::{Error, Result};

/// The calls of one reservation, or foreign calls that were detected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoggedCall {
    pub(crate) id: String,
    pub(crate) quota: QuotaName,
    pub(crate) run: String,
    pub(crate) calls: u32,
    pub(crate) reserved_at: UnixMs,
    /// When the calls ended; before that, the deadline.
    pub(crate) until: UnixMs,
    pub(crate) settled: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum LogEntry {
    /// A reservation. Refused if its epoch is stale: the rebuild did not see this call. Also refused if another reservation
    /// has its number: the store has lost that one.
    Reserved { call: LoggedCall, epoch: Epoch, number: Option<Fence> },
    /// Calls of other clients, detected now.
    Foreign(LoggedCall),
    /// The reservation ended, and `made` calls were made.
    Settled { id: String, made: u32, ended: UnixMs },
    /// The API refuses calls until this time.
    Blocked { quota: QuotaName, until: UnixMs },
}

/// Whether an entry was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogOutcome {
    Written,
    /// Refused: the epoch has been raised.
    StaleEpoch,
    /// Refused: another reservation has the number.
    RepeatedNumber,
}

type WriteResult = Result<LogOutcome, Arc<hob_database::Error>>;

/// An entry, and the caller that waits for it.
type Waiting = (LogEntry, oneshot::Sender<WriteResult>);

#[derive(Clone, Debug)]
pub(crate) struct CallLog {
    database: Database,
    waiting: Arc<Mutex<Vec<Waiting>>>,
    /// Held by the caller that writes for all.
    writer: Arc<tokio::sync::Mutex<()>>,
}

impl CallLog {
    pub(crate) fn new(database: &Database) -> Self {
        Self { database: database.clone(), waiting: Arc::default(), writer: Arc::default() }
    }

    /// Writes an entry, together with all entries that wait at that moment.
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
            // The writing task was cancelled.
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
        match self.database.write_with(Isolation::ReadCommitted, work).await {
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
        LogEntry::Reserved { call, epoch, .. }
            if epoch.get() != quotas::lock_epoch(tx, &call.quota).await? =>
        {
            return Ok(LogOutcome::StaleEpoch);
        }
        LogEntry::Reserved { call, number, .. } => {
            if !calls::insert(tx, call, *number).await?
                && calls::find(tx, &call.quota, &call.id).await?.is_none()
            {
                return Ok(LogOutcome::RepeatedNumber);
            }
        }
        LogEntry::Foreign(call) => _ = calls::insert(tx, call, None).await?,
        LogEntry::Settled { id, made, ended } => calls::settle(tx, id, *made, *ended).await?,
        LogEntry::Blocked { quota, until } => quotas::block_until(tx, quota, *until).await?,
    }
    Ok(LogOutcome::Written)
}
