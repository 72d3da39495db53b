//! The metrics of load at `/metrics`.

use hob_load_generator::Second;
use hob_service::Metric;
use metrics::{counter, gauge};

use crate::run::{Ending, Run, RunState};

const RUNS: &str = "hob_load_runs";
const ENDED: &str = "hob_load_runs_ended_total";
const REQUESTS: &str = "hob_load_requests_total";
const LATE: &str = "hob_load_late_p99_seconds";

pub(crate) const METRICS: &[Metric] = &[
    Metric::gauge(RUNS, "Pending and active runs on all nodes, by state.").by(&["state"]),
    Metric::counter(ENDED, "Runs coordinated by this node that have ended, by state.").by(&["state"]),
    Metric::counter(REQUESTS, "Requests of this node's generator, by outcome.").by(&["outcome"]),
    Metric::gauge(LATE, "p99 of how late this node's generator started its iterations in the last second."),
];

pub(crate) fn runs(pending: usize, active: &[Run]) {
    gauge!(RUNS, "state" => RunState::Pending.as_str()).set(pending as f64);
    for state in RunState::ALL.into_iter().filter(|state| state.is_active()) {
        let count = active.iter().filter(|run| run.state == state).count();
        gauge!(RUNS, "state" => state.as_str()).set(count as f64);
    }
}

/// Counts a run that this node coordinated.
pub(crate) fn ended(ending: Ending) {
    counter!(ENDED, "state" => RunState::from(ending).as_str()).increment(1);
}

/// Records a second of this node's generator.
pub(crate) fn second(second: &Second) {
    let (requests, failed) = (second.requests(), second.failed());
    counter!(REQUESTS, "outcome" => "good").increment(requests.saturating_sub(failed));
    counter!(REQUESTS, "outcome" => "failed").increment(failed);
    let late = second.generator.slip.quantile_us(0.99) as f64 / 1e6;
    gauge!(LATE).set(late);
}

/// Resets the gauge of a generator that has stopped.
pub(crate) fn idle() {
    gauge!(LATE).set(0.0);
}
