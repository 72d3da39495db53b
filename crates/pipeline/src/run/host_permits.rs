//! Limits the concurrent requests of this node to a host. Runs that want a permit get one by weight: the run with the
//! smallest turn is next, and its turn grows by 1 / weight with each call.
//!
//! A run has one item in front, which waits for a permit and then reserves a call of the quota; the other items are
//! behind it. Permits often become free in bursts. If the waiting item always got the next one, two runs would take
//! them alternately, whatever their weights, since each has one item in front. A free permit is therefore kept for
//! the run with the smallest turn while that run reserves its previous call, unless it waits for its quota.

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

/// An item of a run that wants a permit, or uses one to reserve its call.
#[derive(Debug)]
pub(crate) struct Demand {
    host: Arc<HostPermits>,
    run: RunId,
    weight: f64,
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
    demands: HashMap<RunId, RunDemand>,
    /// In order of arrival.
    waiting: Vec<Waiting>,
}

/// What a run wants of the host.
#[derive(Debug)]
struct RunDemand {
    items: usize,
    weight: f64,
    /// It waits for its quota, so other runs need not wait for it.
    paused: bool,
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

    /// Announces an item that will want a permit.
    pub(crate) fn demand(self: &Arc<Self>, run: &RunId, weight: u32) -> Demand {
        let weight = f64::from(weight);
        let mut queue = self.lock();
        let demand =
            queue.demands.entry(run.clone()).or_insert(RunDemand { items: 0, weight, paused: false });
        demand.items += 1;
        Demand { host: Arc::clone(self), run: run.clone(), weight }
    }

    /// Gives free permits to the runs whose turn it is.
    fn grant(self: &Arc<Self>) {
        loop {
            let next = {
                let mut queue = self.lock();
                let next = if queue.used < self.max { queue.next() } else { None };
                queue.used += usize::from(next.is_some());
                next
            };
            let Some(next) = next else { return };
            // A caller that is gone drops its permit, and so passes it on.
            let _ = next.permit.send(HostPermit { host: Arc::clone(self) });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Demand {
    /// Waits for a permit.
    pub(crate) async fn acquire(&self) -> HostPermit {
        loop {
            let (permit, receiver) = oneshot::channel();
            let waiting = Waiting { run: self.run.clone(), weight: self.weight, permit };
            self.set_paused(false, |queue| queue.waiting.push(waiting));
            if let Ok(permit) = receiver.await {
                return permit;
            }
        }
    }

    /// The run waits for its quota: other runs need not wait for it until it wants a permit again.
    pub(crate) fn pause(&self) {
        self.set_paused(true, |_| ());
    }

    /// Counts a call, for which a permit is used.
    pub(crate) fn count_call(&self) {
        {
            let mut queue = self.host.lock();
            let turn = queue.turn(&self.run, self.weight);
            queue.base = queue.base.max(turn);
            if queue.turns.len() >= MAX_RUNS {
                let base = queue.base;
                queue.turns.retain(|_, turn| *turn > base);
            }
            queue.turns.insert(self.run.clone(), turn + 1.0 / self.weight);
        }
        self.host.grant();
    }

    fn set_paused(&self, paused: bool, also: impl FnOnce(&mut Queue)) {
        {
            let mut queue = self.host.lock();
            if let Some(demand) = queue.demands.get_mut(&self.run) {
                demand.paused = paused;
            }
            also(&mut queue);
        }
        self.host.grant();
    }
}

impl Queue {
    fn turn(&self, run: &RunId, weight: f64) -> f64 {
        self.turns.get(run).map_or(self.base, |turn| turn.max(self.base - MAX_BEHIND / weight))
    }

    /// Removes the next run, the first one of several with the same turn; none while a run with a smaller turn is about
    /// to wait.
    fn next(&mut self) -> Option<Waiting> {
        self.waiting.retain(|waiting| !waiting.permit.is_closed());
        let turns = self.waiting.iter().map(|waiting| self.turn(&waiting.run, waiting.weight));
        let (at, turn) = turns.enumerate().min_by(|(_, one), (_, other)| one.total_cmp(other))?;
        let is_next =
            |(run, demand): (&RunId, &RunDemand)| !demand.paused && self.turn(run, demand.weight) < turn;
        if self.demands.iter().any(is_next) {
            return None;
        }
        Some(self.waiting.remove(at))
    }
}

impl Drop for Demand {
    fn drop(&mut self) {
        {
            let mut queue = self.host.lock();
            if let Some(demand) = queue.demands.get_mut(&self.run) {
                demand.items -= 1;
                if demand.items == 0 {
                    queue.demands.remove(&self.run);
                }
            }
        }
        self.host.grant();
    }
}

impl Drop for HostPermit {
    /// Passes the permit on.
    fn drop(&mut self) {
        self.host.lock().used -= 1;
        self.host.grant();
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use futures_util::poll;

    use super::*;

    fn run(name: &str) -> RunId {
        name.parse().unwrap()
    }

    /// Two runs that always wait get permits by weight, and in turn if their weights are equal.
    #[tokio::test]
    async fn permits_follow_weights() {
        for (weights, expected) in [([1, 1], [20, 20]), ([3, 1], [30, 10])] {
            let host = HostPermits::new(2);
            let demands = [host.demand(&run("a"), weights[0]), host.demand(&run("b"), weights[1])];
            let mut held = vec![demands[0].acquire().await, demands[0].acquire().await];
            let mut waiting: Vec<_> = demands.iter().map(|demand| Box::pin(demand.acquire())).collect();
            let mut granted = [0; 2];
            for waiter in &mut waiting {
                assert!(poll!(waiter).is_pending(), "both permits are held");
            }
            for _ in 0..40 {
                drop(held.remove(0));
                for at in 0..2 {
                    if let Poll::Ready(permit) = poll!(&mut waiting[at]) {
                        demands[at].count_call();
                        granted[at] += 1;
                        held.push(permit);
                        waiting[at] = Box::pin(demands[at].acquire());
                        assert!(poll!(&mut waiting[at]).is_pending());
                    }
                }
            }
            assert_eq!(granted, expected, "{weights:?}");
        }
    }

    /// All permits become free at once, and each run asks for one after the other. The light run always asks first.
    #[tokio::test]
    async fn burst_of_permits_follows_weights() {
        let host = HostPermits::new(4);
        let demands = [host.demand(&run("heavy"), 3), host.demand(&run("light"), 1)];
        let mut granted = [0; 2];
        for _ in 0..10 {
            let mut held = Vec::new();
            while held.len() < 4 {
                let mut asked = [Box::pin(demands[1].acquire()), Box::pin(demands[0].acquire())];
                let ready = [poll!(&mut asked[0]), poll!(&mut asked[1])];
                for (permit, at) in ready.into_iter().zip([1, 0]) {
                    if let Poll::Ready(permit) = permit {
                        demands[at].count_call();
                        granted[at] += 1;
                        held.push(permit);
                    }
                }
            }
        }
        assert_eq!(granted, [30, 10]);
    }

    /// A run that waits for its quota, or has nothing left to do, does not hold back others.
    #[tokio::test]
    async fn paused_or_finished_run_is_not_waited_for() {
        let host = HostPermits::new(3);
        let (first, other) = (host.demand(&run("a"), 1), host.demand(&run("b"), 1));
        let _first_permit = other.acquire().await;
        other.count_call();
        let mut second = Box::pin(other.acquire());
        assert!(poll!(&mut second).is_pending(), "it is the turn of the other run");
        first.pause();
        let _second_permit = second.await;
        let mut asks_again = Box::pin(first.acquire());
        let permit = poll!(&mut asks_again);
        assert!(permit.is_ready());
        other.count_call();
        drop(permit);
        let mut third = Box::pin(other.acquire());
        assert!(poll!(&mut third).is_pending(), "it is the turn of the other run again");
        drop(asks_again);
        drop(first);
        third.await;
    }

    #[tokio::test]
    async fn permit_of_a_cancelled_caller_is_passed_on() {
        let host = HostPermits::new(1);
        let demands = [host.demand(&run("a"), 1), host.demand(&run("b"), 1)];
        let held = demands[0].acquire().await;
        let mut gone = Box::pin(demands[1].acquire());
        assert!(poll!(&mut gone).is_pending());
        drop(held);
        drop(gone);
        host.demand(&run("c"), 1).acquire().await;
    }
}
