//! Restores the counters of a lost shard from the database, in a new epoch.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use hob_database::Database;
use hob_schema::Shard;
use hob_store::epoch::{self, Epoch, MARKER, Progress, Rebuild, Recovery};
use hob_store::{Key, Reply, Script, Store, cmd};

use super::checkpoint;
use super::flush::{HOUR_MS, millis_text};
use super::heartbeat;
use crate::Error;
use crate::database::{TotalKind, Totals};
use crate::keys::{Endpoint, Hour, InstanceId, Keys, StatusCode};
use crate::traffic::foreign;

static RESTORE: Script = Script::with(&[MARKER], include_str!("restore.lua"));

const DAY_S: u64 = 86_400;

/// Counters of one call: a long script blocks all other clients.
const BATCH: usize = 1_000;

/// Restores a shard, unless another instance has done so. If it is interrupted too often, the next flush finds the
/// shard lost again.
pub(crate) async fn restore(
    store: &Store,
    database: &Database,
    keys: &Keys,
    shard: Shard,
) -> Result<(), Error> {
    let source = ShardSource { store, database, keys, shard };
    if let Recovery::Rebuilt(epoch) = epoch::rebuild(store, keys.marker(shard), &[], &source).await? {
        tracing::info!(shard = shard.number(), %epoch, "traffic totals restored from the database");
    }
    Ok(())
}

/// The totals of one shard in the database.
struct ShardSource<'a> {
    store: &'a Store,
    database: &'a Database,
    keys: &'a Keys,
    shard: Shard,
}

impl Rebuild for ShardSource<'_> {
    type Error = Error;

    async fn valid_epochs(&self) -> Result<RangeInclusive<Epoch>, Error> {
        let epoch = Epoch::new(checkpoint::epoch(self.database, self.shard.number()).await?)?;
        Ok(epoch..=epoch)
    }

    async fn raise_epoch(&self, lost: Epoch) -> Result<Option<Epoch>, Error> {
        let raised = checkpoint::raise_epoch(self.database, self.shard.number(), lost).await?;
        Ok(raised.map(Epoch::new).transpose()?)
    }

    /// Sets every counter. No flush is accepted until then, so that no counter is created that is not listed.
    async fn restore(&self, epoch: Epoch) -> Result<Progress, Error> {
        let Self { store, database, keys, shard } = *self;
        let Some(totals) = checkpoint::totals(database, shard.number(), epoch).await? else {
            return Ok(Progress::Superseded);
        };
        let named = totals.keys().filter(|(kind, id)| *kind == TotalKind::Endpoint && id != "other");
        let names: Vec<&str> = named.map(|(_, id)| id.as_str()).collect();
        let counters: Vec<_> = self.counters(&totals, &names).await?.into_iter().collect();
        let batches = counters.chunks(BATCH);
        let last = batches.len();
        for (number, batch) in (1..).zip(batches) {
            let mut all = vec![keys.marker(shard), keys.endpoints(shard)];
            all.extend(batch.iter().map(|(key, _)| key.clone()));
            // Until the last batch the set names the counters of the lost epoch: another instance may have to list them.
            let (part, names) = if number == last { ("last", &names[..]) } else { ("more", &[][..]) };
            let mut call = RESTORE.on(&all).arg(epoch.get()).arg(part).arg(names.len());
            for name in names {
                call = call.arg(*name);
            }
            for (_, (value, ttl_s)) in batch {
                call = call.arg(value).arg(*ttl_s);
            }
            let reply: Reply = store.run(call).await?;
            if Progress::read(&reply, "restored")? == Progress::Superseded {
                return Ok(Progress::Superseded);
            }
        }
        Ok(Progress::Complete)
    }
}

impl ShardSource<'_> {
    /// The values of all counters that the shard has or is to have.
    async fn counters(&self, totals: &Totals, names: &[&str]) -> Result<BTreeMap<Key, (String, u64)>, Error> {
        let Self { store, keys, shard, .. } = *self;
        let mut counters = Counters { keys, shard, wanted: BTreeMap::new() };
        // Counters that are not in the database were counted since, and are flushed again.
        let mut counted = read_names(store, "SMEMBERS", &keys.endpoints(shard)).await?;
        let instances =
            read_names(store, "HKEYS", &keys.instance_connections(heartbeat::gauge_shard(keys))).await?;
        let (now_s, _): (u64, u64) = store.run(cmd("TIME")).await?;
        counted.extend(names.iter().map(|&name| name.to_owned()));
        counters.clear(&counted, &instances, now_s * 1000);
        counters.fill(totals);
        Ok(counters.wanted)
    }
}

async fn read_names(store: &Store, command: &str, key: &Key) -> Result<Vec<String>, Error> {
    let found = foreign::or_default(store.run(cmd(command).arg(key.as_bytes())).await)?;
    Ok(foreign::utf8_names(found).collect())
}

/// The target value of every counter of a shard (empty: delete it), and its TTL in seconds.
struct Counters<'a> {
    keys: &'a Keys,
    shard: Shard,
    wanted: BTreeMap<Key, (String, u64)>,
}

impl Counters<'_> {
    /// Lists every counter that may exist.
    fn clear(&mut self, endpoints: &[String], instances: &[String], now_ms: u64) {
        for instance in instances {
            self.set(TotalKind::Instance, instance, String::new());
        }
        let this_hour = now_ms - now_ms % HOUR_MS;
        for hour in 0..26 {
            self.set(TotalKind::Hour, &this_hour.saturating_sub(hour * HOUR_MS).to_string(), String::new());
        }
        for status in 400..600 {
            self.set(TotalKind::Status, &status.to_string(), String::new());
        }
        for kind in TotalKind::OVERALL {
            self.set(kind, "", String::new());
        }
        for endpoint in endpoints.iter().map(String::as_str).chain(["other"]) {
            for kind in TotalKind::BY_ENDPOINT {
                self.set(kind, endpoint, String::new());
            }
        }
        self.clear_times(endpoints, this_hour);
    }

    /// Response times are deleted, since the instances send those of the last hour again.
    fn clear_times(&mut self, endpoints: &[String], this_hour: u64) {
        let (keys, shard) = (self.keys, self.shard);
        let endpoints = endpoints.iter().map(String::as_str).chain(["other"]);
        let endpoints: Vec<Endpoint> = endpoints.filter_map(|name| Endpoint::new(name).ok()).collect();
        let hours = [this_hour.saturating_sub(HOUR_MS), this_hour].into_iter();
        let hours: Vec<Hour> = hours.filter_map(|start| Hour::new(start).ok()).collect();
        let mut gone: Vec<Key> = hours.iter().map(|hour| keys.latency_all(hour, shard)).collect();
        for endpoint in &endpoints {
            gone.push(keys.response_times(endpoint, shard));
            gone.extend(hours.iter().map(|hour| keys.latency(hour, endpoint, shard)));
        }
        self.wanted.extend(gone.into_iter().map(|key| (key, (String::new(), 0))));
    }

    fn fill(&mut self, totals: &Totals) {
        for ((kind, id), value) in totals {
            let text = if *kind == TotalKind::TimeUs { millis_text(*value) } else { value.to_string() };
            self.set(*kind, id, text);
        }
    }

    /// A row whose id the schema does not allow any more has no key.
    fn set(&mut self, kind: TotalKind, id: &str, value: String) {
        if let Some((key, ttl_s)) = self.key(kind, id) {
            self.wanted.insert(key, (value, ttl_s));
        }
    }

    fn key(&self, kind: TotalKind, id: &str) -> Option<(Key, u64)> {
        let (keys, shard) = (self.keys, self.shard);
        let endpoint = || Endpoint::new(id).ok();
        Some(match kind {
            TotalKind::Total => (keys.requests_total(shard), 0),
            TotalKind::Accepted => (keys.requests_accepted(shard), 0),
            TotalKind::Limited => (keys.requests_limited(shard), 0),
            TotalKind::Errors => (keys.errors_total(shard), 0),
            TotalKind::ServerErrors => (keys.server_errors(shard), 0),
            TotalKind::Endpoint => (keys.requests_by_endpoint(&endpoint()?, shard), 0),
            TotalKind::EndpointErrors => (keys.errors_by_endpoint(&endpoint()?, shard), 0),
            TotalKind::EndpointLimited => (keys.limited_by_endpoint(&endpoint()?, shard), 0),
            TotalKind::EndpointServerErrors => (keys.server_errors_by_endpoint(&endpoint()?, shard), 0),
            TotalKind::Timed => (keys.response_count(&endpoint()?, shard), 0),
            TotalKind::TimeUs => (keys.response_sum(&endpoint()?, shard), 0),
            TotalKind::Status => (keys.errors_by_status(&StatusCode::new(id).ok()?, shard), 0),
            TotalKind::Instance => (keys.requests_by_instance(&InstanceId::new(id).ok()?, shard), DAY_S),
            TotalKind::Hour => (keys.requests_by_hour(&Hour::new(id).ok()?, shard), DAY_S),
        })
    }
}
