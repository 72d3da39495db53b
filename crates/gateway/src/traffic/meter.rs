//! Recording a request costs a few nanoseconds: a sample is pushed onto the log of the thread's shard, and the flush
//! folds the logs ten times a second.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::admission::endpoint::EndpointId;
use crate::traffic::counts::Tally;

/// Samples of one shard that wait to be folded. A thread that finds as many folds them itself.
const MOST_WAITING: usize = 16_384;

/// One answered request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) endpoint: EndpointId,
    pub(crate) status: u16,
    pub(crate) outcome: Outcome,
    /// How long it took until the answer began.
    pub(crate) took_us: u32,
    /// When it was answered, in milliseconds of the meter's life.
    pub(crate) at_ms: u32,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was let through.
    Passed,
    /// The gateway itself refused it.
    Refused,
}

/// Counts what an instance does. Shared by all its threads.
#[derive(Debug)]
pub struct Meter {
    begun: Instant,
    shards: Box<[Shard]>,
    connections: AtomicU32,
    peak: AtomicU32,
}

/// On cache lines of its own, so that threads do not slow each other down.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    samples: Vec<Sample>,
    folded: Tally,
}

thread_local! {
    static THREAD: Cell<usize> = const { Cell::new(usize::MAX) };
}

fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    THREAD.with(|number| {
        if number.get() == usize::MAX {
            number.set(NEXT.fetch_add(1, Relaxed));
        }
        number.get()
    })
}

impl Default for Meter {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).next_power_of_two();
        Self {
            begun: Instant::now(),
            shards: (0..threads).map(|_| Shard::default()).collect(),
            connections: AtomicU32::new(0),
            peak: AtomicU32::new(0),
        }
    }
}

impl Meter {
    /// Records a request that began at `began` and was answered at `answered`.
    pub fn record(
        &self,
        endpoint: EndpointId,
        status: u16,
        outcome: Outcome,
        began: Instant,
        answered: Instant,
    ) {
        let took_us = u32::try_from(answered.duration_since(began).as_micros()).unwrap_or(u32::MAX);
        let at_ms = self.millis(answered);
        let shard = &self.shards[thread_number() & (self.shards.len() - 1)];
        let mut log = shard.log.lock();
        log.samples.push(Sample { endpoint, status, outcome, took_us, at_ms });
        if log.samples.len() >= MOST_WAITING {
            log.fold();
        }
    }

    /// Counts a connection until the guard is dropped.
    pub fn connected(self: &std::sync::Arc<Self>) -> Connected {
        let now = self.connections.fetch_add(1, Relaxed) + 1;
        self.peak.fetch_max(now, Relaxed);
        Connected { meter: std::sync::Arc::clone(self) }
    }

    /// Open connections now, and the most at once since this was last asked.
    pub(crate) fn connections(&self) -> (u32, u32) {
        let now = self.connections.load(Relaxed);
        (now, self.peak.swap(now, Relaxed).max(now))
    }

    /// All that was recorded since this was last asked.
    pub(crate) fn take(&self) -> Tally {
        let mut tally = Tally::default();
        for shard in &self.shards {
            let mut log = shard.log.lock();
            let samples = std::mem::take(&mut log.samples);
            let folded = std::mem::take(&mut log.folded);
            drop(log);
            tally.merge(folded);
            samples.iter().for_each(|sample| tally.add(sample));
        }
        tally
    }

    /// How long ago a sample was taken.
    pub(crate) fn age(&self, at_ms: u32) -> Duration {
        Duration::from_millis(u64::from(self.millis(Instant::now()).wrapping_sub(at_ms)))
    }

    /// Wraps after 49 days; only ages of minutes are looked at.
    fn millis(&self, at: Instant) -> u32 {
        at.duration_since(self.begun).as_millis() as u32
    }
}

impl Log {
    fn fold(&mut self) {
        for sample in self.samples.drain(..) {
            self.folded.add(&sample);
        }
    }
}

/// A connection that is open.
#[derive(Debug)]
pub struct Connected {
    meter: std::sync::Arc<Meter>,
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.meter.connections.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn nothing_that_threads_record_is_lost() {
        let meter = Meter::default();
        let began = Instant::now();
        let mut total = 0;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for number in 0..50_000_u16 {
                        meter.record(EndpointId(number % 7), 200, Outcome::Passed, began, began);
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
    fn a_connection_counts_until_it_is_closed() {
        let meter = Arc::new(Meter::default());
        let first = meter.connected();
        drop((meter.connected(), meter.connected()));
        assert_eq!(meter.connections(), (1, 3));
        drop(first);
        assert_eq!(meter.connections(), (0, 1));
        assert_eq!(meter.connections(), (0, 0));
    }
}
