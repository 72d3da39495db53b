//! The state of a monitor and its transitions. This is the only place where states change.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The state of a monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = MonitorState)]
pub enum MonitorState {
    /// Not checked since it was added, or since the store was lost.
    Pending,
    Up,
    /// A check failed and is retried before alerts are sent.
    Suspect,
    Down,
    /// Checks succeed again, but fewer than `recoveries` in a row.
    Recovering,
    /// Not checked.
    Paused,
    /// The last result is too old. Never stored: it follows from the time of the last result.
    Stale,
}

/// What a result means for the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Success,
    /// A retry may succeed.
    Failure,
    /// A retry cannot succeed.
    PermanentFailure,
}

/// The state of a monitor with the counts that decide the next transition. Times are the store's, in unix milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonitorHealth {
    pub state: MonitorState,
    /// Failed checks in a row.
    pub failures: u32,
    /// Successful checks in a row while it is down.
    pub successes: u32,
    /// The first of those failures; 0 if there is none.
    pub first_failure_ms: u64,
    /// The last of those failures.
    pub last_failure_ms: u64,
    /// The last check; 0 before the first.
    pub last_ms: u64,
}

/// How many failures open an incident, and how many successes resolve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Retries after the first failure.
    pub retries: u32,
    /// Successes in a row that resolve an incident; at least 1.
    pub recoveries: u32,
}

/// Whether the last change between up and down is in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastChange {
    Saved,
    /// No further change until it is saved.
    Pending,
}

/// A change that opens or resolves an incident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IncidentChange {
    Opened,
    Resolved,
}

impl MonitorHealth {
    /// The health of a monitor that was never checked.
    pub const NEW: Self = Self {
        state: MonitorState::Pending,
        failures: 0,
        successes: 0,
        first_failure_ms: 0,
        last_failure_ms: 0,
        last_ms: 0,
    };

    /// The health after a result at `at_ms`, and the incident change that it causes.
    #[must_use]
    pub fn after(
        self,
        verdict: Verdict,
        at_ms: u64,
        thresholds: Thresholds,
        last_change: LastChange,
    ) -> (Self, Option<IncidentChange>) {
        let may_change = last_change == LastChange::Saved;
        match (verdict, self.is_down()) {
            (Verdict::Success, false) => {
                (Self { state: MonitorState::Up, last_ms: at_ms, ..Self::NEW }, None)
            }
            (Verdict::Success, true) if self.successes + 1 >= thresholds.recoveries && may_change => (
                Self { state: MonitorState::Up, last_ms: at_ms, ..Self::NEW },
                Some(IncidentChange::Resolved),
            ),
            (Verdict::Success, true) => {
                let successes = self.successes.saturating_add(1);
                (Self { state: MonitorState::Recovering, successes, last_ms: at_ms, ..self }, None)
            }
            (Verdict::Failure | Verdict::PermanentFailure, true) => {
                (Self { state: MonitorState::Down, successes: 0, ..self.failed(at_ms) }, None)
            }
            (Verdict::Failure | Verdict::PermanentFailure, false) => {
                let failed = self.failed(at_ms);
                let is_down = verdict == Verdict::PermanentFailure || failed.failures > thresholds.retries;
                if is_down && may_change {
                    (Self { state: MonitorState::Down, ..failed }, Some(IncidentChange::Opened))
                } else {
                    (Self { state: MonitorState::Suspect, ..failed }, None)
                }
            }
        }
    }

    /// Whether the monitor has an open incident (U3).
    #[must_use]
    pub fn is_down(&self) -> bool {
        matches!(self.state, MonitorState::Down | MonitorState::Recovering)
    }

    fn failed(self, at_ms: u64) -> Self {
        let first_failure_ms = if self.failures == 0 { at_ms } else { self.first_failure_ms };
        let failures = self.failures.saturating_add(1);
        Self { failures, first_failure_ms, last_failure_ms: at_ms, last_ms: at_ms, ..self }
    }
}

// As Redis holds them; elsewhere they have a label.
hob_units::names!(MonitorState {
    Down = "DOWN",
    Suspect = "SUSPECT",
    Recovering = "RECOVERING",
    Stale = "STALE",
    Pending = "PENDING",
    Up = "UP",
    Paused = "PAUSED",
});

impl MonitorState {
    /// The name of the state in the API, on pages and in the terminal.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Suspect => "suspect",
            Self::Recovering => "recovering",
            Self::Stale => "stale",
            Self::Pending => "pending",
            Self::Up => "up",
            Self::Paused => "paused",
        }
    }

    /// Whether the state needs attention.
    #[must_use]
    pub fn is_failing(self) -> bool {
        matches!(self, Self::Down | Self::Suspect | Self::Recovering | Self::Stale)
    }
}

hob_units::names!(IncidentChange { Opened = "opened", Resolved = "resolved" });

/// As the store keeps it, after the fields of the claim.
impl fmt::Display for MonitorHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { state, failures, successes, first_failure_ms, last_failure_ms, last_ms } = self;
        write!(f, "{state} {failures} {successes} {first_failure_ms} {last_failure_ms} {last_ms}")
    }
}

impl FromStr for MonitorHealth {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split(' ');
        let mut next = || words.next().ok_or(());
        let state = next()?.parse().map_err(drop)?;
        let mut number = || next()?.parse::<u64>().map_err(drop);
        Ok(Self {
            state,
            failures: u32::try_from(number()?).map_err(drop)?,
            successes: u32::try_from(number()?).map_err(drop)?,
            first_failure_ms: number()?,
            last_failure_ms: number()?,
            last_ms: number()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TWO_RETRIES: Thresholds = Thresholds { retries: 2, recoveries: 2 };

    fn walk(thresholds: Thresholds, verdicts: &[Verdict]) -> Vec<(MonitorState, Option<IncidentChange>)> {
        let mut health = MonitorHealth::NEW;
        let step = |(at, verdict): (u64, &Verdict)| {
            let (next, change) = health.after(*verdict, at, thresholds, LastChange::Saved);
            health = next;
            (next.state, change)
        };
        (1..).zip(verdicts).map(step).collect()
    }

    /// U5
    #[test]
    fn monitor_is_down_after_its_retries_and_up_after_its_recoveries() {
        use Verdict::{Failure, Success};
        let seen =
            walk(TWO_RETRIES, &[Success, Failure, Failure, Failure, Success, Failure, Success, Success]);
        assert_eq!(
            seen,
            [
                (MonitorState::Up, None),
                (MonitorState::Suspect, None),
                (MonitorState::Suspect, None),
                (MonitorState::Down, Some(IncidentChange::Opened)),
                (MonitorState::Recovering, None),
                (MonitorState::Down, None),
                (MonitorState::Recovering, None),
                (MonitorState::Up, Some(IncidentChange::Resolved)),
            ]
        );
    }

    /// U5
    #[test]
    fn permanent_failure_is_down_without_retries() {
        assert_eq!(
            walk(TWO_RETRIES, &[Verdict::PermanentFailure]),
            [(MonitorState::Down, Some(IncidentChange::Opened))]
        );
    }

    /// U3
    #[test]
    fn outage_starts_with_the_first_failure() {
        let mut health = MonitorHealth::NEW;
        for at in 10..13 {
            health = health.after(Verdict::Failure, at, TWO_RETRIES, LastChange::Saved).0;
        }
        assert_eq!((health.state, health.first_failure_ms, health.failures), (MonitorState::Down, 10, 3));
    }

    /// U8
    #[test]
    fn no_change_while_the_last_one_is_pending() {
        let suspect = MonitorHealth {
            state: MonitorState::Suspect,
            failures: 3,
            first_failure_ms: 1,
            ..MonitorHealth::NEW
        };
        let (held, change) = suspect.after(Verdict::Failure, 5, TWO_RETRIES, LastChange::Pending);
        assert_eq!((held.state, held.first_failure_ms, change), (MonitorState::Suspect, 1, None));
        let (down, change) = held.after(Verdict::Failure, 6, TWO_RETRIES, LastChange::Saved);
        assert_eq!((down.state, change), (MonitorState::Down, Some(IncidentChange::Opened)));
        let (held, change) =
            down.after(Verdict::Success, 7, Thresholds { retries: 0, recoveries: 1 }, LastChange::Pending);
        assert_eq!((held.state, change), (MonitorState::Recovering, None));
    }

    proptest! {
        /// U5 U6
        #[test]
        fn changes_alternate_and_agree_with_the_state(
            verdicts in proptest::collection::vec(
                prop_oneof![Just(Verdict::Success), Just(Verdict::Failure), Just(Verdict::PermanentFailure)], 0..60),
            retries in 0_u32..4,
            recoveries in 1_u32..4,
            pending in any::<u64>(),
        ) {
            let mut health = MonitorHealth::NEW;
            let mut open = false;
            for (at, verdict) in (1_u64..).zip(verdicts) {
                let last_change = if pending >> (at % 64) & 1 == 0 { LastChange::Saved } else { LastChange::Pending };
                let (next, change) = health.after(verdict, at, Thresholds { retries, recoveries }, last_change);
                match change {
                    Some(IncidentChange::Opened) => prop_assert!(!std::mem::replace(&mut open, true)),
                    Some(IncidentChange::Resolved) => prop_assert!(std::mem::replace(&mut open, false)),
                    None => {}
                }
                prop_assert_eq!(next.is_down(), open);
                prop_assert_eq!(next.to_string().parse(), Ok(next));
                prop_assert_eq!(next.state == MonitorState::Up, next.failures == 0);
                health = next;
            }
        }
    }
}
