//! Where results go. They wait in the database until their sink has them: a file is written by one writer at a time and
//! cut to the length that was committed before anything is appended, a table takes a row again without harm. So every
//! result arrives once, whatever dies when. Each run writes a file of its own, and when it completes, the name in the plan
//! becomes a link to it: no run ever touches what another has written.

mod file_name;
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
use crate::plan::secrets;
use crate::plan::{Plan, Sink, SinkDatabase};
use crate::run::RunId;
use json_lines::JsonLinesFile;
use table::Table;

/// Results of one write.
const BATCH: u32 = 1000;
/// How long a writer may be silent before another takes its place.
const LEASE: Duration = Duration::from_secs(15);

/// The sinks of a run, as far as this node writes them.
#[derive(Debug)]
pub(crate) struct Sinks {
    database: Database,
    run: RunId,
    /// Who writes: random, so that a restarted node is another.
    writer: String,
    all: Vec<SinkWriter>,
}

#[derive(Debug)]
struct SinkWriter {
    name: String,
    target: Target,
    open: Option<OpenTarget>,
    /// Whether its file is known to be there, or it has none.
    created: bool,
}

#[derive(Debug)]
enum Target {
    /// By the path that is in the plan.
    JsonLines {
        folder: PathBuf,
        path: PathBuf,
    },
    Table {
        database: SinkDatabase,
        table: String,
        key: Vec<String>,
        columns: Vec<String>,
    },
}

#[derive(Debug)]
enum OpenTarget {
    JsonLines(JsonLinesFile),
    Table(Table),
}

/// How much a sink has got from a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    pub sink: String,
    /// The file, relative to the folder of pipelines; empty for a table.
    pub file: String,
    /// Lines of the file, or rows that were inserted into the table or replaced.
    pub rows: u64,
}

impl Sinks {
    pub(crate) fn new(database: &Database, run: &RunId, plan: &Plan, folder: &Path) -> Self {
        let goal = |name: &String, sink: &Sink| match sink {
            Sink::JsonLines { path } => Target::JsonLines { folder: folder.to_owned(), path: path.clone() },
            Sink::Table { database, table, key } => {
                let database = match database {
                    SinkDatabase::Sqlite(path) => SinkDatabase::Sqlite(folder.join(path)),
                    secret @ SinkDatabase::Postgres(_) => secret.clone(),
                };
                let columns = plan.columns_of(name);
                Target::Table { database, table: table.clone(), key: key.clone(), columns }
            }
        };
        let writer = |(name, sink): (&String, &Sink)| {
            let created = matches!(sink, Sink::Table { .. });
            SinkWriter { name: String::clone(name), target: goal(name, sink), open: None, created }
        };
        let all = plan.sinks.iter().map(writer).collect();
        let writer = format!("{:016x}", rand::random::<u64>());
        Self { database: database.clone(), run: run.clone(), writer, all }
    }

    /// Writes what waits, and says how many results were written. A sink that fails keeps its results waiting, and the
    /// others are written all the same.
    pub(crate) async fn drain(&mut self, secrets: &Secrets) -> Result<u64> {
        let mut written = 0;
        let mut failed = None;
        for index in 0..self.all.len() {
            match self.drain_one(index, secrets).await {
                Ok(count) => written += count,
                Err(error) => {
                    // Opened anew next time: the file may have been replaced, the disk emptied.
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
            let waiting = outputs::waiting(&self.database, &self.run, &name, BATCH).await?;
            if waiting.is_empty() && self.is_created(index).await? {
                return Ok(total);
            }
            let Some(lease) = self.acquire(&name).await? else { return Ok(total) };
            if self.all[index].open.is_none() {
                let open = self.open(index, &lease, secrets).await?;
                (self.all[index].open, self.all[index].created) = (Some(open), true);
            }
            if waiting.is_empty() {
                return Ok(total);
            }
            let lines: Vec<&str> = waiting.iter().map(|(_, line)| line.as_str()).collect();
            let length = self.all[index].write(lease.length, &lines, secrets).await?;
            let seqs: Vec<i64> = waiting.iter().map(|(seq, _)| *seq).collect();
            self.commit(&name, &lease, length, &seqs).await?;
            total += u64::try_from(seqs.len()).unwrap_or(u64::MAX);
        }
    }

    /// Whether the sink's file is there: also a run without results has one when it completes.
    async fn is_created(&mut self, index: usize) -> Result<bool> {
        if !self.all[index].created {
            let lease = outputs::find_lease(&self.database, &self.run, &self.all[index].name).await?;
            self.all[index].created = lease.is_some_and(|lease| lease.has_file());
        }
        Ok(self.all[index].created)
    }

    async fn open(&self, index: usize, lease: &SinkLease, secrets: &Secrets) -> Result<OpenTarget> {
        match &self.all[index].target {
            Target::Table { database, table, key, columns } => {
                Ok(OpenTarget::Table(Table::open(database, table, key, columns, secrets).await?))
            }
            Target::JsonLines { folder, .. } if !lease.file.is_empty() => {
                Ok(OpenTarget::JsonLines(JsonLinesFile::open(&folder.join(&lease.file)).await?))
            }
            Target::JsonLines { folder, path } if lease.has_file() => {
                let path = folder.join(path);
                // Through a link it would cut the file of another run.
                if path.is_symlink() {
                    let reason =
                        format!("{} was begun by an earlier version, and is a link now", path.display());
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

    /// Notes which file the run writes, before anything is written to it.
    async fn set_file(&self, sink: &str, lease: &SinkLease, file: &Path) -> Result<()> {
        if outputs::set_file(&self.database, &self.run, sink, lease, &file.to_string_lossy()).await? {
            Ok(())
        } else {
            Err(Error::Conflict("another writer has taken over".to_owned()))
        }
    }

    /// Becomes the sink's writer, or stays it; `None` while another is.
    async fn acquire(&self, sink: &str) -> Result<Option<SinkLease>> {
        let (run, writer) = (&self.run, self.writer.as_str());
        let work =
            |tx: Transaction| async move { outputs::acquire_lease(&tx, run, sink, writer, LEASE).await };
        Ok(self.database.write_with(Isolation::Committed, work).await?)
    }

    /// Removes results that were written, and records the new length in the same transaction.
    async fn commit(&self, sink: &str, lease: &SinkLease, length: u64, seqs: &[i64]) -> Result<()> {
        let run = &self.run;
        let written = i64::try_from(seqs.len()).unwrap_or(i64::MAX);
        let work = |tx: Transaction| async move {
            if !outputs::advance(&tx, run, sink, lease, length, written).await? {
                return Err(Error::Conflict("another writer has taken over".to_owned()));
            }
            outputs::delete(&tx, run, sink, seqs).await?;
            Ok(())
        };
        self.database.write_with(Isolation::Committed, work).await
    }

    /// Lets another take over at once.
    pub(crate) async fn release(&mut self) -> Result<()> {
        self.all.iter_mut().for_each(|writer| writer.open = None);
        outputs::release_leases(&self.database, &self.run, &self.writer).await?;
        Ok(())
    }
}

impl SinkWriter {
    /// Writes lines behind `length` bytes, and answers with the length after that.
    async fn write(&mut self, length: u64, lines: &[&str], secrets: &Secrets) -> Result<u64> {
        if let Target::Table { database: SinkDatabase::Postgres(name), .. } = &self.target {
            // Asked before each write: the permission may have been withdrawn since the table was opened.
            secrets::database_url(secrets, name).map_err(|refused| Error::secret("postgres", refused))?;
        }
        match &mut self.open {
            Some(OpenTarget::JsonLines(file)) => file.append(length, lines).await,
            Some(OpenTarget::Table(table)) => table.upsert(lines).await.map(|()| 0),
            None => Ok(length),
        }
    }
}

/// Lets the names in the plan lead to the files of a run that is about to complete, unless another run has more right
/// to them. `false` while a file is yet to be created.
pub(crate) async fn publish(database: &Database, run: &RunId, plan: &Plan, folder: &Path) -> Result<bool> {
    let files: BTreeMap<String, Output> =
        outputs::list(database, run).await?.into_iter().map(|output| (output.sink.clone(), output)).collect();
    let outranked = runs::is_outranked(database, run).await?;
    for (name, sink) in &plan.sinks {
        let Sink::JsonLines { path } = sink else { continue };
        let Some(output) = files.get(name) else { return Ok(false) };
        match file_name::link_path(path).map(|link| folder.join(link)) {
            // Begun by an earlier version, it has that name already.
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
