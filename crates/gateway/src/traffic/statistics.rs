//! The whole picture, read by any instance: totals, endpoints, statuses, hours, instances, percentiles (G19).

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hob_schema::{Key, Shard};
use hob_store::{Call, FromRedisValue, Store, Value, cmd};

use crate::Error;
use crate::keys::{Endpoint, Hour, InstanceId, Keys, StatusCode};
use crate::limiter::rule::RuleName;
use crate::traffic::foreign;
use crate::traffic::histogram::{Bucket, Histogram};
use crate::traffic::publisher::{HOUR_MS, gauges};

const MINUTE_MS: u64 = 60_000;

/// Reads what all instances counted. Under the tagged layout numbers are summed over the shards, which are asked all
/// at once.
#[derive(Clone, Debug)]
pub struct Picture {
    store: Store,
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
    pub per_second: u64,
    pub per_second_max: u64,
}

/// What is known of an endpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndpointPicture {
    pub name: String,
    pub requests: u64,
    pub errors: u64,
    pub timed: u64,
    pub time_ms: f64,
}

impl EndpointPicture {
    /// The average response time in milliseconds.
    #[must_use]
    pub fn average_ms(&self) -> Option<f64> {
        (self.timed > 0).then(|| self.time_ms / self.timed as f64)
    }
}

/// A live instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstancePicture {
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

/// Response times of a minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinuteLatency {
    pub start_unix_ms: u64,
    pub histogram: Histogram,
}

/// What a rule decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitPicture {
    pub allowed: u64,
    pub refused: u64,
    pub shadowed: u64,
    /// Who was refused most lately, and how often.
    pub hottest: Vec<(String, u64)>,
}

impl Picture {
    pub(crate) fn new(store: Store, keys: Keys) -> Self {
        Self { store, keys }
    }

    pub async fn summary(&self) -> Result<Summary, Error> {
        let gauges = gauges(&self.keys);
        let gauge = [
            self.keys.connections_current(gauges),
            self.keys.connections_max(gauges),
            self.keys.requests_speed(gauges),
            self.keys.requests_speed_max(gauges),
        ];
        let totals = |shard| {
            [
                self.keys.requests_accepted(shard),
                self.keys.requests_total(shard),
                self.keys.requests_limited(shard),
                self.keys.errors_total(shard),
            ]
        };
        let mut calls = vec![mget(&gauge)];
        calls.extend(self.shards().map(|shard| mget(&totals(shard))));
        let mut answers = self.ask::<Values>(&calls).await?.into_iter();
        let gauge = answers.next().unwrap_or_default();
        let mut sums = [0; 4];
        answers.for_each(|totals| add_counts(&mut sums, &totals));
        let at = |index: usize| gauge.get(index).map_or(0, read_count);
        let [accepted, total, limited, errors] = sums;
        Ok(Summary {
            connections: at(0),
            connections_max: at(1),
            per_second: at(2),
            per_second_max: at(3),
            accepted,
            total,
            limited,
            errors,
        })
    }

    /// Every endpoint, the busiest first.
    pub async fn endpoints(&self) -> Result<Vec<EndpointPicture>, Error> {
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
                    ]
                });
                mget(&keys.collect::<Vec<_>>())
            })
            .collect();
        let answers = self.ask::<Values>(&calls).await?;
        let mut found: BTreeMap<String, EndpointPicture> = BTreeMap::new();
        for ((_, names), values) in names.iter().zip(answers) {
            for (name, values) in names.iter().zip(values.chunks_exact(4)) {
                let picture = found.entry(name.to_string()).or_default();
                picture.requests += read_count(&values[0]);
                picture.errors += read_count(&values[1]);
                picture.timed += read_count(&values[2]);
                picture.time_ms += values[3].as_deref().map_or(0.0, foreign::millis);
            }
        }
        let named = found.into_iter().map(|(name, picture)| EndpointPicture { name, ..picture });
        let mut all: Vec<EndpointPicture> = named.filter(|picture| picture.requests > 0).collect();
        all.sort_by_key(|picture| std::cmp::Reverse(picture.requests));
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
        for answer in self.ask::<Values>(&calls).await? {
            add_counts(&mut counts, &answer);
        }
        Ok(statuses.into_iter().zip(counts).filter(|(_, count)| *count > 0).collect())
    }

    /// The last 24 hours, the oldest first.
    pub async fn hours(&self) -> Result<Vec<HourCount>, Error> {
        let this_hour = now_ms() - now_ms() % HOUR_MS;
        let starts: Vec<u64> = (0..24).rev().map(|ago| this_hour - ago * HOUR_MS).collect();
        let keys = |shard| {
            starts.iter().map(|start| self.keys.requests_by_hour(&hour(*start), shard)).collect::<Vec<_>>()
        };
        let calls: Vec<Call> = self.shards().map(|shard| mget(&keys(shard))).collect();
        let mut counts = vec![0; starts.len()];
        for answer in self.ask::<Values>(&calls).await? {
            add_counts(&mut counts, &answer);
        }
        let hour = |(start_unix_ms, requests)| HourCount { start_unix_ms, requests };
        Ok(starts.into_iter().zip(counts).map(hour).collect())
    }

    /// The live instances, by name.
    pub async fn instances(&self) -> Result<Vec<InstancePicture>, Error> {
        let shard = gauges(&self.keys);
        let hash = |key: Key| Call::from(cmd("HGETALL").arg(key.as_bytes()));
        let calls = [hash(self.keys.instance_connections(shard)), hash(self.keys.instance_starts(shard))];
        let mut answers = self.ask::<Fields>(&calls).await?.into_iter().map(read_counts);
        let (connections, starts) = (answers.next().unwrap_or_default(), answers.next().unwrap_or_default());
        let ids: Vec<InstanceId> = connections.keys().filter_map(|id| InstanceId::new(id).ok()).collect();
        let count = |id: &InstanceId| {
            let shard = self.keys.space().shard_of(id.as_str());
            Call::from(cmd("GET").arg(self.keys.requests_by_instance(id, shard).as_bytes()))
        };
        let counts = self.ask::<Option<Vec<u8>>>(&ids.iter().map(count).collect::<Vec<_>>()).await?;
        let picture = |(id, requests): (&InstanceId, Option<Vec<u8>>)| InstancePicture {
            id: id.to_string(),
            connections: connections.get(id.as_str()).copied().unwrap_or(0),
            requests: read_count(&requests),
            started_unix_ms: starts.get(id.as_str()).copied().unwrap_or(0),
        };
        Ok(ids.iter().zip(counts).map(picture).collect())
    }

    /// Response times of the last minutes, of one endpoint or of all, minute by minute, the oldest first.
    pub async fn latency(
        &self,
        endpoint: Option<&Endpoint>,
        minutes: u64,
    ) -> Result<Vec<MinuteLatency>, Error> {
        let last = now_ms() - now_ms() % MINUTE_MS;
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
        let answers = self.ask::<Fields>(&calls).await?.into_iter().map(read_counts);
        let mut found: BTreeMap<u64, Histogram> =
            (first..=last).step_by(MINUTE_MS as usize).map(|at| (at, Histogram::default())).collect();
        for (start, fields) in hours.iter().cycle().zip(answers) {
            for (field, count) in fields {
                let Some((minute, bucket)) = field.split_once(':') else { continue };
                let (Ok(minute), Ok(bucket)) = (minute.parse::<u64>(), bucket.parse::<u16>()) else {
                    continue;
                };
                if let Some(histogram) = found.get_mut(&(start + minute * MINUTE_MS)) {
                    histogram.add(Bucket(bucket), count);
                }
            }
        }
        let minute = |(start_unix_ms, histogram)| MinuteLatency { start_unix_ms, histogram };
        Ok(found.into_iter().map(minute).collect())
    }

    /// What a rule decided, over all instances.
    pub async fn limit(&self, rule: &RuleName) -> Result<LimitPicture, Error> {
        let rule = rule.key();
        let mut counts = Vec::new();
        let mut hottest = Vec::new();
        for shard in self.shards() {
            counts.push(cmd("HGETALL").arg(self.keys.limit_counts(&rule, shard).as_bytes()).into());
            let key = self.keys.limit_hottest(&rule, shard);
            hottest.push(cmd("ZREVRANGE").arg(key.as_bytes()).arg(0).arg(9).arg("WITHSCORES").into());
        }
        let mut picture = LimitPicture::default();
        for counts in self.ask::<Fields>(&counts).await?.into_iter().map(read_counts) {
            let count = |field| counts.get(field).copied().unwrap_or(0);
            picture.allowed += count("allowed");
            picture.refused += count("refused");
            picture.shadowed += count("shadowed");
        }
        let mut callers: BTreeMap<String, f64> = BTreeMap::new();
        for (caller, count) in self.ask::<Vec<(Vec<u8>, f64)>>(&hottest).await?.into_iter().flatten() {
            *callers.entry(String::from_utf8_lossy(&caller).into_owned()).or_default() += count;
        }
        picture.hottest = callers.into_iter().map(|(caller, count)| (caller, count as u64)).collect();
        picture.hottest.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        picture.hottest.truncate(10);
        Ok(picture)
    }

    async fn endpoint_names(&self) -> Result<Vec<(Shard, Vec<Endpoint>)>, Error> {
        let shards: Vec<Shard> = self.shards().collect();
        let members = |shard: &Shard| Call::from(cmd("SMEMBERS").arg(self.keys.endpoints(*shard).as_bytes()));
        let answers = self.ask::<Vec<Vec<u8>>>(&shards.iter().map(members).collect::<Vec<_>>()).await?;
        let named = |names: Vec<Vec<u8>>| {
            foreign::texts(names)
                .chain(["other".to_owned()])
                .filter_map(|name| Endpoint::new(name).ok())
                .collect()
        };
        Ok(shards.into_iter().zip(answers.into_iter().map(named)).collect())
    }

    fn shards(&self) -> impl Iterator<Item = Shard> + use<> {
        self.keys.space().shards()
    }

    /// A key of another type than ours reads as if it were not there.
    async fn ask<T: FromRedisValue + Default>(&self, calls: &[Call]) -> Result<Vec<T>, Error> {
        let read = |answer: hob_store::Result<Value>| {
            let Some(value) = foreign::or_nothing(answer.map(Some))? else { return Ok(T::default()) };
            T::from_redis_value(value).map_err(|error| hob_store::Error::Reply(error.to_string()))
        };
        Ok(self.store.batch(calls).await.into_iter().map(read).collect::<Result<_, _>>()?)
    }
}

/// Percentiles of several minutes together.
#[must_use]
pub(crate) fn merged(minutes: &[MinuteLatency]) -> Histogram {
    let mut all = Histogram::default();
    minutes.iter().for_each(|minute| all.merge(&minute.histogram));
    all
}

/// What MGET answers with, and HGETALL. Both may hold what somebody else wrote.
type Values = Vec<Option<Vec<u8>>>;
type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn read_count(value: &Option<Vec<u8>>) -> u64 {
    value.as_deref().map_or(0, foreign::count)
}

fn read_counts(fields: Fields) -> BTreeMap<String, u64> {
    let text =
        |(field, value): (Vec<u8>, Vec<u8>)| Some((String::from_utf8(field).ok()?, foreign::count(&value)));
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

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_millis() as u64
}
