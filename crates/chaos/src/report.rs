//! What a run did and found: faults by kind, what each checker counted, and violations with the faults before them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::fault::{FaultEvent, FaultLog, Kind, Origin, seconds};

/// How long before a violation faults are listed.
const BEFORE: Duration = Duration::from_secs(120);

/// How many violations are printed in full.
const PRINTED: usize = 40;

/// A guarantee that did not hold.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    at: Instant,
    system: &'static str,
    what: String,
}

/// The violations of a run, shared by all checkers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Violations(Arc<Mutex<Vec<Violation>>>);

impl Violations {
    pub(crate) fn add(&self, system: &'static str, what: String) {
        println!("violation  {system}: {what}");
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Violation { at: Instant::now(), system, what });
    }

    pub(crate) fn all(&self) -> Vec<Violation> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Faults that were not injected, by their kind, with the reasons.
#[derive(Debug, Default)]
pub(crate) struct Missing {
    pub(crate) impossible: BTreeMap<Kind, String>,
    pub(crate) not_now: BTreeMap<Kind, usize>,
}

/// What a run is reported by.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    pub(crate) title: String,
    pub(crate) begun: Instant,
    pub(crate) faults: &'a FaultLog,
    pub(crate) missing: &'a Missing,
    pub(crate) counts: Vec<(&'static str, Vec<(&'static str, u64)>)>,
    pub(crate) violations: Vec<Violation>,
}

impl Report<'_> {
    pub(crate) fn text(&self) -> String {
        let mut text = format!("\n{}, {} in all\n\nFaults\n", self.title, seconds(self.begun.elapsed()));
        for kind in Kind::ALL {
            let not_now = self.missing.not_now.get(&kind).copied().unwrap_or(0);
            let done = self.faults.count(kind, Origin::Injected) - not_now;
            let note = match (self.missing.impossible.get(&kind), not_now) {
                (Some(reason), _) => format!("not possible here: {reason}"),
                (None, 0) => done.to_string(),
                (None, _) => {
                    format!("{done} ({not_now} more not injected, because the target was not ready)")
                }
            };
            let _ = writeln!(text, "  {:<42} {note}", kind.name());
        }
        let unplanned = self.faults.count(Kind::LossyFailover, Origin::Machine);
        if unplanned > 0 {
            let _ = writeln!(text, "  {:<42} {unplanned}", "failover that was not injected");
        }
        for (system, counts) in &self.counts {
            let _ = writeln!(text, "\n{system}");
            for (what, count) in counts {
                let _ = writeln!(text, "  {what:<42} {count}");
            }
        }
        self.write_violations(&mut text);
        text
    }

    fn write_violations(&self, text: &mut String) {
        let _ = writeln!(text, "\nViolations: {}", self.violations.len());
        for violation in self.violations.iter().take(PRINTED) {
            let since = violation.at.duration_since(self.begun);
            let _ = writeln!(text, "  {} {}: {}", seconds(since), violation.system, violation.what);
            let from = violation.at.checked_sub(BEFORE).unwrap_or(self.begun);
            for event in self.faults.between(from, violation.at) {
                let _ = writeln!(text, "      after {}", describe(&event, self.begun));
            }
        }
        if self.violations.len() > PRINTED {
            let _ = writeln!(text, "  and {} more", self.violations.len() - PRINTED);
        }
    }
}

/// A fault with its times since the begin of the run.
fn describe(event: &FaultEvent, begun: Instant) -> String {
    let from = seconds(event.began.saturating_duration_since(begun));
    let origin = match event.origin {
        Origin::Injected => "",
        Origin::Machine => ", not injected,",
    };
    let fault = event.fault;
    match event.ended {
        Some(ended) => format!("{fault}{origin} from {from} to {}", seconds(ended.duration_since(begun))),
        None => format!("{fault}{origin} from {from}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::{Missing, Report, Violations};
    use crate::fault::{Fault, FaultLog, Kind};

    #[test]
    fn report_has_faults_counts_and_violations_with_the_faults_before() {
        let (faults, violations, begun) = (FaultLog::default(), Violations::default(), Instant::now());
        let fault = faults.begin(Fault::KillNode(1));
        faults.end(fault);
        violations.add("chat", "message 7 was lost".to_owned());
        let mut missing = Missing::default();
        missing.impossible.insert(Kind::ClockJump, "libfaketime is not installed".to_owned());
        let report = Report {
            title: "Seed 1".to_owned(),
            begun,
            faults: &faults,
            missing: &missing,
            counts: vec![("chat", vec![("acknowledged messages", 12)])],
            violations: violations.all(),
        };
        let text = report.text();
        for part in [
            "Seed 1",
            "not possible here: libfaketime is not installed",
            "acknowledged messages",
            "Violations: 1",
            "chat: message 7 was lost",
            "after kill -9 of a node 1 from 0.0 s to 0.0 s",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }
}
