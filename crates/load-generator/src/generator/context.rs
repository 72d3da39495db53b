//! The state that the virtual users of one thread share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

use super::connection::Destination;
use super::control::RunClock;
use super::meter::{Meter, RequestOutcome};
use super::{Job, Share, UserEvent, UserEventKind};
use crate::plan::Plan;
use crate::results::second::Second;

/// Maximum number of failures that are reported per second and thread, and also of other events. All failures are
/// counted.
const MAX_EVENTS_PER_SECOND: u64 = 10;

#[derive(Debug)]
pub(super) struct WorkerContext {
    pub(super) plan: Arc<Plan>,
    pub(super) run_type: usize,
    pub(super) share: Share,
    pub(super) seed: u64,
    pub(super) destinations: Vec<Destination>,
    /// The steps of each scenario that the run type includes.
    pub(super) steps: Vec<Vec<usize>>,
    /// Whether requests differ from one iteration to the next.
    pub(super) has_variables: bool,
    pub(super) clock: RunClock,
    pub(super) throttle: Option<Throttle>,
    meter: Mutex<Meter>,
    active_users: AtomicU64,
    idle: Notify,
    user_events: mpsc::Sender<UserEvent>,
    /// The failures and the other events that were reported in this second.
    reported: [AtomicU64; 2],
}

/// Limits the requests per second.
#[derive(Debug)]
pub(super) struct Throttle {
    interval: Duration,
    next: Mutex<Instant>,
}

impl WorkerContext {
    pub(super) fn new(
        job: &Job,
        share: Share,
        clock: RunClock,
        user_events: mpsc::Sender<UserEvent>,
    ) -> Self {
        let (plan, run_type, start) = (Arc::clone(&job.plan), job.run_type, job.start);
        let throttle = job.targets.max_rate.map(|rate| Throttle::new(rate / f64::from(share.of), start));
        let included = |step: &&usize| plan.run_types[run_type].includes(&plan.steps[**step]);
        let steps =
            plan.scenarios.iter().map(|scenario| scenario.steps.iter().filter(included).copied().collect());
        Self {
            steps: steps.collect(),
            has_variables: plan.steps.iter().any(|step| step.request.fixed().is_none()),
            meter: Mutex::new(Meter::new(clock.clone(), plan.steps.len())),
            active_users: AtomicU64::new(0),
            idle: Notify::new(),
            reported: Default::default(),
            plan,
            run_type,
            share,
            seed: job.seed,
            destinations: job.targets.destinations.clone(),
            clock,
            throttle,
            user_events,
        }
    }

    pub(super) fn record(&self, now: Instant, step: usize, user: u64, outcome: RequestOutcome) {
        self.meter.lock().record(now, step, outcome, self.active_users.load(Relaxed));
        if let Some(fault) = outcome.fault {
            self.report(UserEvent { user, kind: UserEventKind::Failed { step, fault } });
        }
    }

    pub(super) fn connected(&self, user: u64) {
        self.report(UserEvent { user, kind: UserEventKind::Connected });
    }

    pub(super) fn record_slip(&self, slip: Duration) {
        self.meter.lock().record_slip(slip);
    }

    pub(super) fn record_arrival(&self) {
        self.meter.lock().record_arrival();
    }

    pub(super) fn record_backoff(&self, delay: Duration) {
        self.meter.lock().record_backoff(delay);
    }

    pub(super) fn record_queued_arrival(&self) {
        self.meter.lock().record_queued_arrival();
    }

    pub(super) fn user_started(&self) {
        self.active_users.fetch_add(1, Relaxed);
    }

    pub(super) fn user_finished(&self) {
        if self.active_users.fetch_sub(1, Relaxed) == 1 {
            self.idle.notify_one();
        }
    }

    pub(super) fn active_users(&self) -> u64 {
        self.active_users.load(Relaxed)
    }

    /// Waits until no user is active.
    pub(super) async fn wait_until_idle(&self) {
        while self.active_users() > 0 {
            self.idle.notified().await;
        }
    }

    /// The seconds that have ended since the last call.
    pub(super) fn take_seconds(&self) -> Vec<Second> {
        self.reported.iter().for_each(|count| count.store(0, Relaxed));
        let mut meter = self.meter.lock();
        meter.roll(Instant::now(), self.active_users());
        meter.take()
    }

    pub(super) fn finish(&self) -> Vec<Second> {
        self.meter.lock().finish(Instant::now(), self.active_users())
    }

    fn report(&self, event: UserEvent) {
        let kind = match event.kind {
            UserEventKind::Failed { .. } => 0,
            UserEventKind::Connected => 1,
        };
        if self.reported[kind].fetch_add(1, Relaxed) < MAX_EVENTS_PER_SECOND {
            // When the channel is full, the event is dropped.
            let _ = self.user_events.try_send(event);
        }
    }
}

impl Throttle {
    pub(super) fn new(per_second: f64, start: Instant) -> Self {
        Self { interval: Duration::from_secs_f64(1.0 / per_second), next: Mutex::new(start) }
    }

    /// Waits until the next request may start.
    pub(super) async fn acquire(&self) {
        let now = Instant::now();
        let slot = {
            let mut next = self.next.lock();
            let slot = (*next).max(now);
            *next = slot + self.interval;
            slot
        };
        if slot > now {
            tokio::time::sleep_until(slot.into()).await;
        }
    }
}
