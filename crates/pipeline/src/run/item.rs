//! Items: one row each, with its state, its attempts and when it is due. They are claimed in batches; a claim is a lease
//! with a number, and a commit under a number that is over changes nothing. How many are where is kept in a tally.

mod claim;
mod commit;
mod kept;
mod tally;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use hob_database::{
    Bind as _, Binds, Database, Isolation, Keyset, Kind, Page, PageRequest, Read as _, Transaction, UnixMs,
    Value, from_row, sql,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub(crate) use claim::{Claim, claim, reap, renew, workers};
pub(crate) use commit::{Finished, Keep, Outcome, PACE_STEP, commit, forget_pace, pace};
pub(crate) use kept::Kept;
pub use tally::Progress;
use tally::Tally;

use crate::error::Result;
use crate::plan::retry::Class;
use crate::run::{self, RunId};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ItemState {
    /// Until it is due.
    Waiting,
    Claimed,
    Done,
    /// Set aside until somebody replays it.
    Quarantined,
}

/// An item, as a worker needs it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Item {
    pub(crate) seq: i64,
    pub(crate) step: String,
    pub(crate) key: String,
    pub(crate) data: String,
    /// This one included.
    pub(crate) attempts: u32,
    /// Why it failed before; empty where it did not.
    pub(crate) class: String,
    /// Whether it follows an item that did not change, so that its last result still holds.
    pub(crate) unchanged: bool,
}

/// An item that is yet to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NewItem {
    pub(crate) step: String,
    pub(crate) key: String,
    pub(crate) data: String,
    /// Whether it follows an item that did not change, so that its last result still holds.
    #[serde(skip)]
    pub(crate) unchanged: bool,
}

impl NewItem {
    pub(crate) fn new(step: &str, key: &str, data: &str) -> Self {
        Self { step: step.to_owned(), key: key.to_owned(), data: data.to_owned(), unchanged: false }
    }
}

/// An item, as a person wants to see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ItemFacts {
    pub seq: i64,
    pub step: String,
    pub key: String,
    pub state: ItemState,
    pub attempts: u32,
    /// Unix milliseconds.
    pub due_at: i64,
    pub class: Option<Class>,
    pub error: String,
}

from_row!(Item { seq, step, key, data, attempts, class, unchanged });

const IN_ORDER: Keyset = Keyset::ascending(&[("seq", Kind::Int)]);

struct Row<'a> {
    run: &'a RunId,
    seq: i64,
    item: &'a NewItem,
    due_at: UnixMs,
}

impl Binds for Row<'_> {
    fn store(self) -> Result<Vec<(Kind, Option<Value>)>, hob_database::Error> {
        let text = |text: &str| Ok::<_, hob_database::Error>((Kind::Text, text.store()?));
        let int = |number: i64| Ok::<_, hob_database::Error>((Kind::Int, number.store()?));
        let item = self.item;
        Ok(vec![
            text(self.run.as_str())?,
            int(self.seq)?,
            text(&item.step)?,
            text(&item.key)?,
            text(&item.data)?,
            text(ItemState::Waiting.as_str())?,
            int(0)?,
            int(self.due_at.0)?,
            int(0)?,
            text("")?,
            text("")?,
            (Kind::Bool, item.unchanged.store()?),
        ])
    }
}

/// Adds items that are not there yet; the same key of the same step is the same item. Takes the run's row first, as all
/// do who move its items, so that no two of them wait for each other.
pub(crate) async fn add(tx: &Transaction, run: &RunId, items: &[NewItem]) -> Result<(), hob_database::Error> {
    if items.is_empty() {
        return Ok(());
    }
    let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let number = sql("UPDATE pipeline_run SET items = items + $2 WHERE id = $1 RETURNING items");
    let (last,): (i64,) = tx.one(number.bind(run).bind(count)).await?;
    let due_at = tx.now();
    let mut by_step: BTreeMap<&str, Vec<Row<'_>>> = BTreeMap::new();
    for (seq, item) in (last - count..).zip(items) {
        by_step.entry(&item.step).or_default().push(Row { run, seq, item, due_at });
    }
    let head = "INSERT INTO pipeline_item (run, seq, step, key, data, state, attempts, due_at, claim, class, error, unchanged)";
    let mut tally = Tally::default();
    for (step, rows) in by_step {
        let added = tx.insert_all(head, rows, "ON CONFLICT (run, step, key) DO NOTHING").await?;
        tally.add(step, "", ItemState::Waiting, i64::try_from(added).unwrap_or(i64::MAX));
    }
    tally.write(tx, run).await
}

/// How many items are where.
pub(crate) async fn progress(database: &Database, run: &RunId) -> Result<Progress> {
    tally::read(database, run).await
}

/// Items of a run, all or those of a state, all or those that failed in a way.
pub(crate) async fn page(
    database: &Database,
    run: &RunId,
    state: Option<ItemState>,
    class: Option<Class>,
    request: &PageRequest,
) -> Result<Page<ItemFacts>> {
    // Failures are found by an index of their own, however many items there are.
    let list = if class.is_some() || state == Some(ItemState::Quarantined) {
        sql("SELECT seq, step, key, state, attempts, due_at, class, error FROM pipeline_item
             WHERE run = $1 AND class <> '' AND ($2 = '' OR state = $2) AND ($3 = '' OR class = $3)")
    } else {
        sql("SELECT seq, step, key, state, attempts, due_at, class, error FROM pipeline_item
             WHERE run = $1 AND ($2 = '' OR state = $2) AND ($3 = '' OR class = $3)")
    };
    let list = list.bind(run).bind(state.map_or("", ItemState::as_str)).bind(class.map_or("", Class::as_str));
    let page: Page<FactsRow> = database.page(list, &IN_ORDER, request).await?;
    Ok(page.map(ItemFacts::from))
}

/// Lets set-aside items, all or those of a class, be tried again.
pub(crate) async fn replay(database: &Database, run: &RunId, class: Option<Class>) -> Result<u64> {
    let work = |tx: Transaction| async move {
        run::hold(&tx, run).await?;
        let class = class.map_or("", Class::as_str);
        let aside = sql("SELECT step, class, CAST(count(*) AS BIGINT) FROM pipeline_item
            WHERE run = $1 AND class <> '' AND state = 'quarantined' AND ($2 = '' OR class = $2) GROUP BY step, class");
        let aside: Vec<(String, String, i64)> = tx.all(aside.bind(run).bind(class)).await?;
        let mut tally = Tally::default();
        for (step, class, items) in &aside {
            tally.add(step, class, ItemState::Quarantined, -items);
            tally.add(step, class, ItemState::Waiting, *items);
        }
        tally.write(&tx, run).await?;
        let again = sql("UPDATE pipeline_item SET state = 'waiting', attempts = 0, due_at = $3, claim = 0
            WHERE run = $1 AND class <> '' AND state = 'quarantined' AND ($2 = '' OR class = $2)");
        Ok(tx.execute(again.bind(run).bind(class).bind(tx.now())).await?)
    };
    database.write_with(Isolation::Committed, work).await
}

struct FactsRow {
    seq: i64,
    step: String,
    key: String,
    state: ItemState,
    attempts: u32,
    due_at: i64,
    class: String,
    error: String,
}

from_row!(FactsRow { seq, step, key, state, attempts, due_at, class, error });

impl From<FactsRow> for ItemFacts {
    fn from(row: FactsRow) -> Self {
        let FactsRow { seq, step, key, state, attempts, due_at, class, error } = row;
        Self { seq, step, key, state, attempts, due_at, class: class.parse().ok(), error }
    }
}

impl ItemState {
    pub const ALL: [ItemState; 4] =
        [ItemState::Waiting, ItemState::Claimed, ItemState::Done, ItemState::Quarantined];

    pub fn as_str(self) -> &'static str {
        match self {
            ItemState::Waiting => "waiting",
            ItemState::Claimed => "claimed",
            ItemState::Done => "done",
            ItemState::Quarantined => "quarantined",
        }
    }
}

impl fmt::Display for ItemState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ItemState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || format!("{text:?} is none of {}", ItemState::ALL.map(ItemState::as_str).join(", "));
        ItemState::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(known)
    }
}

hob_database::column!(ItemState as text);
hob_database::column!(Class as text);
