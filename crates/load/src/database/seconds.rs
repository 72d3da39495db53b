//! What runners measured, second by second: a row per second, step and runner.

use std::collections::HashSet;
use std::time::Duration;

use hob_database::{Database, Read, from_row, sql};

use super::runs::{Seat, Standing};
use crate::Error;
use crate::keys::TestId;
use crate::load::MAX_RUNNERS;
use crate::plan::Plan;
use crate::results::second::{General, Second, StepSecond};
use crate::run::RunnerState;

/// The row of what does not belong to a step.
const GENERAL: i64 = -1;
/// The most rows of one read. Every read has room for one whole second at least.
const MAX_ROWS: usize = 2 * MAX_RUNNERS as usize * (Plan::MOST_STEPS + 1);

/// Writes seconds that a runner has measured, each row once, however often this is repeated; keeps the runner's seat,
/// or leaves it as `last` says.
pub(crate) async fn write_seconds(
    database: &Database,
    seat: &Seat,
    seconds: &[Second],
    last: RunnerState,
    message: &str,
    lease: Duration,
) -> Result<Standing, Error> {
    let standing = database
        .write(|tx| async move {
            let keep = sql("UPDATE load_runner SET lease_until = $4, state = $5, message = $6
                            WHERE run_id = $1 AND epoch = $2 AND number = $3 AND state = $7");
            let keep = keep.bind(&seat.run).bind(seat.epoch).bind(seat.number).bind(tx.now().plus(lease));
            let keep = keep.bind(last).bind(message).bind(RunnerState::Working);
            if tx.execute(keep).await? == 0 {
                return Ok(Standing::Out);
            }
            let rows = seconds.iter().flat_map(|second| rows(seat, second)).collect::<Vec<_>>();
            let head = "INSERT INTO load_second (run_id, second, step, runner, epoch, data)";
            tx.insert_all(head, rows, "ON CONFLICT DO NOTHING").await?;
            Ok::<_, hob_database::Error>(Standing::In)
        })
        .await?;
    Ok(standing)
}

type SecondRow = (TestId, u32, i64, String, u64, Vec<u8>);

fn rows(seat: &Seat, second: &Second) -> Vec<SecondRow> {
    let row = |step: i64, data| (seat.run.clone(), second.second, step, seat.node.clone(), seat.epoch, data);
    let general = std::iter::once(row(GENERAL, second.general.encode()));
    general.chain(second.steps.iter().map(|(step, seen)| row(i64::from(*step), seen.encode()))).collect()
}

/// Seconds of a run in order, merged over the runners.
#[derive(Debug)]
pub(crate) struct Merged {
    pub(crate) seconds: Vec<MergedSecond>,
    /// Whether there are no later ones yet.
    pub(crate) is_end: bool,
}

#[derive(Debug)]
pub(crate) struct MergedSecond {
    pub(crate) second: Second,
    /// The nodes whose part is in it.
    pub(crate) nodes: HashSet<String>,
}

/// Reads the seconds of a run from one on, as many as one read has room for.
pub(crate) async fn merged_seconds(
    database: &Database,
    id: &TestId,
    epoch: u64,
    from: u32,
) -> Result<Merged, Error> {
    let list = sql("SELECT second, step, runner, data FROM load_second
                    WHERE run_id = $1 AND epoch = $2 AND second >= $3 ORDER BY second, step LIMIT $4");
    let parts: Vec<Part> = database.all(list.bind(id).bind(epoch).bind(from).bind(MAX_ROWS as u64)).await?;
    let is_end = parts.len() < MAX_ROWS;
    let mut seconds: Vec<MergedSecond> = Vec::new();
    for part in parts {
        if seconds.last().is_none_or(|merged| merged.second.second != part.second) {
            seconds.push(MergedSecond { second: Second::new(part.second), nodes: HashSet::new() });
        }
        if let Some(merged) = seconds.last_mut() {
            part.add_to(merged)?;
        }
    }
    if !is_end && seconds.len() > 1 {
        // Its other rows come with the next read.
        seconds.pop();
    }
    Ok(Merged { seconds, is_end })
}

/// The newest second that a runner has written.
pub(crate) async fn newest_second(
    database: &Database,
    id: &TestId,
    epoch: u64,
) -> Result<Option<u32>, Error> {
    let newest =
        sql("SELECT second FROM load_second WHERE run_id = $1 AND epoch = $2 ORDER BY second DESC LIMIT 1");
    let found: Option<(u32,)> = database.optional(newest.bind(id).bind(epoch)).await?;
    Ok(found.map(|(second,)| second))
}

/// A row of a second, as one runner wrote it.
struct Part {
    second: u32,
    step: i64,
    runner: String,
    data: Vec<u8>,
}

from_row!(Part { second, step, runner, data });

impl Part {
    fn add_to(self, merged: &mut MergedSecond) -> Result<(), Error> {
        match u16::try_from(self.step) {
            Ok(step) => merged.second.steps.entry(step).or_default().merge(&StepSecond::decode(&self.data)?),
            Err(_) => {
                merged.second.general.merge(&General::decode(&self.data)?);
                merged.nodes.insert(self.runner);
            }
        }
        Ok(())
    }
}
