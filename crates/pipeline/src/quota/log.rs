//! The call log in the database: what may have reached an API. Callers that write at the same time share one
//! transaction.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use hob_database::{Database, Isolation, PerDialect, Read as _, Transaction, UnixMs, from_row, sql};
use hob_store::epoch::Epoch;
use tokio::sync::oneshot;

use super::QuotaName;
use crate::error::{Error, Result};

/// A row: calls under one reservation, or calls that others were found to have made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) quota: QuotaName,
    pub(crate) run: String,
    pub(crate) calls: u32,
    pub(crate) reserved_at: UnixMs,
    /// When the answer came; before that, when it must have come.
    pub(crate) until: UnixMs,
    pub(crate) settled: bool,
}

from_row!(Call { id, quota, run, calls, reserved_at, until, settled });

#[derive(Clone, Debug)]
pub(crate) enum Entry {
    /// Reserved in an epoch. Refused when that is over: whoever rebuilt the store has not seen this call.
    Open { call: Call, epoch: Epoch },
    /// Made by others, noticed now.
    Foreign(Call),
    /// Of its calls so many were made, and ended then; none were if there are 0.
    Close { id: String, made: u32, ended: UnixMs },
    /// The API refuses until then.
    Blocked { quota: QuotaName, until: UnixMs },
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Written,
    /// Its epoch is over.
    Late,
}

type Answer = Result<Written, Arc<hob_database::Error>>;

/// An entry, and who waits for it to be written.
type Waiting = (Entry, oneshot::Sender<Answer>);

#[derive(Clone, Debug)]
pub(crate) struct CallLog {
    database: Database,
    waiting: Arc<Mutex<Vec<Waiting>>>,
    /// Held by the one who writes for all.
    pen: Arc<tokio::sync::Mutex<()>>,
}

impl CallLog {
    pub(crate) fn new(database: &Database) -> Self {
        Self { database: database.clone(), waiting: Arc::default(), pen: Arc::default() }
    }

    /// Writes an entry, together with those of all who wait at that moment.
    pub(crate) async fn write(&self, entry: Entry) -> Result<Written> {
        let (tell, told) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push((entry, tell));
        {
            let _pen = self.pen.lock().await;
            let batch = mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            self.write_all(batch).await;
        }
        match told.await {
            Ok(answer) => answer.map_err(Error::Log),
            // Whoever wrote for all was cancelled half-way.
            Err(_) => Err(hob_database::Error::Uncertain { source: None }.into()),
        }
    }

    async fn write_all(&self, batch: Vec<Waiting>) {
        if batch.is_empty() {
            return;
        }
        let (entries, callers): (Vec<Entry>, Vec<_>) = batch.into_iter().unzip();
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

    pub(crate) async fn find(&self, quota: &QuotaName, id: &str) -> Result<Option<Call>> {
        let find = sql("SELECT id, quota, run, calls, reserved_at, until, settled FROM pipeline_call
                        WHERE id = $1 AND quota = $2");
        Ok(self.database.optional(find.bind(id).bind(quota)).await?)
    }

    /// The next calls after `after` that end later than `since`, in the order of their ends.
    pub(crate) async fn ended_after(
        &self,
        quota: &QuotaName,
        since: UnixMs,
        after: &(UnixMs, String),
        most: u32,
    ) -> Result<Vec<Call>> {
        let list = sql("SELECT id, quota, run, calls, reserved_at, until, settled FROM pipeline_call
                        WHERE quota = $1 AND until > $2 AND (until, id) > ($3, $4)
                        ORDER BY until, id LIMIT $5");
        let list = list.bind(quota).bind(since).bind(after.0).bind(&after.1).bind(most);
        Ok(self.database.all(list).await?)
    }

    /// The newest time that the log knows; 0 if it is empty.
    pub(crate) async fn newest(&self, quota: &QuotaName) -> Result<UnixMs> {
        let newest =
            sql("SELECT CAST(coalesce(max(reserved_at), 0) AS BIGINT) FROM pipeline_call WHERE quota = $1");
        let (newest,) = self.database.one(newest.bind(quota)).await?;
        Ok(newest)
    }

    /// How many calls were reserved in `[from, to)`.
    pub(crate) async fn reserved_between(&self, quota: &QuotaName, from: UnixMs, to: UnixMs) -> Result<u64> {
        let count = sql("SELECT CAST(coalesce(sum(calls), 0) AS BIGINT) FROM pipeline_call
                         WHERE quota = $1 AND reserved_at >= $2 AND reserved_at < $3 AND until >= $2");
        let (count,) = self.database.one(count.bind(quota).bind(from).bind(to)).await?;
        Ok(count)
    }

    /// Calls by the step of time in which they ended, newest last.
    pub(crate) async fn history(
        &self,
        quota: &QuotaName,
        since: UnixMs,
        step_ms: i64,
    ) -> Result<Vec<(UnixMs, u64)>> {
        let history = sql("SELECT until / $3 * $3, CAST(sum(calls) AS BIGINT) FROM pipeline_call
                           WHERE quota = $1 AND until >= $2 GROUP BY 1 ORDER BY 1");
        Ok(self.database.all(history.bind(quota).bind(since).bind(step_ms)).await?)
    }

    /// Forgets what no window counts any more.
    pub(crate) async fn forget(&self, quota: &QuotaName, before: UnixMs) -> Result<u64> {
        let forget = sql("DELETE FROM pipeline_call WHERE quota = $1 AND until < $2");
        Ok(self.database.execute(forget.bind(quota).bind(before)).await?)
    }
}

/// A quota's epoch, which nobody raises before the transaction is over.
async fn current_epoch(tx: &Transaction, quota: &QuotaName) -> Result<u32, hob_database::Error> {
    const EPOCH: PerDialect = PerDialect {
        sqlite: "SELECT epoch FROM pipeline_quota WHERE name = $1",
        postgres: "SELECT epoch FROM pipeline_quota WHERE name = $1 FOR SHARE",
    };
    let (epoch,) = tx.one(sql(EPOCH).bind(quota)).await?;
    Ok(epoch)
}

async fn write_one(tx: &Transaction, entry: &Entry) -> Result<Written, hob_database::Error> {
    match entry {
        Entry::Open { call, epoch } if epoch.get() != current_epoch(tx, &call.quota).await? => {
            return Ok(Written::Late);
        }
        Entry::Open { call, .. } | Entry::Foreign(call) => {
            let insert = sql("INSERT INTO pipeline_call (id, quota, run, calls, reserved_at, until, settled)
                              VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING");
            let insert = insert.bind(&call.id).bind(&call.quota).bind(&call.run).bind(call.calls);
            tx.execute(insert.bind(call.reserved_at).bind(call.until).bind(call.settled)).await?;
        }
        Entry::Close { id, made: 0, .. } => {
            tx.execute(sql("DELETE FROM pipeline_call WHERE id = $1").bind(id)).await?;
        }
        Entry::Close { id, made, ended } => {
            let close = sql("UPDATE pipeline_call SET calls = $2, until = $3, settled = $4 WHERE id = $1");
            tx.execute(close.bind(id).bind(*made).bind(*ended).bind(true)).await?;
        }
        Entry::Blocked { quota, until } => {
            let block =
                sql("UPDATE pipeline_quota SET blocked_until = $2 WHERE name = $1 AND blocked_until < $2");
            tx.execute(block.bind(quota).bind(*until)).await?;
        }
    }
    Ok(Written::Written)
}
