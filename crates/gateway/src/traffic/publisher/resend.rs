//! Response times of the last hour, which are in the store but not in the database. After a loss of the store they are
//! sent again, in the minutes in which they were counted.

use std::collections::{BTreeMap, HashMap};

use hob_admission::EndpointId;

use crate::traffic::counts::{Counts, EndpointCounts, Minute};
use crate::traffic::histogram::Bucket;

const MINUTE_MS: u64 = 60_000;
/// As far back as the pages show.
const MINUTES: u64 = 60;
/// Buckets in total; beyond that, the oldest minutes are dropped.
const MAX_BUCKETS: usize = 200_000;

/// Buckets of one minute.
type Buckets = HashMap<EndpointId, BTreeMap<Bucket, u64>>;

#[derive(Debug, Default)]
pub(crate) struct ResendBuffer {
    minutes: BTreeMap<u64, Buckets>,
    buckets: usize,
    /// Only the newest response times of each endpoint.
    samples: HashMap<EndpointId, EndpointCounts>,
}

impl ResendBuffer {
    /// Records what the store has counted at `now_ms` of its clock.
    pub(crate) fn record(&mut self, counts: &Counts, now_ms: u64) {
        let now = now_ms / MINUTE_MS;
        for (endpoint, counted) in &counts.endpoints {
            for ((minute, bucket), count) in &counted.buckets {
                let minute = match minute {
                    Minute::Past(minute) => *minute,
                    Minute::Current => now,
                };
                let of_minute = self.minutes.entry(minute).or_default().entry(*endpoint).or_default();
                let before = of_minute.len();
                *of_minute.entry(*bucket).or_default() += count;
                self.buckets += of_minute.len() - before;
            }
            let samples = self.samples.entry(*endpoint).or_default();
            counted.samples.iter().for_each(|(at_ms, took_us)| samples.add_sample(*at_ms, *took_us));
        }
        self.drop_old(now);
    }

    fn drop_old(&mut self, now: u64) {
        while let Some(oldest) = self.minutes.first_entry() {
            if *oldest.key() + MINUTES > now && self.buckets <= MAX_BUCKETS {
                return;
            }
            self.buckets -= oldest.remove().values().map(BTreeMap::len).sum::<usize>();
        }
    }

    /// Moves what was counted for all endpoints but the current ones to `other`.
    pub(crate) fn fold_into_other(&mut self, is_current: impl Fn(EndpointId) -> bool) {
        let folded: Vec<EndpointId> =
            self.samples.keys().copied().filter(|endpoint| !is_current(*endpoint)).collect();
        for endpoint in &folded {
            if let Some(samples) = self.samples.remove(endpoint) {
                self.samples.entry(EndpointId::OTHER).or_default().merge(samples);
            }
            for of_minute in self.minutes.values_mut() {
                let Some(moved) = of_minute.remove(endpoint) else { continue };
                let other = of_minute.entry(EndpointId::OTHER).or_default();
                let before = other.len() + moved.len();
                for (bucket, count) in moved {
                    *other.entry(bucket).or_default() += count;
                }
                self.buckets -= before - other.len();
            }
        }
    }

    /// Takes everything, to send it again.
    pub(crate) fn take(&mut self) -> Counts {
        let Self { minutes, samples, .. } = std::mem::take(self);
        let mut resent = Counts { endpoints: samples };
        for (minute, endpoints) in minutes {
            for (endpoint, buckets) in endpoints {
                let counted = resent.endpoints.entry(endpoint).or_default();
                let at = |(bucket, count)| ((Minute::Past(minute), bucket), count);
                counted.buckets.extend(buckets.into_iter().map(at));
            }
        }
        resent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hob_admission::RequestOutcome;

    use crate::traffic::meter::Sample;

    fn counts(took_us: u32) -> Counts {
        let mut counts = Counts::default();
        counts.add(&Sample {
            endpoint: EndpointId(1),
            status: 200,
            outcome: RequestOutcome::Allowed,
            took_us,
            at_ms: 0,
        });
        counts
    }

    #[test]
    fn resent_times_keep_their_minute() {
        let mut buffer = ResendBuffer::default();
        buffer.record(&counts(10), 60 * MINUTE_MS);
        buffer.record(&counts(10), 61 * MINUTE_MS);
        buffer.record(&counts(10), 61 * MINUTE_MS + 5);
        let resent = buffer.take();
        let buckets = &resent.endpoints[&EndpointId(1)].buckets;
        let bucket = Bucket::of(10);
        assert_eq!(*buckets, [((Minute::Past(60), bucket), 1), ((Minute::Past(61), bucket), 2)].into());
        assert_eq!(resent.requests(), 0);
        // After another loss, the same is there once.
        buffer.record(&resent, 62 * MINUTE_MS);
        assert_eq!(buffer.take(), resent);
    }

    #[test]
    fn folded_times_are_those_of_other() {
        let mut buffer = ResendBuffer::default();
        buffer.record(&counts(10), 60 * MINUTE_MS);
        let mut of_other = counts(10);
        of_other.fold_into_other(EndpointId(1));
        buffer.record(&of_other, 60 * MINUTE_MS);
        buffer.fold_into_other(|endpoint| endpoint == EndpointId::OTHER);
        assert_eq!(buffer.buckets, 1);
        let resent = buffer.take();
        assert_eq!(resent.endpoints.len(), 1);
        let other = &resent.endpoints[&EndpointId::OTHER];
        assert_eq!(other.buckets, [((Minute::Past(60), Bucket::of(10)), 2)].into());
        assert_eq!(other.samples.len(), 2);
    }

    #[test]
    fn buffer_keeps_one_hour_and_is_bounded() {
        let mut buffer = ResendBuffer::default();
        for minute in 0..200 {
            buffer.record(&counts(10), minute * MINUTE_MS);
        }
        assert_eq!(buffer.minutes.len() as u64, MINUTES);
        let mut many = Counts::default();
        for endpoint in 0..1000 {
            for power in 0..300_u32 {
                let took_us = power * power * 40;
                let sample = Sample {
                    endpoint: EndpointId(endpoint),
                    status: 200,
                    outcome: RequestOutcome::Allowed,
                    took_us,
                    at_ms: 0,
                };
                many.add(&sample);
            }
        }
        for minute in 200..203 {
            buffer.record(&many, minute * MINUTE_MS);
            assert!(buffer.buckets <= MAX_BUCKETS, "{}", buffer.buckets);
        }
    }
}
