//! Runs: their states, what changes them, and how others see them.

pub(crate) mod coordinator;
pub(crate) mod lifecycle;
pub(crate) mod local;
pub(crate) mod logs;
pub(crate) mod pending;
pub(crate) mod runner;
pub(crate) mod views;

use std::fmt;
use std::str::FromStr;

use hob_database::{UnixMs, column, from_row};
use serde::Serialize;
use utoipa::ToSchema;

use crate::keys::TestId;
use crate::plan::catalog::PlanId;

/// Where a run is. The allowed changes are in [`State::after`].
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, serde::Deserialize, ToSchema,
)]
#[serde(rename_all = "UPPERCASE")]
#[schema(as = LoadRunState)]
pub enum State {
    /// In the queue.
    Pending,
    /// Claimed; its runners gather.
    Starting,
    Running,
    Paused,
    /// Its runners end what they do.
    Stopping,
    Completed,
    Failed,
    Cancelled,
    /// Its runners are gone.
    Lost,
}

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Completed,
    Failed,
    Cancelled,
    Lost,
}

/// What happens to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A node takes it from the queue.
    Claim,
    /// Whoever claimed it is gone before it began.
    Return,
    /// All runners are there.
    Begin,
    Pause,
    Resume,
    /// Somebody no longer wants it.
    Cancel,
    /// It has to stop before its time.
    Stop,
    /// Its runners are done, or gone.
    End(Ending),
}

impl State {
    pub const ALL: [Self; 9] = [
        Self::Pending,
        Self::Starting,
        Self::Running,
        Self::Paused,
        Self::Stopping,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Lost,
    ];

    /// The state after an event; `None` where the event makes no sense.
    #[must_use]
    pub fn after(self, event: Event) -> Option<Self> {
        match (self, event) {
            (Self::Pending, Event::Claim) => Some(Self::Starting),
            (Self::Pending, Event::Cancel) => Some(Self::Cancelled),
            (Self::Starting, Event::Return) => Some(Self::Pending),
            (Self::Starting, Event::Begin) | (Self::Paused, Event::Resume) => Some(Self::Running),
            (Self::Running, Event::Pause) => Some(Self::Paused),
            (Self::Starting | Self::Running | Self::Paused, Event::Cancel | Event::Stop) => {
                Some(Self::Stopping)
            }
            (Self::Starting | Self::Running | Self::Paused | Self::Stopping, Event::End(ending)) => {
                Some(ending.into())
            }
            _ => None,
        }
    }

    /// Whether nothing happens to it any more.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled | Self::Lost)
    }

    /// Whether a node has it.
    #[must_use]
    pub fn is_held(self) -> bool {
        !self.is_final() && self != Self::Pending
    }

    /// The five states that the document knows (L2).
    #[must_use]
    pub fn public(self) -> &'static str {
        match self {
            Self::Pending | Self::Starting => "PENDING",
            Self::Running | Self::Paused | Self::Stopping => "RUNNING",
            Self::Completed => "COMPLETED",
            Self::Failed | Self::Lost => "FAILED",
            Self::Cancelled => "CANCELLED",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Starting => "STARTING",
            Self::Running => "RUNNING",
            Self::Paused => "PAUSED",
            Self::Stopping => "STOPPING",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
            Self::Lost => "LOST",
        }
    }
}

impl From<Ending> for State {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Completed => Self::Completed,
            Ending::Failed => Self::Failed,
            Ending::Cancelled => Self::Cancelled,
            Ending::Lost => Self::Lost,
        }
    }
}

impl Ending {
    /// The ending that a final state is; a run that stops without having been told how has failed.
    pub(crate) fn of(state: Option<State>) -> Self {
        match state {
            Some(State::Completed) => Self::Completed,
            Some(State::Cancelled) => Self::Cancelled,
            Some(State::Lost) => Self::Lost,
            _ => Self::Failed,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for State {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|state| state.word() == text).ok_or(())
    }
}

column!(State as text);

/// A run, as the database has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub id: TestId,
    pub plan_id: PlanId,
    pub plan_version: u32,
    pub run_type: String,
    pub priority: i32,
    pub max_users: Option<u32>,
    /// How many runners it asked for.
    pub runners: u32,
    pub seed: u64,
    pub state: State,
    /// How it is to end once it has stopped.
    pub ending: Option<State>,
    pub message: String,
    /// The node that conducts it.
    pub holder: Option<String>,
    /// Of the conductor: who has an older one may no longer write.
    pub fence: u64,
    /// The claim that its runners belong to.
    pub epoch: u64,
    pub lease_until: UnixMs,
    pub queued_at: UnixMs,
    pub start_at: Option<UnixMs>,
    pub ended_at: Option<UnixMs>,
}

from_row!(Run {
    id,
    plan_id,
    plan_version,
    run_type,
    priority,
    max_users,
    runners,
    seed,
    state,
    ending,
    message,
    holder,
    fence,
    epoch,
    lease_until,
    queued_at,
    start_at,
    ended_at
});

/// Of one node in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunnerState {
    Working,
    Done,
    /// It could not do its part.
    Failed,
    Lost,
}

/// A node that takes part in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runner {
    pub number: u32,
    pub node: String,
    pub state: RunnerState,
    pub message: String,
    pub lease_until: UnixMs,
}

from_row!(Runner { number, node, state, message, lease_until });

impl fmt::Display for RunnerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Working => "working",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Lost => "lost",
        })
    }
}

impl FromStr for RunnerState {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Working, Self::Done, Self::Failed, Self::Lost]
            .into_iter()
            .find(|state| state.to_string() == text)
            .ok_or(())
    }
}

column!(RunnerState as text);

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [Event; 11] = [
        Event::Claim,
        Event::Return,
        Event::Begin,
        Event::Pause,
        Event::Resume,
        Event::Cancel,
        Event::Stop,
        Event::End(Ending::Completed),
        Event::End(Ending::Failed),
        Event::End(Ending::Cancelled),
        Event::End(Ending::Lost),
    ];

    /// L2
    #[test]
    fn nothing_happens_to_a_run_that_is_over() {
        for state in State::ALL.into_iter().filter(|state| state.is_final()) {
            for event in EVENTS {
                assert_eq!(state.after(event), None, "{state} after {event:?}");
            }
        }
    }

    /// L2
    #[test]
    fn every_state_can_be_reached_and_left_for_an_end() {
        let mut reached = vec![State::Pending];
        for at in 0.. {
            let Some(state) = reached.get(at).copied() else { break };
            for next in EVENTS.into_iter().filter_map(|event| state.after(event)) {
                if !reached.contains(&next) {
                    reached.push(next);
                }
            }
        }
        assert_eq!(reached.len(), State::ALL.len());
        for state in State::ALL {
            let ends = EVENTS.into_iter().filter_map(|event| state.after(event)).any(State::is_final);
            assert!(state.is_final() || ends || state.after(Event::Cancel).is_some(), "{state}");
            assert_eq!(state.to_string().parse(), Ok(state));
        }
    }
}
