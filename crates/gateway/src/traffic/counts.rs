//! Counts by endpoint, which can be merged and split.

use std::collections::{BTreeMap, HashMap, VecDeque};

use hob_admission::{EndpointId, RequestOutcome};

use crate::keys::Keys;
use crate::traffic::histogram::Bucket;
use crate::traffic::meter::Sample;

/// Response times of one endpoint: as many as the store keeps. Of more, the newest are kept.
const MAX_SAMPLES: usize = Keys::RESPONSE_TIMES_MAX_LEN as usize;

/// Counts by endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) endpoints: HashMap<EndpointId, EndpointCounts>,
}

/// Counts of one endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndpointCounts {
    pub(crate) totals: RequestTotals,
    pub(crate) buckets: BTreeMap<(Minute, Bucket), u64>,
    /// The newest response times: when, in milliseconds since the meter was created, and how long, in microseconds.
    pub(crate) samples: VecDeque<(u32, u32)>,
}

/// The minute, by the store's clock, that response times are counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Minute {
    /// In minutes since 1970: counted before, then lost with the store.
    Past(u64),
    /// The minute in which the flush arrives.
    Current,
}

/// Counts that are kept forever, also in the database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestTotals {
    pub(crate) requests: u64,
    pub(crate) refused: u64,
    pub(crate) errors: u64,
    /// Answers with a status of 500 or more to requests that were let through.
    pub(crate) server_errors: u64,
    pub(crate) statuses: BTreeMap<u16, u64>,
    /// Number of response times in `time_us`; refused requests have none.
    pub(crate) timed: u64,
    pub(crate) time_us: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, sample: &Sample) {
        self.endpoints.entry(sample.endpoint).or_default().add(sample);
    }

    pub(crate) fn merge(&mut self, other: Self) {
        if self.endpoints.is_empty() {
            *self = other;
            return;
        }
        for (endpoint, counted) in other.endpoints {
            self.endpoints.entry(endpoint).or_default().merge(counted);
        }
    }

    /// Takes at most `max_endpoints`, with at most `max_entries` (buckets and response times) unless the first endpoint
    /// alone has more. The rest stays.
    pub(crate) fn take_some(&mut self, max_endpoints: usize, max_entries: usize) -> Self {
        let mut entries = 0;
        let fits = |(_, counted): &(&EndpointId, &EndpointCounts)| {
            let added = counted.buckets.len() + counted.samples.len();
            entries += added;
            entries <= max_entries || entries == added
        };
        let taken: Vec<EndpointId> = self
            .endpoints
            .iter()
            .take(max_endpoints)
            .take_while(fits)
            .map(|(endpoint, _)| *endpoint)
            .collect();
        if taken.len() == self.endpoints.len() {
            return std::mem::take(self);
        }
        let take = |endpoint| self.endpoints.remove(&endpoint).map(|counted| (endpoint, counted));
        Self { endpoints: taken.into_iter().filter_map(take).collect() }
    }

    /// Moves the counts of `endpoint` to `other`; returns its requests.
    pub(crate) fn fold_into_other(&mut self, endpoint: EndpointId) -> u64 {
        let Some(counted) = self.endpoints.remove(&endpoint) else { return 0 };
        let requests = counted.totals.requests;
        self.endpoints.entry(EndpointId::OTHER).or_default().merge(counted);
        requests
    }

    /// Without the counts that are not saved in the database.
    pub(crate) fn totals_only(mut self) -> Self {
        for counted in self.endpoints.values_mut() {
            counted.buckets.clear();
            counted.samples.clear();
        }
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.endpoints.is_empty()
    }

    pub(crate) fn requests(&self) -> u64 {
        self.endpoints.values().map(|counted| counted.totals.requests).sum()
    }

    /// The totals over all endpoints.
    pub(crate) fn sum(&self) -> RequestTotals {
        let mut sum = RequestTotals::default();
        self.endpoints.values().for_each(|counted| sum.merge(&counted.totals));
        sum
    }
}

impl EndpointCounts {
    fn add(&mut self, sample: &Sample) {
        let totals = &mut self.totals;
        totals.requests += 1;
        if sample.status >= 400 {
            totals.errors += 1;
            *totals.statuses.entry(sample.status).or_default() += 1;
        }
        match sample.outcome {
            RequestOutcome::Refused => totals.refused += 1,
            RequestOutcome::Allowed => {
                totals.server_errors += u64::from(sample.status >= 500);
                totals.timed += 1;
                totals.time_us += u64::from(sample.took_us);
                *self.buckets.entry((Minute::Current, Bucket::of(sample.took_us.into()))).or_default() += 1;
                self.add_sample(sample.at_ms, sample.took_us);
            }
        }
    }

    pub(crate) fn add_sample(&mut self, at_ms: u32, took_us: u32) {
        if self.samples.len() >= MAX_SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back((at_ms, took_us));
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.totals.merge(&other.totals);
        for (bucket, count) in other.buckets {
            *self.buckets.entry(bucket).or_default() += count;
        }
        other.samples.into_iter().for_each(|(at_ms, took_us)| self.add_sample(at_ms, took_us));
    }
}

impl RequestTotals {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.refused += other.refused;
        self.errors += other.errors;
        self.server_errors += other.server_errors;
        self.timed += other.timed;
        self.time_us += other.time_us;
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
    }

    pub(crate) fn accepted(&self) -> u64 {
        self.requests - self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(endpoint: u16, status: u16, outcome: RequestOutcome) -> Sample {
        Sample { endpoint: EndpointId(endpoint.into()), status, outcome, took_us: 1500, at_ms: 0 }
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let mut counts = Counts::default();
        for number in 0..1000 {
            counts.add(&sample(number % 10, 200 + (number % 3) * 150, RequestOutcome::Allowed));
        }
        let whole = counts.clone();
        let mut parts = Counts::default();
        while !counts.is_empty() {
            parts.merge(counts.take_some(3, 1000));
        }
        assert_eq!(parts, whole);
        let sum = whole.sum();
        assert_eq!((sum.requests, sum.errors, sum.statuses[&500], sum.time_us), (1000, 333, 333, 1_500_000));
    }

    #[test]
    fn refused_request_has_no_response_time() {
        let mut counts = Counts::default();
        counts.add(&sample(1, 429, RequestOutcome::Refused));
        let sum = counts.sum();
        assert_eq!((sum.requests, sum.accepted(), sum.refused, sum.errors, sum.timed), (1, 0, 1, 1, 0));
    }

    #[test]
    fn unnamed_endpoint_counts_as_other() {
        let mut counts = Counts::default();
        counts.add(&sample(1, 200, RequestOutcome::Allowed));
        counts.fold_into_other(EndpointId(1));
        assert_eq!(counts.endpoints[&EndpointId::OTHER].totals.requests, 1);
        assert_eq!(counts.endpoints.len(), 1);
    }
}
