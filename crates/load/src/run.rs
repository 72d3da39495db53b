//! Runs and their states.

pub(crate) mod coordinator;
pub(crate) mod item;
pub(crate) mod lifecycle;
pub(crate) mod logs;
pub(crate) mod pending;
pub(crate) mod runner;
pub(crate) mod views;

use std::time::Duration;

use hob_database::{UnixMs, column, from_row};
use serde::Serialize;
use utoipa::ToSchema;

use crate::keys::TestId;
use crate::plan::catalog::PlanId;

/// The state of a run. The allowed transitions are in [`RunState::after`].
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, serde::Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
#[schema(as = LoadRunState)]
pub enum RunState {
    /// In the queue.
    Pending,
    /// Claimed; waits for its runners.
    Starting,
    Running,
    Paused,
    /// Its runners are stopping.
    Stopping,
    Completed,
    Failed,
    Cancelled,
    /// A runner or the coordinator was lost.
    Lost,
}

/// The state of a run in the documented status (L2), which has five values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = LoadRunStatus)]
pub enum PublicStatus {
    Pending,
    Running,
    Completed,
    Failed,
    Cancelled,
}

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Completed,
    Failed,
    Cancelled,
    Lost,
}

/// An event that changes the state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEvent {
    /// A node takes the run from the queue.
    Claim,
    /// The lease of the coordinator expired before the start.
    Requeue,
    /// The runners start.
    Start,
    Pause,
    Resume,
    /// A user cancels the run.
    Cancel,
    /// The coordinator stops the run early.
    Stop,
    /// All runners are done or lost.
    Finish(Ending),
}

hob_units::names!(RunState {
    Pending = "pending",
    Starting = "starting",
    Running = "running",
    Paused = "paused",
    Stopping = "stopping",
    Completed = "completed",
    Failed = "failed",
    Cancelled = "cancelled",
    Lost = "lost",
});

impl RunState {
    /// The state after an event; `None` if the event is not allowed in this state.
    #[must_use]
    pub fn after(self, event: RunEvent) -> Option<Self> {
        match (self, event) {
            (Self::Pending, RunEvent::Claim) => Some(Self::Starting),
            (Self::Pending, RunEvent::Cancel) => Some(Self::Cancelled),
            (Self::Starting, RunEvent::Requeue) => Some(Self::Pending),
            (Self::Starting, RunEvent::Start) | (Self::Paused, RunEvent::Resume) => Some(Self::Running),
            (Self::Running, RunEvent::Pause) => Some(Self::Paused),
            (Self::Starting | Self::Running | Self::Paused, RunEvent::Cancel | RunEvent::Stop) => {
                Some(Self::Stopping)
            }
            (Self::Starting | Self::Running | Self::Paused | Self::Stopping, RunEvent::Finish(ending)) => {
                Some(ending.into())
            }
            _ => None,
        }
    }

    /// Whether the run has ended.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled | Self::Lost)
    }

    /// Whether the run has a coordinator.
    #[must_use]
    pub fn is_active(self) -> bool {
        !self.is_final() && self != Self::Pending
    }

    #[must_use]
    pub fn public_status(self) -> PublicStatus {
        match self {
            Self::Pending | Self::Starting => PublicStatus::Pending,
            Self::Running | Self::Paused | Self::Stopping => PublicStatus::Running,
            Self::Completed => PublicStatus::Completed,
            Self::Failed | Self::Lost => PublicStatus::Failed,
            Self::Cancelled => PublicStatus::Cancelled,
        }
    }
}

impl From<Ending> for RunState {
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
    /// The ending for a final state; `Failed` if the run stopped without one.
    pub(crate) fn of(state: Option<RunState>) -> Self {
        match state {
            Some(RunState::Completed) => Self::Completed,
            Some(RunState::Cancelled) => Self::Cancelled,
            Some(RunState::Lost) => Self::Lost,
            _ => Self::Failed,
        }
    }
}

column!(RunState as text);

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub id: TestId,
    pub plan_id: PlanId,
    pub plan_version: u32,
    pub run_type: String,
    pub priority: i32,
    /// The highest number of concurrent users. Runs that an earlier version queued have none if none was requested.
    pub max_users: Option<u32>,
    /// The planned number of users; once the run has ended, at least the highest number that it had.
    pub target_users: u32,
    /// Per cent; set when the run ends.
    pub progress: f64,
    /// The requested number of runners.
    pub runners: u32,
    pub seed: u64,
    pub state: RunState,
    /// The final state of a run that is stopping.
    pub ending: Option<RunState>,
    pub message: String,
    /// The node that coordinates the run.
    pub holder: Option<String>,
    /// Increases with every coordinator. A coordinator with a lower fence cannot write.
    pub fence: u64,
    /// The claim to which the runners belong.
    pub epoch: u64,
    pub lease_until: UnixMs,
    pub queued_at: UnixMs,
    pub start_at: Option<UnixMs>,
    pub ended_at: Option<UnixMs>,
}

impl Run {
    /// The rest of a time that begins with the end of the run; nothing before its end.
    #[must_use]
    pub fn time_left(&self, now: UnixMs, after_end: Duration) -> Duration {
        self.ended_at.map_or(Duration::ZERO, |ended| ended.plus(after_end).since(now))
    }
}

from_row!(Run {
    id,
    plan_id,
    plan_version,
    run_type,
    priority,
    max_users,
    target_users,
    progress,
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

/// The state of a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunnerState {
    Working,
    Done,
    Failed,
    Lost,
}

/// A node that generates load for a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runner {
    pub number: u32,
    pub node: String,
    pub state: RunnerState,
    pub message: String,
    pub lease_until: UnixMs,
}

from_row!(Runner { number, node, state, message, lease_until });

hob_units::names!(RunnerState { Working = "working", Done = "done", Failed = "failed", Lost = "lost" });

column!(RunnerState as text);

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [RunEvent; 11] = [
        RunEvent::Claim,
        RunEvent::Requeue,
        RunEvent::Start,
        RunEvent::Pause,
        RunEvent::Resume,
        RunEvent::Cancel,
        RunEvent::Stop,
        RunEvent::Finish(Ending::Completed),
        RunEvent::Finish(Ending::Failed),
        RunEvent::Finish(Ending::Cancelled),
        RunEvent::Finish(Ending::Lost),
    ];

    /// L2
    #[test]
    fn final_states_accept_no_event() {
        for state in RunState::ALL.into_iter().filter(|state| state.is_final()) {
            for event in EVENTS {
                assert_eq!(state.after(event), None, "{state} after {event:?}");
            }
        }
    }

    /// L2
    #[test]
    fn every_state_is_reachable_and_can_end() {
        let mut reached = vec![RunState::Pending];
        for at in 0.. {
            let Some(state) = reached.get(at).copied() else { break };
            for next in EVENTS.into_iter().filter_map(|event| state.after(event)) {
                if !reached.contains(&next) {
                    reached.push(next);
                }
            }
        }
        assert_eq!(reached.len(), RunState::ALL.len());
        for state in RunState::ALL {
            let ends = EVENTS.into_iter().filter_map(|event| state.after(event)).any(RunState::is_final);
            assert!(state.is_final() || ends || state.after(RunEvent::Cancel).is_some(), "{state}");
            assert_eq!(state.to_string().parse(), Ok(state));
        }
    }
}
