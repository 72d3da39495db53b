//! Every query of the gateway: the totals of each shard, the shard's epoch, the last checkpoint of each instance, and the
//! response times of the last clean stop.

use std::collections::BTreeMap;

use hob_database::{Error, Read, Transaction, UnixMs, column, sql};

/// What a total counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TotalKind {
    Total,
    Accepted,
    Limited,
    Errors,
    ServerErrors,
    Endpoint,
    EndpointErrors,
    EndpointLimited,
    EndpointServerErrors,
    Timed,
    TimeUs,
    Status,
    Instance,
    Hour,
}

column!(TotalKind as text);

impl TotalKind {
    /// Totals over all requests.
    pub(crate) const OVERALL: [Self; 5] =
        [Self::Total, Self::Accepted, Self::Limited, Self::Errors, Self::ServerErrors];
    /// Totals of each endpoint.
    pub(crate) const BY_ENDPOINT: [Self; 6] = [
        Self::Endpoint,
        Self::EndpointErrors,
        Self::EndpointLimited,
        Self::EndpointServerErrors,
        Self::Timed,
        Self::TimeUs,
    ];

    pub(crate) fn is_by_endpoint(self) -> bool {
        Self::BY_ENDPOINT.contains(&self)
    }
}

/// Totals by kind and id. The id is an endpoint, status, instance or hour; it is empty for a total over all requests.
pub(crate) type Totals = BTreeMap<(TotalKind, String), u64>;

/// The number of the last checkpoint that was saved under this incarnation of an instance.
pub(crate) async fn last_checkpoint(tx: &Transaction, incarnation: &str) -> Result<Option<u64>, Error> {
    let last = sql("SELECT number FROM gateway_instance WHERE incarnation = $1").bind(incarnation);
    let last: Option<(u64,)> = tx.optional(last).await?;
    Ok(last.map(|(number,)| number))
}

pub(crate) async fn save_checkpoint_number(
    tx: &Transaction,
    incarnation: &str,
    instance: &str,
    number: u64,
) -> Result<(), Error> {
    let save = sql("INSERT INTO gateway_instance (incarnation, instance, number, seen_at)
                    VALUES ($1, $2, $3, $4) ON CONFLICT (incarnation)
                    DO UPDATE SET number = excluded.number, seen_at = excluded.seen_at");
    tx.execute(save.bind(incarnation).bind(instance).bind(number).bind(tx.now())).await?;
    Ok(())
}

/// Adds to the totals of a shard.
pub(crate) async fn add_totals(tx: &Transaction, shard: u32, totals: &Totals) -> Result<(), Error> {
    let row = |((kind, id), value): (&(TotalKind, String), &u64)| (shard, *kind, id.clone(), *value);
    let rows: Vec<_> = totals.iter().map(row).collect();
    tx.insert_all(
        "INSERT INTO gateway_total (shard, kind, id, value)",
        rows,
        "ON CONFLICT (shard, kind, id) DO UPDATE SET value = gateway_total.value + excluded.value",
    )
    .await?;
    Ok(())
}

pub(crate) async fn totals(tx: &Transaction, shard: u32) -> Result<Totals, Error> {
    let totals = sql("SELECT kind, id, value FROM gateway_total WHERE shard = $1 ORDER BY kind, id");
    let totals: Vec<(TotalKind, String, u64)> = tx.all(totals.bind(shard)).await?;
    Ok(totals.into_iter().map(|(kind, id, value)| ((kind, id), value)).collect())
}

pub(crate) async fn delete_total(
    tx: &Transaction,
    shard: u32,
    kind: TotalKind,
    id: &str,
) -> Result<(), Error> {
    let delete = sql("DELETE FROM gateway_total WHERE shard = $1 AND kind = $2 AND id = $3");
    tx.execute(delete.bind(shard).bind(kind).bind(id)).await?;
    Ok(())
}

/// Deletes the totals of hours that started before `hour`.
pub(crate) async fn delete_hours_before(tx: &Transaction, shard: u32, hour: UnixMs) -> Result<(), Error> {
    let delete = sql("DELETE FROM gateway_total WHERE shard = $1 AND kind = $2 AND id < $3");
    tx.execute(delete.bind(shard).bind(TotalKind::Hour).bind(hour.0.to_string())).await?;
    Ok(())
}

/// Deletes instances that saved nothing since `oldest`, and the totals of those that belong to the shard.
pub(crate) async fn delete_instances_before(
    tx: &Transaction,
    shard: u32,
    oldest: UnixMs,
) -> Result<(), Error> {
    let totals = sql("DELETE FROM gateway_total WHERE shard = $1 AND kind = $2
                      AND id NOT IN (SELECT instance FROM gateway_instance WHERE seen_at >= $3)");
    tx.execute(totals.bind(shard).bind(TotalKind::Instance).bind(oldest)).await?;
    let instances = sql("DELETE FROM gateway_instance WHERE seen_at < $1").bind(oldest);
    tx.execute(instances).await?;
    Ok(())
}

/// The epoch of a shard; `None` before its first.
pub(crate) async fn shard_epoch(database: &impl Read, shard: u32) -> Result<Option<u32>, Error> {
    let epoch = sql("SELECT epoch FROM gateway_shard WHERE shard = $1").bind(shard);
    let epoch: Option<(u32,)> = database.optional(epoch).await?;
    Ok(epoch.map(|(epoch,)| epoch))
}

/// Raises a shard's epoch to the one after `lost`. Returns whether it was raised: another instance may have done so.
pub(crate) async fn raise_shard_epoch(tx: &Transaction, shard: u32, lost: u32) -> Result<bool, Error> {
    let first = sql("INSERT INTO gateway_shard (shard, epoch) VALUES ($1, 0) ON CONFLICT DO NOTHING");
    tx.execute(first.bind(shard)).await?;
    let raise = sql("UPDATE gateway_shard SET epoch = $2 + 1 WHERE shard = $1 AND epoch <= $2");
    Ok(tx.execute(raise.bind(shard).bind(lost)).await? > 0)
}

/// The response times of an endpoint at the last clean stop.
pub(crate) struct SavedTimes {
    pub(crate) endpoint: String,
    /// Of each sample its time and its duration.
    pub(crate) samples: String,
    /// Of each bucket its minute, index and count.
    pub(crate) buckets: String,
}

/// Saves the response times of a shard in place of earlier ones.
pub(crate) async fn replace_times(tx: &Transaction, shard: u32, times: &[SavedTimes]) -> Result<(), Error> {
    tx.execute(sql("DELETE FROM gateway_times WHERE shard = $1").bind(shard)).await?;
    let row =
        |saved: &SavedTimes| (shard, saved.endpoint.clone(), saved.samples.clone(), saved.buckets.clone());
    let rows: Vec<_> = times.iter().map(row).collect();
    tx.insert_all("INSERT INTO gateway_times (shard, endpoint, samples, buckets)", rows, "").await?;
    Ok(())
}

pub(crate) async fn times(database: &impl Read, shard: u32) -> Result<Vec<SavedTimes>, Error> {
    let times =
        sql("SELECT endpoint, samples, buckets FROM gateway_times WHERE shard = $1 ORDER BY endpoint");
    let times: Vec<(String, String, String)> = database.all(times.bind(shard)).await?;
    let saved = |(endpoint, samples, buckets)| SavedTimes { endpoint, samples, buckets };
    Ok(times.into_iter().map(saved).collect())
}

// The values of the column `kind`.
hob_units::names!(TotalKind {
    Total = "total",
    Accepted = "accepted",
    Limited = "limited",
    Errors = "errors",
    ServerErrors = "server_errors",
    Endpoint = "endpoint",
    EndpointErrors = "endpoint_errors",
    EndpointLimited = "endpoint_limited",
    EndpointServerErrors = "endpoint_server_errors",
    Timed = "timed",
    TimeUs = "time_us",
    Status = "status",
    Instance = "instance",
    Hour = "hour",
});
