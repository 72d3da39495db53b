//! How a monitor stands, and what the next result makes of it: the one place where states change.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use utoipa::ToSchema;

/// What people see of a monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
#[schema(as = MonitorState)]
pub enum State {
    /// Never checked since it was added, or since the store was lost.
    Pending,
    Up,
    /// A check failed; it is tried again before anybody is told.
    Suspect,
    Down,
    /// A check went well, not yet as often as it takes to be believed.
    Recovering,
    /// Nobody looks.
    Paused,
    /// Somebody should have looked, and there is no result in time. Never stored: it shows by comparing times.
    Stale,
}

/// What a result says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Good,
    /// It may go well a moment later.
    Bad,
    /// To try again would tell nothing new.
    Hopeless,
}

/// What a result is judged by. All times are the store's, in unix milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    pub state: State,
    /// Failed tries in a row.
    pub failures: u32,
    /// Successes in a row while it is down.
    pub successes: u32,
    /// The first of those failed tries; 0 if there is none.
    pub first_failure_ms: u64,
    /// The last of them.
    pub last_failure_ms: u64,
    /// The last result; 0 before the first.
    pub last_ms: u64,
}

/// How often a check may fail before it counts, and go well before that does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Tries after the first failed one.
    pub retries: u32,
    /// Successes in a row that end an incident; at least 1.
    pub recoveries: u32,
}

/// Whether the monitor's last change between up and down is in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    Yes,
    /// No further change until it is.
    No,
}

/// A change that the database must know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    Opened,
    Resolved,
}

impl Standing {
    /// Of a monitor that was never checked.
    pub const NEW: Self = Self {
        state: State::Pending,
        failures: 0,
        successes: 0,
        first_failure_ms: 0,
        last_failure_ms: 0,
        last_ms: 0,
    };

    /// What a result at `at_ms` makes of this.
    #[must_use]
    pub fn after(
        self,
        verdict: Verdict,
        at_ms: u64,
        thresholds: Thresholds,
        settled: Settled,
    ) -> (Self, Option<Change>) {
        let may_change = settled == Settled::Yes;
        match (verdict, self.is_down()) {
            (Verdict::Good, false) => (Self { state: State::Up, last_ms: at_ms, ..Self::NEW }, None),
            (Verdict::Good, true) if self.successes + 1 >= thresholds.recoveries && may_change => {
                (Self { state: State::Up, last_ms: at_ms, ..Self::NEW }, Some(Change::Resolved))
            }
            (Verdict::Good, true) => {
                let successes = self.successes.saturating_add(1);
                (Self { state: State::Recovering, successes, last_ms: at_ms, ..self }, None)
            }
            (Verdict::Bad | Verdict::Hopeless, true) => {
                (Self { state: State::Down, successes: 0, ..self.failed(at_ms) }, None)
            }
            (Verdict::Bad | Verdict::Hopeless, false) => {
                let failed = self.failed(at_ms);
                let is_over = verdict == Verdict::Hopeless || failed.failures > thresholds.retries;
                if is_over && may_change {
                    (Self { state: State::Down, ..failed }, Some(Change::Opened))
                } else {
                    (Self { state: State::Suspect, ..failed }, None)
                }
            }
        }
    }

    /// Whether the monitor counts as down: its incident is open (U3).
    #[must_use]
    pub fn is_down(&self) -> bool {
        matches!(self.state, State::Down | State::Recovering)
    }

    fn failed(self, at_ms: u64) -> Self {
        let first_failure_ms = if self.failures == 0 { at_ms } else { self.first_failure_ms };
        let failures = self.failures.saturating_add(1);
        Self { failures, first_failure_ms, last_failure_ms: at_ms, last_ms: at_ms, ..self }
    }
}

impl State {
    pub const ALL: [Self; 7] =
        [Self::Down, Self::Suspect, Self::Recovering, Self::Stale, Self::Pending, Self::Up, Self::Paused];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Up => "UP",
            Self::Suspect => "SUSPECT",
            Self::Down => "DOWN",
            Self::Recovering => "RECOVERING",
            Self::Paused => "PAUSED",
            Self::Stale => "STALE",
        }
    }

    /// Whether somebody should look at it.
    #[must_use]
    pub fn is_failing(self) -> bool {
        matches!(self, Self::Down | Self::Suspect | Self::Recovering | Self::Stale)
    }
}

impl Change {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Resolved => "resolved",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for State {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or(())
    }
}

/// As the store keeps it, after what belongs to the claim.
impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { state, failures, successes, first_failure_ms, last_failure_ms, last_ms } = self;
        write!(f, "{state} {failures} {successes} {first_failure_ms} {last_failure_ms} {last_ms}")
    }
}

impl FromStr for Standing {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split(' ');
        let mut next = || words.next().ok_or(());
        let state = next()?.parse()?;
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

    fn walk(thresholds: Thresholds, verdicts: &[Verdict]) -> Vec<(State, Option<Change>)> {
        let mut standing = Standing::NEW;
        let step = |(at, verdict): (u64, &Verdict)| {
            let (next, change) = standing.after(*verdict, at, thresholds, Settled::Yes);
            standing = next;
            (next.state, change)
        };
        (1..).zip(verdicts).map(step).collect()
    }

    /// U5
    #[test]
    fn retries_come_before_down_and_recoveries_before_up() {
        use Verdict::{Bad, Good};
        let seen = walk(TWO_RETRIES, &[Good, Bad, Bad, Bad, Good, Bad, Good, Good]);
        assert_eq!(
            seen,
            [
                (State::Up, None),
                (State::Suspect, None),
                (State::Suspect, None),
                (State::Down, Some(Change::Opened)),
                (State::Recovering, None),
                (State::Down, None),
                (State::Recovering, None),
                (State::Up, Some(Change::Resolved)),
            ]
        );
    }

    /// U5
    #[test]
    fn what_a_retry_cannot_mend_is_down_at_once() {
        assert_eq!(walk(TWO_RETRIES, &[Verdict::Hopeless]), [(State::Down, Some(Change::Opened))]);
    }

    /// U3
    #[test]
    fn the_outage_begins_with_the_first_failed_try() {
        let mut standing = Standing::NEW;
        for at in 10..13 {
            standing = standing.after(Verdict::Bad, at, TWO_RETRIES, Settled::Yes).0;
        }
        assert_eq!((standing.state, standing.first_failure_ms, standing.failures), (State::Down, 10, 3));
    }

    /// U8
    #[test]
    fn no_change_is_made_while_the_last_one_is_not_in_the_database() {
        let suspect = Standing { state: State::Suspect, failures: 3, first_failure_ms: 1, ..Standing::NEW };
        let (held, change) = suspect.after(Verdict::Bad, 5, TWO_RETRIES, Settled::No);
        assert_eq!((held.state, held.first_failure_ms, change), (State::Suspect, 1, None));
        let (down, change) = held.after(Verdict::Bad, 6, TWO_RETRIES, Settled::Yes);
        assert_eq!((down.state, change), (State::Down, Some(Change::Opened)));
        let (held, change) =
            down.after(Verdict::Good, 7, Thresholds { retries: 0, recoveries: 1 }, Settled::No);
        assert_eq!((held.state, change), (State::Recovering, None));
    }

    proptest! {
        /// U5 U6
        #[test]
        fn changes_alternate_and_agree_with_the_state(
            verdicts in proptest::collection::vec(
                prop_oneof![Just(Verdict::Good), Just(Verdict::Bad), Just(Verdict::Hopeless)], 0..60),
            retries in 0_u32..4,
            recoveries in 1_u32..4,
            unsettled in any::<u64>(),
        ) {
            let mut standing = Standing::NEW;
            let mut open = false;
            for (at, verdict) in (1_u64..).zip(verdicts) {
                let settled = if unsettled >> (at % 64) & 1 == 0 { Settled::Yes } else { Settled::No };
                let (next, change) = standing.after(verdict, at, Thresholds { retries, recoveries }, settled);
                match change {
                    Some(Change::Opened) => prop_assert!(!std::mem::replace(&mut open, true)),
                    Some(Change::Resolved) => prop_assert!(std::mem::replace(&mut open, false)),
                    None => {}
                }
                prop_assert_eq!(next.is_down(), open);
                prop_assert_eq!(next.to_string().parse(), Ok(next));
                prop_assert_eq!(next.state == State::Up, next.failures == 0);
                standing = next;
            }
        }
    }
}
