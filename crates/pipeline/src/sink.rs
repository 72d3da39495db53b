//! Sinks: files and tables that receive results. A result waits in the database until its sink has it. A file has one
//! writer at a time, which truncates it to the committed length before it appends; a table replaces rows by key. So each
//! result arrives once, even after a crash. Each run writes its own file. When the run completes, the path in the plan
//! becomes a link to this file; no run changes the output of another.

mod column;
mod json_lines;
mod table;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hob_database::{Database, Isolation, Transaction};
use hob_service::config::Secrets;

use crate::database::outputs::{self, SinkLease};
use crate::database::runs;
use crate::error::{Error, Result};
use crate::plan::output_path::OutputPath;
use crate::plan::secrets;
use crate::plan::{Plan, Sink, SinkDatabase};
use crate::run::RunId;
pub use column::ColumnType;
use json_lines::JsonLinesFile;
use table::Table;

/// Results per write.
const BATCH: u32 = 1000;
/// Lease of a writer.
const LEASE: Duration = Duration::from_secs(15);

/// The sinks of a run, written by this node.
#[derive(Debug)]
pub(crate) struct Sinks {
    database: Database,
    run: RunId,
    /// Owner of the leases. Random, so that a restarted node is a new writer.
    writer: String,
    all: Vec<SinkWriter>,
}

#[derive(Debug)]
struct SinkWriter {
    name: String,
    target: Target,
    open: Option<OpenTarget>,
    /// Whether the file exists; always true for a table.
    created: bool,
}

#[derive(Debug)]
enum Target {
    /// `path` is the path in the plan.
    JsonLines { folder: PathBuf, path: OutputPath },
    Table {
        database: SinkDatabase,
        table: String,
        key: Vec<String>,
        columns: Vec<String>,
        /// Types that the plan declares.
        types: BTreeMap<String, ColumnType>,
    },
}

#[derive(Debug)]
enum OpenTarget {
    JsonLines(JsonLinesFile),
    Table(Table),
}

/// What a sink has received from a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    pub sink: String,
    /// The file, relative to the folder of pipelines; empty for a table.
    pub file: String,
    /// Lines in the file, or rows inserted into or replaced in the table.
    pub rows: u64,
}

impl Sinks {
    pub(crate) fn new(database: &Database, run: &RunId, plan: &Plan, folder: &Path) -> Self {
        let target = |name: &String, sink: &Sink| match sink {
            Sink::JsonLines { path } => Target::JsonLines { folder: folder.to_owned(), path: path.clone() },
            Sink::Table { database, table, key, types } => {
                let database = match database {
                    SinkDatabase::Sqlite(path) => SinkDatabase::Sqlite(folder.join(path)),
                    secret @ SinkDatabase::Postgres(_) => secret.clone(),
                };
                let columns = plan.columns_of(name);
                let (table, key, types) = (table.clone(), key.clone(), types.clone());
                Target::Table { database, table, key, columns, types }
            }
        };
        let writer = |(name, sink): (&String, &Sink)| {
            let created = matches!(sink, Sink::Table { .. });
            SinkWriter { name: String::clone(name), target: target(name, sink), open: None, created }
        };
        let all = plan.sinks.iter().map(writer).collect();
        let writer = format!("{:016x}", rand::random::<u64>());
        Self { database: database.clone(), run: run.clone(), writer, all }
    }

    /// Writes the waiting results, and returns how many it wrote. If a sink fails, its results keep waiting, and the other
    /// sinks are still written.
    pub(crate) async fn drain(&mut self, secrets: &Secrets) -> Result<u64> {
        let mut written = 0;
        let mut failed = None;
        for index in 0..self.all.len() {
            match self.drain_one(index, secrets).await {
                Ok(count) => written += count,
                Err(error) => {
                    // Reopened next time: the file may have been replaced, or the disk cleared.
                    self.all[index].open = None;
                    failed = Some(Error::Conflict(format!("sink {}: {error}", self.all[index].name)));
                }
            }
        }
        failed.map_or(Ok(written), Err)
    }

    async fn drain_one(&mut self, index: usize, secrets: &Secrets) -> Result<u64> {
        let mut total = 0;
        loop {
            let name = self.all[index].name.clone();
            let any = outputs::waiting(&self.database, &self.run, &name, 1).await?;
            if any.is_empty() && self.is_created(index).await? {
                return Ok(total);
            }
            let Some(lease) = self.acquire(&name).await? else {
                // A file that stays open is locked, and the writer that has the lease could not open it.
                self.all[index].open = None;
                return Ok(total);
            };
            // Read under the lease: the writer before may have written results that were waiting until then.
            let waiting = outputs::waiting(&self.database, &self.run, &name, BATCH).await?;
            let lines: Vec<&str> = waiting.iter().map(|(_, line)| line.as_str()).collect();
            if self.all[index].open.is_none() {
                let open = self.open(index, &lease, &lines, secrets).await?;
                (self.all[index].open, self.all[index].created) = (Some(open), true);
            }
            if waiting.is_empty() {
                return Ok(total);
            }
            let length = self.all[index].write(lease.length, &lines, secrets).await?;
            let seqs: Vec<i64> = waiting.iter().map(|(seq, _)| *seq).collect();
            self.commit(&name, &lease, length, &seqs).await?;
            total += u64::try_from(seqs.len()).unwrap_or(u64::MAX);
        }
    }

    /// Whether the file of the sink exists. A run without results gets an empty file.
    async fn is_created(&mut self, index: usize) -> Result<bool> {
        if !self.all[index].created {
            let lease = outputs::find_lease(&self.database, &self.run, &self.all[index].name).await?;
            self.all[index].created = lease.is_some_and(|lease| lease.has_file());
        }
        Ok(self.all[index].created)
    }

    /// `lines` are the results that are written first.
    async fn open(
        &self,
        index: usize,
        lease: &SinkLease,
        lines: &[&str],
        secrets: &Secrets,
    ) -> Result<OpenTarget> {
        match &self.all[index].target {
            Target::Table { database, table, key, columns, types } => {
                let columns = column::columns(columns, types, lines);
                Ok(OpenTarget::Table(Table::open(database, table, key, &columns, secrets).await?))
            }
            Target::JsonLines { folder, .. } if !lease.file.is_empty() => {
                Ok(OpenTarget::JsonLines(JsonLinesFile::open(&folder.join(&lease.file)).await?))
            }
            Target::JsonLines { folder, path } if lease.has_file() => {
                let path = folder.join(path.link().unwrap_or_else(|| Path::new("")));
                // Writing through the link would truncate the file of another run.
                if path.is_symlink() {
                    let reason = format!(
                        "{} is a link now, and this run was started by an earlier version of Hob; cancel it and start a new one",
                        path.display()
                    );
                    return Err(Error::Conflict(reason));
                }
                Ok(OpenTarget::JsonLines(JsonLinesFile::open(&path).await?))
            }
            Target::JsonLines { folder, path } => {
                let (file, path) = JsonLinesFile::create(folder, path, &self.run).await?;
                self.set_file(&self.all[index].name, lease, &path).await?;
                Ok(OpenTarget::JsonLines(file))
            }
        }
    }

    /// Records the file of the run before the first write.
    async fn set_file(&self, sink: &str, lease: &SinkLease, file: &Path) -> Result<()> {
        if outputs::set_file(&self.database, &self.run, sink, lease, &file.to_string_lossy()).await? {
            Ok(())
        } else {
            Err(Error::Conflict("another writer holds the lease".to_owned()))
        }
    }

    /// Acquires or renews the lease; `None` while another writer holds it.
    async fn acquire(&self, sink: &str) -> Result<Option<SinkLease>> {
        let (run, writer) = (&self.run, self.writer.as_str());
        let work =
            |tx: Transaction| async move { outputs::acquire_lease(&tx, run, sink, writer, LEASE).await };
        Ok(self.database.write_with(Isolation::ReadCommitted, work).await?)
    }

    /// Deletes written results and records the new length, in one transaction.
    async fn commit(&self, sink: &str, lease: &SinkLease, length: u64, seqs: &[i64]) -> Result<()> {
        let run = &self.run;
        let written = i64::try_from(seqs.len()).unwrap_or(i64::MAX);
        let work = |tx: Transaction| async move {
            if !outputs::advance(&tx, run, sink, lease, length, written).await? {
                return Err(Error::Conflict("another writer holds the lease".to_owned()));
            }
            outputs::delete(&tx, run, sink, seqs).await?;
            Ok(())
        };
        self.database.write_with(Isolation::ReadCommitted, work).await
    }

    /// Releases the leases, so that another node can take over at once.
    pub(crate) async fn release(&mut self) -> Result<()> {
        self.all.iter_mut().for_each(|writer| writer.open = None);
        outputs::release_leases(&self.database, &self.run, &self.writer).await?;
        Ok(())
    }
}

impl SinkWriter {
    /// Writes lines after `length` bytes. Returns the new length.
    async fn write(&mut self, length: u64, lines: &[&str], secrets: &Secrets) -> Result<u64> {
        if let Target::Table { database: SinkDatabase::Postgres(name), .. } = &self.target {
            // Checked before each write: the permission may have been revoked since the table was opened.
            secrets::database_url(secrets, name).map_err(|refused| Error::secret("postgres", refused))?;
        }
        match &mut self.open {
            Some(OpenTarget::JsonLines(file)) => file.append(length, lines).await,
            Some(OpenTarget::Table(table)) => table.upsert(lines).await.map(|()| 0),
            None => Ok(length),
        }
    }
}

/// Points the output links of the plan to the files of a run that is about to complete, unless another run has
/// precedence. `false` if a file does not exist yet.
pub(crate) async fn publish(database: &Database, run: &RunId, plan: &Plan, folder: &Path) -> Result<bool> {
    let files: BTreeMap<String, Output> =
        outputs::list(database, run).await?.into_iter().map(|output| (output.sink.clone(), output)).collect();
    let outranked = runs::is_outranked(database, run).await?;
    for (name, sink) in &plan.sinks {
        let Sink::JsonLines { path } = sink else { continue };
        let Some(output) = files.get(name) else { return Ok(false) };
        match path.link().map(|link| folder.join(link)) {
            // Started by an earlier version: the file has the path of the link.
            _ if output.file.is_empty() && output.rows > 0 => {}
            _ if output.file.is_empty() => return Ok(false),
            Some(link) if !outranked || link.symlink_metadata().is_err() => {
                json_lines::link(&link, &folder.join(&output.file)).await?;
            }
            _ => {}
        }
    }
    Ok(true)
}
