//! `pipeline_claim`: one lease for all items of a claim.

use std::time::Duration;

use hob_database::{Read, Snapshot, Transaction, UnixMs, from_row, sql};

use super::Result;
use crate::run::RunId;

/// A claim whose lease has expired. Its items have numbers from `first_seq` to `last_seq`.
pub(crate) struct ExpiredClaim {
    pub(crate) run: RunId,
    pub(crate) claim: i64,
    pub(crate) first_seq: i64,
    pub(crate) last_seq: i64,
}

from_row!(ExpiredClaim { run, claim, first_seq, last_seq });

const EXPIRED: &str = "SELECT run, claim, first_seq, last_seq FROM pipeline_claim WHERE until <= $1
                       ORDER BY run, claim LIMIT 100";

/// Inserts a claim on items with numbers from `first_seq` to `last_seq`.
pub(crate) async fn insert(
    tx: &Transaction,
    run: &RunId,
    claim: i64,
    worker: &str,
    (first_seq, last_seq): (i64, i64),
    lease: Duration,
) -> Result<()> {
    let insert = sql("INSERT INTO pipeline_claim (run, claim, worker, first_seq, last_seq, begun, until)
                      VALUES ($1, $2, $3, $4, $5, $6, $7)");
    let insert = insert.bind(run).bind(claim).bind(worker).bind(first_seq).bind(last_seq);
    tx.execute(insert.bind(tx.now()).bind(tx.now().plus(lease))).await?;
    Ok(())
}

/// Renews the claims of a worker that have not expired, and returns their numbers.
pub(crate) async fn renew(tx: &Transaction, run: &RunId, worker: &str, lease: Duration) -> Result<Vec<i64>> {
    let renew = sql("UPDATE pipeline_claim SET until = $3 WHERE run = $1 AND worker = $2 AND until > $4
                     RETURNING claim");
    let renewed: Vec<(i64,)> =
        tx.all(renew.bind(run).bind(worker).bind(tx.now().plus(lease)).bind(tx.now())).await?;
    Ok(renewed.into_iter().map(|(claim,)| claim).collect())
}

/// The workers of a run: name, number of items, start of the oldest claim.
pub(crate) async fn workers(on: &impl Read, run: &RunId) -> Result<Vec<(String, u64, UnixMs)>> {
    let list = sql(
        "SELECT c.worker, CAST(count(i.seq) AS BIGINT), CAST(min(c.begun) AS BIGINT) FROM pipeline_claim c
        LEFT JOIN pipeline_item i ON i.run = c.run AND i.seq BETWEEN c.first_seq AND c.last_seq
            AND i.claim = c.claim AND i.state = 'claimed'
        WHERE c.run = $1 GROUP BY c.worker ORDER BY c.worker LIMIT 100",
    );
    on.all(list.bind(run)).await
}

pub(crate) async fn any_expired(snapshot: &Snapshot) -> Result<bool> {
    Ok(snapshot.optional::<ExpiredClaim>(sql(EXPIRED).bind(snapshot.now())).await?.is_some())
}

/// Up to 100 claims whose lease has expired.
pub(crate) async fn expired(tx: &Transaction) -> Result<Vec<ExpiredClaim>> {
    tx.all(sql(EXPIRED).bind(tx.now())).await
}

pub(crate) async fn delete(tx: &Transaction, run: &RunId, claims: &[i64]) -> Result<()> {
    if !claims.is_empty() {
        let delete = sql("DELETE FROM pipeline_claim WHERE run = $1 AND claim IN ($2...)");
        tx.execute(delete.bind(run).bind_list(claims.iter().copied())).await?;
    }
    Ok(())
}
