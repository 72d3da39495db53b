//! What a watch has found: the log of new findings, and the metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use hob_schema::Catalog;
use hob_schema::check::Breach;
use parking_lot::Mutex;

use crate::audit::report::AuditReport;
use crate::display::{display_key, family_name};
use crate::single_keys::MismatchedKey;

/// Kinds of findings that are remembered as logged. Those of families are bounded by the schemas, undeclared patterns are not.
const MAX_KINDS: usize = 10_000;
/// How the metrics name keys that belong to no family.
const UNDECLARED: &str = "undeclared";

#[derive(Debug, Default)]
pub(super) struct Ledger {
    audits: AtomicU64,
    failures: AtomicU64,
    checked: AtomicU64,
    unchecked: AtomicU64,
    missed: AtomicU64,
    listening: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The last audit, and when it ended.
    last: Option<(AuditReport, u64)>,
    /// Violations of written keys.
    written: BTreeMap<(String, Breach), u64>,
    logged: BTreeSet<Kind>,
}

/// A kind of finding. For undeclared keys the name is their pattern, and empty if only a written key is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    name: String,
    breach: Breach,
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl Ledger {
    pub(super) fn failed(&self) {
        add(&self.failures, 1);
    }

    pub(super) fn checked(&self, keys: u64) {
        add(&self.checked, keys);
    }

    pub(super) fn unchecked(&self, keys: u64) {
        add(&self.unchecked, keys);
    }

    /// Notifications may have been lost; the next audit checks their keys.
    pub(super) fn missed(&self) {
        add(&self.missed, 1);
    }

    pub(super) fn set_listening(&self, servers: usize) {
        self.listening.store(servers as u64, Ordering::Relaxed);
    }

    pub(super) fn last_report(&self) -> Option<String> {
        self.state.lock().last.as_ref().map(|(report, _)| report.text())
    }

    /// Records a written key that does not match the schemas.
    pub(super) fn found(&self, catalog: &Catalog, key: &MismatchedKey) {
        let family = key.family.map_or_else(|| UNDECLARED.to_owned(), |id| family_name(catalog, id));
        let mut state = self.state.lock();
        for violation in &key.violations {
            let breach = violation.breach;
            *state.written.entry((family.clone(), breach)).or_default() += 1;
            let name = key.family.map_or_else(String::new, |_| family.clone());
            if state.is_new(Kind { name, breach }) {
                log(&family, breach, &display_key(&key.key), &violation.message, 1);
            }
        }
    }

    /// Records an audit. Logs what is new, and what a complete audit has not found any more.
    pub(super) fn audited(&self, report: AuditReport, unix_s: u64) {
        add(&self.audits, 1);
        let mut state = self.state.lock();
        let mut current = BTreeSet::new();
        for group in &report.violations {
            let kind = Kind { name: group.family.clone(), breach: group.breach };
            current.insert(kind.clone());
            if state.is_new(kind) {
                let example = group.examples.first();
                let (key, message) = example.map_or(("", ""), |example| (&*example.key, &*example.message));
                log(&group.family, group.breach, key, message, group.keys);
            }
        }
        for group in &report.undeclared {
            let kind = Kind { name: group.pattern.clone(), breach: Breach::UndeclaredKey };
            current.insert(kind.clone());
            if state.is_new(kind) {
                log(UNDECLARED, Breach::UndeclaredKey, &group.example, &group.pattern, group.keys);
            }
        }
        if report.sampling.is_none() {
            state.forget_resolved(&current);
        }
        state.last = Some((report, unix_s));
    }

    pub(super) fn metrics(&self) -> String {
        let mut text = String::new();
        for (name, kind, help, counter) in [
            ("audits_total", "counter", "Audits that were completed.", &self.audits),
            ("audit_failures_total", "counter", "Audits that failed.", &self.failures),
            ("keys_checked_total", "counter", "Keys that were read after a write.", &self.checked),
            (
                "keys_unchecked_total",
                "counter",
                "Keys that were not read after a write, because too many waited or the server did not answer.",
                &self.unchecked,
            ),
            (
                "notifications_missed_total",
                "counter",
                "How often notifications may have been lost; the next audit checks their keys.",
                &self.missed,
            ),
            ("notifying_servers", "gauge", "Servers that publish keyspace notifications.", &self.listening),
        ] {
            head(&mut text, name, kind, help);
            let _ = writeln!(text, "hob_schema_watch_{name} {}", counter.load(Ordering::Relaxed));
        }
        let state = self.state.lock();
        head(&mut text, "violations_total", "counter", "Violations of keys that were read after a write.");
        for ((family, breach), times) in &state.written {
            sample(&mut text, "violations_total", family, Some(*breach), *times);
        }
        if let Some((report, unix_s)) = &state.last {
            report_metrics(&mut text, report, *unix_s);
        }
        text
    }
}

impl State {
    /// Whether this kind of finding was not logged before.
    fn is_new(&mut self, kind: Kind) -> bool {
        self.logged.len() < MAX_KINDS && self.logged.insert(kind)
    }

    /// A kind that comes back is logged again.
    fn forget_resolved(&mut self, current: &BTreeSet<Kind>) {
        for kind in self.logged.difference(current).filter(|kind| !kind.name.is_empty()) {
            tracing::info!(family = kind.name, violation = kind.breach.as_str(), "schema finding resolved");
        }
        self.logged.retain(|kind| current.contains(kind));
    }
}

/// The message without the value, which may be a secret.
fn log(family: &str, breach: Breach, key: &str, message: &str, keys: u64) {
    let reason =
        if breach == Breach::MisfitValue { "a value does not have the declared form" } else { message };
    tracing::warn!(family, violation = breach.as_str(), key, reason, keys, "new schema finding");
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let name = format!("hob_schema_watch_{name}");
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// Names of schemas and families consist of letters, digits and underscores.
fn sample(text: &mut String, name: &str, family: &str, breach: Option<Breach>, value: u64) {
    let violation = breach.map(|breach| format!(",violation=\"{}\"", breach.as_str())).unwrap_or_default();
    let _ = writeln!(text, "hob_schema_watch_{name}{{family=\"{family}\"{violation}}} {value}");
}

/// The state of the store at the last audit.
fn report_metrics(text: &mut String, report: &AuditReport, unix_s: u64) {
    let duration = report.elapsed_ms as f64 / 1_000.0;
    head(text, "last_audit_timestamp_seconds", "gauge", "When the last audit ended.");
    let _ = writeln!(text, "hob_schema_watch_last_audit_timestamp_seconds {unix_s}");
    head(text, "last_audit_duration_seconds", "gauge", "How long the last audit took.");
    let _ = writeln!(text, "hob_schema_watch_last_audit_duration_seconds {duration}");
    let undeclared: u64 = report.undeclared.iter().map(|group| group.keys).sum();
    let undeclared_bytes: u64 = report.undeclared.iter().map(|group| group.bytes).sum();
    head(text, "keys", "gauge", "Keys by family, at the last audit.");
    for family in &report.families {
        sample(text, "keys", &family.family, None, family.keys);
    }
    sample(text, "keys", UNDECLARED, None, undeclared);
    head(text, "memory_bytes", "gauge", "Estimated memory by family, at the last audit.");
    for family in &report.families {
        sample(text, "memory_bytes", &family.family, None, family.bytes);
    }
    sample(text, "memory_bytes", UNDECLARED, None, undeclared_bytes);
    head(
        text,
        "findings",
        "gauge",
        "Keys by family and kind of violation, at the last audit; estimated for a sample.",
    );
    for group in &report.violations {
        let keys = group.estimate.map_or(group.keys, |estimate| estimate.keys);
        sample(text, "findings", &group.family, Some(group.breach), keys);
    }
    sample(text, "findings", UNDECLARED, Some(Breach::UndeclaredKey), undeclared);
}
