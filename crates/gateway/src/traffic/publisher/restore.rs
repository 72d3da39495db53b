//! Restores the counters of a shard from the database.

use std::collections::BTreeMap;

use hob_schema::Shard;
use hob_store::{Call, Key, Reply, Script, Store, cmd};

use super::checkpoint::NewEpoch;
use super::flush::{HOUR_MS, millis_text};
use super::heartbeat;
use crate::Error;
use crate::database::{TotalKind, Totals};
use crate::keys::{Endpoint, Hour, InstanceId, Keys, StatusCode};
use crate::traffic::foreign::{self, FOREIGN};

static RESTORE: Script = Script::with(&[FOREIGN], include_str!("restore.lua"));

const DAY_S: u64 = 86_400;

/// How often flushes of other instances may interrupt a restore. After that, the next flush finds the shard lost again.
const ATTEMPTS: usize = 20;

/// Sets the counters to the totals of a new epoch. If a later epoch is there already, the next flush finds it.
pub(crate) async fn restore(store: &Store, keys: &Keys, shard: Shard, new: &NewEpoch) -> Result<(), Error> {
    for _ in 0..ATTEMPTS {
        let reply: Reply = store.run(call(store, keys, shard, new).await?).await?;
        match reply.word() {
            "restored" | "stale" => return Ok(()),
            "changed" => {}
            _ => return Err(reply.unexpected().into()),
        }
    }
    Ok(())
}

async fn call(store: &Store, keys: &Keys, shard: Shard, new: &NewEpoch) -> Result<Call, Error> {
    let marker = keys.marker(shard);
    // Read before the names below, so that a flush in between is noticed.
    let seen = store.run(cmd("HMGET").arg(marker.as_bytes()).arg("epoch").arg("n")).await;
    let [epoch, n] = foreign::or_default::<[Option<Vec<u8>>; 2]>(seen)?.map(Option::unwrap_or_default);
    let mut counters = Counters { keys, shard, wanted: BTreeMap::new() };
    // Counters that are not in the database were counted since, and are flushed again.
    let mut counted = read_names(store, "SMEMBERS", &keys.endpoints(shard)).await?;
    let instances =
        read_names(store, "HKEYS", &keys.instance_connections(heartbeat::gauge_shard(keys))).await?;
    let (now_s, _): (u64, u64) = store.run(cmd("TIME")).await?;
    let named = new.totals.keys().filter(|(kind, id)| *kind == TotalKind::Endpoint && id != "other");
    let named: Vec<&str> = named.map(|(_, id)| id.as_str()).collect();
    counted.extend(named.iter().map(|&name| name.to_owned()));
    counters.clear(&counted, &instances, now_s * 1000);
    counters.fill(&new.totals);

    let mut all = vec![marker, keys.endpoints(shard)];
    all.extend(counters.wanted.keys().cloned());
    let mut call = RESTORE.on(&all).arg(new.epoch).arg(epoch).arg(n).arg(named.len());
    for name in named {
        call = call.arg(name);
    }
    for (value, ttl_s) in counters.wanted.values() {
        call = call.arg(value).arg(*ttl_s);
    }
    Ok(call)
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
        for kind in [TotalKind::Total, TotalKind::Accepted, TotalKind::Limited, TotalKind::Errors] {
            self.set(kind, "", String::new());
        }
        for endpoint in endpoints.iter().map(String::as_str).chain(["other"]) {
            for kind in [TotalKind::Endpoint, TotalKind::EndpointErrors, TotalKind::Timed, TotalKind::TimeUs]
            {
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
            TotalKind::Endpoint => (keys.requests_by_endpoint(&endpoint()?, shard), 0),
            TotalKind::EndpointErrors => (keys.errors_by_endpoint(&endpoint()?, shard), 0),
            TotalKind::Timed => (keys.response_count(&endpoint()?, shard), 0),
            TotalKind::TimeUs => (keys.response_sum(&endpoint()?, shard), 0),
            TotalKind::Status => (keys.errors_by_status(&StatusCode::new(id).ok()?, shard), 0),
            TotalKind::Instance => (keys.requests_by_instance(&InstanceId::new(id).ok()?, shard), DAY_S),
            TotalKind::Hour => (keys.requests_by_hour(&Hour::new(id).ok()?, shard), DAY_S),
        })
    }
}
