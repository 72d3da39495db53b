//! What happened in one second of a run, as one runner saw it or as all of them did.

use std::collections::BTreeMap;
use std::fmt;

use crate::plan::Plan;
use crate::results::codec::{BadBytes, Reader, put};
use crate::results::histogram::Spread;

/// One second of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// Since the start.
    pub second: u32,
    pub general: General,
    /// By the step's place in the plan; only those that something happened to.
    pub steps: BTreeMap<u16, StepSecond>,
}

/// What concerns no step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct General {
    /// Users that were busy, or arrivals under way, at the end of the second.
    pub active_users: u64,
    /// How much later than intended the generator itself began.
    pub slip: Spread,
    /// Arrivals that found no free user.
    pub waited: u64,
}

/// What happened to a step. Counted in the second in which its response was complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepSecond {
    /// From the time at which the request should have started.
    pub intended: Spread,
    /// From the time at which it did.
    pub actual: Spread,
    pub failed: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub faults: BTreeMap<Fault, u64>,
}

/// Why a request counts as failed.
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
    /// A value that a later step needs is not in the response.
    Extract,
    /// A status of 400 and above, where no other was expected.
    Status(u16),
    /// The check at this place of the step did not hold.
    Check(u16),
}

const FIRST_CHECK: u64 = 1000;

impl Fault {
    fn code(self) -> u64 {
        match self {
            Self::Connect => 1,
            Self::Tls => 2,
            Self::Timeout => 3,
            Self::Closed => 4,
            Self::Protocol => 5,
            Self::TooLarge => 6,
            Self::Extract => 7,
            Self::Status(status) => status.into(),
            Self::Check(index) => FIRST_CHECK + u64::from(index),
        }
    }

    fn from_code(code: u64) -> Result<Self, BadBytes> {
        Ok(match code {
            1 => Self::Connect,
            2 => Self::Tls,
            3 => Self::Timeout,
            4 => Self::Closed,
            5 => Self::Protocol,
            6 => Self::TooLarge,
            7 => Self::Extract,
            100..FIRST_CHECK => Self::Status(code as u16),
            FIRST_CHECK..2000 => Self::Check((code - FIRST_CHECK) as u16),
            _ => return Err(BadBytes),
        })
    }

    /// In words, for the step of a plan.
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
            Self::Connect => f.write_str("could not connect"),
            Self::Tls => f.write_str("TLS failed"),
            Self::Timeout => f.write_str("timed out"),
            Self::Closed => f.write_str("connection closed"),
            Self::Protocol => f.write_str("not HTTP"),
            Self::TooLarge => f.write_str("response too large"),
            Self::Extract => f.write_str("a value to extract is missing"),
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

    /// Adds what another saw in the same second.
    pub fn merge(&mut self, other: &Self) {
        self.general.merge(&other.general);
        for (step, seen) in &other.steps {
            self.steps.entry(*step).or_default().merge(seen);
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

    /// The latencies of all steps, from the intended start.
    #[must_use]
    pub fn intended(&self) -> Spread {
        let mut all = Spread::default();
        self.steps.values().for_each(|step| all.merge(&step.intended));
        all
    }
}

impl General {
    pub fn merge(&mut self, other: &Self) {
        self.active_users += other.active_users;
        self.waited += other.waited;
        self.slip.merge(&other.slip);
    }

    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, self.active_users);
        put(&mut out, self.waited);
        self.slip.write(&mut out);
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, BadBytes> {
        let mut from = Reader::new(bytes);
        let (active_users, waited) = (from.number()?, from.number()?);
        let general = Self { active_users, waited, slip: Spread::read(&mut from)? };
        if from.is_done() { Ok(general) } else { Err(BadBytes) }
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

    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [self.failed, self.bytes_in, self.bytes_out, self.faults.len() as u64] {
            put(&mut out, number);
        }
        for (fault, count) in &self.faults {
            put(&mut out, fault.code());
            put(&mut out, *count);
        }
        self.intended.write(&mut out);
        self.actual.write(&mut out);
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, BadBytes> {
        let mut from = Reader::new(bytes);
        let [failed, bytes_in, bytes_out, faults] =
            [from.number()?, from.number()?, from.number()?, from.number()?];
        let mut step = Self { failed, bytes_in, bytes_out, ..Self::default() };
        for _ in 0..faults {
            let (fault, count) = (Fault::from_code(from.number()?)?, from.number()?);
            step.faults.insert(fault, count);
        }
        step.intended = Spread::read(&mut from)?;
        step.actual = Spread::read(&mut from)?;
        if from.is_done() { Ok(step) } else { Err(BadBytes) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_step_survives_its_way_through_the_database() {
        let faults = [(Fault::Timeout, 1), (Fault::Status(503), 2), (Fault::Check(1), 3)];
        let step = StepSecond {
            intended: Spread::new(vec![(10, 2), (1000, 1)], 1020, 10, 1000),
            actual: Spread::new(vec![(10, 3)], 30, 10, 10),
            failed: 6,
            bytes_in: 1 << 40,
            bytes_out: 0,
            faults: faults.into(),
        };
        assert_eq!(StepSecond::decode(&step.encode()), Ok(step));
        let general = General { active_users: 7, slip: Spread::new(vec![(5, 1)], 5, 5, 5), waited: 3 };
        assert_eq!(General::decode(&general.encode()), Ok(general));
    }

    proptest! {
        #[test]
        fn any_bytes_are_measurements_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = (StepSecond::decode(&bytes), General::decode(&bytes));
        }
    }
}
