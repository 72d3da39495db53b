//! What all virtual users of one thread share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

use super::connection::Destination;
use super::meter::{Meter, Outcome};
use super::valve::Valve;
use super::{Happening, Job, Sample, Share};
use crate::plan::Plan;
use crate::results::second::Second;

/// Errors told per second and thread, and as many other lines; errors are counted, all of them.
const MOST_SAMPLES: u64 = 10;

#[derive(Debug)]
pub(super) struct Desk {
    pub(super) plan: Arc<Plan>,
    pub(super) run_type: usize,
    pub(super) share: Share,
    pub(super) seed: u64,
    pub(super) destinations: Vec<Destination>,
    /// The steps of each scenario that are part of the run.
    pub(super) steps: Vec<Vec<usize>>,
    /// Whether requests differ from one iteration to the next.
    pub(super) has_variables: bool,
    pub(super) valve: Valve,
    pub(super) throttle: Option<Throttle>,
    meter: Mutex<Meter>,
    active_users: AtomicU64,
    idle: Notify,
    samples: mpsc::Sender<Sample>,
    /// Errors told in this second, and other lines.
    sampled: [AtomicU64; 2],
}

/// At most so many requests per second.
#[derive(Debug)]
pub(super) struct Throttle {
    interval: Duration,
    next: Mutex<Instant>,
}

impl Desk {
    pub(super) fn new(job: &Job, share: Share, valve: Valve, samples: mpsc::Sender<Sample>) -> Self {
        let (plan, run_type, start) = (Arc::clone(&job.plan), job.run_type, job.start);
        let throttle = job.route.most_rate.map(|rate| Throttle::new(rate / f64::from(share.of), start));
        let included = |step: &&usize| plan.run_types[run_type].includes(&plan.steps[**step]);
        let steps =
            plan.scenarios.iter().map(|scenario| scenario.steps.iter().filter(included).copied().collect());
        Self {
            steps: steps.collect(),
            has_variables: plan.steps.iter().any(|step| step.request.fixed().is_none()),
            meter: Mutex::new(Meter::new(start, plan.steps.len())),
            active_users: AtomicU64::new(0),
            idle: Notify::new(),
            sampled: Default::default(),
            plan,
            run_type,
            share,
            seed: job.seed,
            destinations: job.route.destinations.clone(),
            valve,
            throttle,
            samples,
        }
    }

    pub(super) fn record(&self, now: Instant, step: usize, user: u64, outcome: Outcome) {
        self.meter.lock().record(now, step, outcome, self.active_users.load(Relaxed));
        if let Some(fault) = outcome.fault {
            self.tell(Sample { user, what: Happening::Failed { step, fault } });
        }
    }

    /// A user has a connection.
    pub(super) fn connected(&self, user: u64) {
        self.tell(Sample { user, what: Happening::Connected });
    }

    pub(super) fn slipped(&self, slip: Duration) {
        self.meter.lock().slipped(slip);
    }

    pub(super) fn waited(&self) {
        self.meter.lock().waited();
    }

    pub(super) fn enter(&self) {
        self.active_users.fetch_add(1, Relaxed);
    }

    pub(super) fn leave(&self) {
        if self.active_users.fetch_sub(1, Relaxed) == 1 {
            self.idle.notify_one();
        }
    }

    pub(super) fn active_users(&self) -> u64 {
        self.active_users.load(Relaxed)
    }

    /// Waits until no user is busy.
    pub(super) async fn idle(&self) {
        while self.active_users() > 0 {
            self.idle.notified().await;
        }
    }

    /// The seconds that are over.
    pub(super) fn roll(&self) -> Vec<Second> {
        self.sampled.iter().for_each(|sampled| sampled.store(0, Relaxed));
        let mut meter = self.meter.lock();
        meter.roll(Instant::now(), self.active_users());
        meter.take()
    }

    pub(super) fn finish(&self) -> Vec<Second> {
        self.meter.lock().finish(Instant::now(), self.active_users())
    }

    fn tell(&self, sample: Sample) {
        let kind = match sample.what {
            Happening::Failed { .. } => 0,
            Happening::Connected => 1,
        };
        if self.sampled[kind].fetch_add(1, Relaxed) < MOST_SAMPLES {
            // A reader that is too slow misses some.
            let _ = self.samples.try_send(sample);
        }
    }
}

impl Throttle {
    pub(super) fn new(per_second: f64, start: Instant) -> Self {
        Self { interval: Duration::from_secs_f64(1.0 / per_second), next: Mutex::new(start) }
    }

    /// Waits for a turn.
    pub(super) async fn turn(&self) {
        let now = Instant::now();
        let turn = {
            let mut next = self.next.lock();
            let turn = (*next).max(now);
            *next = turn + self.interval;
            turn
        };
        if turn > now {
            tokio::time::sleep_until(turn.into()).await;
        }
    }
}
