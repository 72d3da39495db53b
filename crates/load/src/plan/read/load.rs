//! The load of a scenario: rates or users over time.

use super::field::{Result, period, wrong};
use crate::plan::curve::{Curve, Leg};
use crate::plan::{ArrivalKind, Load, Plan, source};

const MOST_STAGES: usize = 100;
/// What an open scenario may hold at a time if the plan does not say.
const MOST_USERS: u32 = 1000;

pub(super) fn load(path: &str, from: &source::Load) -> Result<Load> {
    let stages = match (&from.stages, &from.r#for) {
        (Some(stages), None) => stages.iter().map(|stage| (stage.rate, stage.users, &*stage.r#for)).collect(),
        (None, Some(lasting)) => {
            let ramp = from.ramp.as_deref().map(|ramp| (from.rate, from.users, ramp));
            ramp.into_iter().chain([(from.rate, from.users, lasting.as_str())]).collect::<Vec<_>>()
        }
        _ => return Err(wrong(path, "a load has `for`, or `stages` that each have one")),
    };
    if stages.is_empty() || stages.len() > MOST_STAGES {
        return Err(wrong(path, format!("there are 1 to {MOST_STAGES} stages")));
    }
    let is_open = stages.iter().all(|(rate, users, _)| rate.is_some() && users.is_none());
    let is_closed = stages.iter().all(|(rate, users, _)| rate.is_none() && users.is_some());
    if is_open == is_closed {
        return Err(wrong(path, "a load has either a `rate` (arrivals per second) or `users`"));
    }
    let most = if is_open { Plan::MOST_RATE } else { Plan::MOST_USERS };
    // A level that is held begins there; one that is reached in stages begins with nothing.
    let mut level =
        if from.stages.is_none() && from.ramp.is_none() { stages[0].0.or(stages[0].1) } else { None };
    let mut legs = Vec::new();
    for (index, (rate, users, lasting)) in stages.iter().enumerate() {
        let field = if from.stages.is_some() { format!("{path}.stages[{index}]") } else { path.to_owned() };
        let to = rate.or(*users).unwrap_or_default();
        if !(to >= 0.0 && to <= most) {
            return Err(wrong(field, format!("a level is between 0 and {most}")));
        }
        let seconds = period(&format!("{field}.for"), lasting)?.as_secs_f64();
        if seconds <= 0.0 {
            return Err(wrong(format!("{field}.for"), "it takes no time"));
        }
        legs.push(Leg { from: level.unwrap_or(0.0), to, seconds });
        level = Some(to);
    }
    let curve = Curve::new(legs);
    if curve.duration() > Plan::LONGEST {
        return Err(wrong(path, "a test lasts at most a day"));
    }
    if curve.peak() <= 0.0 {
        return Err(wrong(path, "there is no load at any time"));
    }
    if is_closed {
        return Ok(Load::Closed { users: curve });
    }
    let arrivals = match from.arrivals.as_deref() {
        None | Some("even") => ArrivalKind::Even,
        Some("poisson") => ArrivalKind::Poisson,
        Some(_) => return Err(wrong(format!("{path}.arrivals"), "arrivals are \"even\" or \"poisson\"")),
    };
    let most_users = from.most_users.unwrap_or(MOST_USERS);
    if !(1..=Plan::MOST_USERS as u32).contains(&most_users) {
        return Err(wrong(
            format!("{path}.most_users"),
            format!("there are 1 to {} users", Plan::MOST_USERS),
        ));
    }
    Ok(Load::Open { rate: curve, arrivals, most_users })
}
