//! Loans: requests that are counted in advance. The requests that are not returned never exceed the limit.

use std::time::Duration;

use hob_fixtures::{TestStore, every_store};
use hob_store::limit::{Algorithm, Lent, Loan, Rule, Window};
use hob_store::{Clock, Error, Store};
use hob_testkit::budget;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::limit::{keys, rule};

const START_US: u64 = 1_800_000_000_000_000;
const LENDING: [Algorithm; 2] = [Algorithm::Gcra, Algorithm::SlidingLog];
const HOLD: Duration = Duration::from_secs(300);

async fn borrow(store: &Store, rule: &Rule, key: &str, range: std::ops::RangeInclusive<u32>) -> Option<Loan> {
    match rule.borrow(store, key, range).await.unwrap() {
        Lent::Granted { loan, .. } => Some(loan),
        Lent::Denied { .. } => None,
    }
}

async fn remaining(store: &Store, rule: &Rule, key: &str) -> u32 {
    rule.take(store, &[key], 0).await.unwrap().quota().remaining
}

every_store! {
    /// G17: a loan has as many requests as fit, and returned requests are available at once.
    async fn returned_requests_can_be_borrowed_again(test_store: TestStore) {
        for algorithm in LENDING {
            let store = &test_store.store().with_clock(Clock::driven(Duration::from_micros(START_US)));
            let rule = rule(algorithm, "10/60s, 15/1h");
            let key = &keys(&test_store, algorithm, "u1")[0];
            let first = borrow(store, &rule, key, 1..=4).await.unwrap();
            assert_eq!((first.granted(), remaining(store, &rule, key).await), (4, 6), "{algorithm}");
            let second = borrow(store, &rule, key, 1..=8).await.unwrap();
            assert_eq!(second.granted(), 6, "{algorithm}");
            assert!(borrow(store, &rule, key, 1..=8).await.is_none(), "{algorithm}");
            assert_eq!(rule.give_back(store, key, (3, first), HOLD).await.unwrap(), 3, "{algorithm}");
            assert_eq!(remaining(store, &rule, key).await, 3, "{algorithm}");
            assert!(borrow(store, &rule, key, 4..=8).await.is_none(), "{algorithm}");
            let third = borrow(store, &rule, key, 3..=8).await.unwrap();
            // The second loan was counted after the returned requests, so possibly not all of it can be returned.
            let back = rule.give_back(store, key, (6, second), HOLD).await.unwrap();
            assert!((3..=6).contains(&back), "{algorithm}: {back}");
            assert_eq!(rule.give_back(store, key, (3, third), HOLD).await.unwrap(), 3, "{algorithm}");
            assert_eq!(remaining(store, &rule, key).await, 3 + back, "{algorithm}");
        }
    }

    /// Requests that another limit has refused are returned, as if they had never been counted.
    async fn returned_requests_do_not_count(test_store: TestStore) {
        for algorithm in [Algorithm::Gcra, Algorithm::SlidingLog, Algorithm::SlidingWindow, Algorithm::FixedLog] {
            let clock = Clock::driven(Duration::from_micros(START_US));
            let store = &test_store.store().with_clock(clock.clone());
            let rule = rule(algorithm, "10/60s");
            let key = &keys(&test_store, algorithm, "u1")[0];
            let take = async |cost: u32| match rule.take_returnable(store, key, cost).await.unwrap() {
                Lent::Granted { loan, quota } => {
                    assert_eq!((loan.granted(), quota.limit), (cost, 10), "{algorithm}");
                    Some(loan)
                }
                Lent::Denied { .. } => None,
            };
            let (first, second) = (take(2).await.unwrap(), take(3).await.unwrap());
            assert_eq!(rule.give_back(store, key, (2, first), HOLD).await.unwrap(), 2, "{algorithm}");
            assert_eq!(remaining(store, &rule, key).await, 7, "{algorithm}");
            // In the same millisecond, so they must not take the places of requests that are still counted.
            let third = take(2).await.unwrap();
            assert_eq!(remaining(store, &rule, key).await, 5, "{algorithm}");
            assert_eq!(rule.give_back(store, key, (3, second), HOLD).await.unwrap(), 3, "{algorithm}");
            assert_eq!(remaining(store, &rule, key).await, 8, "{algorithm}");
            assert!(take(9).await.is_none(), "{algorithm}");
            assert!(take(8).await.is_some(), "{algorithm}");
            assert!(take(1).await.is_none(), "{algorithm}");
            // After all windows, a return changes nothing.
            clock.advance(Duration::from_secs(180));
            assert!(take(10).await.is_some(), "{algorithm}");
            rule.give_back(store, key, (2, third), HOLD).await.unwrap();
            assert_eq!(remaining(store, &rule, key).await, 0, "{algorithm}");
        }
    }

    /// Requests whose capacity has already been restored by time are not restored twice.
    async fn expired_requests_are_not_returned(test_store: TestStore) {
        let clock = Clock::driven(Duration::from_micros(START_US));
        let store = &test_store.store().with_clock(clock.clone());
        let rule = rule(Algorithm::Gcra, "10/100s");
        let key = &keys(&test_store, Algorithm::Gcra, "u1")[0];
        let loan = borrow(store, &rule, key, 1..=6).await.unwrap();
        clock.advance(Duration::from_secs(40));
        assert_eq!(rule.give_back(store, key, (6, loan), HOLD).await.unwrap(), 2);
        let old = borrow(store, &rule, key, 10..=10).await.unwrap();
        clock.advance(Duration::from_secs(50));
        let void_after = Duration::from_secs(50);
        assert_eq!(rule.give_back(store, key, (10, old), void_after).await.unwrap(), 0, "the loan is too old");
    }

    async fn only_gcra_and_sliding_log_can_lend(test_store: TestStore) {
        let key = &keys(&test_store, Algorithm::SlidingWindow, "u1")[0];
        let refused = rule(Algorithm::SlidingWindow, "10/60s").borrow(test_store.store(), key, 1..=2).await;
        assert!(matches!(refused, Err(Error::Misuse(_))));
        let zero = rule(Algorithm::Gcra, "10/60s").borrow(test_store.store(), key, 0..=2).await;
        assert!(matches!(zero, Err(Error::Misuse(_))));
    }

    async fn borrowing_from_gcra_keeps_the_limit(test_store: TestStore) {
        compare(&test_store, Algorithm::Gcra);
    }

    async fn borrowing_from_a_sliding_log_keeps_the_limit(test_store: TestStore) {
        compare(&test_store, Algorithm::SlidingLog);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Take,
    Borrow {
        max: u32,
    },
    /// Returns `count` requests of an open loan.
    GiveBack {
        which: prop::sample::Index,
        count: u32,
    },
    Advance {
        us: u64,
    },
    Rewind {
        us: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Take),
        4 => (1..9u32).prop_map(|max| Step::Borrow { max }),
        4 => (any::<prop::sample::Index>(), 1..9u32).prop_map(|(which, count)| Step::GiveBack { which, count }),
        3 => (0..120_000_000u64).prop_map(|us| Step::Advance { us }),
        1 => (0..90_000_000u64).prop_map(|us| Step::Rewind { us }),
    ]
}

/// So long that only the test's clock ends the backlog of a request: its key expires by the real clock.
fn windows() -> impl Strategy<Value = Vec<Window>> {
    let window = (3..12u32, 200_000..900_000u64)
        .prop_map(|(limit, period_ms)| Window::new(limit, Duration::from_millis(period_ms)));
    prop::collection::vec(window, 1..=2)
        .prop_filter("periods differ", |windows| windows.len() == 1 || windows[0].period != windows[1].period)
}

fn compare(test_store: &TestStore, algorithm: Algorithm) {
    let config = Config { cases: budget(20, 2000), failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let handle = tokio::runtime::Handle::current();
    let case = std::cell::Cell::new(0);
    tokio::task::block_in_place(|| {
        let outcome = runner.run(&(windows(), prop::collection::vec(step(), 1..80)), |(windows, steps)| {
            case.set(case.get() + 1);
            let rule = Rule::new(algorithm, windows).unwrap();
            handle.block_on(run_steps(test_store, &rule, case.get(), &steps));
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    });
}

/// Runs the steps. At the end, all requests that were not returned must fit the limit, each at the time when it was
/// counted.
async fn run_steps(test_store: &TestStore, rule: &Rule, case: u32, steps: &[Step]) {
    let key = &keys(test_store, rule.algorithm(), &format!("loans{case}"))[0];
    // The store never uses a time before its last write.
    let (mut clock_us, mut written_us) = (START_US, 0);
    let clock = Clock::driven(Duration::from_micros(clock_us));
    let store = test_store.store().with_clock(clock.clone());
    let mut counted: Vec<(u64, u32)> = Vec::new();
    let mut loans: Vec<(usize, Loan)> = Vec::new();
    for step in steps {
        clock.set(Duration::from_micros(clock_us));
        let now_us = clock_us.max(written_us);
        match step {
            Step::Advance { us } => clock_us += us,
            // A log loses the time of its newest entries when they are returned, so its clock must not go back.
            Step::Rewind { us } if rule.algorithm() == Algorithm::Gcra => clock_us -= us,
            Step::Rewind { .. } => {}
            Step::Take if rule.take(&store, &[key], 1).await.unwrap().is_allowed() => {
                counted.push((now_us, 1));
                written_us = now_us;
            }
            Step::Take => {}
            Step::Borrow { max } => {
                let max = (*max).min(rule.max_at_once());
                if let Some(loan) = borrow(&store, rule, key, 1..=max).await {
                    counted.push((now_us, loan.granted()));
                    written_us = now_us;
                    loans.push((counted.len() - 1, loan));
                }
            }
            Step::GiveBack { which, count } if !loans.is_empty() => {
                let (at, loan) = loans.swap_remove(which.index(loans.len()));
                let count = (*count).min(loan.granted());
                let returned = rule.give_back(&store, key, (count, loan), HOLD).await.unwrap();
                assert!(returned <= count);
                counted[at].1 -= returned;
                if returned > 0 {
                    written_us = now_us;
                }
            }
            Step::GiveBack { .. } => {}
        }
    }
    for window in rule.windows() {
        match rule.algorithm() {
            Algorithm::Gcra => assert_rate(window, &counted),
            _ => assert_log(window, &counted),
        }
    }
}

fn assert_rate(window: &Window, counted: &[(u64, u32)]) {
    let (limit, period) = (u128::from(window.limit), window.period.as_micros());
    let mut tat = 0u128;
    for (time, count) in counted {
        let at = u128::from(*time) * limit;
        tat = tat.max(at) + u128::from(*count) * period;
        assert!(*count == 0 || tat <= at + limit * period, "too many at {time} for {window}: {counted:?}");
    }
}

fn assert_log(window: &Window, counted: &[(u64, u32)]) {
    let period_us = u64::try_from(window.period.as_micros()).unwrap();
    for (from, _) in counted {
        let within = counted.iter().filter(|(time, _)| (*from..*from + period_us).contains(time));
        let sum: u32 = within.map(|(_, count)| count).sum();
        assert!(sum <= window.limit, "{sum} from {from} for {window}: {counted:?}");
    }
}
