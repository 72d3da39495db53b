//! Where results go. They wait in the records until their sink has them: a file is written by one writer at a time and
//! cut to the length that was committed before anything is appended, a table takes a row again without harm. So every
//! result arrives once, whatever dies when.

mod lines;
mod table;

use std::path::{Path, PathBuf};
use std::time::Duration;

use hob_house::config::Secrets;
use hob_records::{Isolation, Read as _, Records, Transaction, from_row, sql};

use crate::definition::{Database, Plan, Sink};
use crate::error::{Error, Result};
use crate::run::RunId;
use lines::Lines;
use table::Table;

/// Results of one write.
const BATCH: u32 = 1000;
/// How long a writer may be silent before another takes its place.
const LEASE: Duration = Duration::from_secs(15);

/// The sinks of a run, as far as this node writes them.
#[derive(Debug)]
pub(crate) struct Sinks {
    records: Records,
    run: RunId,
    /// Who writes: random, so that a restarted node is another.
    writer: String,
    all: Vec<Writer>,
}

#[derive(Debug)]
struct Writer {
    name: String,
    goes_to: Goal,
    open: Option<Open>,
}

#[derive(Debug)]
enum Goal {
    Lines(PathBuf),
    Table { database: Database, table: String, key: Vec<String>, columns: Vec<String> },
}

#[derive(Debug)]
enum Open {
    Lines(Lines),
    Table(Table),
}

/// What a writer holds.
struct Held {
    length: u64,
    fence: i64,
}

from_row!(Held { length, fence });

impl Sinks {
    pub(crate) fn new(records: &Records, run: &RunId, plan: &Plan, folder: &Path) -> Self {
        let goal = |name: &String, sink: &Sink| match sink {
            Sink::Lines { path } => Goal::Lines(folder.join(path)),
            Sink::Table { database, table, key } => {
                let database = match database {
                    Database::Sqlite(path) => Database::Sqlite(folder.join(path)),
                    secret @ Database::Secret(_) => secret.clone(),
                };
                let columns = plan.columns_of(name);
                Goal::Table { database, table: table.clone(), key: key.clone(), columns }
            }
        };
        let writer =
            |(name, sink)| Writer { name: String::clone(name), goes_to: goal(name, sink), open: None };
        let all = plan.sinks.iter().map(writer).collect();
        let writer = format!("{:016x}", rand::random::<u64>());
        Self { records: records.clone(), run: run.clone(), writer, all }
    }

    /// Writes what waits, and says how many results were written. A sink that fails keeps its results waiting, and the
    /// others are written all the same.
    pub(crate) async fn drain(&mut self, secrets: &Secrets) -> Result<u64> {
        let mut written = 0;
        let mut failed = None;
        for at in 0..self.all.len() {
            match self.drain_one(at, secrets).await {
                Ok(count) => written += count,
                Err(error) => {
                    // Opened anew next time: the file may have been replaced, the disk emptied.
                    self.all[at].open = None;
                    failed = Some(Error::Refused(format!("sink {}: {error}", self.all[at].name)));
                }
            }
        }
        failed.map_or(Ok(written), Err)
    }

    async fn drain_one(&mut self, at: usize, secrets: &Secrets) -> Result<u64> {
        let mut total = 0;
        loop {
            let name = self.all[at].name.clone();
            let waiting = sql(
                "SELECT seq, line FROM pipeline_output WHERE run = $1 AND sink = $2 ORDER BY seq LIMIT $3",
            );
            let waiting: Vec<(i64, String)> =
                self.records.all(waiting.bind(&self.run).bind(&name).bind(BATCH)).await?;
            if waiting.is_empty() {
                return Ok(total);
            }
            let Some(held) = self.hold(&name).await? else { return Ok(total) };
            let lines: Vec<&str> = waiting.iter().map(|(_, line)| line.as_str()).collect();
            let length = self.all[at].write(held.length, &lines, secrets).await?;
            let seqs: Vec<i64> = waiting.iter().map(|(seq, _)| *seq).collect();
            self.forget(&name, &held, length, &seqs).await?;
            total += u64::try_from(seqs.len()).unwrap_or(u64::MAX);
        }
    }

    /// Becomes the sink's writer, or stays it; `None` while another is.
    async fn hold(&self, sink: &str) -> Result<Option<Held>> {
        let (run, writer) = (&self.run, self.writer.as_str());
        let work = |tx: Transaction| async move {
            let (now, until) = (tx.now(), tx.now().plus(LEASE));
            let hold =
                sql("INSERT INTO pipeline_sink (run, sink, length, rows, fence, writer, until, trouble)
                VALUES ($1, $2, 0, 0, 1, $3, $4, '')
                ON CONFLICT (run, sink) DO UPDATE SET writer = $3, until = $4, fence = pipeline_sink.fence + 1
                WHERE pipeline_sink.writer = $3 OR pipeline_sink.until <= $5
                RETURNING length, fence");
            tx.optional(hold.bind(run).bind(sink).bind(writer).bind(until).bind(now)).await
        };
        Ok(self.records.write_with(Isolation::Committed, work).await?)
    }

    /// The results are where they should be: with the new length, in one breath.
    async fn forget(&self, sink: &str, held: &Held, length: u64, seqs: &[i64]) -> Result<()> {
        let run = &self.run;
        let written = i64::try_from(seqs.len()).unwrap_or(i64::MAX);
        let work = |tx: Transaction| async move {
            let advance = sql("UPDATE pipeline_sink SET length = $4, rows = rows + $5
                               WHERE run = $1 AND sink = $2 AND fence = $3");
            let advance = advance.bind(run).bind(sink).bind(held.fence).bind(length).bind(written);
            if tx.execute(advance).await? == 0 {
                return Err(Error::Refused("another writer has taken over".to_owned()));
            }
            let forget = sql("DELETE FROM pipeline_output WHERE run = $1 AND sink = $2 AND seq IN ($3...)");
            tx.execute(forget.bind(run).bind(sink).bind_list(seqs.iter().copied())).await?;
            Ok(())
        };
        self.records.write_with(Isolation::Committed, work).await
    }

    /// Lets another take over at once.
    pub(crate) async fn release(&mut self) -> Result<()> {
        self.all.iter_mut().for_each(|writer| writer.open = None);
        let release = sql("UPDATE pipeline_sink SET until = 0 WHERE run = $1 AND writer = $2");
        self.records.execute(release.bind(&self.run).bind(&self.writer)).await?;
        Ok(())
    }
}

impl Writer {
    /// Writes lines behind `length` bytes, and answers with the length after that.
    async fn write(&mut self, length: u64, lines: &[&str], secrets: &Secrets) -> Result<u64> {
        if self.open.is_none() {
            self.open = Some(match &self.goes_to {
                Goal::Lines(path) => Open::Lines(Lines::open(path).await?),
                Goal::Table { database, table, key, columns } => {
                    Open::Table(Table::open(database, table, key, columns, secrets).await?)
                }
            });
        }
        match &mut self.open {
            Some(Open::Lines(file)) => file.append(length, lines).await,
            Some(Open::Table(table)) => table.upsert(lines).await.map(|()| 0),
            None => Ok(length),
        }
    }
}

/// Whether more than `most` results wait for their sinks.
pub(crate) async fn is_behind(records: &Records, run: &RunId, most: u32) -> Result<bool> {
    let beyond = sql("SELECT seq FROM pipeline_output WHERE run = $1 LIMIT 1 OFFSET $2");
    Ok(records.optional::<(i64,)>(beyond.bind(run).bind(most)).await?.is_some())
}
