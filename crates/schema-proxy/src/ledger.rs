//! Counts what passes, keeps an example of each kind of violation, and writes the log, the report and the metrics.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hob_schema::check::Breach;
use hob_schema::lint::Severity;
use hob_schema::{Catalog, FamilyId, quoted};
use parking_lot::Mutex;

use crate::Mode;
use crate::judge::Finding;

/// A violation of the same kind is logged at most once in this time, with the number of those in between.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// When a violation was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum When {
    /// In the command, before it was forwarded or refused.
    Before,
    /// In the key, after the command.
    After,
}

impl When {
    fn as_str(self) -> &'static str {
        match self {
            When::Before => "before",
            When::After => "after",
        }
    }
}

/// The client and the command of a violation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin<'a> {
    pub(crate) client: &'a str,
    pub(crate) command: &'a str,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) counts: Counts,
    violations: Mutex<BTreeMap<Kind, Seen>>,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) connections: AtomicU64,
    pub(crate) accepted: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) commands: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) checked: AtomicU64,
    pub(crate) unchecked: AtomicU64,
}

/// Commands of one connection that are not in [`Counts`] yet. All connections share these counters, so
/// they are changed once per read instead of once per command.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) commands: u64,
    pub(crate) writes: u64,
    pub(crate) unchecked: u64,
}

impl Counts {
    /// Adds a batch and empties it.
    pub(crate) fn add(&self, batch: &mut Batch) {
        let Batch { commands, writes, unchecked } = std::mem::take(batch);
        for (counter, more) in
            [(&self.commands, commands), (&self.writes, writes), (&self.unchecked, unchecked)]
        {
            if more > 0 {
                count(counter, more);
            }
        }
    }
}

/// As many as there are families and breaches, so the number of kinds is bounded by the schemas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    family: Option<FamilyId>,
    breach: Breach,
    when: When,
}

#[derive(Debug, Default)]
struct Seen {
    times: u64,
    refused: u64,
    logged: Option<Instant>,
    unlogged: u64,
    example: String,
}

/// Adds to a counter.
pub(crate) fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

fn value(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Ledger {
    /// Records a violation; logs it unless the proxy only observes.
    pub(crate) fn record(
        &self,
        catalog: &Catalog,
        mode: Mode,
        when: When,
        origin: Origin<'_>,
        finding: &Finding,
    ) {
        let breach = finding.violation.breach;
        let refused = mode == Mode::Enforce && when == When::Before;
        let mut violations = self.violations.lock();
        let seen = violations.entry(Kind { family: finding.family, breach, when }).or_default();
        seen.times += 1;
        seen.refused += u64::from(refused);
        seen.unlogged += 1;
        let key = quoted(&String::from_utf8_lossy(&finding.key));
        if seen.example.is_empty() {
            let Origin { client, command } = origin;
            seen.example = format!("{command} {key} from {client}: {}", public_message(finding));
        }
        let now = Instant::now();
        if mode == Mode::Observe || seen.logged.is_some_and(|logged| now - logged < LOG_EVERY) {
            return;
        }
        seen.logged = Some(now);
        let times = std::mem::take(&mut seen.unlogged);
        drop(violations);
        tracing::warn!(
            client = origin.client,
            command = origin.command,
            key,
            family = family_name(catalog, finding.family),
            violation = breach.as_str(),
            reason = public_message(finding),
            refused,
            times,
            "command breaks the schema"
        );
    }

    /// The worst violation so far.
    pub(crate) fn worst(&self) -> Option<Severity> {
        self.violations.lock().keys().map(|kind| kind.breach.severity()).max()
    }

    pub(crate) fn log_summary(&self) {
        let violations: u64 = self.violations.lock().values().map(|seen| seen.times).sum();
        tracing::info!(
            connections = value(&self.counts.connections),
            commands = value(&self.counts.commands),
            writes = value(&self.counts.writes),
            violations,
            refused = value(&self.counts.refused),
            checked = value(&self.counts.checked),
            unchecked = value(&self.counts.unchecked),
            "schema proxy totals"
        );
    }

    /// The summary at the end, one line for each kind of violation.
    pub(crate) fn report(&self, catalog: &Catalog) -> String {
        let counts = &self.counts;
        let mut text = format!(
            "{} connections, {} commands, {} writes, {} refused, {} keys read after a write, {} not read\n",
            value(&counts.accepted),
            value(&counts.commands),
            value(&counts.writes),
            value(&counts.refused),
            value(&counts.checked),
            value(&counts.unchecked),
        );
        let violations = self.violations.lock();
        if violations.is_empty() {
            text.push_str("all writes match the schemas\n");
        }
        for (kind, seen) in violations.iter() {
            let _ = writeln!(
                text,
                "{}: {} ({}, {} refused), first: {}",
                family_name(catalog, kind.family),
                kind.breach.as_str(),
                seen.times,
                seen.refused,
                seen.example,
            );
        }
        text
    }

    /// The metrics in the text format of Prometheus.
    pub(crate) fn metrics(&self, catalog: &Catalog) -> String {
        let counts = &self.counts;
        let mut text = String::new();
        for (name, kind, help, counter) in [
            ("connections", "gauge", "Open client connections.", &counts.connections),
            ("connections_total", "counter", "Client connections that were accepted.", &counts.accepted),
            (
                "connections_rejected_total",
                "counter",
                "Client connections above the limit, or without an upstream.",
                &counts.rejected,
            ),
            ("commands_total", "counter", "Commands of clients.", &counts.commands),
            ("writes_total", "counter", "Commands that were checked.", &counts.writes),
            ("refused_total", "counter", "Commands that were refused.", &counts.refused),
            ("keys_checked_total", "counter", "Keys that were read after a write.", &counts.checked),
            (
                "keys_unchecked_total",
                "counter",
                "Keys that were not read after a write, because too many waited or the server did not answer.",
                &counts.unchecked,
            ),
        ] {
            let name = format!("hob_schema_proxy_{name}");
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {}", value(counter));
        }
        let name = "hob_schema_proxy_violations_total";
        let help = "Violations by family, kind, and when they were found.";
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} counter");
        for (kind, seen) in self.violations.lock().iter() {
            let (family, breach) = (family_name(catalog, kind.family), kind.breach.as_str());
            let _ = writeln!(
                text,
                "{name}{{family=\"{family}\",violation=\"{breach}\",found=\"{}\"}} {}",
                kind.when.as_str(),
                seen.times
            );
        }
        text
    }
}

/// The message without the value, which may be a secret.
fn public_message(finding: &Finding) -> &str {
    match finding.violation.breach {
        Breach::MisfitValue => "a value does not have the declared form",
        _ => &finding.violation.message,
    }
}

/// Names of schemas and families consist of letters, digits and underscores.
fn family_name(catalog: &Catalog, family: Option<FamilyId>) -> String {
    match family {
        Some(id) => format!("{}.{}", catalog.schema(id).name, catalog.family(id).name),
        None => "undeclared".to_owned(),
    }
}
