//! The public list of waiting tests (L7). The database holds the queue; outsiders may push onto the list, and what they
//! push is taken in as a run.

use hob_store::repair::{self, KeyType};
use hob_store::{Reply, Script, Store, cmd};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::keys::{Keys, TestId};
use crate::plan::catalog::PlanId;
use crate::run::Run;
use crate::run::lifecycle::NewRun;

static SYNC: Script = Script::new(include_str!("pending/sync.lua"));

/// Longer lists of outsiders are taken in piece by piece.
const MOST: isize = 1000;

/// An entry of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    test_id: String,
    plan_id: i64,
    max_users: u32,
    priority: i32,
}

/// The list as it was read.
#[derive(Clone, Debug, Default)]
pub struct Listed(Vec<String>);

/// What an outsider pushed.
#[derive(Clone, Debug)]
pub enum Pushed {
    Run(NewRun),
    /// It names no plan, or cannot be read.
    Rubbish(String),
}

/// Reads and writes the list.
#[derive(Clone, Debug)]
pub struct Queue {
    store: Store,
    keys: Keys,
}

impl Queue {
    #[must_use]
    pub fn new(store: Store, keys: Keys) -> Self {
        Self { store, keys }
    }

    pub async fn read(&self) -> Result<Listed, Error> {
        let key = self.keys.pending();
        let range = cmd("LRANGE").arg(&key).arg(0).arg(MOST - 1).clone();
        Ok(Listed(repair::run(&self.store, range, &[(&key, KeyType::List)]).await?))
    }

    /// Makes the list what the database says; what was read before is known and gone.
    pub async fn sync(&self, read: &Listed, waiting: &[Run]) -> Result<(), Error> {
        let view: Vec<String> = waiting.iter().map(entry).collect();
        if read.0 == view {
            return Ok(());
        }
        let key = self.keys.pending();
        let mut call = SYNC.on(&[&key]).arg(read.0.len());
        for known in read.0.iter().chain(&view) {
            call = call.arg(known);
        }
        Ok(repair::run::<Reply, _>(&self.store, call, &[(&key, KeyType::List)]).await.map(drop)?)
    }
}

impl Listed {
    /// What was not written by us.
    pub fn pushed(&self, waiting: &[Run]) -> Vec<Pushed> {
        let ours: Vec<String> = waiting.iter().map(entry).collect();
        self.0.iter().filter(|entry| !ours.contains(entry)).map(|text| understand(text)).collect()
    }
}

fn understand(text: &str) -> Pushed {
    let Ok(entry) = serde_json::from_str::<Entry>(text) else { return Pushed::Rubbish(text.to_owned()) };
    let Ok(id) = TestId::new(&entry.test_id) else { return Pushed::Rubbish(text.to_owned()) };
    Pushed::Run(NewRun {
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
