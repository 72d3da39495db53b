//! The load of a scenario: rates or users over time.

use super::field::{Result, period, wrong};
use crate::plan::curve::{Curve, Segment};
use crate::plan::{ArrivalKind, LoadModel, Plan, document};

const MAX_STAGES: usize = 100;
/// Of an open scenario.
const DEFAULT_MAX_USERS: u32 = 1000;

pub(super) fn load(path: &str, from: &document::LoadSection) -> Result<LoadModel> {
    let stages = match (&from.stages, &from.r#for) {
        (Some(stages), None) => stages.iter().map(|stage| (stage.rate, stage.users, &*stage.r#for)).collect(),
        (None, Some(lasting)) => {
            let ramp = from.ramp.as_deref().map(|ramp| (from.rate, from.users, ramp));
            ramp.into_iter().chain([(from.rate, from.users, lasting.as_str())]).collect::<Vec<_>>()
        }
        _ => return Err(wrong(path, "a load needs `for`, or `stages` with a `for` each")),
    };
    if stages.is_empty() || stages.len() > MAX_STAGES {
        return Err(wrong(path, format!("a load has 1 to {MAX_STAGES} stages")));
    }
    let is_open = stages.iter().all(|(rate, users, _)| rate.is_some() && users.is_none());
    let is_closed = stages.iter().all(|(rate, users, _)| rate.is_none() && users.is_some());
    if is_open == is_closed {
        return Err(wrong(path, "a load has either `rate` (arrivals per second) or `users`"));
    }
    let max = if is_open { Plan::MAX_RATE } else { Plan::MAX_USERS };
    // A constant load starts at its level; a ramp or stages start at 0.
    let mut level =
        if from.stages.is_none() && from.ramp.is_none() { stages[0].0.or(stages[0].1) } else { None };
    let mut segments = Vec::new();
    for (index, (rate, users, lasting)) in stages.iter().enumerate() {
        let field = if from.stages.is_some() { format!("{path}.stages[{index}]") } else { path.to_owned() };
        let to = rate.or(*users).unwrap_or_default();
        if !(to >= 0.0 && to <= max) {
            return Err(wrong(field, format!("a level is between 0 and {max}")));
        }
        let seconds = period(&format!("{field}.for"), lasting)?.as_secs_f64();
        if seconds <= 0.0 {
            return Err(wrong(format!("{field}.for"), "the period must be longer than 0"));
        }
        segments.push(Segment { from: level.unwrap_or(0.0), to, seconds });
        level = Some(to);
    }
    let curve = Curve::new(segments);
    if curve.duration() > Plan::MAX_DURATION {
        return Err(wrong(path, "a run lasts at most a day"));
    }
    if curve.peak() <= 0.0 {
        return Err(wrong(path, "the load is 0 all the time"));
    }
    if is_closed {
        return Ok(LoadModel::Closed { users: curve });
    }
    let arrivals = match from.arrivals.as_deref() {
        None | Some("even") => ArrivalKind::Even,
        Some("poisson") => ArrivalKind::Poisson,
        Some(_) => return Err(wrong(format!("{path}.arrivals"), "arrivals are \"even\" or \"poisson\"")),
    };
    let max_users = from.max_users.unwrap_or(DEFAULT_MAX_USERS);
    if !(1..=Plan::MAX_USERS as u32).contains(&max_users) {
        return Err(wrong(
            format!("{path}.max_users"),
            format!("max_users must be between 1 and {}", Plan::MAX_USERS),
        ));
    }
    Ok(LoadModel::Open { rate: curve, arrivals, max_users })
}
