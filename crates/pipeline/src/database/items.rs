//! `pipeline_item`: one row per item of a run.

use hob_database::{
    Bind as _, Binds, Keyset, Page, PageRequest, Read, Transaction, UnixMs, Value, ValueKind, from_row, sql,
};

use super::Result;
use super::claims::ExpiredClaim;
use crate::plan::retry::FailureClass;
use crate::run::RunId;
use crate::run::item::{Item, ItemState, ItemSummary, NewItem};

/// Items in one statement: SQLite scans all placeholders of a list for each value that is bound.
const CHUNK: usize = 256;

const IN_ORDER: Keyset = Keyset::ascending(&[("seq", ValueKind::Int)]);

from_row!(Item { seq, step, key, data, attempts, class, unchanged });

/// A waiting item to insert.
pub(crate) struct NewItemRow<'a> {
    pub(crate) run: &'a RunId,
    pub(crate) seq: i64,
    pub(crate) item: &'a NewItem,
    pub(crate) due_at: UnixMs,
}

impl Binds for NewItemRow<'_> {
    fn store(self) -> Result<Vec<(ValueKind, Option<Value>)>> {
        let text = |text: &str| Ok::<_, hob_database::Error>((ValueKind::Text, text.store()?));
        let int = |number: i64| Ok::<_, hob_database::Error>((ValueKind::Int, number.store()?));
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
            (ValueKind::Bool, item.unchanged.store()?),
        ])
    }
}

/// How an item ended that failed.
pub(crate) struct FailedItem<'a> {
    pub(crate) state: ItemState,
    pub(crate) due_at: UnixMs,
    pub(crate) class: &'a str,
    pub(crate) error: &'a str,
}

/// Items of a step with the same failure class.
pub(crate) struct ItemGroup {
    pub(crate) step: String,
    pub(crate) class: String,
    pub(crate) items: i64,
    /// Those of them that have had the given number of attempts.
    pub(crate) exhausted: i64,
}

from_row!(ItemGroup { step, class, items, exhausted });

/// Inserts items that do not exist yet, and returns how many it inserted.
pub(crate) async fn insert(tx: &Transaction, rows: Vec<NewItemRow<'_>>) -> Result<u64> {
    let head = "INSERT INTO pipeline_item (run, seq, step, key, data, state, attempts, due_at, claim, class, error, unchanged)";
    tx.insert_all(head, rows, "ON CONFLICT (run, step, key) DO NOTHING").await
}

/// Items of a run, in order of their numbers; all states and classes if none is given.
pub(crate) async fn page(
    on: &impl Read,
    run: &RunId,
    state: Option<ItemState>,
    class: Option<FailureClass>,
    request: &PageRequest,
) -> Result<Page<ItemSummary>> {
    // The condition on `class` lets the database use the index of failures, however many items there are.
    let list = if class.is_some() || state == Some(ItemState::Quarantined) {
        sql("SELECT seq, step, key, state, attempts, due_at, class, error FROM pipeline_item
             WHERE run = $1 AND class <> '' AND ($2 = '' OR state = $2) AND ($3 = '' OR class = $3)")
    } else {
        sql("SELECT seq, step, key, state, attempts, due_at, class, error FROM pipeline_item
             WHERE run = $1 AND ($2 = '' OR state = $2) AND ($3 = '' OR class = $3)")
    };
    let list =
        list.bind(run).bind(state.map_or("", ItemState::as_str)).bind(class.map_or("", FailureClass::as_str));
    let page: Page<ItemSummaryRow> = on.page(list, &IN_ORDER, request).await?;
    Ok(page.map(ItemSummary::from))
}

/// Whether any item waits.
pub(crate) async fn has_waiting(on: &impl Read, run: &RunId) -> Result<bool> {
    let find =
        sql("SELECT CAST(1 AS BIGINT) FROM pipeline_item WHERE run = $1 AND state = 'waiting' LIMIT 1");
    Ok(on.optional::<(i64,)>(find.bind(run)).await?.is_some())
}

/// Claims up to `limit` items that are due.
pub(crate) async fn claim_due(tx: &Transaction, run: &RunId, claim: i64, limit: u32) -> Result<Vec<Item>> {
    let update = sql("UPDATE pipeline_item SET state = 'claimed', claim = $2, attempts = attempts + 1
        WHERE run = $1 AND seq IN (SELECT seq FROM pipeline_item
            WHERE run = $1 AND state = 'waiting' AND due_at <= $3 ORDER BY due_at, seq LIMIT $4)
        RETURNING seq, step, key, data, attempts, class, unchanged");
    tx.all(update.bind(run).bind(claim).bind(tx.now()).bind(limit)).await
}

/// Marks items of a claim as done. Returns those that the claim still held.
pub(crate) async fn mark_done(tx: &Transaction, run: &RunId, claim: i64, seqs: &[i64]) -> Result<Vec<i64>> {
    const DONE: &str = "UPDATE pipeline_item SET state = 'done', class = '', error = '', data = ''
        WHERE run = $1 AND claim = $2 AND state = 'claimed' AND seq IN ($3...) RETURNING seq";
    update_claimed(tx, DONE, run, claim, seqs).await
}

/// Lets items of a claim wait again, without counting the attempt. Returns those that the claim still held.
pub(crate) async fn give_back(tx: &Transaction, run: &RunId, claim: i64, seqs: &[i64]) -> Result<Vec<i64>> {
    const BACK: &str = "UPDATE pipeline_item SET state = 'waiting', attempts = attempts - 1, claim = 0
        WHERE run = $1 AND claim = $2 AND state = 'claimed' AND seq IN ($3...) RETURNING seq";
    update_claimed(tx, BACK, run, claim, seqs).await
}

async fn update_claimed(
    tx: &Transaction,
    statement: &'static str,
    run: &RunId,
    claim: i64,
    seqs: &[i64],
) -> Result<Vec<i64>> {
    let mut updated = Vec::with_capacity(seqs.len());
    for chunk in seqs.chunks(CHUNK) {
        let update = sql(statement).bind(run).bind(claim).bind_list(chunk.iter().copied());
        let rows: Vec<(i64,)> = tx.all(update).await?;
        updated.extend(rows.into_iter().map(|(seq,)| seq));
    }
    Ok(updated)
}

/// Records a failure; `false` if the claim no longer holds the item.
pub(crate) async fn mark_failed(
    tx: &Transaction,
    run: &RunId,
    claim: i64,
    seq: i64,
    failed: &FailedItem<'_>,
) -> Result<bool> {
    let update = sql("UPDATE pipeline_item SET state = $4, due_at = $5, class = $6, error = $7, claim = 0
                      WHERE run = $1 AND seq = $2 AND claim = $3 AND state = 'claimed'");
    let update = update.bind(run).bind(seq).bind(claim).bind(failed.state);
    Ok(tx.execute(update.bind(failed.due_at).bind(failed.class).bind(failed.error)).await? == 1)
}

/// The items of a claim by step and class; those with at least `max_attempts` attempts are exhausted.
pub(crate) async fn claimed(
    tx: &Transaction,
    claim: &ExpiredClaim,
    max_attempts: u32,
) -> Result<Vec<ItemGroup>> {
    let list = sql("SELECT step, class, CAST(count(*) AS BIGINT) AS items,
            CAST(sum(CASE WHEN attempts >= $5 THEN 1 ELSE 0 END) AS BIGINT) AS exhausted FROM pipeline_item
        WHERE run = $1 AND seq BETWEEN $2 AND $3 AND claim = $4 AND state = 'claimed' GROUP BY step, class");
    let list = list.bind(&claim.run).bind(claim.first_seq).bind(claim.last_seq).bind(claim.claim);
    tx.all(list.bind(max_attempts)).await
}

/// Quarantines the items of a claim that have had at least `max_attempts` attempts.
pub(crate) async fn quarantine_exhausted(
    tx: &Transaction,
    claim: &ExpiredClaim,
    max_attempts: u32,
    class: FailureClass,
    error: &str,
) -> Result<()> {
    let update = sql("UPDATE pipeline_item SET state = 'quarantined', class = $6, error = $7
        WHERE run = $1 AND seq BETWEEN $2 AND $3 AND claim = $4 AND state = 'claimed' AND attempts >= $5");
    let update = update.bind(&claim.run).bind(claim.first_seq).bind(claim.last_seq).bind(claim.claim);
    tx.execute(update.bind(max_attempts).bind(class).bind(error)).await?;
    Ok(())
}

/// Lets the items of a claim wait again, and returns how many there were.
pub(crate) async fn release_claimed(tx: &Transaction, claim: &ExpiredClaim) -> Result<u64> {
    let update = sql("UPDATE pipeline_item SET state = 'waiting', claim = 0
        WHERE run = $1 AND seq BETWEEN $2 AND $3 AND claim = $4 AND state = 'claimed'");
    tx.execute(update.bind(&claim.run).bind(claim.first_seq).bind(claim.last_seq).bind(claim.claim)).await
}

/// Quarantined items by step and class, all or those of a class.
pub(crate) async fn quarantined(
    tx: &Transaction,
    run: &RunId,
    class: Option<FailureClass>,
) -> Result<Vec<(String, String, i64)>> {
    let list = sql("SELECT step, class, CAST(count(*) AS BIGINT) FROM pipeline_item
        WHERE run = $1 AND class <> '' AND state = 'quarantined' AND ($2 = '' OR class = $2) GROUP BY step, class");
    tx.all(list.bind(run).bind(class.map_or("", FailureClass::as_str))).await
}

/// Lets quarantined items, all or those of a class, wait again with all their attempts.
pub(crate) async fn requeue_quarantined(
    tx: &Transaction,
    run: &RunId,
    class: Option<FailureClass>,
) -> Result<u64> {
    let update = sql("UPDATE pipeline_item SET state = 'waiting', attempts = 0, due_at = $3, claim = 0
        WHERE run = $1 AND class <> '' AND state = 'quarantined' AND ($2 = '' OR class = $2)");
    tx.execute(update.bind(run).bind(class.map_or("", FailureClass::as_str)).bind(tx.now())).await
}

struct ItemSummaryRow {
    seq: i64,
    step: String,
    key: String,
    state: ItemState,
    attempts: u32,
    due_at: i64,
    class: String,
    error: String,
}

from_row!(ItemSummaryRow { seq, step, key, state, attempts, due_at, class, error });

impl From<ItemSummaryRow> for ItemSummary {
    fn from(row: ItemSummaryRow) -> Self {
        let ItemSummaryRow { seq, step, key, state, attempts, due_at, class, error } = row;
        Self { seq, step, key, state, attempts, due_at, class: class.parse().ok(), error }
    }
}
