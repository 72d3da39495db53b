//! One thread's work: starts users when the plan says so, and hands out what was measured every second.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::alarm::Alarm;
use super::desk::Desk;
use super::user::User;
use super::valve::Valve;
use crate::plan::{ArrivalKind, Curve, Load, Spacing};
use crate::results::second::Second;

/// More arrivals do not wait for a free user.
const MOST_WAITING: usize = 1_000_000;
/// A second is handed out this long after it is over.
const SETTLE: Duration = Duration::from_millis(2);

/// Runs the thread's share of the plan to its end.
pub(super) async fn work(desk: Arc<Desk>, start: Instant, seconds: mpsc::UnboundedSender<Second>) {
    let mut stop = desk.valve.clone();
    let telling = tokio::spawn(tell(Arc::clone(&desk), start, seconds.clone()));
    tokio::select! {
        () = stop.stopped() => {}
        () = run_all(&desk) => {}
    }
    telling.abort();
    for second in desk.finish() {
        let _ = seconds.send(second);
    }
}

async fn run_all(desk: &Arc<Desk>) {
    let mut scenarios = JoinSet::new();
    for (index, scenario) in desk.plan.scenarios.iter().enumerate() {
        if desk.steps[index].is_empty() {
            continue;
        }
        let scale = desk.plan.run_types[desk.run_type].scale;
        match &scenario.load {
            Load::Closed { users } => {
                let users = Arc::new(users.times(scale));
                // The share's users: every so many-th of all.
                let all = users.peak().ceil() as u64;
                for number in (u64::from(desk.share.index)..all).step_by(desk.share.of as usize) {
                    scenarios.spawn(be_user(Arc::clone(desk), index, number, Arc::clone(&users)));
                }
            }
            Load::Open { rate, arrivals, most_users } => {
                let spacing = match arrivals {
                    ArrivalKind::Even => Spacing::Even,
                    ArrivalKind::Poisson => Spacing::Poisson { seed: desk.seed ^ index as u64 },
                };
                let most = most_users.div_ceil(desk.share.of) as usize;
                scenarios.spawn(receive(Arc::clone(desk), index, rate.times(scale), spacing, most));
            }
        }
    }
    while scenarios.join_next().await.is_some() {}
    // Arrivals that are under way are not cut off: their own timeouts end them.
    desk.idle().await;
}

/// Hands out each second once it is over.
async fn tell(desk: Arc<Desk>, start: Instant, seconds: mpsc::UnboundedSender<Second>) {
    for second in 1.. {
        tokio::time::sleep_until((start + Duration::from_secs(second) + SETTLE).into()).await;
        for second in desk.roll() {
            let _ = seconds.send(second);
        }
    }
}

/// A user of a closed scenario: starts over whenever it is done, while the plan wants so many users.
async fn be_user(desk: Arc<Desk>, scenario: usize, number: u64, users: Arc<Curve>) {
    let mut valve = desk.valve.clone();
    let mut user = User::new(&desk, scenario);
    let pacing = desk.plan.scenarios[scenario].pacing;
    let alarm = pacing.and_then(|_| Alarm::new().ok());
    let mut iteration = 0;
    while let Some((enter, exit)) = users.above(number as f64, valve.elapsed()) {
        wait(&mut valve, enter).await;
        desk.enter();
        // In the plan's time, so that a pause does not make it late.
        let mut due = enter.max(valve.elapsed());
        while valve.elapsed() < exit && !valve.is_stopped() {
            let ready = Instant::now();
            let mut begun = ready;
            if let Some(alarm) = &alarm {
                begun = valve.at(due);
                alarm.until(begun).await;
                // A slow server made it late before, not the generator.
                desk.slipped(begun.max(ready).elapsed());
            }
            user.iterate(number, iteration, begun).await;
            iteration += 1;
            // Behind its pace it goes on at once, and its latency counts from where it should have been.
            due += pacing.unwrap_or_default();
            valve.pass().await;
        }
        desk.leave();
    }
}

/// Waits until the plan has come to a time, which may be held up meanwhile.
async fn wait(valve: &mut Valve, time: Duration) {
    loop {
        valve.pass().await;
        let at = valve.at(time);
        if at <= Instant::now() {
            return;
        }
        tokio::time::sleep_until(at.into()).await;
    }
}

/// An open scenario: iterations start when they are due, whatever became of the earlier ones.
async fn receive(desk: Arc<Desk>, scenario: usize, rate: Curve, spacing: Spacing, most_users: usize) {
    let Ok(alarm) = Alarm::new() else { return };
    let mut valve = desk.valve.clone();
    let lobby = Arc::new(Lobby { most_users, scenario, desk: Arc::clone(&desk), state: Mutex::default() });
    let (share, of) = (u64::from(desk.share.index), u64::from(desk.share.of));
    for (number, time) in rate.arrivals(spacing).enumerate() {
        let number = number as u64;
        if number % of != share {
            continue;
        }
        let time = Duration::from_secs_f64(time);
        loop {
            valve.pass().await;
            let due = valve.at(time);
            let late = Instant::now().checked_duration_since(due);
            if let Some(late) = late {
                desk.slipped(late);
                lobby.arrive(number, due);
                break;
            }
            alarm.until(due).await;
        }
        // A backlog must not keep responses from being read.
        if number.is_multiple_of(32 * of) {
            tokio::task::yield_now().await;
        }
    }
}

/// Where arrivals meet users that are free.
#[derive(Debug)]
struct Lobby {
    desk: Arc<Desk>,
    scenario: usize,
    most_users: usize,
    state: Mutex<LobbyState>,
}

#[derive(Debug, Default)]
struct LobbyState {
    free: Vec<User>,
    users: usize,
    waiting: VecDeque<(u64, Instant)>,
}

impl Lobby {
    fn arrive(self: &Arc<Self>, number: u64, due: Instant) {
        let mut state = self.state.lock();
        let user = match state.free.pop() {
            Some(user) => user,
            None if state.users < self.most_users => {
                state.users += 1;
                User::new(&self.desk, self.scenario)
            }
            None => {
                self.desk.waited();
                if state.waiting.len() < MOST_WAITING {
                    state.waiting.push_back((number, due));
                }
                return;
            }
        };
        drop(state);
        self.desk.enter();
        tokio::spawn(Arc::clone(self).serve(user, number, due));
    }

    /// One arrival, and then those that found nobody free.
    async fn serve(self: Arc<Self>, mut user: User, mut number: u64, mut due: Instant) {
        loop {
            user.iterate(number, number, due).await;
            let mut state = self.state.lock();
            match state.waiting.pop_front() {
                Some(next) => (number, due) = next,
                None => {
                    state.free.push(user);
                    break;
                }
            }
        }
        self.desk.leave();
    }
}
