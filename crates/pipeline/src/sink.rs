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
use json_lines::Lines;
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
    all: Vec<Writer>,
}

#[derive(Debug)]
struct Writer {
    name: String,
    goes_to: Goal,
    open: Option<Open>,
    /// Whether its file is known to be there, or it has none.
    created: bool,
}

#[derive(Debug)]
enum Goal {
    /// By the path that is in the plan.
    Lines {
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
enum Open {
    Lines(Lines),
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
            Sink::Lines { path } => Goal::Lines { folder: folder.to_owned(), path: path.clone() },
            Sink::Table { database, table, key } => {
                let database = match database {
                    SinkDatabase::Sqlite(path) => SinkDatabase::Sqlite(folder.join(path)),
                    secret @ SinkDatabase::Secret(_) => secret.clone(),
                };
                let columns = plan.columns_of(name);
                Goal::Table { database, table: table.clone(), key: key.clone(), columns }
            }
        };
        let writer = |(name, sink): (&String, &Sink)| {
            let created = matches!(sink, Sink::Table { .. });
            Writer { name: String::clone(name), goes_to: goal(name, sink), open: None, created }
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
            let waiting = outputs::waiting(&self.database, &self.run, &name, BATCH).await?;
            if waiting.is_empty() && self.is_created(at).await? {
                return Ok(total);
            }
            let Some(held) = self.hold(&name).await? else { return Ok(total) };
            if self.all[at].open.is_none() {
                let open = self.open(at, &held, secrets).await?;
                (self.all[at].open, self.all[at].created) = (Some(open), true);
            }
            if waiting.is_empty() {
                return Ok(total);
            }
            let lines: Vec<&str> = waiting.iter().map(|(_, line)| line.as_str()).collect();
            let length = self.all[at].write(held.length, &lines, secrets).await?;
            let seqs: Vec<i64> = waiting.iter().map(|(seq, _)| *seq).collect();
            self.forget(&name, &held, length, &seqs).await?;
            total += u64::try_from(seqs.len()).unwrap_or(u64::MAX);
        }
    }

    /// Whether the sink's file is there: also a run without results has one when it completes.
    async fn is_created(&mut self, at: usize) -> Result<bool> {
        if !self.all[at].created {
            let lease = outputs::find_lease(&self.database, &self.run, &self.all[at].name).await?;
            self.all[at].created = lease.is_some_and(|lease| lease.has_file());
        }
        Ok(self.all[at].created)
    }

    async fn open(&self, at: usize, held: &SinkLease, secrets: &Secrets) -> Result<Open> {
        match &self.all[at].goes_to {
            Goal::Table { database, table, key, columns } => {
                Ok(Open::Table(Table::open(database, table, key, columns, secrets).await?))
            }
            Goal::Lines { folder, .. } if !held.file.is_empty() => {
                Ok(Open::Lines(Lines::open(&folder.join(&held.file)).await?))
            }
            Goal::Lines { folder, path } if held.has_file() => {
                let path = folder.join(path);
                // Through a link it would cut the file of another run.
                if path.is_symlink() {
                    let reason =
                        format!("{} was begun by an earlier version, and is a link now", path.display());
                    return Err(Error::Refused(reason));
                }
                Ok(Open::Lines(Lines::open(&path).await?))
            }
            Goal::Lines { folder, path } => {
                let (file, path) = Lines::create(folder, path, &self.run).await?;
                self.set_file(&self.all[at].name, held, &path).await?;
                Ok(Open::Lines(file))
            }
        }
    }

    /// Notes which file the run writes, before anything is written to it.
    async fn set_file(&self, sink: &str, held: &SinkLease, file: &Path) -> Result<()> {
        if outputs::set_file(&self.database, &self.run, sink, held, &file.to_string_lossy()).await? {
            Ok(())
        } else {
            Err(Error::Refused("another writer has taken over".to_owned()))
        }
    }

    /// Becomes the sink's writer, or stays it; `None` while another is.
    async fn hold(&self, sink: &str) -> Result<Option<SinkLease>> {
        let (run, writer) = (&self.run, self.writer.as_str());
        let work =
            |tx: Transaction| async move { outputs::acquire_lease(&tx, run, sink, writer, LEASE).await };
        Ok(self.database.write_with(Isolation::Committed, work).await?)
    }

    /// Removes results that were written, and records the new length in the same transaction.
    async fn forget(&self, sink: &str, held: &SinkLease, length: u64, seqs: &[i64]) -> Result<()> {
        let run = &self.run;
        let written = i64::try_from(seqs.len()).unwrap_or(i64::MAX);
        let work = |tx: Transaction| async move {
            if !outputs::advance(&tx, run, sink, held, length, written).await? {
                return Err(Error::Refused("another writer has taken over".to_owned()));
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

impl Writer {
    /// Writes lines behind `length` bytes, and answers with the length after that.
    async fn write(&mut self, length: u64, lines: &[&str], secrets: &Secrets) -> Result<u64> {
        if let Goal::Table { database: SinkDatabase::Secret(name), .. } = &self.goes_to {
            // Asked before each write: the permission may have been withdrawn since the table was opened.
            secrets::database(secrets, name).map_err(|refused| Error::secret("postgres", refused))?;
        }
        match &mut self.open {
            Some(Open::Lines(file)) => file.append(length, lines).await,
            Some(Open::Table(table)) => table.upsert(lines).await.map(|()| 0),
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
        let Sink::Lines { path } = sink else { continue };
        let Some(output) = files.get(name) else { return Ok(false) };
        match file_name::link_of(path).map(|link| folder.join(link)) {
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
