//! The measurements of one second of a run, by one runner or merged over all of them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::plan::{Check, Plan};
use crate::results::histogram::LatencyHistogram;

/// One second of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// Counted from the start of the run.
    pub second: u32,
    pub generator: GeneratorSecond,
    /// By the index of the step in the plan; steps without requests are left out.
    pub steps: BTreeMap<u16, StepSecond>,
}

/// The state of the generator in one second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GeneratorSecond {
    /// How long the run was active in this second: less than a second if it was paused or ended in it.
    pub ran: Duration,
    /// Users in an iteration at the end of the second.
    pub active_users: u64,
    /// How late the generator started its iterations.
    pub slip: LatencyHistogram,
    /// Iterations of open scenarios that were due.
    pub arrivals: u64,
    /// Arrivals that had to wait because all users were busy.
    pub queued_arrivals: u64,
    pub backoffs: Backoffs,
}

/// How often and how long users waited after connection failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoffs {
    pub count: u64,
    pub total: Duration,
}

/// The requests of one step whose response was complete in this second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepSecond {
    /// Latency of successful requests from their intended start.
    pub intended: LatencyHistogram,
    /// Latency of successful requests from their actual start.
    pub actual: LatencyHistogram,
    /// Latency of failed requests from their intended start. Measurements of earlier versions have them in the histograms
    /// above.
    pub failures: LatencyHistogram,
    pub failed: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub faults: BTreeMap<Fault, u64>,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    Connect,
    Tls,
    Timeout,
    /// The server closed the connection before its response was complete.
    Closed,
    /// The response is not HTTP.
    Protocol,
    TooLarge,
    /// The response lacks a value that the step extracts.
    Extract,
    /// A status that the step does not expect; by default of 400 or above.
    Status(u16),
    /// The check of the step with this index failed.
    Check(u16),
}

impl Fault {
    /// A description that names the failed check of the step.
    #[must_use]
    pub fn describe(self, plan: &Plan, step: usize) -> String {
        let checks = plan.steps.get(step).map_or(&[][..], |step| &step.checks);
        match self {
            Self::Check(index) => {
                let check = checks.get(usize::from(index));
                check.map_or_else(|| self.to_string(), |check| format!("expected {check}"))
            }
            Self::Status(status) => {
                let expected = checks.iter().find_map(Check::statuses);
                expected.map_or_else(
                    || self.to_string(),
                    |expected| format!("status {status} instead of {expected}"),
                )
            }
            other => other.to_string(),
        }
    }

    /// Whether the target did not accept the connection or closed it.
    #[must_use]
    pub(crate) fn is_connection_failure(self) -> bool {
        matches!(self, Self::Connect | Self::Tls | Self::Closed)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect => f.write_str("connection failed"),
            Self::Tls => f.write_str("TLS handshake failed"),
            Self::Timeout => f.write_str("timed out"),
            Self::Closed => f.write_str("connection closed"),
            Self::Protocol => f.write_str("invalid HTTP response"),
            Self::TooLarge => f.write_str("response too large"),
            Self::Extract => f.write_str("value to extract not found"),
            Self::Status(status) => write!(f, "status {status}"),
            Self::Check(index) => write!(f, "check {}", index + 1),
        }
    }
}

impl Second {
    #[must_use]
    pub fn new(second: u32) -> Self {
        Self { second, ..Self::default() }
    }

    /// Adds the measurements of another runner in the same second.
    pub fn merge(&mut self, other: &Self) {
        self.generator.merge(&other.generator);
        for (step, measured) in &other.steps {
            self.steps.entry(*step).or_default().merge(measured);
        }
    }

    #[must_use]
    pub fn requests(&self) -> u64 {
        self.steps.values().map(StepSecond::requests).sum()
    }

    #[must_use]
    pub fn failed(&self) -> u64 {
        self.steps.values().map(|step| step.failed).sum()
    }

    /// The latency of the successful requests of all steps, from the intended start.
    #[must_use]
    pub fn intended(&self) -> LatencyHistogram {
        let mut all = LatencyHistogram::default();
        self.steps.values().for_each(|step| all.merge(&step.intended));
        all
    }
}

impl GeneratorSecond {
    pub fn merge(&mut self, other: &Self) {
        // Threads and runners run at the same time.
        self.ran = self.ran.max(other.ran);
        self.active_users += other.active_users;
        self.arrivals += other.arrivals;
        self.backoffs.add(other.backoffs);
        self.queued_arrivals += other.queued_arrivals;
        self.slip.merge(&other.slip);
    }
}

impl Backoffs {
    pub(crate) fn add(&mut self, other: Self) {
        self.count += other.count;
        self.total += other.total;
    }
}

impl StepSecond {
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.intended.count() + self.failures.count()
    }

    pub fn merge(&mut self, other: &Self) {
        self.intended.merge(&other.intended);
        self.actual.merge(&other.actual);
        self.failures.merge(&other.failures);
        self.failed += other.failed;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        for (fault, count) in &other.faults {
            *self.faults.entry(*fault).or_default() += count;
        }
    }
}
