//! Records requests in a few nanoseconds each: a sample is appended to the log of the thread's stripe, and each flush
//! folds the logs into counts.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hob_admission::{EndpointId, RequestOutcome};
use parking_lot::Mutex;

use crate::traffic::counts::Counts;

/// When a stripe has this many samples, the thread that recorded the last one folds them.
const MAX_PENDING: usize = 16_384;

/// One finished request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) endpoint: EndpointId,
    pub(crate) status: u16,
    pub(crate) outcome: RequestOutcome,
    /// Time until the response began.
    pub(crate) took_us: u32,
    /// When the response began, in milliseconds since the meter was created.
    pub(crate) at_ms: u32,
}

/// Counts the requests and connections of this instance.
#[derive(Debug)]
pub struct Meter {
    created: Instant,
    stripes: Box<[Stripe]>,
    connections: AtomicU32,
    peak: AtomicU32,
}

/// Each stripe has its own cache lines, so that threads do not slow each other down.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    log: Mutex<SampleLog>,
}

#[derive(Debug, Default)]
struct SampleLog {
    samples: Vec<Sample>,
    folded: Counts,
}

thread_local! {
    static THREAD: Cell<usize> = const { Cell::new(usize::MAX) };
}

fn thread_index() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    THREAD.with(|index| {
        if index.get() == usize::MAX {
            index.set(NEXT.fetch_add(1, Relaxed));
        }
        index.get()
    })
}

impl Default for Meter {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).next_power_of_two();
        Self {
            created: Instant::now(),
            stripes: (0..threads).map(|_| Stripe::default()).collect(),
            connections: AtomicU32::new(0),
            peak: AtomicU32::new(0),
        }
    }
}

impl Meter {
    /// Records a request that started at `started` and was answered at `answered`.
    pub fn record(
        &self,
        endpoint: EndpointId,
        status: u16,
        outcome: RequestOutcome,
        started: Instant,
        answered: Instant,
    ) {
        let took_us = u32::try_from(answered.duration_since(started).as_micros()).unwrap_or(u32::MAX);
        let at_ms = self.millis(answered);
        let stripe = &self.stripes[thread_index() & (self.stripes.len() - 1)];
        let mut log = stripe.log.lock();
        log.samples.push(Sample { endpoint, status, outcome, took_us, at_ms });
        if log.samples.len() >= MAX_PENDING {
            log.fold();
        }
    }

    /// Counts a connection until the guard is dropped.
    pub fn connected(self: &std::sync::Arc<Self>) -> ConnectionGuard {
        let now = self.connections.fetch_add(1, Relaxed) + 1;
        self.peak.fetch_max(now, Relaxed);
        ConnectionGuard { meter: std::sync::Arc::clone(self) }
    }

    /// Open connections, and their maximum since the last call.
    pub(crate) fn connections(&self) -> (u32, u32) {
        let now = self.connections.load(Relaxed);
        (now, self.peak.swap(now, Relaxed).max(now))
    }

    /// Takes everything recorded since the last call.
    pub(crate) fn take(&self) -> Counts {
        let mut counts = Counts::default();
        for stripe in &self.stripes {
            let mut log = stripe.log.lock();
            let samples = std::mem::take(&mut log.samples);
            let folded = std::mem::take(&mut log.folded);
            drop(log);
            counts.merge(folded);
            samples.iter().for_each(|sample| counts.add(sample));
        }
        counts
    }

    /// The age of a sample.
    pub(crate) fn age(&self, at_ms: u32) -> Duration {
        Duration::from_millis(u64::from(self.millis(Instant::now()).wrapping_sub(at_ms)))
    }

    /// When a sample of this age was recorded. It may be older than the meter.
    pub(crate) fn before(&self, age: Duration) -> u32 {
        self.millis(Instant::now()).wrapping_sub(age.as_millis() as u32)
    }

    /// Wraps after 49 days; no sample is older.
    fn millis(&self, at: Instant) -> u32 {
        at.duration_since(self.created).as_millis() as u32
    }
}

impl SampleLog {
    fn fold(&mut self) {
        for sample in self.samples.drain(..) {
            self.folded.add(&sample);
        }
    }
}

/// Counts an open connection.
#[derive(Debug)]
pub struct ConnectionGuard {
    meter: std::sync::Arc<Meter>,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.meter.connections.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn concurrent_records_are_not_lost() {
        let meter = Meter::default();
        let started = Instant::now();
        let mut total = 0;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for index in 0..50_000_u16 {
                        meter.record(
                            EndpointId(u32::from(index % 7)),
                            200,
                            RequestOutcome::Allowed,
                            started,
                            started,
                        );
                    }
                });
            }
            for _ in 0..20 {
                total += meter.take().requests();
            }
        });
        total += meter.take().requests();
        assert_eq!(total, 200_000);
    }

    #[test]
    fn connection_counts_until_it_is_closed() {
        let meter = Arc::new(Meter::default());
        let first = meter.connected();
        drop((meter.connected(), meter.connected()));
        assert_eq!(meter.connections(), (1, 3));
        drop(first);
        assert_eq!(meter.connections(), (0, 1));
        assert_eq!(meter.connections(), (0, 0));
    }
}
