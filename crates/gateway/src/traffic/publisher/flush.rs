//! One flush: adds the counts of this instance to the shared counters with one script.

use hob_admission::EndpointId;
use hob_schema::Shard;
use hob_store::epoch::{Epoch, MARKER, Outcome};
use hob_store::{CLOCK, Call, Key, Reply, Script};

use super::endpoint_names::EndpointNames;
use crate::keys::{Endpoint, Hour, InstanceId, Keys, StatusCode};
use crate::traffic::counts::{Counts, EndpointCounts, Minute};
use crate::traffic::foreign::{self, FOREIGN};
use crate::traffic::meter::Meter;

static FLUSH: Script = Script::with(&[CLOCK, MARKER, FOREIGN], include_str!("flush.lua"));

pub(crate) const HOUR_MS: u64 = 3_600_000;

/// Endpoints in one flush; more take several.
pub(crate) const MAX_ENDPOINTS: usize = 128;

/// Buckets and response times in one flush, unless one endpoint has more. The store runs nothing else meanwhile.
pub(crate) const MAX_ENTRIES: usize = 4000;

/// Counts that are sent until the store confirms them.
#[derive(Debug)]
pub(crate) struct Flush {
    pub(crate) number: u64,
    pub(crate) counts: Counts,
    /// In the order of the script's arguments; the reply refers to endpoints by index.
    endpoints: Vec<EndpointId>,
}

/// The result of a flush.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FlushOutcome {
    /// Counted, now or by an earlier attempt.
    Accepted {
        now_ms: u64,
        hour_ms: u64,
        /// Endpoints that are counted as `other`, because the maximum is reached.
        as_other: Vec<EndpointId>,
    },
    /// The expected hour was wrong; nothing was counted.
    WrongHour { now_ms: u64 },
    /// Another client had changed the counters; nothing was counted, and the totals must be restored.
    Foreign,
}

/// Where the counts of this instance go.
#[derive(Clone, Debug)]
pub(crate) struct Destination {
    pub(crate) keys: Keys,
    pub(crate) shard: Shard,
    pub(crate) instance: InstanceId,
    /// Random for each start of the instance, so that its flushes are never mistaken for those of an earlier one.
    pub(crate) incarnation: InstanceId,
}

impl Flush {
    pub(crate) fn new(number: u64, counts: Counts) -> Self {
        let endpoints = counts.endpoints.keys().copied().collect();
        Self { number, counts, endpoints }
    }

    /// The script's call. It counts at `clock_us`; '' is the store's clock, which is expected to be at about `now_ms`.
    pub(crate) fn call(
        &self,
        destination: &Destination,
        epoch: Epoch,
        (now_ms, clock_us): (u64, &str),
        (names, meter): (&EndpointNames, &Meter),
    ) -> Call {
        let hour_ms = now_ms - now_ms % HOUR_MS;
        let totals = self.counts.sum();
        let mut call = FLUSH.on(&self.keys(destination, hour_ms, names));
        call = call.arg(epoch.get()).arg(self.number).arg(clock_us).arg(hour_ms);
        call = call.arg(Keys::ENDPOINTS_MAX_LEN).arg(Keys::RESPONSE_TIMES_MAX_LEN);
        call = call.arg(totals.requests).arg(totals.accepted()).arg(totals.refused).arg(totals.errors);
        call = call.arg(totals.server_errors).arg(totals.statuses.len());
        for count in totals.statuses.values() {
            call = call.arg(*count);
        }
        call = call.arg(self.endpoints.len());
        for endpoint in &self.endpoints {
            call = endpoint_args(call, &names.name(*endpoint), &self.counts.endpoints[endpoint], meter);
        }
        call
    }

    fn keys(&self, destination: &Destination, hour_ms: u64, names: &EndpointNames) -> Vec<Key> {
        let Destination { keys, shard, instance, incarnation } = destination;
        let shard = *shard;
        let hours = [hour_ms.saturating_sub(HOUR_MS), hour_ms, hour_ms + HOUR_MS]
            .map(|start| Hour::new(start).expect("a multiple of an hour"));
        let mut all = vec![
            keys.marker(shard),
            keys.flushed(incarnation, shard),
            keys.endpoints(shard),
            keys.samples_sequence(shard),
            keys.requests_total(shard),
            keys.requests_accepted(shard),
            keys.requests_limited(shard),
            keys.errors_total(shard),
            keys.server_errors(shard),
            keys.requests_by_instance(instance, shard),
        ];
        all.extend(hours.iter().map(|hour| keys.requests_by_hour(hour, shard)));
        all.extend(hours.iter().map(|hour| keys.latency_all(hour, shard)));
        let named = self.endpoints.iter().map(|endpoint| names.name(*endpoint));
        for endpoint in std::iter::once(names.name(EndpointId::OTHER)).chain(named) {
            all.extend(endpoint_keys(keys, &endpoint, shard));
            all.extend(hours.iter().map(|hour| keys.latency(hour, &endpoint, shard)));
        }
        for status in self.counts.sum().statuses.keys() {
            let status = StatusCode::new(status).expect("an error's status");
            all.push(keys.errors_by_status(&status, shard));
        }
        all
    }

    pub(crate) fn read(&self, reply: Reply) -> hob_store::Result<Outcome<FlushOutcome>> {
        Outcome::read(reply, |mut reply| match reply.word() {
            "flushed" | "repeated" => {
                let (now_ms, hour_ms) = (reply.next()?, reply.next()?);
                let mut as_other = Vec::new();
                while reply.left() > 0 {
                    let at: usize = reply.next()?;
                    as_other.extend(at.checked_sub(1).and_then(|at| self.endpoints.get(at)));
                }
                Ok(FlushOutcome::Accepted { now_ms, hour_ms, as_other })
            }
            "wrong_hour" => Ok(FlushOutcome::WrongHour { now_ms: reply.next()? }),
            "foreign" => foreign::report_overwritten(reply).map(|()| FlushOutcome::Foreign),
            _ => Err(reply.unexpected()),
        })
    }
}

/// The keys of an endpoint: requests, errors, times, their sum, their count, limited requests, server errors.
pub(super) fn endpoint_keys(keys: &Keys, endpoint: &Endpoint, shard: Shard) -> [Key; 7] {
    [
        keys.requests_by_endpoint(endpoint, shard),
        keys.errors_by_endpoint(endpoint, shard),
        keys.response_times(endpoint, shard),
        keys.response_sum(endpoint, shard),
        keys.response_count(endpoint, shard),
        keys.limited_by_endpoint(endpoint, shard),
        keys.server_errors_by_endpoint(endpoint, shard),
    ]
}

fn endpoint_args(mut call: Call, name: &Endpoint, counted: &EndpointCounts, meter: &Meter) -> Call {
    let totals = &counted.totals;
    call = call.arg(name.as_str()).arg(totals.requests).arg(totals.errors).arg(totals.timed);
    call = call.arg(millis_text(totals.time_us)).arg(totals.refused).arg(totals.server_errors);
    call = call.arg(counted.samples.len());
    for (at_ms, took_us) in &counted.samples {
        let age_ms = u64::try_from(meter.age(*at_ms).as_millis()).unwrap_or(u64::MAX);
        call = call.arg(age_ms).arg(millis_text(u64::from(*took_us)));
    }
    call = call.arg(counted.buckets.len());
    for ((minute, bucket), count) in &counted.buckets {
        call = match minute {
            Minute::Past(minute) => call.arg(*minute),
            Minute::Current => call.arg(""),
        };
        call = call.arg(bucket.index()).arg(*count);
    }
    call
}

/// Microseconds as documented in milliseconds: `150.123`.
pub(crate) fn millis_text(us: u64) -> String {
    format!("{}.{:03}", us / 1000, us % 1000)
}
