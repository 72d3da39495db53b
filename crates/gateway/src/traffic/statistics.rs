//! Statistics over all instances: totals, endpoints, statuses, hours, instances and percentiles (G19).

use std::collections::BTreeMap;
use std::ops::Range;

use hob_admission::RuleName;
use hob_units::unix_ms;

use hob_database::Database;
use hob_schema::Shard;
use hob_store::{Call, FromRedisValue, Key, Store, Value, cmd};

use crate::keys::{Endpoint, Hour, InstanceId, Keys, StatusCode};
use crate::traffic::foreign;
use crate::traffic::histogram::{Bucket, Histogram};
use crate::traffic::publisher::{HOUR_MS, gauge_shard};
use crate::{Error, database};

const MINUTE_MS: u64 = 60_000;

/// Reads what all instances counted. With tagged keys, values are summed over all shards, which are read in one batch.
#[derive(Clone, Debug)]
pub struct Statistics {
    store: Store,
    database: Database,
    keys: Keys,
}

/// Totals and gauges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub connections: u64,
    pub connections_max: u64,
    pub accepted: u64,
    pub total: u64,
    pub limited: u64,
    pub errors: u64,
    /// Errors with a status of 500 or more, of requests that were let through.
    pub server_errors: u64,
    pub per_second: u64,
    pub per_second_max: u64,
}

/// Totals of an endpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndpointStatistics {
    pub name: String,
    pub requests: u64,
    pub errors: u64,
    pub limited: u64,
    pub server_errors: u64,
    pub timed: u64,
    pub time_ms: f64,
}

impl Summary {
    /// Errors with a status below 500, without requests that the gateway refused.
    #[must_use]
    pub fn client_errors(&self) -> u64 {
        self.errors.saturating_sub(self.limited).saturating_sub(self.server_errors)
    }
}

impl HourTraffic {
    /// As in [`Summary::client_errors`].
    #[must_use]
    pub fn client_errors(&self) -> u64 {
        self.errors.saturating_sub(self.limited).saturating_sub(self.server_errors)
    }

    /// The average response time in milliseconds.
    #[must_use]
    pub fn average_ms(&self) -> Option<f64> {
        (self.timed > 0).then(|| self.time_us as f64 / self.timed as f64 / 1000.0)
    }
}

impl EndpointStatistics {
    /// As in [`Summary::client_errors`].
    #[must_use]
    pub fn client_errors(&self) -> u64 {
        self.errors.saturating_sub(self.limited).saturating_sub(self.server_errors)
    }

    /// The average response time in milliseconds.
    #[must_use]
    pub fn average_ms(&self) -> Option<f64> {
        (self.timed > 0).then(|| self.time_ms / self.timed as f64)
    }
}

/// A live instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceStatistics {
    pub id: String,
    pub connections: u64,
    pub requests: u64,
    pub started_unix_ms: u64,
}

/// Requests of an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HourCount {
    pub start_unix_ms: u64,
    pub requests: u64,
}

/// The traffic of an hour, as far as it is saved in the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HourTraffic {
    pub start_unix_ms: u64,
    pub requests: u64,
    pub limited: u64,
    pub errors: u64,
    pub server_errors: u64,
    /// Number of response times in `time_us`; refused requests have none.
    pub timed: u64,
    pub time_us: u64,
}

/// Response times of a minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinuteLatency {
    pub start_unix_ms: u64,
    pub histogram: Histogram,
}

/// Decisions of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleStatistics {
    pub allowed: u64,
    pub refused: u64,
    pub shadowed: u64,
    /// The callers that were refused most in about the last hour, with the number of refusals.
    pub top_refused: Vec<(String, u64)>,
}

impl Statistics {
    pub(crate) fn new(store: Store, database: Database, keys: Keys) -> Self {
        Self { store, database, keys }
    }

    pub async fn summary(&self) -> Result<Summary, Error> {
        let shard = gauge_shard(&self.keys);
        let gauge = [
            self.keys.connections_current(shard),
            self.keys.connections_max(shard),
            self.keys.requests_speed(shard),
            self.keys.requests_speed_max(shard),
        ];
        let totals = |shard| {
            [
                self.keys.requests_accepted(shard),
                self.keys.requests_total(shard),
                self.keys.requests_limited(shard),
                self.keys.errors_total(shard),
                self.keys.server_errors(shard),
            ]
        };
        let mut calls = vec![mget(&gauge)];
        calls.extend(self.shards().map(|shard| mget(&totals(shard))));
        let mut answers = self.read_all::<Values>(&calls).await?.into_iter();
        let gauge = answers.next().unwrap_or_default();
        let mut sums = [0; 5];
        answers.for_each(|totals| add_counts(&mut sums, &totals));
        let at = |index: usize| gauge.get(index).map_or(0, read_count);
        let [accepted, total, limited, errors, server_errors] = sums;
        Ok(Summary {
            connections: at(0),
            connections_max: at(1),
            per_second: at(2),
            per_second_max: at(3),
            accepted,
            total,
            limited,
            errors,
            server_errors,
        })
    }

    /// All endpoints, the busiest first.
    pub async fn endpoints(&self) -> Result<Vec<EndpointStatistics>, Error> {
        let names = self.endpoint_names().await?;
        let calls: Vec<Call> = names
            .iter()
            .map(|(shard, names)| {
                let keys = names.iter().flat_map(|name| {
                    [
                        self.keys.requests_by_endpoint(name, *shard),
                        self.keys.errors_by_endpoint(name, *shard),
                        self.keys.response_count(name, *shard),
                        self.keys.response_sum(name, *shard),
                        self.keys.limited_by_endpoint(name, *shard),
                        self.keys.server_errors_by_endpoint(name, *shard),
                    ]
                });
                mget(&keys.collect::<Vec<_>>())
            })
            .collect();
        let answers = self.read_all::<Values>(&calls).await?;
        let mut found: BTreeMap<String, EndpointStatistics> = BTreeMap::new();
        for ((_, names), values) in names.iter().zip(answers) {
            for (name, values) in names.iter().zip(values.chunks_exact(6)) {
                let statistics = found.entry(name.to_string()).or_default();
                statistics.requests += read_count(&values[0]);
                statistics.errors += read_count(&values[1]);
                statistics.timed += read_count(&values[2]);
                statistics.time_ms += values[3].as_deref().map_or(0.0, foreign::parse_millis);
                statistics.limited += read_count(&values[4]);
                statistics.server_errors += read_count(&values[5]);
            }
        }
        let named = found.into_iter().map(|(name, statistics)| EndpointStatistics { name, ..statistics });
        let mut all: Vec<EndpointStatistics> = named.filter(|statistics| statistics.requests > 0).collect();
        all.sort_by_key(|statistics| std::cmp::Reverse(statistics.requests));
        Ok(all)
    }

    /// Errors by status.
    pub async fn statuses(&self) -> Result<BTreeMap<u16, u64>, Error> {
        let statuses: Vec<u16> = (400..600).collect();
        let key = |shard, status: &u16| {
            self.keys.errors_by_status(&StatusCode::new(status).expect("within the declared range"), shard)
        };
        let keys = |shard| statuses.iter().map(|status| key(shard, status)).collect::<Vec<_>>();
        let calls: Vec<Call> = self.shards().map(|shard| mget(&keys(shard))).collect();
        let mut counts = vec![0; statuses.len()];
        for answer in self.read_all::<Values>(&calls).await? {
            add_counts(&mut counts, &answer);
        }
        Ok(statuses.into_iter().zip(counts).filter(|(_, count)| *count > 0).collect())
    }

    /// Requests of the last 24 hours, the oldest hour first.
    pub async fn hours(&self) -> Result<Vec<HourCount>, Error> {
        let now = unix_ms();
        let this_hour = now - now % HOUR_MS;
        let starts: Vec<u64> = (0..24).rev().map(|ago| this_hour - ago * HOUR_MS).collect();
        let keys = |shard| {
            starts.iter().map(|start| self.keys.requests_by_hour(&hour(*start), shard)).collect::<Vec<_>>()
        };
        let calls: Vec<Call> = self.shards().map(|shard| mget(&keys(shard))).collect();
        let mut counts = vec![0; starts.len()];
        for answer in self.read_all::<Values>(&calls).await? {
            add_counts(&mut counts, &answer);
        }
        let hour = |(start_unix_ms, requests)| HourCount { start_unix_ms, requests };
        Ok(starts.into_iter().zip(counts).map(hour).collect())
    }

    /// The traffic of the hours that begin in this range of Unix milliseconds, the oldest first. The database keeps 31 days.
    pub async fn history(&self, range: Range<u64>) -> Result<Vec<HourTraffic>, Error> {
        Ok(database::hours(&self.database, range).await?)
    }

    /// The live instances, by id.
    pub async fn instances(&self) -> Result<Vec<InstanceStatistics>, Error> {
        let shard = gauge_shard(&self.keys);
        let hash = |key: Key| Call::from(cmd("HGETALL").arg(key.as_bytes()));
        let calls = [hash(self.keys.instance_connections(shard)), hash(self.keys.instance_starts(shard))];
        let mut answers = self.read_all::<Fields>(&calls).await?.into_iter().map(read_counts);
        let (connections, starts) = (answers.next().unwrap_or_default(), answers.next().unwrap_or_default());
        let ids: Vec<InstanceId> = connections.keys().filter_map(|id| InstanceId::new(id).ok()).collect();
        let count = |id: &InstanceId| {
            let shard = self.keys.space().shard_of(id.as_str());
            Call::from(cmd("GET").arg(self.keys.requests_by_instance(id, shard).as_bytes()))
        };
        let counts = self.read_all::<Option<Vec<u8>>>(&ids.iter().map(count).collect::<Vec<_>>()).await?;
        let statistics = |(id, requests): (&InstanceId, Option<Vec<u8>>)| InstanceStatistics {
            id: id.to_string(),
            connections: connections.get(id.as_str()).copied().unwrap_or(0),
            requests: read_count(&requests),
            started_unix_ms: starts.get(id.as_str()).copied().unwrap_or(0),
        };
        Ok(ids.iter().zip(counts).map(statistics).collect())
    }

    /// Response times per minute for the last `minutes`, the oldest first; of one endpoint or of all.
    pub async fn latency(
        &self,
        endpoint: Option<&Endpoint>,
        minutes: u64,
    ) -> Result<Vec<MinuteLatency>, Error> {
        let now = unix_ms();
        let last = now - now % MINUTE_MS;
        let first = last.saturating_sub((minutes.max(1) - 1) * MINUTE_MS);
        let hours: Vec<u64> = (first - first % HOUR_MS..=last).step_by(HOUR_MS as usize).collect();
        let mut calls = Vec::new();
        for shard in self.shards() {
            for start in &hours {
                let key = match endpoint {
                    Some(endpoint) => self.keys.latency(&hour(*start), endpoint, shard),
                    None => self.keys.latency_all(&hour(*start), shard),
                };
                calls.push(cmd("HGETALL").arg(key.as_bytes()).into());
            }
        }
        let answers = self.read_all::<Fields>(&calls).await?.into_iter().map(read_counts);
        let mut found: BTreeMap<u64, Histogram> =
            (first..=last).step_by(MINUTE_MS as usize).map(|at| (at, Histogram::default())).collect();
        for (start, fields) in hours.iter().cycle().zip(answers) {
            for (field, count) in fields {
                let Some((minute, bucket)) = field.split_once(':') else { continue };
                let bucket = bucket.parse().ok().and_then(Bucket::from_index);
                let (Ok(minute), Some(bucket)) = (minute.parse::<u8>(), bucket) else { continue };
                if let Some(histogram) = found.get_mut(&(start + u64::from(minute) * MINUTE_MS)) {
                    histogram.add(bucket, count);
                }
            }
        }
        let minute = |(start_unix_ms, histogram)| MinuteLatency { start_unix_ms, histogram };
        Ok(found.into_iter().map(minute).collect())
    }

    /// Decisions of a rule over all instances.
    pub async fn rule(&self, rule: &RuleName) -> Result<RuleStatistics, Error> {
        let rule = rule.key();
        let mut counts = Vec::new();
        let mut top_refused = Vec::new();
        for shard in self.shards() {
            counts.push(cmd("HGETALL").arg(self.keys.limit_counts(&rule, shard).as_bytes()).into());
            let key = self.keys.limit_hottest(&rule, shard);
            top_refused.push(cmd("ZREVRANGE").arg(key.as_bytes()).arg(0).arg(9).arg("WITHSCORES").into());
        }
        let mut statistics = RuleStatistics::default();
        for counts in self.read_all::<Fields>(&counts).await?.into_iter().map(read_counts) {
            let count = |field| counts.get(field).copied().unwrap_or(0);
            statistics.allowed += count("allowed");
            statistics.refused += count("refused");
            statistics.shadowed += count("shadowed");
        }
        let mut callers: BTreeMap<String, f64> = BTreeMap::new();
        for (caller, count) in self.read_all::<Vec<(Vec<u8>, f64)>>(&top_refused).await?.into_iter().flatten()
        {
            *callers.entry(String::from_utf8_lossy(&caller).into_owned()).or_default() += count;
        }
        statistics.top_refused = callers.into_iter().map(|(caller, count)| (caller, count as u64)).collect();
        statistics.top_refused.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        statistics.top_refused.truncate(10);
        Ok(statistics)
    }

    async fn endpoint_names(&self) -> Result<Vec<(Shard, Vec<Endpoint>)>, Error> {
        let shards: Vec<Shard> = self.shards().collect();
        let members = |shard: &Shard| Call::from(cmd("SMEMBERS").arg(self.keys.endpoints(*shard).as_bytes()));
        let answers = self.read_all::<Vec<Vec<u8>>>(&shards.iter().map(members).collect::<Vec<_>>()).await?;
        let named = |names: Vec<Vec<u8>>| {
            foreign::utf8_names(names)
                .chain(["other".to_owned()])
                .filter_map(|name| Endpoint::new(name).ok())
                .collect()
        };
        Ok(shards.into_iter().zip(answers.into_iter().map(named)).collect())
    }

    fn shards(&self) -> impl Iterator<Item = Shard> + use<> {
        self.keys.space().shards()
    }

    /// A key of another type reads as if it did not exist.
    async fn read_all<T: FromRedisValue + Default>(&self, calls: &[Call]) -> Result<Vec<T>, Error> {
        let read = |answer: hob_store::Result<Value>| {
            let Some(value) = foreign::or_default(answer.map(Some))? else { return Ok(T::default()) };
            T::from_redis_value(value).map_err(|error| hob_store::Error::Reply(error.to_string()))
        };
        Ok(self.store.batch(calls).await.into_iter().map(read).collect::<Result<_, _>>()?)
    }
}

/// The histogram of several minutes together.
#[must_use]
pub(crate) fn merge_minutes(minutes: &[MinuteLatency]) -> Histogram {
    let mut all = Histogram::default();
    minutes.iter().for_each(|minute| all.merge(&minute.histogram));
    all
}

/// Replies to MGET and HGETALL. Values may come from another client.
type Values = Vec<Option<Vec<u8>>>;
type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn read_count(value: &Option<Vec<u8>>) -> u64 {
    value.as_deref().map_or(0, foreign::parse_count)
}

fn read_counts(fields: Fields) -> BTreeMap<String, u64> {
    let text = |(field, value): (Vec<u8>, Vec<u8>)| {
        Some((String::from_utf8(field).ok()?, foreign::parse_count(&value)))
    };
    fields.into_iter().filter_map(text).collect()
}

fn add_counts(sums: &mut [u64], values: &Values) {
    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += read_count(value));
}

fn mget(keys: &[Key]) -> Call {
    let mut command = cmd("MGET");
    keys.iter().for_each(|key| {
        command.arg(key.as_bytes());
    });
    command.into()
}

fn hour(start: u64) -> Hour {
    Hour::new(start).expect("a multiple of an hour")
}
