//! Checks the consumer groups and the age of a stream.

use std::time::Duration;

use super::{Breach, Violation, violation};
use crate::model::StreamRules;
use crate::model::value::quoted;
use crate::units::{format_about, format_count, format_duration};

/// Facts about a stream. An unknown fact does not break a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamFacts {
    pub groups: Vec<GroupFacts>,
    /// The time since the oldest entry was added, by its id.
    pub oldest_ms: Option<u64>,
}

/// A consumer group, and how many entries its consumers have received but not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupFacts {
    pub name: Vec<u8>,
    pub pending: u64,
}

pub(super) fn check(rules: &StreamRules, facts: &StreamFacts, violations: &mut Vec<Violation>) {
    for group in &facts.groups {
        let name = quoted(&String::from_utf8_lossy(&group.name));
        let declared = |names: &Vec<String>| names.iter().any(|known| known.as_bytes() == group.name);
        if rules.groups.as_ref().is_some_and(|names| !declared(names)) {
            violations.push(violation(Breach::UndeclaredGroup, format!("group {name} is not declared")));
        }
    }
    if let Some(max) = rules.max_pending.as_ref().map(|limit| limit.value) {
        for group in facts.groups.iter().filter(|group| group.pending > max) {
            let name = quoted(&String::from_utf8_lossy(&group.name));
            let (pending, max) = (format_count(group.pending), format_count(max));
            let message = format!("group {name} has {pending} pending entries, more than {max}");
            violations.push(violation(Breach::OverPending, message));
        }
    }
    if let (Some(max), Some(oldest_ms)) = (&rules.max_age, facts.oldest_ms) {
        let age = Duration::from_millis(oldest_ms);
        if age > max.value {
            let (age, max) = (format_about(age), format_duration(max.value));
            violations
                .push(violation(Breach::OldEntry, format!("the oldest entry is {age} old, more than {max}")));
        }
    }
}
