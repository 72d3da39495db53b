//! What this node tells Prometheus about load tests.

use metrics::{counter, gauge};

use crate::run::{Ending, Run, State};
use crate::second::Second;

/// The runs that wait and those that nodes work on, as the records have them.
pub(crate) fn runs(waiting: usize, held: &[Run]) {
    gauge!("hob_load_runs", "state" => word(State::Pending)).set(waiting as f64);
    for state in State::ALL.into_iter().filter(|state| state.is_held()) {
        let count = held.iter().filter(|run| run.state == state).count();
        gauge!("hob_load_runs", "state" => word(state)).set(count as f64);
    }
}

/// A run that this node conducted has ended.
pub(crate) fn ended(ending: Ending) {
    counter!("hob_load_runs_ended_total", "state" => word(ending.into())).increment(1);
}

/// A second of this node's generator. How late it was says whether the node can take more.
pub(crate) fn second(second: &Second) {
    let (requests, failed) = (second.requests(), second.failed());
    counter!("hob_load_requests_total", "outcome" => "good").increment(requests.saturating_sub(failed));
    counter!("hob_load_requests_total", "outcome" => "failed").increment(failed);
    let late = second.general.slip.quantile_us(0.99) as f64 / 1e6;
    gauge!("hob_load_late_p99_seconds").set(late);
}

/// The generator rests.
pub(crate) fn rest() {
    gauge!("hob_load_late_p99_seconds").set(0.0);
}

fn word(state: State) -> String {
    state.to_string().to_lowercase()
}
