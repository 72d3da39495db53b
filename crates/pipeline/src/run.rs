//! Runs of plans: what state they are in, and what may become of them. They live in the database, for months if need be.

mod attempt;
pub(crate) mod client;
pub(crate) mod driver;
mod extract;
pub mod forecast;
pub(crate) mod item;
pub(crate) mod runs;
pub(crate) mod seed;
pub(crate) mod view;

use std::fmt;
use std::str::FromStr;

use hob_database::{
    Database, Isolation, Keyset, Kind, Page, PageRequest, PerDialect, Query, Read, Transaction, UnixMs,
    from_row, sql,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::{Error, Result};
use crate::keys::DagRunId;
use crate::plan::{Plan, PlanName};

/// What a run is called. It may hold a time, as Airflow's do.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(DagRunId);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    Running,
    Paused,
    /// Nothing is left to do but what was set aside.
    Completed,
    Cancelled,
    /// Out of sight, and removed some day.
    Archived,
}

/// What a person or the run itself wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Pause,
    Resume,
    Cancel,
    Complete,
    Replay,
    Archive,
}

/// A run as it is in the database.
#[derive(Clone, Debug)]
pub struct Run {
    pub id: RunId,
    pub plan: PlanName,
    /// The plan as it was when the run began.
    pub text: String,
    pub state: RunState,
    pub version: u64,
    pub seeded_to: i64,
    pub calls: u64,
    /// What keeps it from going on; empty if nothing does.
    pub trouble: String,
    pub started_at: UnixMs,
    pub changed_at: UnixMs,
}

from_row!(Run { id, plan, text, state, version, seeded_to, calls, trouble, started_at, changed_at });

/// `seeded_to` once the whole source became items.
pub(crate) const SEEDED: i64 = -1;

const NEWEST_FIRST: Keyset = Keyset::descending(&[("started_at", Kind::Int), ("id", Kind::Text)]);

impl RunState {
    /// The state that a wish leads to; `None` where it makes no sense.
    pub fn after(self, wish: Wish) -> Option<RunState> {
        use RunState::{Archived, Cancelled, Completed, Paused, Running};
        match (self, wish) {
            (Running, Wish::Pause) => Some(Paused),
            (Paused, Wish::Resume) => Some(Running),
            (Running | Paused, Wish::Cancel) => Some(Cancelled),
            (Running, Wish::Complete) => Some(Completed),
            (Running | Completed, Wish::Replay) => Some(Running),
            (Paused, Wish::Replay) => Some(Paused),
            (Completed | Cancelled, Wish::Archive) => Some(Archived),
            _ => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            RunState::Running => "running",
            RunState::Paused => "paused",
            RunState::Completed => "completed",
            RunState::Cancelled => "cancelled",
            RunState::Archived => "archived",
        }
    }
}

/// Starts a run of a plan. Under an id that is taken by a run of the same text, that run is the answer.
pub(crate) async fn start(database: &Database, id: &RunId, plan: &Plan) -> Result<Run> {
    database
        .write(|tx| async move {
            let insert = sql(
                "INSERT INTO pipeline_run (id, plan, text, state, version, seeded_to, items, claims, calls,
                                                        trouble, started_at, changed_at)
                              VALUES ($1, $2, $3, $4, 1, 0, 0, 0, 0, '', $5, $5) ON CONFLICT DO NOTHING",
            );
            let insert = insert.bind(id).bind(&plan.name).bind(&plan.text).bind(RunState::Running);
            tx.execute(insert.bind(tx.now())).await?;
            let run = tx.one(by_id(id)).await?;
            if run.text != plan.text {
                return Err(Error::Refused(format!("{id} is a run of another plan")));
            }
            Ok(run)
        })
        .await
}

pub(crate) fn by_id(id: &RunId) -> Query<Run> {
    sql("SELECT id, plan, text, state, version, seeded_to, calls, trouble, started_at, changed_at
         FROM pipeline_run WHERE id = $1")
    .bind(id)
}

pub(crate) async fn find(on: &impl Read, id: &RunId) -> Result<Run> {
    on.optional(by_id(id)).await?.ok_or_else(|| Error::unknown("run", id))
}

/// Takes a run's row until the transaction is over, as all do first who move its items.
pub(crate) async fn hold(tx: &Transaction, id: &RunId) -> Result<(), hob_database::Error> {
    const HOLD: PerDialect = PerDialect {
        sqlite: "SELECT version FROM pipeline_run WHERE id = $1",
        postgres: "SELECT version FROM pipeline_run WHERE id = $1 FOR UPDATE",
    };
    tx.optional::<(i64,)>(sql(HOLD).bind(id)).await?;
    Ok(())
}

/// The runs that nodes work on.
pub(crate) async fn running(database: &Database) -> Result<Vec<RunId>> {
    let list = sql("SELECT id FROM pipeline_run WHERE state = $1 ORDER BY started_at, id LIMIT 1000");
    let rows: Vec<(RunId,)> = database.all(list.bind(RunState::Running)).await?;
    Ok(rows.into_iter().map(|(id,)| id).collect())
}

/// Runs, newest first; archived ones are not among them.
pub(crate) async fn page(database: &Database, request: &PageRequest) -> Result<Page<Run>> {
    let list = sql("SELECT id, plan, text, state, version, seeded_to, calls, trouble, started_at, changed_at
                    FROM pipeline_run WHERE state <> $1");
    Ok(database.page(list.bind(RunState::Archived), &NEWEST_FIRST, request).await?)
}

/// The newest run of a plan, whatever its state.
pub(crate) async fn newest(database: &Database, plan: &PlanName) -> Result<Option<Run>> {
    let find = sql("SELECT id, plan, text, state, version, seeded_to, calls, trouble, started_at, changed_at
                    FROM pipeline_run WHERE plan = $1 ORDER BY started_at DESC, id DESC LIMIT 1");
    Ok(database.optional(find.bind(plan)).await?)
}

/// Does what is wished, if the run's state allows it. A state that the wish leads to already is fine.
pub(crate) async fn wish(database: &Database, id: &RunId, wish: Wish) -> Result<Run> {
    database
        .write(|tx| async move {
            let run = find(&tx, id).await?;
            let Some(next) = run.state.after(wish) else {
                return match (run.state, wish) {
                    (RunState::Paused, Wish::Pause)
                    | (RunState::Running, Wish::Resume)
                    | (RunState::Cancelled, Wish::Cancel) => Ok(run),
                    _ => Err(Error::Refused(format!("a run that is {} cannot {wish}", run.state))),
                };
            };
            let change = sql(
                "UPDATE pipeline_run SET state = $2, version = version + 1, changed_at = $3, trouble = ''
                              WHERE id = $1",
            );
            tx.execute(change.bind(id).bind(next).bind(tx.now())).await?;
            Ok(tx.one(by_id(id)).await?)
        })
        .await
}

/// Whether a run has nothing left to do but what was set aside, and all its results are written.
macro_rules! nothing_left {
    () => {
        "id = $1 AND state = 'running' AND seeded_to = -1
         AND NOT EXISTS (SELECT 1 FROM pipeline_item WHERE run = $1 AND state = 'waiting')
         AND NOT EXISTS (SELECT 1 FROM pipeline_claim WHERE run = $1)
         AND NOT EXISTS (SELECT 1 FROM pipeline_output WHERE run = $1)"
    };
}

pub(crate) async fn has_nothing_left(database: &Database, id: &RunId) -> Result<bool> {
    let look = sql(concat!("SELECT seeded_to FROM pipeline_run WHERE ", nothing_left!()));
    Ok(database.optional::<(i64,)>(look.bind(id)).await?.is_some())
}

/// Completes a run that has nothing left to do, and says whether it did.
pub(crate) async fn complete(database: &Database, id: &RunId) -> Result<bool> {
    database
        .write(|tx| async move {
            // In one statement: a commit that adds items cannot come between.
            let complete = sql(concat!(
                "UPDATE pipeline_run SET state = 'completed', version = version + 1, changed_at = $2, trouble = ''
                 WHERE ",
                nothing_left!()
            ));
            Ok(tx.execute(complete.bind(id).bind(tx.now())).await? == 1)
        })
        .await
}

/// Whether another run of the same plan has more right to the plan's names for its output: a run with all its items
/// done goes before one that set some aside, and otherwise the newer run goes first.
pub(crate) async fn is_outranked(database: &Database, id: &RunId) -> Result<bool> {
    macro_rules! whole {
        ($run:literal) => {
            concat!(
                "NOT EXISTS (SELECT 1 FROM pipeline_tally WHERE run = ",
                $run,
                ".id AND state <> 'done' AND items > 0)"
            )
        };
    }
    let find = sql(concat!(
        "SELECT other.started_at FROM pipeline_run mine
         JOIN pipeline_run other ON other.plan = mine.plan AND other.id <> mine.id
         WHERE mine.id = $1 AND other.seeded_to = -1
         AND (other.started_at > mine.started_at OR NOT (",
        whole!("mine"),
        ")) AND (other.state IN ('completed', 'archived') AND ",
        whole!("other"),
        " OR other.state = 'completed' AND other.started_at > mine.started_at AND NOT (",
        whole!("mine"),
        ")) LIMIT 1"
    ));
    Ok(database.optional::<(i64,)>(find.bind(id)).await?.is_some())
}

/// Says what keeps a run from going on.
pub(crate) async fn set_trouble(database: &Database, id: &RunId, trouble: &str) -> Result<()> {
    let set = sql("UPDATE pipeline_run SET trouble = $2 WHERE id = $1 AND trouble <> $2");
    database.execute(set.bind(id).bind(trouble)).await?;
    Ok(())
}

/// Removes archived runs with all that belongs to them.
pub(crate) async fn forget_archived(database: &Database, keep: std::time::Duration) -> Result<u64> {
    let mut forgotten = 0;
    loop {
        let removed = database
            .write_with(Isolation::Committed, |tx| async move {
                let find = sql("SELECT id FROM pipeline_run WHERE state = $1 AND changed_at < $2 LIMIT 1");
                let found: Option<(RunId,)> =
                    tx.optional(find.bind(RunState::Archived).bind(tx.now().minus(keep))).await?;
                let Some((id,)) = found else { return Ok::<_, Error>(false) };
                for delete in [
                    "DELETE FROM pipeline_item WHERE run = $1",
                    "DELETE FROM pipeline_tally WHERE run = $1",
                    "DELETE FROM pipeline_pace WHERE run = $1",
                    "DELETE FROM pipeline_claim WHERE run = $1",
                    "DELETE FROM pipeline_attempt WHERE run = $1",
                    "DELETE FROM pipeline_output WHERE run = $1",
                    "DELETE FROM pipeline_sink WHERE run = $1",
                    "DELETE FROM pipeline_run WHERE id = $1",
                ] {
                    tx.execute(sql(delete).bind(&id)).await?;
                }
                Ok(true)
            })
            .await?;
        if !removed {
            return Ok(forgotten);
        }
        forgotten += 1;
    }
}

impl RunId {
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    pub(crate) fn id(&self) -> &DagRunId {
        &self.0
    }
}

impl FromStr for RunId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+:".contains(&byte);
        if !text.bytes().all(allowed) {
            return Err(Error::unfit("run", "a run's id has letters, digits, and '.', '_', '-', '+', ':'"));
        }
        DagRunId::new(text).map(Self).map_err(|error| Error::unfit("run", error))
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for RunState {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        use RunState::{Archived, Cancelled, Completed, Paused, Running};
        [Running, Paused, Completed, Cancelled, Archived]
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or(())
    }
}

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Wish::Pause => "pause",
            Wish::Resume => "resume",
            Wish::Cancel => "be cancelled",
            Wish::Complete => "complete",
            Wish::Replay => "be replayed",
            Wish::Archive => "be archived",
        })
    }
}

hob_database::column!(RunId as text);
hob_database::column!(RunState as text);

#[cfg(test)]
mod tests {
    use super::*;

    /// P7
    #[test]
    fn a_run_that_ended_comes_back_by_a_replay_only() {
        for wish in [Wish::Pause, Wish::Resume, Wish::Cancel, Wish::Complete, Wish::Archive] {
            assert_ne!(RunState::Completed.after(wish), Some(RunState::Running), "{wish:?}");
            assert_ne!(RunState::Cancelled.after(wish), Some(RunState::Running), "{wish:?}");
        }
        assert_eq!(RunState::Completed.after(Wish::Replay), Some(RunState::Running));
        assert_eq!(RunState::Cancelled.after(Wish::Replay), None);
        assert_eq!(RunState::Archived.after(Wish::Replay), None);
    }
}
