//! Items: one row each, with its state, its attempts and when it is due. They are claimed in batches; a claim is a lease
//! with a number, and a commit under a number that is over changes nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use hob_records::{
    Bind as _, Binds, Isolation, Keyset, Kind, Page, PageRequest, Read as _, Records, Snapshot, Transaction,
    UnixMs, Value, from_row, sql,
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::Result;
use crate::retry::Class;
use crate::run::RunId;

/// An item that its workers did not survive so often is set aside.
const MOST_DEATHS: u32 = 20;

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
}

/// An item that is yet to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewItem {
    pub(crate) step: String,
    pub(crate) key: String,
    pub(crate) data: String,
}

/// Items that one worker holds under one lease.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) number: i64,
    pub(crate) items: Vec<Item>,
}

/// What an attempt came to.
#[derive(Clone, Debug)]
pub(crate) struct Finished {
    pub(crate) seq: i64,
    pub(crate) claim: i64,
    pub(crate) key: String,
    pub(crate) begun_at: UnixMs,
    /// The HTTP status; 0 where there was none.
    pub(crate) status: u16,
    pub(crate) calls: u32,
    pub(crate) result: Outcome,
}

#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Done {
        output: Option<(String, String)>,
        follow: Vec<NewItem>,
        /// The step, key and version of the answer, for a later run.
        version: Option<(String, String, String)>,
    },
    Again {
        class: Class,
        error: String,
        after: Duration,
    },
    Quarantined {
        class: Class,
        error: String,
    },
    /// Not attempted after all.
    GivenBack,
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

from_row!(Item { seq, step, key, data, attempts });

const IN_ORDER: Keyset = Keyset::ascending(&[("seq", Kind::Int)]);

struct Row<'a> {
    run: &'a RunId,
    seq: i64,
    item: &'a NewItem,
    due_at: UnixMs,
}

impl Binds for Row<'_> {
    fn store(self) -> Result<Vec<(Kind, Option<Value>)>, hob_records::Error> {
        let text = |text: &str| Ok::<_, hob_records::Error>((Kind::Text, text.store()?));
        let int = |number: i64| Ok::<_, hob_records::Error>((Kind::Int, number.store()?));
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
        ])
    }
}

/// Adds items that are not there yet; the same key of the same step is the same item.
pub(crate) async fn add(tx: &Transaction, run: &RunId, items: &[NewItem]) -> Result<u64, hob_records::Error> {
    if items.is_empty() {
        return Ok(0);
    }
    let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let number = sql("UPDATE pipeline_run SET items = items + $2 WHERE id = $1 RETURNING items");
    let (last,): (i64,) = tx.one(number.bind(run).bind(count)).await?;
    let due_at = tx.now();
    let mut rows = Vec::with_capacity(items.len());
    for (seq, item) in (last - count..).zip(items) {
        rows.push(Row { run, seq, item, due_at });
    }
    let head =
        "INSERT INTO pipeline_item (run, seq, step, key, data, state, attempts, due_at, claim, class, error)";
    tx.insert_all(head, rows, "ON CONFLICT (run, step, key) DO NOTHING").await
}

/// Claims items that are due, for as long as the lease is renewed; `None` if there are none.
pub(crate) async fn claim(
    records: &Records,
    run: &RunId,
    worker: &str,
    most: u32,
    lease: Duration,
) -> Result<Option<Claim>> {
    let work = |tx: Transaction| async move {
        // This row is also what claims of one run queue up at.
        let number = sql(
            "UPDATE pipeline_run SET claims = claims + 1 WHERE id = $1 AND state = 'running' RETURNING claims",
        );
        let Some((number,)) = tx.optional::<(i64,)>(number.bind(run)).await? else { return Ok(None) };
        let claim = sql("UPDATE pipeline_item SET state = 'claimed', claim = $2, attempts = attempts + 1
            WHERE run = $1 AND seq IN (SELECT seq FROM pipeline_item
                WHERE run = $1 AND state = 'waiting' AND due_at <= $3 ORDER BY due_at, seq LIMIT $4)
            RETURNING seq, step, key, data, attempts");
        let mut items: Vec<Item> = tx.all(claim.bind(run).bind(number).bind(tx.now()).bind(most)).await?;
        if items.is_empty() {
            return Ok(None);
        }
        items.sort_unstable_by_key(|item| item.seq);
        let hold =
            sql("INSERT INTO pipeline_claim (run, claim, worker, begun, until) VALUES ($1, $2, $3, $4, $5)");
        tx.execute(hold.bind(run).bind(number).bind(worker).bind(tx.now()).bind(tx.now().plus(lease)))
            .await?;
        Ok(Some(Claim { number, items }))
    };
    // Nothing is due most of the time when a run waits, and a look costs less than a write.
    let due = sql("SELECT CAST(1 AS BIGINT) FROM pipeline_item WHERE run = $1 AND state = 'waiting' LIMIT 1");
    if records.optional::<(i64,)>(due.bind(run)).await?.is_none() {
        return Ok(None);
    }
    records.write_with(Isolation::Committed, work).await
}

/// Holds a worker's claims for longer.
pub(crate) async fn renew(records: &Records, run: &RunId, worker: &str, lease: Duration) -> Result<()> {
    records
        .write_with(Isolation::Committed, |tx| async move {
            let renew =
                sql("UPDATE pipeline_claim SET until = $3 WHERE run = $1 AND worker = $2 AND until > $4");
            tx.execute(renew.bind(run).bind(worker).bind(tx.now().plus(lease)).bind(tx.now())).await
        })
        .await?;
    Ok(())
}

/// Takes back what dead workers hold. Returns how many items come back.
pub(crate) async fn reap(records: &Records) -> Result<u64> {
    let find = "SELECT run, claim FROM pipeline_claim WHERE until <= $1 LIMIT 100";
    let work = |tx: Transaction| async move {
        let over: Vec<(RunId, i64)> = tx.all(sql(find).bind(tx.now())).await?;
        let mut back = 0;
        for (run, claim) in over {
            let set_aside = sql("UPDATE pipeline_item SET state = 'quarantined', class = $3,
                    error = 'none of the workers that tried it was heard of again'
                WHERE run = $1 AND claim = $2 AND state = 'claimed' AND attempts >= $4");
            tx.execute(set_aside.bind(&run).bind(claim).bind(Class::Network).bind(MOST_DEATHS)).await?;
            let again = sql("UPDATE pipeline_item SET state = 'waiting', claim = 0
                             WHERE run = $1 AND claim = $2 AND state = 'claimed'");
            back += tx.execute(again.bind(&run).bind(claim)).await?;
            tx.execute(
                sql("DELETE FROM pipeline_claim WHERE run = $1 AND claim = $2").bind(&run).bind(claim),
            )
            .await?;
        }
        Ok(back)
    };
    // A look first, without a write: there is hardly ever one.
    let look = |records: Snapshot| async move {
        records.optional::<(RunId, i64)>(sql(find).bind(records.now())).await
    };
    if records.read(look).await?.is_none() {
        return Ok(0);
    }
    records.write_with(Isolation::Committed, work).await
}

/// Writes what attempts came to, all of it or nothing. What was claimed anew meanwhile is left alone, so that a
/// result counts once. Returns how many counted.
pub(crate) async fn commit(records: &Records, run: &RunId, plan: &str, finished: &[Finished]) -> Result<u64> {
    records
        .write_with(Isolation::Committed, |tx| async move {
            let done = settle_done(&tx, run, finished).await?;
            let mut counted: Vec<&Finished> = done;
            for one in finished {
                if settle_failed(&tx, run, one).await? {
                    counted.push(one);
                }
            }
            write_results(&tx, run, plan, &counted).await?;
            let calls: u32 = counted.iter().map(|one| one.calls).sum();
            if calls > 0 {
                let count = sql("UPDATE pipeline_run SET calls = calls + $2 WHERE id = $1");
                tx.execute(count.bind(run).bind(calls)).await?;
            }
            Ok(u64::try_from(counted.len()).unwrap_or(u64::MAX))
        })
        .await
}

/// Marks what is done, one statement for each claim, and answers with those that were still held.
async fn settle_done<'a>(
    tx: &Transaction,
    run: &RunId,
    finished: &'a [Finished],
) -> Result<Vec<&'a Finished>, hob_records::Error> {
    let mut by_claim: BTreeMap<i64, BTreeMap<i64, &Finished>> = BTreeMap::new();
    for one in finished.iter().filter(|one| matches!(one.result, Outcome::Done { .. })) {
        by_claim.entry(one.claim).or_default().insert(one.seq, one);
    }
    let mut counted = Vec::new();
    for (claim, items) in by_claim {
        let done = sql(
            "UPDATE pipeline_item SET state = 'done', class = '', error = '', data = ''
                        WHERE run = $1 AND claim = $2 AND state = 'claimed' AND seq IN ($3...) RETURNING seq",
        );
        let held: Vec<(i64,)> = tx.all(done.bind(run).bind(claim).bind_list(items.keys().copied())).await?;
        counted.extend(held.into_iter().filter_map(|(seq,)| items.get(&seq)));
    }
    Ok(counted)
}

async fn settle_failed(tx: &Transaction, run: &RunId, one: &Finished) -> Result<bool, hob_records::Error> {
    const HELD: &str =
        "UPDATE pipeline_item SET state = $4, due_at = $5, class = $6, error = $7, attempts = attempts - $8,
                        claim = 0 WHERE run = $1 AND seq = $2 AND claim = $3 AND state = 'claimed'";
    let (state, after, class, error, refund) = match &one.result {
        Outcome::Done { .. } => return Ok(false),
        Outcome::Again { class, error, after } => {
            (ItemState::Waiting, *after, class.as_str(), error.as_str(), 0)
        }
        Outcome::Quarantined { class, error } => {
            (ItemState::Quarantined, Duration::ZERO, class.as_str(), error.as_str(), 0)
        }
        Outcome::GivenBack => (ItemState::Waiting, Duration::ZERO, "", "", 1),
    };
    let change = sql(HELD).bind(run).bind(one.seq).bind(one.claim).bind(state).bind(tx.now().plus(after));
    Ok(tx.execute(change.bind(class).bind(error).bind(refund)).await? == 1)
}

/// The attempts, the outputs, the items that follow and the versions that were seen.
async fn write_results(
    tx: &Transaction,
    run: &RunId,
    plan: &str,
    counted: &[&Finished],
) -> Result<(), hob_records::Error> {
    let now = tx.now();
    let mut attempts = Vec::with_capacity(counted.len());
    for one in counted {
        let class = match &one.result {
            Outcome::GivenBack => continue,
            Outcome::Done { .. } => "",
            Outcome::Again { class, .. } | Outcome::Quarantined { class, .. } => class.as_str(),
        };
        attempts.push((run, one.seq, one.claim, one.begun_at, now, one.status, class));
    }
    let head = "INSERT INTO pipeline_attempt (run, seq, claim, begun_at, ended_at, status, class)";
    tx.insert_all(head, attempts, "ON CONFLICT DO NOTHING").await?;

    let mut outputs = Vec::new();
    let mut follow_on = Vec::new();
    let mut versions = Vec::new();
    for one in counted {
        if let Outcome::Done { output, follow, version } = &one.result {
            outputs.extend(output.iter().map(|(sink, line)| (run, sink, one.seq, line)));
            follow_on.extend(follow.iter().cloned());
            versions.extend(version.iter().map(|(step, key, etag)| (plan, step, key, etag)));
        }
    }
    tx.insert_all("INSERT INTO pipeline_output (run, sink, seq, line)", outputs, "ON CONFLICT DO NOTHING")
        .await?;
    let newer = "ON CONFLICT (plan, step, key) DO UPDATE SET etag = excluded.etag";
    tx.insert_all("INSERT INTO pipeline_version (plan, step, key, etag)", versions, newer).await?;
    add(tx, run, &follow_on).await?;
    Ok(())
}

/// Ends claims of a worker that has nothing left of them.
pub(crate) async fn end_claims(records: &Records, run: &RunId, claims: &[i64]) -> Result<()> {
    let end = sql("DELETE FROM pipeline_claim WHERE run = $1 AND claim IN ($2...)");
    records.execute(end.bind(run).bind_list(claims.iter().copied())).await?;
    Ok(())
}

/// The version that an earlier answer had.
pub(crate) async fn version(records: &Records, plan: &str, item: &Item) -> Result<Option<String>> {
    let find = sql("SELECT etag FROM pipeline_version WHERE plan = $1 AND step = $2 AND key = $3");
    let found: Option<(String,)> = records.optional(find.bind(plan).bind(&item.step).bind(&item.key)).await?;
    Ok(found.map(|(etag,)| etag))
}

/// How many items of each step are in each state.
pub(crate) async fn count(records: &Records, run: &RunId) -> Result<Vec<(String, ItemState, u64)>> {
    let count = sql("SELECT step, state, CAST(count(*) AS BIGINT) FROM pipeline_item WHERE run = $1
                     GROUP BY step, state ORDER BY step, state");
    Ok(records.all(count.bind(run)).await?)
}

/// How many items are done.
pub(crate) async fn count_done(records: &Records, run: &RunId) -> Result<u64> {
    let count = sql("SELECT CAST(count(*) AS BIGINT) FROM pipeline_item WHERE run = $1 AND state = 'done'");
    let (count,) = records.one(count.bind(run)).await?;
    Ok(count)
}

/// How many items were set aside or wait for another attempt, by class.
pub(crate) async fn failures(records: &Records, run: &RunId) -> Result<Vec<(Class, ItemState, u64)>> {
    let count = sql("SELECT class, state, CAST(count(*) AS BIGINT) FROM pipeline_item
                     WHERE run = $1 AND class <> '' AND state <> 'done' GROUP BY class, state ORDER BY class, state");
    Ok(records.all(count.bind(run)).await?)
}

/// Items of a run, all or those of a state.
pub(crate) async fn page(
    records: &Records,
    run: &RunId,
    state: Option<ItemState>,
    class: Option<Class>,
    request: &PageRequest,
) -> Result<Page<ItemFacts>> {
    let list = sql("SELECT seq, step, key, state, attempts, due_at, class, error FROM pipeline_item
                    WHERE run = $1 AND ($2 = '' OR state = $2) AND ($3 = '' OR class = $3)");
    let list = list.bind(run).bind(state.map_or("", ItemState::as_str)).bind(class.map_or("", Class::as_str));
    let page: Page<FactsRow> = records.page(list, &IN_ORDER, request).await?;
    Ok(page.map(ItemFacts::from))
}

/// Lets set-aside items, all or those of a class, be tried again.
pub(crate) async fn replay(records: &Records, run: &RunId, class: Option<Class>) -> Result<u64> {
    records
        .write_with(Isolation::Committed, |tx| async move {
            let again =
                sql("UPDATE pipeline_item SET state = 'waiting', attempts = 0, due_at = $2, claim = 0
                             WHERE run = $1 AND state = 'quarantined' AND ($3 = '' OR class = $3)");
            Ok(tx.execute(again.bind(run).bind(tx.now()).bind(class.map_or("", Class::as_str))).await?)
        })
        .await
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

hob_records::column!(ItemState as text);
hob_records::column!(Class as text);
