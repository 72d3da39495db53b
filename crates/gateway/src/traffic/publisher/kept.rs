//! What the store holds of this instance and the database does not: response times of the last hour. When the store was
//! lost, they are written again, in the minutes that they were counted in.

use std::collections::{BTreeMap, HashMap};

use crate::admission::endpoint::EndpointId;
use crate::traffic::counts::{Counted, Minute, Tally};
use crate::traffic::histogram::Bucket;

const MINUTE_MS: u64 = 60_000;
/// As far as pages look back.
const MINUTES: u64 = 60;
/// Counters in all; of more, the oldest minutes are forgotten.
const MOST_BUCKETS: usize = 200_000;

/// Counts of one minute.
type Buckets = HashMap<EndpointId, BTreeMap<Bucket, u64>>;

#[derive(Debug, Default)]
pub(crate) struct Kept {
    minutes: BTreeMap<u64, Buckets>,
    buckets: usize,
    /// Of each endpoint the newest response times, nothing else.
    samples: HashMap<EndpointId, Counted>,
}

impl Kept {
    /// Takes note of what the store has counted at `now_ms` of its clock.
    pub(crate) fn keep(&mut self, tally: &Tally, now_ms: u64) {
        let now = now_ms / MINUTE_MS;
        for (endpoint, counted) in &tally.endpoints {
            for ((minute, bucket), count) in &counted.buckets {
                let minute = match minute {
                    Minute::At(minute) => *minute,
                    Minute::Now => now,
                };
                let of_minute = self.minutes.entry(minute).or_default().entry(*endpoint).or_default();
                let before = of_minute.len();
                *of_minute.entry(*bucket).or_default() += count;
                self.buckets += of_minute.len() - before;
            }
            let samples = self.samples.entry(*endpoint).or_default();
            counted.samples.iter().for_each(|(at_ms, took_us)| samples.sampled(*at_ms, *took_us));
        }
        self.forget(now);
    }

    fn forget(&mut self, now: u64) {
        while let Some(oldest) = self.minutes.first_entry() {
            if *oldest.key() + MINUTES > now && self.buckets <= MOST_BUCKETS {
                return;
            }
            self.buckets -= oldest.remove().values().map(BTreeMap::len).sum::<usize>();
        }
    }

    /// All of it, to be sent again.
    pub(crate) fn take(&mut self) -> Tally {
        let Self { minutes, samples, .. } = std::mem::take(self);
        let mut again = Tally { endpoints: samples };
        for (minute, endpoints) in minutes {
            for (endpoint, buckets) in endpoints {
                let counted = again.endpoints.entry(endpoint).or_default();
                let at = |(bucket, count)| ((Minute::At(minute), bucket), count);
                counted.buckets.extend(buckets.into_iter().map(at));
            }
        }
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::meter::{Outcome, Sample};

    fn tally(took_us: u32) -> Tally {
        let mut tally = Tally::default();
        tally.add(&Sample {
            endpoint: EndpointId(1),
            status: 200,
            outcome: Outcome::Passed,
            took_us,
            at_ms: 0,
        });
        tally
    }

    #[test]
    fn what_is_sent_again_is_in_the_minute_that_it_was_counted_in() {
        let mut kept = Kept::default();
        kept.keep(&tally(10), 60 * MINUTE_MS);
        kept.keep(&tally(10), 61 * MINUTE_MS);
        kept.keep(&tally(10), 61 * MINUTE_MS + 5);
        let again = kept.take();
        let buckets = &again.endpoints[&EndpointId(1)].buckets;
        let bucket = Bucket::of(10);
        assert_eq!(*buckets, [((Minute::At(60), bucket), 1), ((Minute::At(61), bucket), 2)].into());
        assert_eq!(again.requests(), 0);
        // Lost once more: it is there again, once.
        kept.keep(&again, 62 * MINUTE_MS);
        assert_eq!(kept.take(), again);
    }

    #[test]
    fn an_hour_is_kept_and_no_more_than_fits() {
        let mut kept = Kept::default();
        for minute in 0..200 {
            kept.keep(&tally(10), minute * MINUTE_MS);
        }
        assert_eq!(kept.minutes.len() as u64, MINUTES);
        let mut many = Tally::default();
        for endpoint in 0..1000 {
            for power in 0..300_u32 {
                let took_us = power * power * 40;
                let sample = Sample {
                    endpoint: EndpointId(endpoint),
                    status: 200,
                    outcome: Outcome::Passed,
                    took_us,
                    at_ms: 0,
                };
                many.add(&sample);
            }
        }
        for minute in 200..203 {
            kept.keep(&many, minute * MINUTE_MS);
            assert!(kept.buckets <= MOST_BUCKETS, "{}", kept.buckets);
        }
    }
}
