//! Runs before the demo started: one that has completed with a few dead letters, and one that is paused half way.

use std::time::Duration;

use hob_database::{Isolation, Transaction, UnixMs};
use hob_service::noise;

use crate::database::items::FailedItem;
use crate::database::past::{self, PastRun};
use crate::database::{item_counts, runs, throughput};
use crate::error::{Error, Result};
use crate::pipeline::Pipelines;
use crate::plan::Plan;
use crate::plan::retry::FailureClass;
use crate::run::item::{self, ItemState, NewItem, THROUGHPUT_STEP};
use crate::run::{RunId, RunState};

const MINUTE: Duration = Duration::from_secs(60);

/// How far a run came.
struct Extent {
    id: &'static str,
    state: RunState,
    dockets: u32,
    dockets_done: u32,
    entries_done: u32,
    started_minutes_ago: u32,
    ended_minutes_ago: u32,
    /// Dockets that are dead letters: key, class and error.
    failed: &'static [(&'static str, FailureClass, &'static str)],
}

const COMPLETED: Extent = Extent {
    id: "courtlistener-nightly",
    state: RunState::Completed,
    dockets: 240,
    dockets_done: 237,
    entries_done: 474,
    started_minutes_ago: 9 * 60,
    ended_minutes_ago: 9 * 60 - 19,
    failed: &[
        ("238", FailureClass::Client, "403 Forbidden"),
        ("239", FailureClass::Client, "403 Forbidden"),
        ("240", FailureClass::Parse, "the response is not JSON"),
    ],
};

const PAUSED: Extent = Extent {
    id: "opinions-backfill",
    state: RunState::Paused,
    dockets: 380,
    dockets_done: 205,
    entries_done: 388,
    started_minutes_ago: 47,
    ended_minutes_ago: 12,
    failed: &[("206", FailureClass::Server, "500 Internal Server Error")],
};

/// Writes a completed run of one plan and a paused run of another, unless an earlier demo has written them.
pub(super) async fn write(pipelines: &Pipelines, completed: &Plan, paused: &Plan) -> Result<()> {
    write_run(pipelines, completed, &COMPLETED).await?;
    write_run(pipelines, paused, &PAUSED).await
}

async fn write_run(pipelines: &Pipelines, plan: &Plan, extent: &Extent) -> Result<()> {
    let id: RunId = extent.id.parse()?;
    // An entry belongs to a docket that is done; each has two.
    let dockets = (1..=extent.dockets).map(|key| NewItem::new("docket", &key.to_string(), ""));
    let entries = (0..extent.dockets_done * 2).map(|number| {
        NewItem::new("entry", &(u64::from(number / 2 + 1) * 1000 + u64::from(number % 2)).to_string(), "")
    });
    let items: Vec<NewItem> = dockets.chain(entries).collect();
    let (id, items) = (&id, &items);
    let work = |tx: Transaction| async move {
        if runs::find(&tx, id).await?.is_some() {
            return Ok(());
        }
        runs::insert(&tx, id, plan).await?;
        item::add(&tx, id, items).await?;
        let mut counts = Vec::new();
        let mut moved = |step: &str, class: &str, state: ItemState, items: u64| {
            let items = i64::try_from(items).unwrap_or(i64::MAX);
            counts.push((step.to_owned(), String::new(), ItemState::Waiting, -items));
            counts.push((step.to_owned(), class.to_owned(), state, items));
        };
        for (step, done) in [("docket", extent.dockets_done), ("entry", extent.entries_done)] {
            moved(step, "", ItemState::Done, past::finish_items(&tx, id, step, done).await?);
        }
        for (key, class, error) in extent.failed {
            let state = ItemState::Quarantined;
            let failed = FailedItem { state, due_at: tx.now(), class: class.as_str(), error };
            moved("docket", class.as_str(), state, past::fail_item(&tx, id, ("docket", key), &failed).await?);
        }
        for change in counts {
            item_counts::add(&tx, id, vec![change]).await?;
        }
        let (started_at, changed_at) = (
            tx.now().minus(MINUTE * extent.started_minutes_ago),
            tx.now().minus(MINUTE * extent.ended_minutes_ago),
        );
        let calls = extent.dockets_done + extent.entries_done + 3 * extent.failed.len() as u32;
        add_throughput(&tx, id, (started_at, changed_at), calls).await?;
        past::set_run(&tx, id, &PastRun { state: extent.state, calls, started_at, changed_at }).await?;
        Ok::<_, Error>(())
    };
    pipelines.shared.context.database.write_with(Isolation::ReadCommitted, work).await
}

/// Spreads the attempts over the time of the run.
async fn add_throughput(
    tx: &Transaction,
    id: &RunId,
    (from, to): (UnixMs, UnixMs),
    attempts: u32,
) -> Result<()> {
    let step_ms = i64::try_from(THROUGHPUT_STEP.as_millis()).unwrap_or(i64::MAX);
    let steps: Vec<i64> = (from.0 / step_ms..to.0 / step_ms).collect();
    for (number, step) in (0_u64..).zip(&steps) {
        let share = f64::from(attempts) / steps.len() as f64;
        let items = (share * (0.7 + 0.6 * noise(number))) as usize;
        throughput::add(tx, id, UnixMs(step * step_ms), items).await?;
    }
    Ok(())
}
