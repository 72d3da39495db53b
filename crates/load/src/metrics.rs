//! What load tests export at `/metrics`.

use hob_service::Metric;
use metrics::{counter, gauge};

use crate::results::second::Second;
use crate::run::{Ending, Run, State};

const RUNS: &str = "hob_load_runs";
const ENDED: &str = "hob_load_runs_ended_total";
const REQUESTS: &str = "hob_load_requests_total";
const LATE: &str = "hob_load_late_p99_seconds";

pub(crate) const METRICS: &[Metric] = &[
    Metric::gauge(RUNS, "Runs that wait or are under way on any node, by state."),
    Metric::counter(ENDED, "Runs conducted by this node that have ended, by state."),
    Metric::counter(REQUESTS, "Requests of this node's generator, by outcome."),
    Metric::gauge(LATE, "How late this node's generator was in its last second."),
];

/// The runs that wait and those that nodes work on, as the database has them.
pub(crate) fn runs(waiting: usize, held: &[Run]) {
    gauge!(RUNS, "state" => word(State::Pending)).set(waiting as f64);
    for state in State::ALL.into_iter().filter(|state| state.is_held()) {
        let count = held.iter().filter(|run| run.state == state).count();
        gauge!(RUNS, "state" => word(state)).set(count as f64);
    }
}

/// A run that this node conducted has ended.
pub(crate) fn ended(ending: Ending) {
    counter!(ENDED, "state" => word(ending.into())).increment(1);
}

/// A second of this node's generator. How late it was says whether the node can take more.
pub(crate) fn second(second: &Second) {
    let (requests, failed) = (second.requests(), second.failed());
    counter!(REQUESTS, "outcome" => "good").increment(requests.saturating_sub(failed));
    counter!(REQUESTS, "outcome" => "failed").increment(failed);
    let late = second.general.slip.quantile_us(0.99) as f64 / 1e6;
    gauge!(LATE).set(late);
}

/// The generator rests.
pub(crate) fn rest() {
    gauge!(LATE).set(0.0);
}

fn word(state: State) -> String {
    state.to_string().to_lowercase()
}
