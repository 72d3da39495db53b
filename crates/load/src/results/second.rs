//! The measurements of one second of a run, by one runner or merged over all of them.

use std::collections::BTreeMap;
use std::fmt;

use crate::plan::Plan;
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
    /// Users in an iteration at the end of the second.
    pub active_users: u64,
    /// How late the generator started its iterations.
    pub slip: LatencyHistogram,
    /// Arrivals that had to wait because all users were busy.
    pub queued_arrivals: u64,
}

/// The requests of one step whose response was complete in this second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepSecond {
    /// Latency from the intended start of a request.
    pub intended: LatencyHistogram,
    /// Latency from the actual start of a request.
    pub actual: LatencyHistogram,
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
    /// A status of 400 or above, if the step does not expect a particular status.
    Status(u16),
    /// The check of the step with this index failed.
    Check(u16),
}

impl Fault {
    /// A description that names the failed check of the step.
    #[must_use]
    pub fn describe(self, plan: &Plan, step: usize) -> String {
        match self {
            Self::Check(index) => {
                let check = plan.steps.get(step).and_then(|step| step.checks.get(usize::from(index)));
                check.map_or_else(|| self.to_string(), |check| format!("expected {check}"))
            }
            other => other.to_string(),
        }
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
        self.steps.values().map(|step| step.intended.count()).sum()
    }

    #[must_use]
    pub fn failed(&self) -> u64 {
        self.steps.values().map(|step| step.failed).sum()
    }

    /// The latency of all steps, from the intended start.
    #[must_use]
    pub fn intended(&self) -> LatencyHistogram {
        let mut all = LatencyHistogram::default();
        self.steps.values().for_each(|step| all.merge(&step.intended));
        all
    }
}

impl GeneratorSecond {
    pub fn merge(&mut self, other: &Self) {
        self.active_users += other.active_users;
        self.queued_arrivals += other.queued_arrivals;
        self.slip.merge(&other.slip);
    }
}

impl StepSecond {
    pub fn merge(&mut self, other: &Self) {
        self.intended.merge(&other.intended);
        self.actual.merge(&other.actual);
        self.failed += other.failed;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        for (fault, count) in &other.faults {
            *self.faults.entry(*fault).or_default() += count;
        }
    }
}
