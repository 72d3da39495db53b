//! The public list of pending runs (L7). The database holds the queue; other clients may push onto the list, and their
//! entries become runs.

use hob_store::repair::{self, KeyType};
use hob_store::{Reply, Script, Store, cmd};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::keys::{Keys, TestId};
use crate::plan::catalog::PlanId;
use crate::run::Run;
use crate::run::lifecycle::NewRun;

static SYNC: Script = Script::new(include_str!("pending/sync.lua"));

/// A longer list is imported in several rounds.
const MAX_READ: isize = 1000;

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

/// An entry that another client pushed.
#[derive(Clone, Debug)]
pub enum PushedEntry {
    Run(NewRun),
    /// Not a JSON object with a valid `testId` and a plan.
    Invalid(String),
}

/// Reads and writes the list.
#[derive(Clone, Debug)]
pub struct PendingQueue {
    store: Store,
    keys: Keys,
}

impl PendingQueue {
    #[must_use]
    pub fn new(store: Store, keys: Keys) -> Self {
        Self { store, keys }
    }

    pub async fn read(&self) -> Result<PendingList, Error> {
        let key = self.keys.pending();
        let range = cmd("LRANGE").arg(&key).arg(0).arg(MAX_READ - 1).clone();
        Ok(PendingList(repair::run(&self.store, range, &[(&key, KeyType::List)]).await?))
    }

    /// Replaces the entries that were read by the queue of the database. Entries pushed since then stay.
    pub async fn sync(&self, read: &PendingList, pending: &[Run]) -> Result<(), Error> {
        let view: Vec<String> = pending.iter().map(entry).collect();
        if read.0 == view {
            return Ok(());
        }
        let key = self.keys.pending();
        let mut call = SYNC.on(&[&key]).arg(read.0.len());
        for entry in read.0.iter().chain(&view) {
            call = call.arg(entry);
        }
        Ok(repair::run::<Reply, _>(&self.store, call, &[(&key, KeyType::List)]).await.map(drop)?)
    }
}

impl PendingList {
    /// The entries that are not in the queue of the database.
    pub fn pushed(&self, pending: &[Run]) -> Vec<PushedEntry> {
        let known: Vec<String> = pending.iter().map(entry).collect();
        self.0.iter().filter(|entry| !known.contains(entry)).map(|text| parse(text)).collect()
    }
}

fn parse(text: &str) -> PushedEntry {
    let Ok(entry) = serde_json::from_str::<Entry>(text) else { return PushedEntry::Invalid(text.to_owned()) };
    let Ok(id) = TestId::new(&entry.test_id) else { return PushedEntry::Invalid(text.to_owned()) };
    PushedEntry::Run(NewRun {
        id,
        plan_id: PlanId(entry.plan_id),
        run_type: String::new(),
        priority: entry.priority.clamp(-1000, 1000),
        max_users: (entry.max_users > 0).then_some(entry.max_users),
        runners: 1,
    })
}

fn entry(run: &Run) -> String {
    let entry = Entry {
        test_id: run.id.to_string(),
        plan_id: run.plan_id.0,
        max_users: run.max_users.unwrap_or(0),
        priority: run.priority,
    };
    serde_json::to_string(&entry).unwrap_or_default()
}
