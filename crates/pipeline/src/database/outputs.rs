//! `pipeline_output` and `pipeline_sink`: results that wait for a sink, and how far each sink is.

use std::time::Duration;

use hob_database::{Database, Read, Transaction, from_row, sql};

use super::Result;
use crate::run::RunId;
use crate::sink::Output;

/// The lease of a sink's writer, and how far the sink is.
pub(crate) struct SinkLease {
    /// Bytes of the file that are committed.
    pub(crate) length: u64,
    pub(crate) fence: i64,
    /// Relative to the folder of pipelines; empty until the file exists.
    pub(crate) file: String,
}

impl SinkLease {
    pub(crate) fn has_file(&self) -> bool {
        !self.file.is_empty() || self.length > 0
    }
}

from_row!(SinkLease { length, fence, file });
from_row!(Output { sink, file, rows });

/// Adds results: sink, number of the item, line.
pub(crate) async fn insert(tx: &Transaction, run: &RunId, lines: Vec<(&str, i64, &str)>) -> Result<()> {
    let rows: Vec<_> = lines.into_iter().map(|(sink, seq, line)| (run, sink, seq, line)).collect();
    let head = "INSERT INTO pipeline_output (run, sink, seq, line)";
    tx.insert_all(head, rows, "ON CONFLICT DO NOTHING").await?;
    Ok(())
}

/// The next results for a sink: number of the item, line.
pub(crate) async fn waiting(
    on: &impl Read,
    run: &RunId,
    sink: &str,
    limit: u32,
) -> Result<Vec<(i64, String)>> {
    let list =
        sql("SELECT seq, line FROM pipeline_output WHERE run = $1 AND sink = $2 ORDER BY seq LIMIT $3");
    on.all(list.bind(run).bind(sink).bind(limit)).await
}

/// Whether more than `limit` results of a run wait for their sinks.
pub(crate) async fn has_more_than(on: &impl Read, run: &RunId, limit: u32) -> Result<bool> {
    let find = sql("SELECT seq FROM pipeline_output WHERE run = $1 LIMIT 1 OFFSET $2");
    Ok(on.optional::<(i64,)>(find.bind(run).bind(limit)).await?.is_some())
}

pub(crate) async fn delete(tx: &Transaction, run: &RunId, sink: &str, seqs: &[i64]) -> Result<()> {
    let delete = sql("DELETE FROM pipeline_output WHERE run = $1 AND sink = $2 AND seq IN ($3...)");
    tx.execute(delete.bind(run).bind(sink).bind_list(seqs.iter().copied())).await?;
    Ok(())
}

/// What the sinks of a run have received.
pub(crate) async fn list(on: &impl Read, run: &RunId) -> Result<Vec<Output>> {
    on.all(sql("SELECT sink, file, rows FROM pipeline_sink WHERE run = $1 ORDER BY sink").bind(run)).await
}

pub(crate) async fn find_lease(on: &impl Read, run: &RunId, sink: &str) -> Result<Option<SinkLease>> {
    let find = sql("SELECT length, fence, file FROM pipeline_sink WHERE run = $1 AND sink = $2");
    on.optional(find.bind(run).bind(sink)).await
}

/// Acquires or renews the lease of a sink; `None` while another writer holds it.
pub(crate) async fn acquire_lease(
    tx: &Transaction,
    run: &RunId,
    sink: &str,
    writer: &str,
    lease: Duration,
) -> Result<Option<SinkLease>> {
    let acquire =
        sql("INSERT INTO pipeline_sink (run, sink, length, rows, fence, writer, until, trouble, file)
        VALUES ($1, $2, 0, 0, 1, $3, $4, '', '')
        ON CONFLICT (run, sink) DO UPDATE SET writer = $3, until = $4, fence = pipeline_sink.fence + 1
        WHERE pipeline_sink.writer = $3 OR pipeline_sink.until <= $5
        RETURNING length, fence, file");
    let acquire = acquire.bind(run).bind(sink).bind(writer).bind(tx.now().plus(lease)).bind(tx.now());
    tx.optional(acquire).await
}

/// Releases all leases of a writer.
pub(crate) async fn release_leases(database: &Database, run: &RunId, writer: &str) -> Result<()> {
    let release = sql("UPDATE pipeline_sink SET until = 0 WHERE run = $1 AND writer = $2");
    database.execute(release.bind(run).bind(writer)).await?;
    Ok(())
}

/// Records the file of a sink; `false` if the lease is lost.
pub(crate) async fn set_file(
    database: &Database,
    run: &RunId,
    sink: &str,
    lease: &SinkLease,
    file: &str,
) -> Result<bool> {
    let set = sql("UPDATE pipeline_sink SET file = $4 WHERE run = $1 AND sink = $2 AND fence = $3");
    Ok(database.execute(set.bind(run).bind(sink).bind(lease.fence).bind(file)).await? > 0)
}

/// Records that a sink has `rows` more rows and `length` bytes; `false` if the lease is lost.
pub(crate) async fn advance(
    tx: &Transaction,
    run: &RunId,
    sink: &str,
    lease: &SinkLease,
    length: u64,
    rows: i64,
) -> Result<bool> {
    let advance = sql("UPDATE pipeline_sink SET length = $4, rows = rows + $5
                       WHERE run = $1 AND sink = $2 AND fence = $3");
    let advance = advance.bind(run).bind(sink).bind(lease.fence).bind(length).bind(rows);
    Ok(tx.execute(advance).await? > 0)
}
