//! Checks keys that a caller names, instead of all keys.

use std::collections::HashSet;

use hob_schema::check::{Breach, Violation, check_facts};
use hob_schema::{Catalog, FamilyId};
use hob_store::Store;

use crate::audit::probe::{MemoryUse, ProbedKey, Prober};
use crate::audit::sampling::Selection;
use crate::error::Error;
use crate::master::Master;

/// Checks keys of one server.
#[derive(Debug)]
pub struct KeyChecker {
    master: Master,
}

/// A key that exists and breaks the schemas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MismatchedKey {
    pub key: Vec<u8>,
    pub family: Option<FamilyId>,
    pub violations: Vec<Violation>,
}

impl KeyChecker {
    pub async fn new(store: Store) -> KeyChecker {
        KeyChecker { master: Master::new(store).await }
    }

    /// Reads type, TTL, length and some values of each key, as an audit does, and returns the keys that do not match. A key
    /// that does not exist matches.
    pub async fn check(&self, catalog: &Catalog, keys: Vec<Vec<u8>>) -> Result<Vec<MismatchedKey>, Error> {
        let prober = Prober::new(catalog, HashSet::new(), MemoryUse::Unread, Selection::All);
        let probed = prober.probe(&self.master, catalog, keys).await?;
        Ok(probed.into_iter().filter_map(|probed| mismatch(catalog, probed)).collect())
    }
}

fn mismatch(catalog: &Catalog, probed: ProbedKey) -> Option<MismatchedKey> {
    if probed.gone {
        return None;
    }
    let mut violations = match probed.family {
        Some(id) => check_facts(catalog.schema(id), catalog.family(id), &probed.facts),
        None => {
            let message = "does not belong to a declared family".to_owned();
            vec![Violation { breach: Breach::UndeclaredKey, message }]
        }
    };
    let unreadable = |message| Violation { breach: Breach::Unreadable, message };
    violations.extend(probed.refused.map(unreadable));
    (!violations.is_empty()).then_some(MismatchedKey { key: probed.key, family: probed.family, violations })
}
