//! The history of audits: a file with one line of JSON for each audit, and what has grown since an earlier one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use hob_schema::{format_about, format_count, format_size};
use serde::{Deserialize, Serialize};

use crate::audit::report::{AuditReport, table};

/// A file keeps so many audits: almost three years of daily ones, or six weeks of hourly ones. The oldest are removed.
const MAX_ENTRIES: usize = 1_000;
/// A larger file is not read.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// Undeclared patterns and findings that an entry has, the most frequent ones.
const MAX_UNDECLARED: usize = 50;
/// Rows that a comparison shows.
const MAX_ROWS: usize = 20;
const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Why a history could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    #[error("cannot read or write the history {path}: {source}")]
    File { path: String, source: io::Error },
    #[error("line {line} of the history {path} is not the entry of an audit: {source}")]
    Line { path: String, line: usize, source: serde_json::Error },
    #[error("the history {path} has more than {} MiB", MAX_FILE_BYTES >> 20)]
    TooLarge { path: String },
}

/// What a history keeps of an audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// When the audit ended, in Unix seconds.
    pub unix_s: u64,
    pub keys: u64,
    /// By name, only those that have keys.
    pub families: BTreeMap<String, Amount>,
    /// Undeclared keys by pattern.
    pub undeclared: BTreeMap<String, Amount>,
    /// The number of keys by family and kind of violation; estimated if the audit took a sample.
    pub findings: BTreeMap<String, u64>,
}

/// Keys, and the memory that they use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    pub keys: u64,
    pub bytes: u64,
}

impl HistoryEntry {
    pub fn new(report: &AuditReport, unix_s: u64) -> HistoryEntry {
        let used = report.families.iter().filter(|family| family.keys > 0);
        let undeclared = report.undeclared.iter().take(MAX_UNDECLARED);
        let findings = report.violations.iter().map(|group| {
            let keys = group.estimate.map_or(group.keys, |estimate| estimate.keys);
            (format!("{} {}", group.family, group.breach.as_str()), keys)
        });
        HistoryEntry {
            unix_s,
            keys: report.keys,
            families: used
                .map(|family| (family.family.clone(), Amount { keys: family.keys, bytes: family.bytes }))
                .collect(),
            undeclared: undeclared
                .map(|group| (group.pattern.clone(), Amount { keys: group.keys, bytes: group.bytes }))
                .collect(),
            findings: findings.collect(),
        }
    }
}

/// What has changed since an earlier audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Growth {
    /// The time of the earlier audit, in Unix seconds.
    pub since_unix_s: u64,
    /// How long before the later audit that was, in seconds.
    pub age_s: u64,
    /// Families, and patterns of undeclared keys, that have more keys or need more memory; the greatest growth of memory first.
    pub grown: Vec<Grown>,
    /// Findings that are new or concern more keys, with the number of keys before and now.
    pub findings: Vec<GrownFinding>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grown {
    /// `chat.online`, or a pattern of undeclared keys.
    pub name: String,
    pub before: Amount,
    pub now: Amount,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrownFinding {
    pub name: String,
    pub before: u64,
    pub now: u64,
}

/// The audits in a file, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    entries: Vec<HistoryEntry>,
}

impl History {
    /// Reads a file; a missing file is empty.
    pub fn load(path: &Path) -> Result<History, HistoryError> {
        let shown = || path.display().to_string();
        let failed = |source| HistoryError::File { path: shown(), source };
        match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(History::default()),
            Err(error) => return Err(failed(error)),
            Ok(metadata) if metadata.len() > MAX_FILE_BYTES => {
                return Err(HistoryError::TooLarge { path: shown() });
            }
            Ok(_) => {}
        }
        let text = fs::read_to_string(path).map_err(failed)?;
        let mut entries = Vec::new();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let entry = serde_json::from_str(line);
            entries.push(entry.map_err(|source| HistoryError::Line {
                path: shown(),
                line: index + 1,
                source,
            })?);
        }
        Ok(History { entries })
    }

    /// Adds an audit to a file and removes the oldest one if there are too many; returns the file's history.
    pub fn append(path: &Path, entry: HistoryEntry) -> Result<History, HistoryError> {
        let mut history = History::load(path)?;
        let failed = |source| HistoryError::File { path: path.display().to_string(), source };
        history.entries.push(entry);
        let surplus = history.entries.len().saturating_sub(MAX_ENTRIES);
        history.entries.drain(..surplus);
        if surplus == 0 {
            let line = history.entries.last().map(line).unwrap_or_default();
            let file = OpenOptions::new().append(true).create(true).open(path);
            file.and_then(|mut file| file.write_all(line.as_bytes())).map_err(failed)?;
        } else {
            // The file is replaced at once, so that a crash loses nothing.
            let text: String = history.entries.iter().map(line).collect();
            let mut name = path.as_os_str().to_owned();
            name.push(".new");
            fs::write(&name, text).and_then(|()| fs::rename(&name, path)).map_err(failed)?;
        }
        Ok(history)
    }

    pub fn entries(&self) -> &[HistoryEntry] {
        &self.entries
    }

    /// What has changed between the last audit and the one before, and the one whose age is nearest to a week.
    pub fn growth(&self) -> Vec<Growth> {
        let Some((now, earlier)) = self.entries.split_last() else { return Vec::new() };
        let age = |entry: &HistoryEntry| now.unix_s.saturating_sub(entry.unix_s);
        let week = earlier.iter().min_by_key(|entry| age(entry).abs_diff(WEEK.as_secs()));
        let mut compared: Vec<&HistoryEntry> = earlier.last().into_iter().chain(week).collect();
        compared.dedup_by_key(|entry| entry.unix_s);
        compared.into_iter().map(|before| growth(before, now)).collect()
    }
}

fn line(entry: &HistoryEntry) -> String {
    let mut line = serde_json::to_string(entry).unwrap_or_default();
    line.push('\n');
    line
}

fn growth(before: &HistoryEntry, now: &HistoryEntry) -> Growth {
    let amounts = |entry: &HistoryEntry| -> BTreeMap<String, Amount> {
        entry.families.iter().chain(&entry.undeclared).map(|(name, amount)| (name.clone(), *amount)).collect()
    };
    let (old, new) = (amounts(before), amounts(now));
    let mut grown: Vec<Grown> = new
        .into_iter()
        .map(|(name, now)| Grown { before: old.get(&name).copied().unwrap_or_default(), name, now })
        .filter(|grown| grown.now.keys > grown.before.keys || grown.now.bytes > grown.before.bytes)
        .collect();
    grown.sort_by_key(|grown| {
        let difference = |now: u64, before: u64| i128::from(now) - i128::from(before);
        let bytes = difference(grown.now.bytes, grown.before.bytes);
        std::cmp::Reverse((bytes, difference(grown.now.keys, grown.before.keys)))
    });
    let names: BTreeSet<&String> = now.findings.keys().collect();
    let mut findings: Vec<GrownFinding> = names
        .into_iter()
        .map(|name| GrownFinding {
            name: name.clone(),
            before: before.findings.get(name).copied().unwrap_or_default(),
            now: now.findings[name],
        })
        .filter(|finding| finding.now > finding.before)
        .collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.now - finding.before));
    Growth { since_unix_s: before.unix_s, age_s: now.unix_s.saturating_sub(before.unix_s), grown, findings }
}

/// Comparisons as tables in plain text.
pub fn growth_text(compared: &[Growth]) -> String {
    let mut out = String::new();
    for growth in compared {
        let age = format_about(Duration::from_secs(growth.age_s));
        let _ = writeln!(out, "since {} ({age} before)", format_time(growth.since_unix_s));
        if growth.grown.is_empty() && growth.findings.is_empty() {
            out.push_str("nothing has grown\n\n");
            continue;
        }
        let rows: Vec<[String; 5]> = growth.grown.iter().take(MAX_ROWS).map(row).collect();
        table(&mut out, ["grown", "keys", "", "memory", ""], &rows);
        for finding in growth.findings.iter().take(MAX_ROWS) {
            let (before, now) = (format_count(finding.before), format_count(finding.now));
            let _ = writeln!(out, "{}: {before} keys before, {now} now", finding.name);
        }
        if !growth.findings.is_empty() {
            out.push('\n');
        }
    }
    out
}

fn row(grown: &Grown) -> [String; 5] {
    let (before, now) = (grown.before, grown.now);
    let signed = |now: u64, before: u64, format: fn(u64) -> String| {
        let sign = if now < before { '-' } else { '+' };
        format!("{sign}{}", format(now.abs_diff(before)))
    };
    [
        grown.name.clone(),
        format_count(now.keys),
        signed(now.keys, before.keys, format_count),
        format_size(now.bytes),
        signed(now.bytes, before.bytes, format_size),
    ]
}

fn format_time(unix_s: u64) -> String {
    let time = i64::try_from(unix_s).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    time.map_or_else(|| unix_s.to_string(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 60 * 60;
    const START: u64 = 1_700_000_000;

    fn entry(unix_s: u64, families: &[(&str, u64, u64)], findings: &[(&str, u64)]) -> HistoryEntry {
        let amounts = families
            .iter()
            .map(|(name, keys, bytes)| ((*name).to_owned(), Amount { keys: *keys, bytes: *bytes }));
        HistoryEntry {
            unix_s,
            keys: families.iter().map(|family| family.1).sum(),
            families: amounts.collect(),
            undeclared: BTreeMap::new(),
            findings: findings.iter().map(|(name, keys)| ((*name).to_owned(), *keys)).collect(),
        }
    }

    #[test]
    fn last_audit_and_the_one_nearest_to_a_week_ago_are_compared() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.jsonl");
        // One audit each day for twelve days; `b.log` grows by ten keys a day.
        let mut history = History::default();
        for day in 0..12 {
            let families = [("a.user", 500, 9_000), ("b.log", 10 * (day + 1), 1_000 * (day + 1))];
            let findings: &[(&str, u64)] = if day > 6 { &[("b.log missing-ttl", day)] } else { &[] };
            history = History::append(&path, entry(START + day * DAY, &families, findings)).unwrap();
        }
        assert_eq!(history, History::load(&path).unwrap());
        let [last, week] = history.growth().try_into().unwrap();
        assert_eq!((last.age_s, week.age_s), (DAY, 7 * DAY));
        let grown = |growth: &Growth| {
            growth
                .grown
                .iter()
                .map(|grown| (grown.name.clone(), grown.now.keys - grown.before.keys))
                .collect()
        };
        let names: Vec<(String, u64)> = grown(&week);
        assert_eq!(names, [("b.log".to_owned(), 70)]);
        assert_eq!(week.findings, [GrownFinding { name: "b.log missing-ttl".into(), before: 0, now: 11 }]);
        let text = growth_text(&history.growth());
        assert!(text.contains("since 2023-11-18T22:13:20Z (7d before)"), "{text}");
        assert!(text.contains("b.log missing-ttl: 0 keys before, 11 now"), "{text}");
    }

    #[test]
    fn growth_is_sorted_by_memory_and_new_families_count_from_zero() {
        let before = entry(START, &[("a.small", 1, 100), ("a.shrunk", 9, 900), ("a.same", 5, 50)], &[]);
        let families = [("a.small", 900, 150), ("a.shrunk", 8, 800), ("a.same", 5, 50), ("a.new", 2, 7_000)];
        let history = History { entries: vec![before, entry(START + 60, &families, &[])] };
        let [growth] = history.growth().try_into().unwrap();
        let names: Vec<&str> = growth.grown.iter().map(|grown| grown.name.as_str()).collect();
        assert_eq!(names, ["a.new", "a.small"]);
        assert_eq!(growth.grown[0].before, Amount::default());
    }

    #[test]
    fn oldest_audits_are_removed_and_a_damaged_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.jsonl");
        let text: String =
            (0..MAX_ENTRIES as u64).map(|second| line(&entry(START + second, &[], &[]))).collect();
        fs::write(&path, text).unwrap();
        History::append(&path, entry(START + 5_000, &[], &[])).unwrap();
        let history = History::load(&path).unwrap();
        let times = |entry: Option<&HistoryEntry>| entry.unwrap().unix_s;
        assert_eq!(history.entries.len(), MAX_ENTRIES);
        assert_eq!(times(history.entries.first()), START + 1);
        assert_eq!(times(history.entries.last()), START + 5_000);
        fs::write(&path, "{}\n").unwrap();
        let error = History::append(&path, entry(START, &[], &[])).unwrap_err().to_string();
        assert!(error.contains("line 1 of the history"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "{}\n");
    }
}
