//! Limits the concurrent requests of this node to a host. Runs that wait for a permit get one by weight: the run with
//! the smallest turn is next, and its turn grows by 1 / weight with each call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::run::RunId;

/// How many calls a run may catch up if others overtook it between two of its calls.
const MAX_BEHIND: f64 = 4.0;
/// Runs whose turns are kept.
const MAX_RUNS: usize = 1000;

/// The permits of a host.
#[derive(Debug)]
pub(crate) struct HostPermits {
    max: usize,
    queue: Mutex<Queue>,
}

/// The right to have one request in flight. Returned when it is dropped.
#[derive(Debug)]
pub(crate) struct HostPermit {
    host: Arc<HostPermits>,
}

#[derive(Debug, Default)]
struct Queue {
    used: usize,
    /// The turn of the last run that made a call. Never goes backwards.
    base: f64,
    turns: HashMap<RunId, f64>,
    /// In order of arrival.
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    run: RunId,
    weight: f64,
    permit: oneshot::Sender<HostPermit>,
}

impl HostPermits {
    pub(crate) fn new(max: u32) -> Arc<Self> {
        Arc::new(Self { max: max as usize, queue: Mutex::default() })
    }

    /// Waits for a permit.
    pub(crate) async fn acquire(self: &Arc<Self>, run: &RunId, weight: u32) -> HostPermit {
        loop {
            let receiver = {
                let mut queue = self.lock();
                if queue.used < self.max && queue.waiting.is_empty() {
                    queue.used += 1;
                    return HostPermit { host: Arc::clone(self) };
                }
                let (permit, receiver) = oneshot::channel();
                queue.waiting.push(Waiting { run: run.clone(), weight: f64::from(weight), permit });
                receiver
            };
            if let Ok(permit) = receiver.await {
                return permit;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HostPermit {
    /// Counts the call for which the permit is used.
    pub(crate) fn count_call(&self, run: &RunId, weight: u32) {
        let mut queue = self.host.lock();
        let weight = f64::from(weight);
        let turn = queue.turn(run, weight);
        queue.base = queue.base.max(turn);
        if queue.turns.len() >= MAX_RUNS {
            let base = queue.base;
            queue.turns.retain(|_, turn| *turn > base);
        }
        queue.turns.insert(run.clone(), turn + 1.0 / weight);
    }
}

impl Queue {
    fn turn(&self, run: &RunId, weight: f64) -> f64 {
        self.turns.get(run).map_or(self.base, |turn| turn.max(self.base - MAX_BEHIND / weight))
    }

    /// Removes the next run; the first one of several with the same turn.
    fn next(&mut self) -> Option<Waiting> {
        let turns = self.waiting.iter().map(|waiting| self.turn(&waiting.run, waiting.weight));
        let (at, _) = turns.enumerate().min_by(|(_, one), (_, other)| one.total_cmp(other))?;
        Some(self.waiting.remove(at))
    }
}

impl Drop for HostPermit {
    /// Passes the permit on.
    fn drop(&mut self) {
        let next = {
            let mut queue = self.host.lock();
            let next = queue.next();
            queue.used -= usize::from(next.is_none());
            next
        };
        // A caller that is gone drops its permit, and so passes it on.
        if let Some(next) = next {
            let _ = next.permit.send(HostPermit { host: Arc::clone(&self.host) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str) -> RunId {
        name.parse().unwrap()
    }

    /// Two runs that always wait get permits by weight, and in turn if their weights are equal.
    #[tokio::test]
    async fn permits_follow_weights() {
        for (weights, expected) in [([1, 1], [20, 20]), ([3, 1], [30, 10])] {
            let host = HostPermits::new(2);
            let runs = [run("a"), run("b")];
            let mut held = vec![host.acquire(&runs[0], 1).await, host.acquire(&runs[0], 1).await];
            let mut waiting: Vec<_> =
                (0..2).map(|at| Box::pin(host.acquire(&runs[at], weights[at]))).collect();
            let mut granted = [0; 2];
            for waiter in &mut waiting {
                assert!(futures_util::poll!(waiter).is_pending(), "both permits are held");
            }
            for _ in 0..40 {
                drop(held.remove(0));
                for at in 0..2 {
                    if let std::task::Poll::Ready(permit) = futures_util::poll!(&mut waiting[at]) {
                        permit.count_call(&runs[at], weights[at]);
                        granted[at] += 1;
                        held.push(permit);
                        waiting[at] = Box::pin(host.acquire(&runs[at], weights[at]));
                        assert!(futures_util::poll!(&mut waiting[at]).is_pending());
                    }
                }
            }
            assert_eq!(granted, expected, "{weights:?}");
        }
    }

    #[tokio::test]
    async fn permit_of_a_cancelled_caller_is_passed_on() {
        let host = HostPermits::new(1);
        let held = host.acquire(&run("a"), 1).await;
        let other = run("b");
        let mut gone = Box::pin(host.acquire(&other, 1));
        assert!(futures_util::poll!(&mut gone).is_pending());
        drop(held);
        drop(gone);
        host.acquire(&run("c"), 1).await;
    }
}
