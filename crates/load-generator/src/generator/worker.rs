//! One thread of the generator: starts users according to the plan, and sends its measurements every second.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::context::WorkerContext;
use super::control::RunClock;
use super::timer::PreciseTimer;
use super::user::{IterationEnd, User};
use crate::plan::{ArrivalKind, Curve, LoadModel, Spacing};
use crate::results::second::Second;

/// If more arrivals than this are waiting, further arrivals are dropped.
const MAX_QUEUED_ARRIVALS: usize = 1_000_000;
/// A second is sent this long after its end.
const CLOSE_DELAY: Duration = Duration::from_millis(2);
/// The longest delay of a user after its first connection failure.
const MIN_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(2);

/// Runs the thread's share of the plan to its end.
pub(super) async fn work(
    context: Arc<WorkerContext>,
    start: Instant,
    seconds: mpsc::UnboundedSender<Second>,
) {
    let mut stop = context.clock.clone();
    let sending = tokio::spawn(send_seconds(Arc::clone(&context), start, seconds.clone()));
    tokio::select! {
        () = stop.stopped() => {}
        () = run_scenarios(&context) => {}
    }
    sending.abort();
    for second in context.finish() {
        let _ = seconds.send(second);
    }
}

async fn run_scenarios(context: &Arc<WorkerContext>) {
    let mut scenarios = JoinSet::new();
    for (index, scenario) in context.plan.scenarios.iter().enumerate() {
        if context.steps[index].is_empty() {
            continue;
        }
        let scale = context.plan.run_types[context.run_type].scale;
        match &scenario.load {
            LoadModel::Closed { users } => {
                let users = Arc::new(users.times(scale));
                let all = users.peak().ceil() as u64;
                for number in (u64::from(context.share.index)..all).step_by(context.share.of as usize) {
                    scenarios.spawn(run_closed_user(Arc::clone(context), index, number, Arc::clone(&users)));
                }
            }
            LoadModel::Open { rate, arrivals, max_users } => {
                let spacing = match arrivals {
                    ArrivalKind::Even => Spacing::Even,
                    ArrivalKind::Poisson => Spacing::Poisson { seed: context.seed ^ index as u64 },
                };
                let max_users = max_users.div_ceil(context.share.of) as usize;
                scenarios.spawn(run_arrivals(
                    Arc::clone(context),
                    index,
                    rate.times(scale),
                    spacing,
                    max_users,
                ));
            }
        }
    }
    while scenarios.join_next().await.is_some() {}
    // Iterations in flight are completed: their timeouts end them.
    context.wait_until_idle().await;
}

/// Sends each second after its end.
async fn send_seconds(context: Arc<WorkerContext>, start: Instant, seconds: mpsc::UnboundedSender<Second>) {
    for second in 1.. {
        tokio::time::sleep_until((start + Duration::from_secs(second) + CLOSE_DELAY).into()).await;
        for second in context.take_seconds() {
            let _ = seconds.send(second);
        }
    }
}

/// A user of a closed scenario: repeats its iterations while the plan has more than `number` users.
async fn run_closed_user(context: Arc<WorkerContext>, scenario: usize, number: u64, users: Arc<Curve>) {
    let mut clock = context.clock.clone();
    let mut user = User::new(&context, scenario);
    let pacing = context.plan.scenarios[scenario].pacing;
    let timer = pacing.and_then(|_| PreciseTimer::new().ok());
    let mut backoff = Backoff::default();
    let mut iteration = 0;
    while let Some((enter, exit)) = users.above(number as f64, clock.elapsed()) {
        wait_for_time(&mut clock, enter).await;
        context.user_started();
        // In the time of the run, so that a pause does not count as a delay.
        let mut due = enter.max(clock.elapsed());
        while clock.elapsed() < exit && !clock.is_stopped() {
            let ready = Instant::now();
            let mut begun = ready;
            if let Some(timer) = &timer {
                begun = clock.instant_at(due);
                timer.sleep_until(begun).await;
                // A delay before `ready` was caused by a slow server, not by the generator.
                context.record_slip(begun.max(ready).elapsed());
            }
            let end = user.iterate(number, iteration, begun).await;
            iteration += 1;
            // A user that is late for its pacing continues at once; its latency counts from the intended start.
            due += pacing.unwrap_or_default();
            if let Some(delay) = backoff.after(end) {
                let until = (clock.elapsed() + delay).min(exit);
                context.record_backoff(until.saturating_sub(clock.elapsed()));
                wait_for_time(&mut clock, until).await;
                // The wait is not a delay that the target caused.
                due = due.max(until);
            }
            clock.wait_while_paused().await;
        }
        context.user_finished();
    }
}

/// How long a user of a closed scenario waits after connection failures. Without it, users would try again as fast as the
/// machine can, because a connection that is refused takes no time. In open scenarios the plan sets the rate.
#[derive(Debug, Default)]
struct Backoff {
    /// Connection failures in a row.
    failures: u32,
}

impl Backoff {
    /// The delay before the next iteration: between half of a limit and the limit, so that users do not try again at the same
    /// time. The limit doubles with every failure, up to [`MAX_BACKOFF`].
    fn after(&mut self, end: IterationEnd) -> Option<Duration> {
        if end != IterationEnd::NoConnection {
            self.failures = 0;
            return None;
        }
        let limit = (MIN_BACKOFF * 2_u32.pow(self.failures.min(10))).min(MAX_BACKOFF);
        self.failures += 1;
        Some(limit.mul_f64(0.5 + rand::random::<f64>() / 2.0))
    }
}

/// Waits until a time of the run. A pause delays this time.
async fn wait_for_time(clock: &mut RunClock, time: Duration) {
    loop {
        clock.wait_while_paused().await;
        let at = clock.instant_at(time);
        if at <= Instant::now() {
            return;
        }
        tokio::time::sleep_until(at.into()).await;
    }
}

/// An open scenario: iterations start when they are due, whether or not earlier ones have ended.
async fn run_arrivals(
    context: Arc<WorkerContext>,
    scenario: usize,
    rate: Curve,
    spacing: Spacing,
    max_users: usize,
) {
    let Ok(timer) = PreciseTimer::new() else { return };
    let mut clock = context.clock.clone();
    let pool =
        Arc::new(UserPool { max_users, scenario, context: Arc::clone(&context), state: Mutex::default() });
    let (share, of) = (u64::from(context.share.index), u64::from(context.share.of));
    for (number, time) in rate.arrivals(spacing).enumerate() {
        let number = number as u64;
        if number % of != share {
            continue;
        }
        let time = Duration::from_secs_f64(time);
        loop {
            clock.wait_while_paused().await;
            let due = clock.instant_at(time);
            let late = Instant::now().checked_duration_since(due);
            if let Some(late) = late {
                context.record_arrival();
                context.record_slip(late);
                pool.start(number, due);
                break;
            }
            timer.sleep_until(due).await;
        }
        // Lets the runtime read responses during a backlog of arrivals.
        if number.is_multiple_of(32 * of) {
            tokio::task::yield_now().await;
        }
    }
    // The time after the last arrival is part of the run.
    wait_for_time(&mut clock, rate.duration()).await;
}

/// The users of an open scenario, and the arrivals that wait for a free one.
#[derive(Debug)]
struct UserPool {
    context: Arc<WorkerContext>,
    scenario: usize,
    max_users: usize,
    state: Mutex<PoolState>,
}

#[derive(Debug, Default)]
struct PoolState {
    free: Vec<User>,
    users: usize,
    queued: VecDeque<(u64, Instant)>,
}

impl UserPool {
    fn start(self: &Arc<Self>, number: u64, due: Instant) {
        let mut state = self.state.lock();
        let user = match state.free.pop() {
            Some(user) => user,
            None if state.users < self.max_users => {
                state.users += 1;
                User::new(&self.context, self.scenario)
            }
            None => {
                self.context.record_queued_arrival();
                if state.queued.len() < MAX_QUEUED_ARRIVALS {
                    state.queued.push_back((number, due));
                }
                return;
            }
        };
        drop(state);
        self.context.user_started();
        tokio::spawn(Arc::clone(self).serve(user, number, due));
    }

    /// Runs one arrival, then the queued ones.
    async fn serve(self: Arc<Self>, mut user: User, mut number: u64, mut due: Instant) {
        loop {
            user.iterate(number, number, due).await;
            let mut state = self.state.lock();
            match state.queued.pop_front() {
                Some(next) => (number, due) = next,
                None => {
                    state.free.push(user);
                    break;
                }
            }
        }
        self.context.user_finished();
    }
}
