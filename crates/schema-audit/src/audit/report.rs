//! The result of an audit, as text and as JSON.

use std::fmt::Write as _;

use hob_schema::check::Breach;
use hob_schema::lint::Severity;
use hob_schema::{format_count, format_size};
use serde::{Deserialize, Serialize};

use super::estimate::Estimate;
use super::sampling::{ALWAYS_CHECKED, SampleFacts};
use crate::history::{Growth, growth_text};

/// The result of an audit. Its size does not depend on the number of keys.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AuditReport {
    /// 0 for a file.
    pub nodes: usize,
    pub keys: u64,
    pub elapsed_ms: u64,
    /// `None` if all keys were checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<SampleFacts>,
    pub families: Vec<FamilyUse>,
    pub violations: Vec<ViolationGroup>,
    pub undeclared: Vec<UndeclaredGroup>,
    pub biggest: Vec<BigKey>,
    /// Whether reading the keys counted as use of them.
    pub idle_times_reset: bool,
    pub notes: Vec<String>,
    /// Findings that are left out, because a baseline has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<usize>,
    /// What has grown since earlier audits, if there is a history.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub growth: Vec<Growth>,
}

/// How many keys a family has, and how much memory they use.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FamilyUse {
    /// `chat.online`
    pub family: String,
    pub pattern: String,
    pub keys: u64,
    /// Estimated from a sample.
    pub bytes: u64,
    pub longest: u64,
    /// Keys that were checked; all, unless the audit took a sample.
    pub checked: u64,
    /// In a sample: a kind of violation that was not found concerns at most so many keys (95 %).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unseen_at_most: Option<u64>,
}

/// All violations of one kind in one family.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ViolationGroup {
    pub family: String,
    pub breach: Breach,
    pub severity: Severity,
    /// Keys that were found.
    pub keys: u64,
    /// In a sample: the number of keys in the whole family.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Estimate>,
    /// The first few.
    pub examples: Vec<Example>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Example {
    pub key: String,
    pub message: String,
}

/// Undeclared keys of one guessed pattern.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UndeclaredGroup {
    pub pattern: String,
    pub kinds: Vec<String>,
    pub keys: u64,
    pub bytes: u64,
    pub example: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BigKey {
    pub key: String,
    pub family: Option<String>,
    pub bytes: u64,
    pub len: Option<u64>,
}

impl AuditReport {
    /// The highest severity of all findings; `None` if there are none.
    pub fn worst(&self) -> Option<Severity> {
        let undeclared = (!self.undeclared.is_empty()).then(|| Breach::UndeclaredKey.severity());
        self.violations.iter().map(|group| group.severity).chain(undeclared).max()
    }

    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// The report as tables in plain text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let seconds = self.elapsed_ms as f64 / 1_000.0;
        let place = match self.nodes {
            0 => "in the file".to_owned(),
            1 => "on 1 server".to_owned(),
            nodes => format!("on {nodes} servers"),
        };
        let _ = writeln!(out, "{} {place} in {seconds:.1} s", key_count(self.keys));
        if let Some(sample) = &self.sampling {
            let _ = writeln!(
                out,
                "{} of them were checked: the first {ALWAYS_CHECKED} of each family, and {} of the others (seed {})",
                format_count(sample.checked),
                format_share(sample.share),
                sample.seed
            );
        }
        out.push('\n');
        self.family_table(&mut out);
        self.violation_list(&mut out);
        self.undeclared_table(&mut out);
        self.biggest_table(&mut out);
        out.push_str(&growth_text(&self.growth));
        for note in &self.notes {
            let _ = writeln!(out, "note: {note}");
        }
        if self.idle_times_reset {
            let _ = writeln!(
                out,
                "note: reading counted as use: the server has no CLIENT NO-TOUCH (Redis 7.2), or the user may not run \
                 it; the idle times of the keys begin again"
            );
        }
        let _ = writeln!(out, "{}", self.verdict());
        out
    }

    /// The result in one line.
    pub fn verdict(&self) -> String {
        let count =
            |severity| self.violations.iter().filter(|group| group.severity == severity).count() as u64;
        let unreadable = self.violations.iter().filter(|group| group.breach == Breach::Unreadable);
        let unreadable: u64 = unreadable.map(|group| group.keys).sum();
        let findings = format!(
            "{}, {}, {}",
            counted(count(Severity::Error), "distinct error"),
            counted(count(Severity::Warning), "distinct warning"),
            counted(self.undeclared.len() as u64, "undeclared key pattern")
        );
        match self.worst() {
            None if self.left_out.is_some() => "no findings that the baseline does not have".to_owned(),
            None if self.sampling.is_some() => {
                "all keys of the sample match the schemas, and every key belongs to a family".to_owned()
            }
            None => "all keys match the schemas".to_owned(),
            Some(_) if unreadable > 0 => {
                format!("{} could not be read and checked; {findings}", key_count(unreadable))
            }
            Some(_) => findings,
        }
    }

    fn family_table(&self, out: &mut String) {
        let used = self.families.iter().filter(|family| family.keys > 0);
        if self.sampling.is_none() {
            let row = |family: &FamilyUse| {
                let [keys, bytes] = [format_count(family.keys), format_size(family.bytes)];
                [family.family.clone(), family.pattern.clone(), keys, bytes]
            };
            table(out, ["family", "pattern", "keys", "memory"], &used.map(row).collect::<Vec<_>>());
            return;
        }
        let row = |family: &FamilyUse| {
            let unseen = format!("at most {}", format_count(family.unseen_at_most.unwrap_or_default()));
            let [keys, bytes] = [format_count(family.keys), format_size(family.bytes)];
            [family.family.clone(), family.pattern.clone(), keys, bytes, format_count(family.checked), unseen]
        };
        let titles = ["family", "pattern", "keys", "memory", "checked", "unseen"];
        table(out, titles, &used.map(row).collect::<Vec<_>>());
        let _ = writeln!(
            out,
            "unseen: the number of keys that a kind of violation concerns which is not listed below (95 %)\n"
        );
    }

    fn violation_list(&self, out: &mut String) {
        for group in &self.violations {
            let (severity, breach) = (group.severity.as_str(), group.breach.as_str());
            let _ = writeln!(out, "{severity}[{breach}] {}: {}", group.family, group.amount());
            for example in &group.examples {
                let _ = writeln!(out, "    {}  {}", example.key, example.message);
            }
        }
        if !self.violations.is_empty() {
            out.push('\n');
        }
    }

    fn undeclared_table(&self, out: &mut String) {
        let rows: Vec<[String; 4]> = self
            .undeclared
            .iter()
            .map(|group| {
                [
                    group.pattern.clone(),
                    group.kinds.join(" "),
                    format_count(group.keys),
                    group.example.clone(),
                ]
            })
            .collect();
        table(out, ["undeclared", "type", "keys", "example"], &rows);
    }

    fn biggest_table(&self, out: &mut String) {
        let rows: Vec<[String; 4]> = self
            .biggest
            .iter()
            .map(|big| {
                let len = big.len.map(format_count).unwrap_or_default();
                [big.key.clone(), big.family.clone().unwrap_or_default(), format_size(big.bytes), len]
            })
            .collect();
        table(out, ["biggest keys", "family", "memory", "length"], &rows);
    }
}

impl ViolationGroup {
    /// The number of keys, with the bounds of an estimate.
    pub fn amount(&self) -> String {
        match self.estimate {
            Some(Estimate { keys: about, low, high }) if low < high => format!(
                "{} found, about {} in the family (95 %: {} to {})",
                key_count(self.keys),
                format_count(about),
                format_count(low),
                format_count(high)
            ),
            _ => key_count(self.keys),
        }
    }
}

/// `1 key`, `2,000 keys`
pub(crate) fn key_count(count: u64) -> String {
    counted(count, "key")
}

/// The number with the noun, with an `s` unless it is one.
fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", format_count(count))
}

/// `1 %`, `0.025 %`
fn format_share(share: f64) -> String {
    let text = format!("{:.4}", share * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Left-aligned columns under their titles; nothing if there are no rows.
pub(crate) fn table<const N: usize>(out: &mut String, titles: [&str; N], rows: &[[String; N]]) {
    if rows.is_empty() {
        return;
    }
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([titles[column].len()]).max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let mut line = |cells: [&str; N]| {
        let padded: Vec<String> =
            cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(out, "{}", padded.join("  ").trim_end());
    };
    line(titles);
    for row in rows {
        line(std::array::from_fn(|column| row[column].as_str()));
    }
    out.push('\n');
}
