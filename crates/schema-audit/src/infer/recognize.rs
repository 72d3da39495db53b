//! Keys of schemas that are known already, which a proposal leaves out.

use std::collections::{BTreeMap, BTreeSet};

use hob_schema::check::{Facts, check_facts};
use hob_schema::{Catalog, FamilyId, KeyConflict, Layout, Schema};

use super::PatternStats;
use crate::patterns::{Merge as _, PatternTree};

/// A schema that `infer` recognizes by its keys.
#[derive(Clone, Debug)]
pub struct Known {
    pub name: String,
    pub schema: Schema,
    /// A sample must contain keys of so many of its families. Few keys could match by chance.
    pub families: usize,
}

/// The keys of a sample that fit known schemas.
pub(super) struct Recognizer {
    candidates: Vec<Candidate>,
}

struct Candidate {
    name: String,
    catalog: Catalog,
    needed: usize,
    families: BTreeSet<FamilyId>,
    keys: Vec<(Vec<u8>, PatternStats)>,
}

impl Recognizer {
    pub(super) fn new(known: &[Known]) -> Result<Recognizer, KeyConflict> {
        let candidate = |known: &Known| {
            let catalog = Catalog::new(vec![known.schema.clone()], Layout::Plain)?;
            let (name, needed) = (known.name.clone(), known.families);
            Ok(Candidate { name, catalog, needed, families: BTreeSet::new(), keys: Vec::new() })
        };
        Ok(Recognizer { candidates: known.iter().map(candidate).collect::<Result<_, _>>()? })
    }

    /// Takes a key that fits a known schema, and returns the statistics to fill for it.
    pub(super) fn take(&mut self, key: &[u8], facts: &Facts) -> Option<&mut PatternStats> {
        let fits = |candidate: &Candidate| {
            let found = candidate.catalog.find(key)?.family;
            let (schema, family) = (candidate.catalog.schema(found), candidate.catalog.family(found));
            check_facts(schema, family, facts).is_empty().then_some(found)
        };
        let mut fitting = self.candidates.iter_mut().filter_map(|candidate| {
            let family = fits(candidate)?;
            Some((candidate, family))
        });
        let (candidate, family) = fitting.next()?;
        candidate.families.insert(family);
        candidate.keys.push((key.to_vec(), PatternStats::default()));
        candidate.keys.last_mut().map(|(_, stats)| stats)
    }

    /// The recognized schemas with the number of their keys. All other keys go to the tree.
    pub(super) fn finish(self, tree: &mut PatternTree<PatternStats>) -> BTreeMap<String, u64> {
        let mut recognized = BTreeMap::new();
        for candidate in self.candidates {
            if candidate.families.len() >= candidate.needed.max(1) {
                *recognized.entry(candidate.name).or_default() += candidate.keys.len() as u64;
                continue;
            }
            for (key, stats) in candidate.keys {
                tree.entry(&key).merge(stats);
            }
        }
        recognized
    }
}
