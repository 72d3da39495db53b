//! The table `load_second`: the measurements of runners, with one row per second, step and runner.

use std::collections::{HashSet, VecDeque};

use hob_database::{Database, Read, Transaction, UnixMs, from_row, sql};
use hob_load_generator::{GeneratorSecond, Second, StepSecond};

use super::Result;
use crate::Error;
use crate::keys::TestId;
use crate::load::MAX_RUNNERS;
use crate::plan::Plan;
use crate::run::Run;
use crate::run::lifecycle::RunnerId;

/// The `step` of the row with the measurements that do not belong to a step.
const NO_STEP: i64 = -1;
/// The maximum number of rows of one read. It is enough for two of the largest seconds, so that every read contains at
/// least one complete second.
const MAX_ROWS: usize = 2 * MAX_RUNNERS as usize * (Plan::MAX_STEPS + 1);

type SecondRow = (TestId, u32, i64, String, u64, Vec<u8>);

/// Writes the seconds that a runner measured. A row that exists stays as it is.
pub(crate) async fn insert(tx: &Transaction, runner: &RunnerId, seconds: &[Second]) -> Result<()> {
    let rows = seconds.iter().flat_map(|second| rows(runner, second)).collect::<Vec<_>>();
    let head = "INSERT INTO load_second (run_id, second, step, runner, epoch, data)";
    tx.insert_all(head, rows, "ON CONFLICT DO NOTHING").await?;
    Ok(())
}

fn rows(runner: &RunnerId, second: &Second) -> Vec<SecondRow> {
    let row =
        |step: i64, data| (runner.run.clone(), second.second, step, runner.node.clone(), runner.epoch, data);
    let generator = std::iter::once(row(NO_STEP, second.generator.encode()));
    generator
        .chain(second.steps.iter().map(|(step, measured)| row(i64::from(*step), measured.encode())))
        .collect()
}

/// The newest second that a runner has written.
pub(crate) async fn newest(database: &Database, run: &Run) -> Result<Option<u32>> {
    let select =
        sql("SELECT second FROM load_second WHERE run_id = $1 AND epoch = $2 ORDER BY second DESC LIMIT 1");
    let found: Option<(u32,)> = database.optional(select.bind(&run.id).bind(run.epoch)).await?;
    Ok(found.map(|(second,)| second))
}

/// Deletes the seconds of at most 20 runs that ended before a time. Reports are kept.
pub(crate) async fn delete_ended_before(tx: &Transaction, time: UnixMs) -> Result<u64> {
    let delete = sql("DELETE FROM load_second WHERE run_id IN (
                          SELECT id FROM load_run WHERE ended_at < $1
                          AND EXISTS (SELECT 1 FROM load_second WHERE run_id = load_run.id) LIMIT 20)");
    tx.execute(delete.bind(time)).await
}

/// Reads the seconds of a run in order, each merged over its runners, with a bounded number of rows per query.
#[derive(Debug)]
pub(crate) struct SecondReader {
    run: TestId,
    epoch: u64,
    /// The first second that was not read yet.
    next: u32,
    buffer: VecDeque<MergedSecond>,
    /// The last query found no second after those in the buffer.
    at_end: bool,
}

#[derive(Debug)]
pub(crate) struct MergedSecond {
    pub(crate) second: Second,
    /// The nodes whose measurements it contains.
    pub(crate) nodes: HashSet<String>,
}

impl SecondReader {
    pub(crate) fn new(run: &Run, from: u32) -> Self {
        let (run, epoch) = (run.id.clone(), run.epoch);
        Self { run, epoch, next: from, buffer: VecDeque::new(), at_end: false }
    }

    pub(crate) async fn next(&mut self, database: &Database) -> Result<Option<MergedSecond>, Error> {
        if self.buffer.is_empty() && !self.at_end {
            self.fill(database).await?;
        }
        Ok(self.buffer.pop_front())
    }

    async fn fill(&mut self, database: &Database) -> Result<(), Error> {
        let select = sql("SELECT second, step, runner, data FROM load_second
                          WHERE run_id = $1 AND epoch = $2 AND second >= $3 ORDER BY second, step LIMIT $4");
        let select = select.bind(&self.run).bind(self.epoch).bind(self.next).bind(MAX_ROWS as u64);
        let rows: Vec<MeasuredRow> = database.all(select).await?;
        self.at_end = rows.len() < MAX_ROWS;
        for row in rows {
            if self.buffer.back().is_none_or(|merged| merged.second.second != row.second) {
                self.buffer
                    .push_back(MergedSecond { second: Second::new(row.second), nodes: HashSet::new() });
            }
            if let Some(merged) = self.buffer.back_mut() {
                row.add_to(merged)?;
            }
        }
        if !self.at_end && self.buffer.len() > 1 {
            // Its other rows come with the next query.
            self.buffer.pop_back();
        }
        self.next = self.buffer.back().map_or(self.next, |merged| merged.second.second + 1);
        Ok(())
    }
}

/// A row as one runner wrote it.
struct MeasuredRow {
    second: u32,
    step: i64,
    runner: String,
    data: Vec<u8>,
}

from_row!(MeasuredRow { second, step, runner, data });

impl MeasuredRow {
    fn add_to(self, merged: &mut MergedSecond) -> Result<(), Error> {
        match u16::try_from(self.step) {
            Ok(step) => merged.second.steps.entry(step).or_default().merge(&StepSecond::decode(&self.data)?),
            Err(_) => {
                merged.second.generator.merge(&GeneratorSecond::decode(&self.data)?);
                merged.nodes.insert(self.runner);
            }
        }
        Ok(())
    }
}
