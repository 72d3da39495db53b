//! What an earlier audit found, so that a run in CI fails only on what is new.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::report::AuditReport;
use crate::error::Error;

/// Findings that are known: kinds of violations by family, and undeclared patterns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Baseline {
    known: BTreeSet<String>,
}

/// The part of a report's JSON that matters here.
#[derive(Deserialize)]
struct Kept {
    violations: Vec<KeptViolation>,
    undeclared: Vec<KeptUndeclared>,
}

#[derive(Deserialize)]
struct KeptViolation {
    family: String,
    breach: String,
}

#[derive(Deserialize)]
struct KeptUndeclared {
    pattern: String,
}

impl Baseline {
    /// Reads the JSON of an earlier report.
    pub fn from_json(json: &str) -> Result<Baseline, Error> {
        let kept: Kept = serde_json::from_str(json)
            .map_err(|error| Error::Refused(format!("the baseline is no report: {error}")))?;
        let violations = kept.violations.iter().map(|group| violation(&group.family, &group.breach));
        let undeclared = kept.undeclared.iter().map(|group| undeclared(&group.pattern));
        Ok(Baseline { known: violations.chain(undeclared).collect() })
    }

    /// The report without what was known; counts and tables stay.
    pub fn only_new(&self, mut report: AuditReport) -> AuditReport {
        let before = report.violations.len() + report.undeclared.len();
        report
            .violations
            .retain(|group| !self.known.contains(&violation(&group.family, group.breach.name())));
        report.undeclared.retain(|group| !self.known.contains(&undeclared(&group.pattern)));
        let left_out = before - report.violations.len() - report.undeclared.len();
        if left_out > 0 {
            report.notes.push(format!("{left_out} known findings are left out"));
        }
        report
    }
}

fn violation(family: &str, breach: &str) -> String {
    format!("{family} {breach}")
}

fn undeclared(pattern: &str) -> String {
    format!("undeclared {pattern}")
}
