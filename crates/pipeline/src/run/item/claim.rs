//! Claims: items that one worker holds under one lease, and what becomes of them when it is not heard of again.

use std::time::Duration;

use hob_database::{Database, Isolation, Read as _, Snapshot, Transaction, UnixMs, sql};

use super::{Item, ItemState, Tally};
use crate::error::Result;
use crate::plan::retry::Class;
use crate::run::{self, RunId};

/// An item that its workers did not survive so often is set aside.
const MOST_DEATHS: u32 = 20;

/// Items that one worker holds under one lease.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) number: i64,
    pub(crate) items: Vec<Item>,
}

/// Claims items that are due, for as long as the lease is renewed; `None` if there are none.
pub(crate) async fn claim(
    database: &Database,
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
            RETURNING seq, step, key, data, attempts, class, unchanged");
        let mut items: Vec<Item> = tx.all(claim.bind(run).bind(number).bind(tx.now()).bind(most)).await?;
        items.sort_unstable_by_key(|item| item.seq);
        let (Some(first), Some(last)) = (items.first(), items.last()) else { return Ok(None) };
        let hold = sql("INSERT INTO pipeline_claim (run, claim, worker, first_seq, last_seq, begun, until)
                        VALUES ($1, $2, $3, $4, $5, $6, $7)");
        let hold = hold.bind(run).bind(number).bind(worker).bind(first.seq).bind(last.seq);
        tx.execute(hold.bind(tx.now()).bind(tx.now().plus(lease))).await?;
        let mut tally = Tally::default();
        for item in &items {
            tally.add(&item.step, &item.class, ItemState::Waiting, -1);
            tally.add(&item.step, &item.class, ItemState::Claimed, 1);
        }
        tally.write(&tx, run).await?;
        Ok(Some(Claim { number, items }))
    };
    // Nothing is due most of the time when a run waits, and a look costs less than a write.
    let due = sql("SELECT CAST(1 AS BIGINT) FROM pipeline_item WHERE run = $1 AND state = 'waiting' LIMIT 1");
    if database.optional::<(i64,)>(due.bind(run)).await?.is_none() {
        return Ok(None);
    }
    database.write_with(Isolation::Committed, work).await
}

/// Holds a worker's claims for longer.
pub(crate) async fn renew(database: &Database, run: &RunId, worker: &str, lease: Duration) -> Result<()> {
    database
        .write_with(Isolation::Committed, |tx| async move {
            let renew =
                sql("UPDATE pipeline_claim SET until = $3 WHERE run = $1 AND worker = $2 AND until > $4");
            tx.execute(renew.bind(run).bind(worker).bind(tx.now().plus(lease)).bind(tx.now())).await
        })
        .await?;
    Ok(())
}

/// Who works on a run: the worker, how many items it holds, since when it holds the oldest.
pub(crate) async fn workers(database: &Database, run: &RunId) -> Result<Vec<(String, u64, UnixMs)>> {
    let list = sql(
        "SELECT c.worker, CAST(count(i.seq) AS BIGINT), CAST(min(c.begun) AS BIGINT) FROM pipeline_claim c
        LEFT JOIN pipeline_item i ON i.run = c.run AND i.seq BETWEEN c.first_seq AND c.last_seq
            AND i.claim = c.claim AND i.state = 'claimed'
        WHERE c.run = $1 GROUP BY c.worker ORDER BY c.worker LIMIT 100",
    );
    Ok(database.all(list.bind(run)).await?)
}

/// Takes back what dead workers hold. Returns how many items come back.
pub(crate) async fn reap(database: &Database) -> Result<u64> {
    let find = "SELECT run, claim, first_seq, last_seq FROM pipeline_claim WHERE until <= $1
                ORDER BY run, claim LIMIT 100";
    let work = |tx: Transaction| async move {
        let over: Vec<Dead> = tx.all(sql(find).bind(tx.now())).await?;
        let mut back = 0;
        for dead in over {
            back += take_back(&tx, &dead).await?;
        }
        Ok(back)
    };
    // A look first, without a write: there is hardly ever one.
    let look =
        |database: Snapshot| async move { database.optional::<Dead>(sql(find).bind(database.now())).await };
    if database.read(look).await?.is_none() {
        return Ok(0);
    }
    database.write_with(Isolation::Committed, work).await
}

/// A claim whose lease is over: the run, the number, and between which items its own lie.
type Dead = (RunId, i64, i64, i64);

/// Items come back, or are set aside where too many workers have not survived them.
async fn take_back(tx: &Transaction, dead: &Dead) -> Result<u64, hob_database::Error> {
    let (run, claim, first, last) = dead;
    run::hold(tx, run).await?;
    let held = sql("SELECT step, class, CAST(count(*) AS BIGINT),
            CAST(sum(CASE WHEN attempts >= $5 THEN 1 ELSE 0 END) AS BIGINT) FROM pipeline_item
        WHERE run = $1 AND seq BETWEEN $2 AND $3 AND claim = $4 AND state = 'claimed' GROUP BY step, class");
    let held = held.bind(run).bind(*first).bind(*last).bind(*claim).bind(MOST_DEATHS);
    let held: Vec<(String, String, i64, i64)> = tx.all(held).await?;
    let mut tally = Tally::default();
    for (step, class, all, poison) in &held {
        tally.add(step, class, ItemState::Claimed, -all);
        tally.add(step, class, ItemState::Waiting, all - poison);
        tally.add(step, Class::Network.as_str(), ItemState::Quarantined, *poison);
    }
    tally.write(tx, run).await?;
    let set_aside = sql("UPDATE pipeline_item SET state = 'quarantined', class = $6,
            error = 'none of the workers that tried it was heard of again'
        WHERE run = $1 AND seq BETWEEN $2 AND $3 AND claim = $4 AND state = 'claimed' AND attempts >= $5");
    let set_aside = set_aside.bind(run).bind(*first).bind(*last).bind(*claim).bind(MOST_DEATHS);
    tx.execute(set_aside.bind(Class::Network)).await?;
    let again = sql("UPDATE pipeline_item SET state = 'waiting', claim = 0
        WHERE run = $1 AND seq BETWEEN $2 AND $3 AND claim = $4 AND state = 'claimed'");
    let back = tx.execute(again.bind(run).bind(*first).bind(*last).bind(*claim)).await?;
    tx.execute(sql("DELETE FROM pipeline_claim WHERE run = $1 AND claim = $2").bind(run).bind(*claim))
        .await?;
    Ok(back)
}
