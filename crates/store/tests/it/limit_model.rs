//! Rate limits, compared with a single-threaded model.
//!
//! The model computes whether a cost fits a window at a given time. Every field of a decision is checked against it:
//! `remaining` is the largest cost that fits, `retry_after` leads to the first time at which the request fits, and
//! `reset_after` to the first time at which the full limit fits.

use std::time::Duration;

use hob_fixtures::{TestStore, every_store};
use hob_store::Clock;
use hob_store::limit::{Algorithm, Decision, Rule, Window};
use hob_testkit::budget;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::limit::keys;

const START_US: u64 = 1_800_000_000_000_000;

every_store! {
    async fn fixed_counters_decide_as_the_model_does(test_store: TestStore) {
        compare(&test_store, Algorithm::FixedCounter, 1);
    }

    async fn fixed_logs_decide_as_the_model_does(test_store: TestStore) {
        compare(&test_store, Algorithm::FixedLog, 1);
    }

    async fn sliding_logs_decide_as_the_model_does(test_store: TestStore) {
        compare(&test_store, Algorithm::SlidingLog, 3);
    }

    async fn sliding_windows_decide_as_the_model_does(test_store: TestStore) {
        compare(&test_store, Algorithm::SlidingWindow, 3);
    }

    async fn gcra_decides_as_the_model_does(test_store: TestStore) {
        compare(&test_store, Algorithm::Gcra, 3);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Take {
        cost: u32,
    },
    Advance {
        us: u64,
    },
    Rewind {
        us: u64,
    },
    /// Retries the last denied request one microsecond before its `retry_after`, and then exactly at it.
    Retry,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..4u32).prop_map(|cost| Step::Take { cost }),
        2 => (0..50_000_000u64).prop_map(|us| Step::Advance { us }),
        1 => (0..400_000_000u64).prop_map(|us| Step::Advance { us }),
        1 => (0..90_000_000u64).prop_map(|us| Step::Rewind { us }),
        2 => Just(Step::Retry),
    ]
}

/// Windows of minutes, so that only the test's clock ends them, with rates that do not divide evenly.
fn windows(max: usize) -> impl Strategy<Value = Vec<Window>> {
    let window =
        (1..12u32, 60_000..200_000u64, prop::option::of(3..15u32)).prop_map(|(limit, period_ms, burst)| {
            Window { limit: limit.max(3), period: Duration::from_millis(period_ms), burst }
        });
    prop::collection::vec(window, 1..=max).prop_filter("periods differ", |windows| {
        windows.iter().all(|a| windows.iter().filter(|b| a.period == b.period).count() == 1)
    })
}

fn compare(test_store: &TestStore, algorithm: Algorithm, max_windows: usize) {
    let config = Config { cases: budget(10, 1000), failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let handle = tokio::runtime::Handle::current();
    let case = std::cell::Cell::new(0);
    let strategy = (windows(max_windows), prop::collection::vec(step(), 1..60));
    tokio::task::block_in_place(|| {
        let outcome = runner.run(&strategy, |(windows, steps)| {
            case.set(case.get() + 1);
            let rule = Rule::new(algorithm, windows).unwrap();
            handle.block_on(run_steps(test_store, &rule, case.get(), &steps));
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    });
}

async fn run_steps(test_store: &TestStore, rule: &Rule, case: u32, steps: &[Step]) {
    let keys = keys(test_store, rule.algorithm(), &format!("case{case}"));
    let mut clock_us = START_US;
    let clock = Clock::driven(Duration::from_micros(clock_us));
    let store = test_store.store().with_clock(clock.clone());
    let mut model = Model { rule: rule.clone(), allowed: Vec::new(), seen_us: 0 };
    let mut refused = None;
    for step in steps {
        let costs = match *step {
            Step::Advance { us } => {
                clock_us += us;
                continue;
            }
            Step::Rewind { us } => {
                clock_us -= us;
                continue;
            }
            Step::Take { cost } => vec![(clock_us, cost)],
            Step::Retry => match refused.take() {
                Some((at_us, cost)) => vec![(at_us - 1, cost), (at_us, cost)],
                None => continue,
            },
        };
        for (at_us, cost) in costs {
            clock_us = at_us;
            clock.set(Duration::from_micros(at_us));
            let decision = rule.take(&store, &keys, cost).await.unwrap();
            let now = model.now(at_us);
            model.check(at_us, now, cost, decision);
            if let Decision::Denied { retry_after, .. } = decision {
                refused = Some((now + micros(retry_after), cost));
            }
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap()
}

struct Model {
    rule: Rule,
    /// Time and cost of the allowed requests.
    allowed: Vec<(u64, u32)>,
    seen_us: u64,
}

impl Model {
    /// The resolution of the algorithm's clock.
    fn unit(&self) -> u64 {
        if self.rule.algorithm() == Algorithm::Gcra { 1 } else { 1000 }
    }

    /// The time that a script uses: in its own unit, and never before the time that it has stored.
    fn now(&mut self, clock_us: u64) -> u64 {
        let unit = self.unit();
        let seen_us = match self.rule.algorithm() {
            // Its newest entry is at the end of the millisecond in which it was made.
            Algorithm::SlidingLog => self.seen_us.saturating_sub(unit),
            _ => self.seen_us,
        };
        let now = (clock_us / unit * unit).max(seen_us);
        let longest = self.rule.windows().iter().map(|window| micros(window.period)).max().unwrap();
        // A log does not restore deleted entries when the clock goes back. Its time is that of its newest entry.
        match self.rule.algorithm() {
            Algorithm::FixedLog if self.is_over(&self.rule.windows()[0], now) => self.allowed.clear(),
            Algorithm::SlidingLog => self.allowed.retain(|(time, _)| time + longest > now),
            _ => return now,
        }
        if self.allowed.is_empty() {
            self.seen_us = 0;
        }
        now
    }

    /// When a request counts that is allowed now.
    fn counted_at(&self, clock_us: u64, now: u64) -> u64 {
        match self.rule.algorithm() {
            Algorithm::SlidingLog => clock_us.next_multiple_of(self.unit()).max(self.seen_us),
            _ => now,
        }
    }

    fn check(&mut self, clock_us: u64, now: u64, cost: u32, decision: Decision) {
        let fits = self.rule.windows().iter().all(|window| self.fits(window, now, cost));
        assert_eq!(decision.is_allowed(), fits || cost == 0, "{decision:?} {:?}", self.allowed);
        if decision.is_allowed() && cost > 0 {
            // The first request of a new window resets a fixed counter.
            if self.rule.algorithm() == Algorithm::FixedCounter && self.is_over(&self.rule.windows()[0], now)
            {
                self.allowed.clear();
            }
            let at = self.counted_at(clock_us, now);
            self.allowed.push((at, cost));
            // A fixed counter stores when its window started, not when it was last incremented.
            if self.rule.algorithm() != Algorithm::FixedCounter || self.allowed.len() == 1 {
                self.seen_us = at;
            }
        }
        let quota = decision.quota();
        let matching = self.rule.windows().iter().find(|window| {
            window.max_at_once(self.rule.algorithm()) == quota.limit
                && self.remaining(window, now) == quota.remaining
                && self.is_reset(window, now, micros(quota.reset_after))
        });
        assert!(
            matching.is_some(),
            "no window matches {decision:?} at {now}, {:?} {:?}",
            self.rule,
            self.allowed
        );
        match decision {
            Decision::Allowed(_) => {
                let min = self.rule.windows().iter().map(|window| self.remaining(window, now)).min().unwrap();
                assert_eq!(quota.remaining, min, "{:?}", self.allowed);
            }
            Decision::Denied { retry_after, .. } => {
                let all_fit = |at| self.rule.windows().iter().all(|window| self.fits(window, at, cost));
                let retry = self.exact(micros(retry_after), |retry| all_fit(now + retry));
                assert!(all_fit(now + retry), "{decision:?} is too early, {:?}", self.allowed);
                assert!(!all_fit(now + retry - self.unit()), "{decision:?} is too late, {:?}", self.allowed);
            }
        }
    }

    /// Whether a fixed window, which starts with its first request, has ended.
    fn is_over(&self, window: &Window, at: u64) -> bool {
        self.allowed.first().is_none_or(|(start, _)| at >= start + micros(window.period))
    }

    fn remaining(&self, window: &Window, at: u64) -> u32 {
        let max = window.max_at_once(self.rule.algorithm());
        (0..=max).rev().find(|cost| self.fits(window, at, *cost)).unwrap_or(0)
    }

    fn is_reset(&self, window: &Window, now: u64, after: u64) -> bool {
        let max = window.max_at_once(self.rule.algorithm());
        let full = |at| self.remaining(window, at) == max;
        let after = self.exact(after, |after| full(now + after));
        full(now + after) && (after == 0 || !full(now + after - self.unit()))
    }

    /// A sliding log never reports more than a window, although requests may count for a millisecond longer.
    fn exact(&self, reported: u64, is_over: impl Fn(u64) -> bool) -> u64 {
        let is_window = || self.rule.windows().iter().any(|window| micros(window.period) == reported);
        let longer = self.rule.algorithm() == Algorithm::SlidingLog && is_window() && !is_over(reported);
        reported + if longer { self.unit() } else { 0 }
    }

    /// Whether a cost fits a window at a time, computed from the allowed requests only.
    fn fits(&self, window: &Window, at: u64, cost: u32) -> bool {
        let period = micros(window.period);
        let sum = |from: u64, to: u64| -> u64 {
            let inside = self.allowed.iter().filter(|(time, _)| (from..to).contains(time));
            inside.map(|(_, cost)| u64::from(*cost)).sum()
        };
        let limit = u64::from(window.limit);
        match self.rule.algorithm() {
            Algorithm::FixedCounter | Algorithm::FixedLog => {
                self.is_over(window, at) || sum(0, u64::MAX) + u64::from(cost) <= limit
            }
            Algorithm::SlidingLog => sum(at - period + 1, u64::MAX) + u64::from(cost) <= limit,
            Algorithm::SlidingWindow => {
                let start = at / period * period;
                let (before, count) = (sum(start - period, start), sum(start, start + period));
                let weighted = u128::from(before) * u128::from(period - (at - start));
                weighted + u128::from(count + u64::from(cost)) * u128::from(period)
                    <= u128::from(limit) * u128::from(period)
            }
            Algorithm::Gcra => {
                // In units of 1/limit µs. `tat` is the theoretical arrival time of the next request.
                let (limit, period) = (u128::from(limit), u128::from(period));
                let mut tat = 0u128;
                for (time, cost) in &self.allowed {
                    tat = tat.max(u128::from(*time) * limit) + u128::from(*cost) * period;
                }
                let at = u128::from(at) * limit;
                let burst = u128::from(window.max_at_once(Algorithm::Gcra));
                tat.max(at) + u128::from(cost) * period <= at + burst * period
            }
        }
    }
}
