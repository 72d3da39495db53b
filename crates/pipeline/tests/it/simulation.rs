//! Simulates several days with a driven clock: workers on several nodes with skewed clocks, and an API with a sliding window.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use hob_pipeline::fake_api::Throttle;
use hob_pipeline::quota::{Limits, NewReservation, QuotaFeedback, Quotas, Reservation, ReserveDecision};
use hob_testkit::run;

use crate::support::{START, TestEnv, api, new_reservation};

const NODES: usize = 3;
const WORKERS: usize = 12;
/// The speed of the clock of each node. The clock of the API is seven minutes ahead.
const CLOCK_SPEEDS: [f64; NODES] = [0.999, 1.0, 1.001];
const API_CLOCK_AHEAD: Duration = Duration::from_secs(420);

/// The next event of a worker.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Reserve,
    /// The API receives the call.
    Arrive,
    Respond,
}

struct Outcome {
    made: u64,
    refused: u64,
}

/// Simulates workers with an endless backlog, and counts the calls that the API receives.
async fn simulate(env: &TestEnv, windows: &str, buffer: u32, duration: Duration) -> Outcome {
    let limits = Limits::parse(windows, buffer).unwrap();
    let mut nodes: Vec<Quotas> = Vec::new();
    for _ in 0..NODES {
        nodes.push(env.quotas_with(windows, buffer).await);
    }
    let mut throttles: Vec<Throttle> =
        limits.windows().iter().map(|window| Throttle::new(window.limit, window.period)).collect();
    let mut queue: BinaryHeap<Reverse<(Duration, usize, Event)>> =
        (0..WORKERS).map(|worker| Reverse((START, worker, Event::Reserve))).collect();
    let mut reservations: Vec<Option<Reservation>> = vec![None; WORKERS];
    let mut outcome = Outcome { made: 0, refused: 0 };
    let mut number = 0_u64;
    while let Some(Reverse((now, worker, event))) = queue.pop() {
        if now >= START + duration {
            break;
        }
        env.clock.set(now);
        // Varies by worker and call.
        let jitter = Duration::from_micros((number * 7919 + worker as u64 * 104_729) % 150_000);
        let (at, next) = match event {
            Event::Reserve => {
                number += 1;
                let new_reservation = NewReservation {
                    run: format!("run{}", worker % 2),
                    ..new_reservation(&format!("c{number}"))
                };
                match nodes[worker % NODES].reserve(&api(), &new_reservation).await.unwrap() {
                    ReserveDecision::Granted(reservation) => {
                        reservations[worker] = Some(reservation);
                        (now + jitter, Event::Arrive)
                    }
                    ReserveDecision::Wait { after, .. } => {
                        let slept = after.mul_f64(CLOCK_SPEEDS[worker % NODES]);
                        (now + slept.max(Duration::from_millis(1)), Event::Reserve)
                    }
                }
            }
            Event::Arrive => {
                let api_now = now + API_CLOCK_AHEAD;
                if throttles.iter_mut().any(|throttle| throttle.check(api_now).is_err()) {
                    outcome.refused += 1;
                } else {
                    throttles.iter_mut().for_each(|throttle| throttle.count(api_now));
                    outcome.made += 1;
                }
                (now + jitter + Duration::from_millis(30), Event::Respond)
            }
            Event::Respond => {
                let reservation = reservations[worker].take().unwrap();
                nodes[worker % NODES].settle(&reservation, 1, QuotaFeedback::default()).await.unwrap();
                (now, Event::Reserve)
            }
        };
        queue.push(Reverse((at, worker, next)));
    }
    outcome
}

/// P1: no refusals, and at least 99 % of the permitted calls are used.
fn assert_full_use(windows: &str, buffer: u32, duration: Duration, permitted: u64) {
    run(async {
        let env = TestEnv::embedded().await;
        let Outcome { made, refused } = simulate(&env, windows, buffer, duration).await;
        assert_eq!(refused, 0, "{windows}");
        assert!(made * 100 >= permitted * 99, "{windows}: {made} of {permitted} permitted calls");
    });
}

#[test]
fn documented_windows_are_fully_used_for_days() {
    assert_full_use("5/1m, 50/1h, 125/1d", 0, Duration::from_secs(4 * 86_400), 4 * 125);
}

#[test]
fn short_windows_are_fully_used_for_hours() {
    assert_full_use("40/1m, 600/1h", 0, Duration::from_secs(3 * 3600), 3 * 600);
}

mod slow {
    use super::*;

    /// P8: 5,000 calls per hour with a buffer of 25.
    #[test]
    fn documented_hourly_limit_is_fully_used() {
        let hours = hob_testkit::budget(2, 72);
        assert_full_use("5000/1h", 25, Duration::from_secs(hours * 3600), hours * 4975);
    }
}
