//! The public list of pending runs (L7). The database holds the queue; other clients may push onto the list, and their
//! entries become runs.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hob_store::repair::{self, KeyType};
use hob_store::{Reply, Script, Store, cmd};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::keys::{Keys, TestId};
use crate::load::RunRequest;
use crate::plan::catalog::PlanId;
use crate::run::Run;

static SYNC: Script = Script::new(include_str!("pending/sync.lua"));

/// A longer list is imported in several rounds.
const MAX_READ: isize = 1000;
/// A node that has listed or imported a run removes its entry well within this time.
const REMOVED_WITHIN: Duration = Duration::from_secs(3);

/// An entry of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    test_id: String,
    plan_id: i64,
    max_users: u32,
    priority: i32,
}

/// The entries of the list when it was read.
#[derive(Clone, Debug, Default)]
pub struct PendingList(Vec<String>);

/// An entry that is not in the queue of the database.
#[derive(Clone, Debug)]
pub enum PushedEntry {
    Run(PushedRun),
    /// Another entry of the list has the same id.
    Repeated(TestId),
    /// Not a JSON object with a valid `testId` and a plan.
    Invalid(String),
}

/// A run that another client has pushed, or that has left the queue.
#[derive(Clone, Debug)]
pub struct PushedRun {
    pub id: TestId,
    pub plan_id: PlanId,
    pub request: RunRequest,
    text: String,
}

/// Where an entry with the id of an existing run comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryOrigin {
    /// Hob has listed the run, which has left the queue since.
    Hob,
    /// Another client has repeated the id.
    OtherClient,
    /// Another node may be about to remove the entry: it stays in the list for now.
    Undecided,
}

/// Reads and writes the list.
#[derive(Clone, Debug)]
pub struct PendingQueue {
    store: Store,
    keys: Keys,
    memory: Arc<Mutex<Memory>>,
}

/// What a node remembers of earlier rounds.
#[derive(Debug, Default)]
struct Memory {
    /// The entries of its last round; `None` before the first.
    listed: Option<HashSet<String>>,
    /// When it first saw each undecided entry.
    undecided: HashMap<String, Instant>,
}

impl PendingQueue {
    #[must_use]
    pub fn new(store: Store, keys: Keys) -> Self {
        Self { store, keys, memory: Arc::default() }
    }

    pub async fn read(&self) -> Result<PendingList, Error> {
        let key = self.keys.pending();
        let range = cmd("LRANGE").arg(&key).arg(0).arg(MAX_READ - 1).clone();
        let entries: Vec<Vec<u8>> = repair::run(&self.store, range, &[(&key, KeyType::List)]).await?;
        let mut list = PendingList(Vec::with_capacity(entries.len()));
        for entry in entries {
            match String::from_utf8(entry) {
                Ok(text) => list.0.push(text),
                // Not an entry, and without this it would fail the list every second.
                Err(error) => {
                    repair::report("load", key.as_bytes());
                    self.store.run::<u64>(cmd("LREM").arg(&key).arg(0).arg(error.as_bytes()).clone()).await?;
                }
            }
        }
        self.memory.lock().undecided.retain(|text, _| list.0.contains(text));
        Ok(list)
    }

    /// Replaces the entries that were read by the queue of the database. Undecided entries, and those pushed since then,
    /// stay.
    pub async fn sync(&self, read: &PendingList, pending: &[Run]) -> Result<(), Error> {
        let view: Vec<String> = pending.iter().map(entry).collect();
        if read.0 != view {
            let decided: Vec<&String> = {
                let memory = self.memory.lock();
                read.0.iter().filter(|text| !memory.undecided.contains_key(*text)).collect()
            };
            let key = self.keys.pending();
            let mut call = SYNC.on(&[&key]).arg(decided.len());
            for entry in decided.into_iter().chain(&view) {
                call = call.arg(entry);
            }
            repair::run::<Reply, _>(&self.store, call, &[(&key, KeyType::List)]).await?;
        }
        self.memory.lock().listed = Some(view.into_iter().collect());
        Ok(())
    }

    /// Decides on an entry with the id of a run that exists.
    pub fn origin(&self, pushed: &PushedRun, existing: &Run) -> EntryOrigin {
        self.memory.lock().origin(&pushed.text, existing, Instant::now())
    }
}

impl Memory {
    fn origin(&mut self, text: &str, existing: &Run, now: Instant) -> EntryOrigin {
        let was_listed = match &self.listed {
            Some(listed) => listed.contains(text),
            // This node has just started, and the entry may be older.
            None => entry(existing) == text,
        };
        if was_listed {
            return EntryOrigin::Hob;
        }
        let seen = *self.undecided.entry(text.to_owned()).or_insert(now);
        if now.duration_since(seen) < REMOVED_WITHIN {
            return EntryOrigin::Undecided;
        }
        self.undecided.remove(text);
        EntryOrigin::OtherClient
    }
}

impl PendingList {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The entries that are not in the queue of the database.
    #[must_use]
    pub fn pushed(&self, pending: &[Run]) -> Vec<PushedEntry> {
        // Hob lists each run once.
        let mut expected: HashMap<String, &TestId> =
            pending.iter().map(|run| (entry(run), &run.id)).collect();
        let mut ids = HashSet::new();
        let mut others = Vec::new();
        for text in &self.0 {
            match expected.remove(text) {
                Some(id) => drop(ids.insert(id.clone())),
                None => others.push(text),
            }
        }
        let pushed = |text: &String| match parse(text) {
            Some(run) if ids.insert(run.id.clone()) => PushedEntry::Run(run),
            Some(run) => PushedEntry::Repeated(run.id),
            None => PushedEntry::Invalid(text.clone()),
        };
        others.into_iter().map(pushed).collect()
    }
}

fn parse(text: &str) -> Option<PushedRun> {
    let entry: Entry = serde_json::from_str(text).ok()?;
    let request = RunRequest {
        priority: entry.priority.clamp(-1000, 1000),
        max_users: (entry.max_users > 0).then_some(entry.max_users),
        ..RunRequest::default()
    };
    let id = TestId::new(&entry.test_id).ok()?;
    Some(PushedRun { id, plan_id: PlanId(entry.plan_id), request, text: text.to_owned() })
}

fn entry(run: &Run) -> String {
    let entry = Entry {
        test_id: run.id.to_string(),
        plan_id: run.plan_id.0,
        max_users: run.max_users.unwrap_or(run.target_users),
        priority: run.priority,
    };
    serde_json::to_string(&entry).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use hob_database::UnixMs;

    use super::*;
    use crate::run::RunState;

    fn run(id: &str) -> Run {
        Run {
            id: TestId::new(id).unwrap(),
            plan_id: PlanId(1),
            plan_version: 1,
            run_type: "default".into(),
            priority: 1,
            max_users: Some(100),
            target_users: 5,
            progress: 0.0,
            runners: 1,
            seed: 0,
            state: RunState::Pending,
            ending: None,
            message: String::new(),
            holder: None,
            fence: 0,
            epoch: 0,
            lease_until: UnixMs(0),
            queued_at: UnixMs(0),
            start_at: None,
            ended_at: None,
        }
    }

    /// L7
    #[test]
    fn each_id_is_taken_once() {
        let (listed, pending) = (entry(&run("a")), [run("a"), run("b")]);
        let spaced = listed.replace(',', ", ");
        let other = listed.replace("\"a\"", "\"c\"");
        let list = PendingList([&spaced, &listed, &listed, &other, "x"].map(ToString::to_string).to_vec());
        let describe = |entry: &PushedEntry| match entry {
            PushedEntry::Run(run) => format!("run {}", run.id),
            PushedEntry::Repeated(id) => format!("repeated {id}"),
            PushedEntry::Invalid(text) => format!("invalid {text}"),
        };
        let found: Vec<String> = list.pushed(&pending).iter().map(describe).collect();
        assert_eq!(found, ["repeated a", "repeated a", "run c", "invalid x"]);
    }

    /// L7
    #[test]
    fn entry_of_an_existing_run_is_decided_once_other_nodes_had_time_to_remove_it() {
        let (start, existing) = (Instant::now(), run("a"));
        let (listed, pushed) = (entry(&existing), "pushed by another client");
        let mut memory = Memory::default();
        assert_eq!(
            memory.origin(&listed, &existing, start),
            EntryOrigin::Hob,
            "listed before this node started"
        );
        memory.listed = Some([listed.clone()].into());
        assert_eq!(memory.origin(&listed, &existing, start), EntryOrigin::Hob);
        memory.listed = Some(HashSet::new());
        for text in [listed.as_str(), pushed] {
            assert_eq!(memory.origin(text, &existing, start), EntryOrigin::Undecided);
            let soon = start + REMOVED_WITHIN / 2;
            assert_eq!(memory.origin(text, &existing, soon), EntryOrigin::Undecided);
            assert_eq!(memory.origin(text, &existing, start + REMOVED_WITHIN), EntryOrigin::OtherClient);
        }
        assert!(memory.undecided.is_empty());
    }
}
