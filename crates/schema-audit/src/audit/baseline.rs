//! The findings of an earlier audit, so that a run in CI fails only on new ones and on those that have grown.

use std::collections::BTreeMap;

use hob_schema::check::Breach;
use hob_schema::format_count;
use serde::Deserialize;

use super::report::{AuditReport, key_count};
use crate::error::Error;

/// Known findings, kinds of violations by family and undeclared patterns, with the number of their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Baseline {
    known: BTreeMap<String, u64>,
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
    keys: u64,
    estimate: Option<EarlierEstimate>,
}

/// In a sample, only an estimate above the upper bound of the earlier one has surely grown.
#[derive(Deserialize)]
struct EarlierEstimate {
    high: u64,
}

#[derive(Deserialize)]
struct EarlierUndeclared {
    pattern: String,
    keys: u64,
}

impl Baseline {
    /// Reads the JSON of an earlier report.
    pub fn from_json(json: &str) -> Result<Baseline, Error> {
        let report: EarlierReport = serde_json::from_str(json).map_err(Error::Baseline)?;
        let most = |group: &EarlierViolation| group.estimate.as_ref().map_or(group.keys, |known| known.high);
        let violations =
            report.violations.iter().map(|group| (violation(&group.family, &group.breach), most(group)));
        let undeclared = report.undeclared.iter().map(|group| (undeclared(&group.pattern), group.keys));
        Ok(Baseline { known: violations.chain(undeclared).collect() })
    }

    /// The report without known findings that have not grown. Counts and tables are unchanged.
    ///
    /// A key that could not be read is always a finding: it may hide new ones.
    pub fn only_new(&self, mut report: AuditReport) -> AuditReport {
        let before = report.violations.len() + report.undeclared.len();
        let mut grown = Vec::new();
        let mut is_new = |name: String, keys: u64| match self.known.get(&name) {
            None => true,
            Some(known) if keys > *known => {
                let (known, keys) = (key_count(*known), format_count(keys));
                grown.push(format!("{name} has grown: {known} in the baseline, {keys} now"));
                true
            }
            Some(_) => false,
        };
        report.violations.retain(|group| {
            let keys = group.estimate.map_or(group.keys, |estimate| estimate.low);
            let new = is_new(violation(&group.family, group.breach.as_str()), keys);
            new || group.breach == Breach::Unreadable
        });
        report.undeclared.retain(|group| is_new(undeclared(&group.pattern), group.keys));
        let left_out = before - report.violations.len() - report.undeclared.len();
        report.notes.append(&mut grown);
        if left_out > 0 {
            let noun = if left_out == 1 { "finding" } else { "findings" };
            report.notes.push(format!("{left_out} {noun} of the baseline not shown"));
            report.left_out = Some(left_out);
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
