//! The findings of an earlier audit, so that a run in CI fails only on new ones.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::report::AuditReport;
use crate::error::Error;

/// Known findings: kinds of violations by family, and undeclared patterns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Baseline {
    known: BTreeSet<String>,
}

/// The part of a report's JSON that identifies its findings.
#[derive(Deserialize)]
struct EarlierReport {
    violations: Vec<EarlierViolation>,
    undeclared: Vec<EarlierUndeclared>,
}

#[derive(Deserialize)]
struct EarlierViolation {
    family: String,
    breach: String,
}

#[derive(Deserialize)]
struct EarlierUndeclared {
    pattern: String,
}

impl Baseline {
    /// Reads the JSON of an earlier report.
    pub fn from_json(json: &str) -> Result<Baseline, Error> {
        let report: EarlierReport = serde_json::from_str(json).map_err(Error::Baseline)?;
        let violations = report.violations.iter().map(|group| violation(&group.family, &group.breach));
        let undeclared = report.undeclared.iter().map(|group| undeclared(&group.pattern));
        Ok(Baseline { known: violations.chain(undeclared).collect() })
    }

    /// The report without known findings. Counts and tables are unchanged.
    pub fn only_new(&self, mut report: AuditReport) -> AuditReport {
        let before = report.violations.len() + report.undeclared.len();
        report
            .violations
            .retain(|group| !self.known.contains(&violation(&group.family, group.breach.as_str())));
        report.undeclared.retain(|group| !self.known.contains(&undeclared(&group.pattern)));
        let left_out = before - report.violations.len() - report.undeclared.len();
        if left_out > 0 {
            report.notes.push(format!("{left_out} findings of the baseline are not shown"));
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
