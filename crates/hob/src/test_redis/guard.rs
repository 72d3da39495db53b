//! Checks every change of the store against the schemas, and records what breaks them.

use std::collections::BTreeMap;
use std::sync::Arc;

use hob_engine::Guard;
use hob_schema::Catalog;
use hob_schema_audit::broken_keys;
use parking_lot::Mutex;

/// More different violations are not recorded.
const MAX_RECORDED: usize = 1_000;

/// What broke the schemas: how often, and the first example.
#[derive(Debug, Default)]
pub(super) struct Violations(Mutex<BTreeMap<Kind, Seen>>);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    family: String,
    breach: &'static str,
}

#[derive(Debug)]
struct Seen {
    times: u64,
    example: String,
}

impl Violations {
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// One line for each kind.
    pub(super) fn lines(&self) -> Vec<String> {
        let line = |(kind, seen): (&Kind, &Seen)| {
            format!("{}: {} ({}), first: {}", kind.family, kind.breach, seen.times, seen.example)
        };
        self.0.lock().iter().map(line).collect()
    }

    pub(super) fn report(&self) -> String {
        let lines = self.lines();
        if lines.is_empty() {
            return "all changes match the schemas\n".to_owned();
        }
        format!("changes that break the schemas:\n  {}\n", lines.join("\n  "))
    }

    fn record(&self, family: String, breach: &'static str, example: &str) {
        let mut recorded = self.0.lock();
        let full = recorded.len() >= MAX_RECORDED;
        let kind = Kind { family, breach };
        match recorded.get_mut(&kind) {
            Some(seen) => seen.times += 1,
            None if full => {}
            None => drop(recorded.insert(kind, Seen { times: 1, example: example.to_owned() })),
        }
    }
}

/// Fails every command, transaction or script that leaves a key which breaks the schemas.
pub(super) fn new(catalog: Catalog, violations: Arc<Violations>) -> Guard {
    Guard::new(move |changes| {
        let mut first = Ok(());
        for broken in broken_keys(&catalog, changes) {
            let family = family_name(&catalog, &broken.key);
            for violation in broken.violations {
                let key = String::from_utf8_lossy(&broken.key);
                let example = format!("{} {}", key.escape_debug(), violation.message);
                violations.record(family.clone(), violation.breach.as_str(), &example);
                if first.is_ok() {
                    first = Err(example);
                }
            }
        }
        first
    })
}

fn family_name(catalog: &Catalog, key: &[u8]) -> String {
    let Some(found) = catalog.find(key) else { return "undeclared".to_owned() };
    format!("{}.{}", catalog.schema(found.family).name, catalog.family(found.family).name)
}
