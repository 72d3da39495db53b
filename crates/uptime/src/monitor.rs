//! Monitors: what is checked, how often and by which rules.

pub mod apply;
pub mod assertion;
pub(crate) mod cache;
pub mod check;
mod grid;
pub mod heartbeat;
pub mod history;
pub mod maintenance;
pub(crate) mod secrets;
mod spec;

use std::time::Duration;

use hob_database::UnixMs;
use hob_units::Secret;

pub use crate::keys::MonitorId;
pub use spec::MonitorSpec;

use crate::schedule::state::{MonitorHealth, MonitorState, Thresholds};
use assertion::Assertion;
use check::Check;
use grid::Grid;

/// A monitor whose spec is valid.
#[derive(Clone, Debug)]
pub struct Monitor {
    pub id: MonitorId,
    /// Raised by every edit. Results of an earlier generation are refused.
    pub generation: u64,
    pub spec: MonitorSpec,
    pub check: Check,
    pub assertions: Vec<Assertion>,
    /// The token of a heartbeat: a job that knows it may report.
    pub token: Option<Secret>,
    pub created_at: UnixMs,
}

impl MonitorId {
    /// A new id.
    #[must_use]
    pub fn random() -> Self {
        let id = Self::new(format!("m{:012x}", rand::random::<u64>() >> 16));
        id.unwrap_or_else(|error| unreachable!("letters and digits are an id: {error}"))
    }
}

impl Monitor {
    /// The path that the job of a heartbeat calls. A secret, because it contains the token.
    #[must_use]
    pub fn heartbeat_path(&self) -> Option<String> {
        self.token.as_ref().map(|token| format!("/heartbeat/{}", token.reveal()))
    }

    #[must_use]
    pub fn interval(&self) -> Duration {
        Duration::from_secs(self.spec.interval_s.into())
    }

    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.spec.timeout_s().into())
    }

    #[must_use]
    pub fn thresholds(&self) -> Thresholds {
        Thresholds { retries: self.spec.retries, recoveries: self.spec.recoveries }
    }

    /// When the check that follows one that ended at `now_ms` is due.
    #[must_use]
    pub fn next_ms(&self, health: &MonitorHealth, now_ms: u64) -> u64 {
        if let Check::Heartbeat(heartbeat) = &self.check {
            return heartbeat.deadline_ms(self.interval(), now_ms);
        }
        let retry_ms = u64::from(self.spec.retry_delay_s) * 1000;
        let interval = match health.state {
            MonitorState::Suspect if health.failures <= self.spec.retries => return now_ms + retry_ms.max(1),
            MonitorState::Down | MonitorState::Recovering => {
                Duration::from_secs(self.spec.down_interval_s().into())
            }
            _ => self.interval(),
        };
        Grid::of(self.id.as_str(), interval).next_after(now_ms)
    }

    /// How many checks no worker ran between the one at `slot_ms` and the next at `next_ms`, of a monitor that is up.
    #[must_use]
    pub(crate) fn missed_checks(&self, slot_ms: u64, next_ms: u64) -> u64 {
        match &self.check {
            Check::Heartbeat(_) => 0,
            _ => {
                (next_ms.saturating_sub(slot_ms) / (u64::from(self.spec.interval_s) * 1000)).saturating_sub(1)
            }
        }
    }

    /// How long a result is current. Without another one, the monitor is then stale.
    #[must_use]
    pub fn stale_after(&self) -> Duration {
        let own = self.interval() * 2 + self.timeout();
        match &self.check {
            Check::Heartbeat(heartbeat) => own + heartbeat.max_silence(self.interval()),
            _ => own,
        }
    }

    /// Longer than all retries together.
    #[must_use]
    pub fn retry_ttl(&self) -> Duration {
        let one = Duration::from_secs(self.spec.retry_delay_s.into()) + self.timeout();
        (one + Duration::from_secs(60)) * (self.spec.retries + 2)
    }
}
