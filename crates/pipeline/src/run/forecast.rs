//! Forecasts the calls and the time until a run is done, from the waiting items, the number of following items so far, and
//! the quota.

use std::collections::BTreeSet;
use std::time::Duration;

use hob_database::UnixMs;

use crate::plan::{PAGES_STEP, Plan, Source};
use crate::quota::{Limits, QuotaUsage};
use crate::run::item::{ItemState, Progress};
use crate::run::{Run, SEEDED};

/// Estimate of what is left of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// Calls that are left.
    pub calls: Estimate,
    /// Least, expected and most time from now. `None` until the number of following items can be estimated.
    pub duration: Option<[Duration; 3]>,
    /// Expected end, by the store's clock.
    pub done_at: Option<UnixMs>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    pub least: f64,
    pub expected: f64,
    pub most: f64,
}

/// The estimated cost of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanCost {
    /// Number of items in the source; `None` for a listing.
    pub items: Option<u64>,
    /// Calls for these items, without the items that follow from them.
    pub calls: Option<u64>,
    /// How long these calls take under the quota.
    pub duration: Option<Duration>,
    /// Steps that follow from these items and make calls.
    pub following: Vec<String>,
}

/// Maximum depth of following steps. A plan has at most as many steps.
const MAX_ROUNDS: usize = 50;

pub(crate) fn forecast(plan: &Plan, run: &Run, progress: &Progress, usage: &QuotaUsage) -> Forecast {
    let count = |step: &str, states: &[ItemState]| -> f64 {
        let of = progress.steps.iter().filter(|(of, state, _)| of == step && states.contains(state));
        of.map(|(_, _, count)| *count as f64).sum()
    };
    let open = [ItemState::Waiting, ItemState::Claimed];
    let names: Vec<&str> = plan.steps.keys().map(String::as_str).chain([PAGES_STEP]).collect();
    let left: Vec<f64> = names.iter().map(|step| count(step, &open)).collect();
    let done: Vec<f64> = names.iter().map(|step| count(step, &[ItemState::Done])).collect();
    let costs: Vec<f64> = names.iter().map(|step| f64::from(plan.calls_of(step))).collect();
    // Finished items of all steps that lead to a step.
    let parents = |child: &str| -> f64 {
        let leads = |parent: &&str| follows(plan, parent).any(|step| step == child);
        names.iter().zip(&done).filter(|(parent, _)| leads(parent)).map(|(_, done)| done).sum()
    };
    let mut expected = left.clone();
    let mut wave = left.clone();
    let mut known = true;
    for _ in 0..MAX_ROUNDS {
        let mut next = vec![0.0; names.len()];
        for (at, child) in names.iter().enumerate() {
            let parents_done = parents(child);
            let before: f64 = names
                .iter()
                .zip(&wave)
                .filter(|(parent, wave)| **wave > 0.0 && follows(plan, parent).any(|step| step == *child))
                .map(|(_, wave)| *wave)
                .sum();
            if before == 0.0 || *child == PAGES_STEP {
                continue;
            }
            if parents_done == 0.0 {
                known = false;
                continue;
            }
            let ever = count(child, &ItemState::ALL);
            next[at] = before * ever / parents_done;
        }
        if next.iter().all(|count| *count < 0.01) {
            break;
        }
        expected.iter_mut().zip(&next).for_each(|(sum, count)| *sum += count);
        wave = next;
    }
    let calls = |items: &[f64]| -> f64 { items.iter().zip(&costs).map(|(items, cost)| items * cost).sum() };
    let finished: f64 = calls(&done);
    // Calls per item so far: failures are retried, and unchanged items may need no call.
    let again = if finished > 0.0 { (run.calls as f64 / finished).min(10.0) } else { 1.0 };
    let listing = matches!(plan.source, Source::Pages { .. }) && count(PAGES_STEP, &open) > 0.0;
    known &= !listing && run.seeded_to == SEEDED;
    let likely = calls(&expected) * again;
    // Two standard deviations of a count, and twice the share of failed attempts.
    let most = likely + 2.0 * likely.sqrt() + likely * (again - 1.0).max(0.0);
    let calls = Estimate { least: calls(&left).min(likely), expected: likely, most };
    let duration =
        known.then(|| [calls.least, calls.expected, calls.most].map(|calls| quota_time(usage, calls)));
    let done_at = duration.map(|[_, expected, _]| usage.now.plus(expected));
    Forecast { calls, duration, done_at }
}

/// Estimates the cost of a plan from the number of items in its source.
pub fn cost(plan: &Plan, items: Option<u64>, limits: &Limits) -> PlanCost {
    let calls = items.map(|items| items * u64::from(plan.calls_of(plan.source.step())));
    let duration = calls.map(|calls| {
        // Full windows after the first.
        let waits = |window: &hob_store::limit::Window| {
            let rounds = calls.saturating_sub(1) / u64::from(limits.usable(window));
            window.period.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX))
        };
        limits.windows().iter().map(waits).max().unwrap_or_default()
    });
    PlanCost { items, calls, duration, following: following(plan) }
}

/// The steps that follow from the items of the source, directly or not, and make calls.
fn following(plan: &Plan) -> Vec<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![plan.source.step()];
    while let Some(step) = open.pop() {
        open.extend(follows(plan, step).filter(|next| found.insert(*next)));
    }
    found.into_iter().filter(|step| plan.calls_of(step) > 0).map(str::to_owned).collect()
}

fn follows<'a>(plan: &'a Plan, step: &str) -> impl Iterator<Item = &'a str> {
    let from_page = match &plan.source {
        Source::Pages { step: items, .. } if step == PAGES_STEP => Some(items.as_str()),
        _ => None,
    };
    let from_step = plan.steps.get(step).into_iter().flat_map(|step| &step.follow);
    from_step.map(|follow| follow.step.get_ref().as_str()).chain(from_page)
}

/// How long calls take: those that fit now take no time, the rest waits for every window.
fn quota_time(usage: &QuotaUsage, calls: f64) -> Duration {
    let blocked = usage.blocked_until.map_or(Duration::ZERO, |until| until.since(usage.now));
    let waits = usage.windows.iter().map(|window| {
        let beyond = (calls - f64::from(window.left())).max(0.0);
        Duration::try_from_secs_f64(beyond / f64::from(window.usable) * window.period.as_secs_f64())
            .unwrap_or(Duration::MAX)
    });
    blocked + waits.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hob_store::epoch::Epoch;

    use super::*;
    use crate::quota::{QuotaDefinition, WindowUsage};
    use crate::run::RunState;

    const PLAN: &str = r#"name = "p"
quota = { name = "api" }
source = { step = "docket", list = ["1"] }
[step.docket]
get = "http://api/${key}"
follow = [{ step = "entry", items = "$.entries[*]", key = "$.id" }]
[step.entry]
get = "http://api/entries/${key}"
"#;

    fn run(calls: u64) -> Run {
        Run {
            id: "r".parse().unwrap(),
            plan: "p".parse().unwrap(),
            text: PLAN.to_owned(),
            state: RunState::Running,
            version: 1,
            seeded_to: SEEDED,
            calls,
            trouble: String::new(),
            started_at: UnixMs(0),
            changed_at: UnixMs(0),
        }
    }

    /// 100 calls an hour, of which 10 are left now.
    fn usage() -> QuotaUsage {
        let limits = Limits::parse("100/1h", 0).unwrap();
        let period = limits.longest_window();
        let name = "api".parse().unwrap();
        let definition =
            QuotaDefinition { name, limits, blocked_until: UnixMs(0), epoch: Epoch::new(1).unwrap() };
        let window = WindowUsage { limit: 100, usable: 100, period, used: 90, fits_at: UnixMs(0) };
        let definition = Arc::new(definition);
        QuotaUsage {
            definition,
            now: UnixMs(1_000),
            blocked_until: None,
            in_flight: 0,
            windows: vec![window],
        }
    }

    fn forecast(calls: u64, steps: &[(&str, ItemState, u64)]) -> Forecast {
        let steps = steps.iter().map(|(step, state, count)| ((*step).to_owned(), *state, *count)).collect();
        let progress = Progress { steps, failures: Vec::new() };
        super::forecast(&Plan::parse(PLAN).unwrap(), &run(calls), &progress, &usage())
    }

    #[test]
    fn following_items_are_extrapolated() {
        use ItemState::{Done, Waiting};
        // Each of ten dockets has three entries.
        let steps =
            [("docket", Done, 10), ("docket", Waiting, 20), ("entry", Done, 20), ("entry", Waiting, 10)];
        let Forecast { calls, duration, done_at } = forecast(30, &steps);
        assert_eq!((calls.least, calls.expected), (30.0, 20.0 + 10.0 + 60.0));
        assert!(calls.most > calls.expected && calls.most < 2.0 * calls.expected, "{calls:?}");
        let [least, expected, most] = duration.unwrap().map(|duration| duration.as_secs());
        // Ten fit at once; the others need their share of an hour.
        assert_eq!((least, expected), (20 * 36, 80 * 36));
        assert!(most > expected);
        assert_eq!(done_at, Some(UnixMs(1_000 + 80 * 36_000)));
    }

    #[test]
    fn retries_are_extrapolated() {
        use ItemState::{Done, Waiting};
        let steps = [("entry", Done, 20), ("entry", Waiting, 10)];
        assert_eq!(forecast(30, &steps).calls.expected, 15.0);
    }

    #[test]
    fn unchanged_items_are_expected_to_cost_nothing() {
        use ItemState::{Done, Waiting};
        let calls = forecast(10, &[("entry", Done, 20), ("entry", Waiting, 10)]).calls;
        assert_eq!((calls.least, calls.expected), (5.0, 5.0));
    }

    #[test]
    fn no_duration_before_following_items_are_known() {
        let unknown = forecast(0, &[("docket", ItemState::Waiting, 20)]);
        assert_eq!((unknown.calls.least, unknown.duration), (20.0, None));
    }

    #[test]
    fn dry_run_counts_full_windows() {
        let plan = Plan::parse(PLAN).unwrap();
        let limits = Limits::parse("5/1m, 100/1h", 0).unwrap();
        let cost = cost(&plan, Some(101), &limits);
        assert_eq!((cost.calls, cost.duration), (Some(101), Some(Duration::from_secs(3600))));
        assert_eq!(cost.following, ["entry"]);
    }
}
