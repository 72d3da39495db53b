//! Property test: quotas against a simple model, and against an API that counts a sliding window.

use std::collections::BTreeMap;
use std::time::Duration;

use hob_fixtures::every_service;
use hob_pipeline::quota::{Limits, NewReservation, QuotaFeedback, Reservation, ReserveDecision};
use hob_testkit::budget;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::support::{NEEDS, START, TestEnv, new_reservation};

const HOLD_MS: u64 = 20_000;

every_service! {
    NEEDS;

    /// P1, P8
    async fn reservations_match_the_model(context: TestContext) {
        let env = TestEnv::new(context);
        compare(&env);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Reserve {
        calls: u32,
    },
    /// Settles the oldest open reservation, or one after it.
    Settle {
        which: usize,
        unused: u32,
    },
    Advance {
        ms: u64,
    },
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..3u32).prop_map(|calls| Step::Reserve { calls }),
        4 => (0..4usize, 0..2u32).prop_map(|(which, unused)| Step::Settle { which, unused }),
        3 => (0..9_000u64).prop_map(|ms| Step::Advance { ms }),
        1 => (0..60_000u64).prop_map(|ms| Step::Advance { ms }),
        1 => Just(Step::Flush),
    ]
}

fn compare(env: &TestEnv) {
    let config = Config { cases: budget(6, 500), failure_persistence: None, ..Config::default() };
    let strategy = (2..6u32, 6..12u32, prop::collection::vec(step(), 1..40));
    let handle = tokio::runtime::Handle::current();
    let case = std::cell::Cell::new(0);
    tokio::task::block_in_place(|| {
        let result = TestRunner::new(config).run(&strategy, |(short, long, steps)| {
            case.set(case.get() + 1);
            handle.block_on(run_steps(env, case.get(), (short, long), &steps));
            Ok(())
        });
        result.unwrap_or_else(|error| panic!("{error}"));
    });
}

struct Model {
    windows: [(u32, u64); 2],
    /// By id: the number of calls, and their end or deadline.
    calls: BTreeMap<String, (u32, u64)>,
    /// The time of each call at the API.
    seen: Vec<u64>,
}

impl Model {
    fn used(&self, now: u64, period: u64) -> u32 {
        self.calls.values().filter(|(_, end)| end + period > now).map(|(calls, _)| calls).sum()
    }

    fn fits(&self, now: u64, calls: u32) -> bool {
        self.windows.iter().all(|(limit, period)| self.used(now, *period) + calls <= *limit)
    }

    /// The earliest time at which the calls fit, if all calls in flight end now.
    fn fits_at(&self, now: u64, calls: u32) -> u64 {
        let ended = self.calls.iter().map(|(id, (n, end))| (id.clone(), (*n, (*end).min(now)))).collect();
        let ended = Model { windows: self.windows, calls: ended, seen: vec![] };
        let ends = ended.calls.values().flat_map(|(_, end)| self.windows.map(|(_, period)| end + period));
        let mut times: Vec<u64> = ends.filter(|at| *at > now).collect();
        times.sort_unstable();
        times.into_iter().find(|at| ended.fits(*at, calls)).unwrap()
    }

    fn assert_api_never_counts_too_many(&self) {
        for (limit, period) in self.windows {
            for at in &self.seen {
                let counted = self.seen.iter().filter(|seen| **seen <= *at && **seen + period > *at).count();
                assert!(counted <= limit as usize, "{counted} of {limit} in {period} ms");
            }
        }
    }
}

async fn run_steps(env: &TestEnv, case: u32, (short, long): (u32, u32), steps: &[Step]) {
    let name = &format!("case{case}").parse().unwrap();
    let quotas = env.quotas();
    quotas.define(name, &Limits::parse(&format!("{short}/10s, {long}/50s"), 0).unwrap()).await.unwrap();
    let mut model =
        Model { windows: [(short, 10_000), (long, 50_000)], calls: BTreeMap::new(), seen: vec![] };
    let mut open: Vec<Reservation> = Vec::new();
    let mut now = u64::try_from(START.as_millis()).unwrap() + u64::from(case) * 1_000_000;
    env.clock.set(Duration::from_millis(now));
    for (at, step) in steps.iter().enumerate() {
        match *step {
            Step::Advance { ms } => {
                now += ms;
                env.advance(Duration::from_millis(ms));
            }
            Step::Flush => env.test_store().flush_all().await,
            Step::Reserve { calls } => {
                let new_reservation = NewReservation {
                    calls,
                    hold: Duration::from_millis(HOLD_MS),
                    ..new_reservation(&format!("c{case}-{at}"))
                };
                match quotas.reserve(name, &new_reservation).await.unwrap() {
                    ReserveDecision::Granted(reservation) => {
                        assert!(model.fits(now, calls), "step {at}: granted calls that exceed the limit");
                        model.calls.insert(new_reservation.id.clone(), (calls, now + HOLD_MS));
                        open.push(reservation);
                    }
                    ReserveDecision::Wait { at: retry_at, .. } => {
                        assert!(!model.fits(now, calls), "step {at}: denied calls that fit");
                        assert_eq!(
                            retry_at.0,
                            i64::try_from(model.fits_at(now, calls)).unwrap(),
                            "step {at}"
                        );
                    }
                }
            }
            Step::Settle { which, unused } if !open.is_empty() => {
                let reservation = open.remove(which % open.len());
                let made = reservation.calls.saturating_sub(unused);
                quotas.settle(&reservation, made, QuotaFeedback::default()).await.unwrap();
                model.calls.insert(reservation.id.clone(), (made, now));
                // The API received the calls between the reservation and now, but not after the deadline, when callers time
                // out. The worst case is the latest time.
                let deadline = u64::try_from(reservation.until.0).unwrap();
                model.seen.extend(std::iter::repeat_n(now.min(deadline), made as usize));
            }
            Step::Settle { .. } => {}
        }
    }
    model.assert_api_never_counts_too_many();
}
