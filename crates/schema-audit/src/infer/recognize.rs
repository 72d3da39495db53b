//! Keys of schemas that are known already, which a proposal leaves out.

use std::collections::BTreeSet;

use hob_schema::check::{Facts, check_facts};
use hob_schema::{Catalog, FamilyId, KeyConflict, Layout, Schema};

use super::PatternStats;
use crate::patterns::{KeyPattern, Merge, PatternTree};

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

    /// The schemas that were recognized. The keys of the others go to the tree.
    pub(super) fn finish(self, tree: &mut PatternTree<PatternStats>) -> Libraries {
        let mut libraries = Libraries::default();
        let is_recognized = |candidate: &&Candidate| candidate.families.len() >= candidate.needed.max(1);
        // With one schema of a name, all of them are audited.
        let names: BTreeSet<String> =
            self.candidates.iter().filter(is_recognized).map(|candidate| candidate.name.clone()).collect();
        for Candidate { name, catalog, keys, .. } in self.candidates {
            if !names.contains(&name) {
                keys.into_iter().for_each(|(key, stats)| tree.entry(&key).merge(stats));
                continue;
            }
            let schemas = catalog.spaces().iter().map(|space| space.schema().clone());
            match libraries.recognized.iter_mut().find(|library| library.name == name) {
                Some(library) => {
                    library.schemas.extend(schemas);
                    library.keys.extend(keys);
                }
                None => libraries.recognized.push(Library { name, schemas: schemas.collect(), keys }),
            }
        }
        libraries
    }
}

/// What a proposal leaves out.
#[derive(Default)]
pub(super) struct Libraries {
    pub(super) recognized: Vec<Library>,
    /// Schemas that cannot be used together with the proposal, because they match the same keys, with the number of their keys.
    /// The proposal contains these.
    pub(super) released: Vec<(String, u64)>,
}

/// A recognized schema, or several with one name.
pub(super) struct Library {
    pub(super) name: String,
    pub(super) schemas: Vec<Schema>,
    pub(super) keys: Vec<(Vec<u8>, PatternStats)>,
}

impl Libraries {
    /// Gives up a library. Returns its keys by guessed pattern.
    pub(super) fn release(&mut self, index: usize) -> Vec<(KeyPattern, PatternStats)> {
        let library = self.recognized.remove(index);
        self.released.push((library.name, library.keys.len() as u64));
        let mut tree = PatternTree::default();
        library.keys.into_iter().for_each(|(key, stats)| PatternStats::merge(tree.entry(&key), stats));
        tree.into_patterns()
    }
}
