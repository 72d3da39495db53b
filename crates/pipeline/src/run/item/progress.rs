//! Item counts by step, class and state. Every transaction that moves items updates them, so that reading progress does
//! not scan a million rows.

use std::collections::BTreeMap;

use hob_database::{Database, Transaction};

use super::ItemState;
use crate::database::item_counts;
use crate::error::Result;
use crate::plan::retry::FailureClass;
use crate::run::RunId;

/// Changes of the counts in a transaction, sorted: all transactions write them in the same order.
#[derive(Debug, Default)]
pub(super) struct CountChanges {
    changes: BTreeMap<(String, String, ItemState), i64>,
}

impl CountChanges {
    pub(super) fn add(&mut self, step: &str, class: &str, state: ItemState, items: i64) {
        *self.changes.entry((step.to_owned(), class.to_owned(), state)).or_default() += items;
    }

    /// The caller holds the lock on the run.
    pub(super) async fn write(self, tx: &Transaction, run: &RunId) -> Result<(), hob_database::Error> {
        let changed = self.changes.into_iter().filter(|(_, items)| *items != 0);
        let changes = changed.map(|((step, class, state), items)| (step, class, state, items)).collect();
        item_counts::add(tx, run, changes).await
    }
}

/// The progress of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Items by step and state.
    pub steps: Vec<(String, ItemState, u64)>,
    /// Items that failed and are not done yet, by class and state.
    pub failures: Vec<(FailureClass, ItemState, u64)>,
}

impl Progress {
    pub fn of(&self, state: ItemState) -> u64 {
        self.steps.iter().filter(|(_, of, _)| *of == state).map(|(_, _, count)| count).sum()
    }

    /// Items of a step in a state.
    pub fn of_step(&self, step: &str, state: ItemState) -> u64 {
        let of = self.steps.iter().filter(|(name, of, _)| name == step && *of == state);
        of.map(|(_, _, count)| count).sum()
    }

    pub fn total(&self) -> u64 {
        self.steps.iter().map(|(_, _, count)| count).sum()
    }
}

/// Reads the progress of a run.
pub(crate) async fn progress(database: &Database, run: &RunId) -> Result<Progress> {
    let rows = item_counts::read(database, run).await?;
    let mut steps: BTreeMap<(String, ItemState), u64> = BTreeMap::new();
    let mut failures: BTreeMap<(FailureClass, ItemState), u64> = BTreeMap::new();
    for (step, class, state, items) in rows {
        *steps.entry((step, state)).or_default() += items;
        if let Ok(class) = class.parse() {
            *failures.entry((class, state)).or_default() += items;
        }
    }
    Ok(Progress {
        steps: steps.into_iter().map(|((step, state), items)| (step, state, items)).collect(),
        failures: failures.into_iter().map(|((class, state), items)| (class, state, items)).collect(),
    })
}
