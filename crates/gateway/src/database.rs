//! Every query of the gateway: the totals of each shard, the shard's epoch, traffic by hour, the last checkpoint of each
//! instance, and the response times of the last clean stop.

use std::collections::BTreeMap;
use std::ops::Range;

use hob_database::{Error, Read, Transaction, UnixMs, column, from_row, sql};

use crate::traffic::counts::RequestTotals;
use crate::traffic::statistics::HourTraffic;

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
pub(crate) async fn delete_hourly_totals_before(
    tx: &Transaction,
    shard: u32,
    hour: UnixMs,
) -> Result<(), Error> {
    let delete = sql("DELETE FROM gateway_total WHERE shard = $1 AND kind = $2 AND id < $3");
    tx.execute(delete.bind(shard).bind(TotalKind::Hour).bind(hour.0.to_string())).await?;
    Ok(())
}

/// Adds to the traffic of hours, which are given by their start.
pub(crate) async fn add_hours(
    tx: &Transaction,
    shard: u32,
    hours: &BTreeMap<u64, RequestTotals>,
) -> Result<(), Error> {
    let row = |(start, of_hour): (&u64, &RequestTotals)| {
        let RequestTotals { requests, refused, errors, server_errors, timed, time_us, .. } = of_hour;
        (*start, shard, *requests, *refused, *errors, *server_errors, *timed, *time_us)
    };
    let rows: Vec<_> = hours.iter().map(row).collect();
    tx.insert_all(
        "INSERT INTO gateway_hour (started_at, shard, requests, limited, errors, server_errors, timed, time_us)",
        rows,
        "ON CONFLICT (started_at, shard) DO UPDATE SET
             requests = gateway_hour.requests + excluded.requests,
             limited = gateway_hour.limited + excluded.limited,
             errors = gateway_hour.errors + excluded.errors,
             server_errors = gateway_hour.server_errors + excluded.server_errors,
             timed = gateway_hour.timed + excluded.timed,
             time_us = gateway_hour.time_us + excluded.time_us",
    )
    .await?;
    Ok(())
}

/// The traffic of all shards in the hours that begin in this range of Unix milliseconds, the oldest first.
pub(crate) async fn hours(database: &impl Read, range: Range<u64>) -> Result<Vec<HourTraffic>, Error> {
    let hours = sql("SELECT started_at AS start_unix_ms, CAST(sum(requests) AS BIGINT) AS requests,
                            CAST(sum(limited) AS BIGINT) AS limited, CAST(sum(errors) AS BIGINT) AS errors,
                            CAST(sum(server_errors) AS BIGINT) AS server_errors,
                            CAST(sum(timed) AS BIGINT) AS timed, CAST(sum(time_us) AS BIGINT) AS time_us
                     FROM gateway_hour WHERE started_at >= $1 AND started_at < $2
                     GROUP BY started_at ORDER BY started_at");
    database.all(hours.bind(range.start).bind(range.end)).await
}

/// Deletes the traffic of hours that started before `hour`, of all shards.
pub(crate) async fn delete_hours_before(tx: &Transaction, hour: UnixMs) -> Result<(), Error> {
    tx.execute(sql("DELETE FROM gateway_hour WHERE started_at < $1").bind(hour)).await?;
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

from_row!(HourTraffic { start_unix_ms, requests, limited, errors, server_errors, timed, time_us });

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
