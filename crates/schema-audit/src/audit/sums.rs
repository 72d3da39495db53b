//! Checks totals that must equal the sum of their parts, such as a user's unread count.

use std::collections::{HashMap, HashSet};

use hob_schema::{Catalog, FamilyId};

/// Maximum number of totals that are checked. Further totals are skipped, and the report says so.
const MAX_TOTALS: usize = 200_000;

/// A total and the sum of its parts so far.
#[derive(Debug, Default)]
struct Sum {
    total: Option<i128>,
    parts: i128,
}

/// Every total that a schema declares with `sums`.
#[derive(Debug, Default)]
pub(super) struct Sums {
    /// Maps the family of a part to the families of its totals, with the positions of the total's ids among those of
    /// the part.
    totals_of: HashMap<FamilyId, Vec<(FamilyId, Vec<usize>)>>,
    totals: HashSet<FamilyId>,
    sums: HashMap<(FamilyId, Vec<String>), Sum>,
    incomplete: bool,
}

/// A total that is not the sum of its parts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mismatch {
    pub(super) family: FamilyId,
    pub(super) ids: Vec<String>,
    pub(super) message: String,
}

impl Sums {
    pub(super) fn new(catalog: &Catalog) -> Sums {
        let mut sums = Sums::default();
        for (total, family) in catalog.families() {
            let schema = catalog.schema(total);
            let Some(parts) = &family.sums else { continue };
            let Some(part) = schema.families.iter().position(|family| family.name == *parts) else {
                continue;
            };
            let part_ids: Vec<usize> = schema.families[part].pattern.ids().collect();
            let positions: Option<Vec<usize>> =
                family.pattern.ids().map(|id| part_ids.iter().position(|other| *other == id)).collect();
            if let Some(positions) = positions {
                let part = FamilyId { schema: total.schema, family: part };
                sums.totals_of.entry(part).or_default().push((total, positions));
                sums.totals.insert(total);
            }
        }
        sums
    }

    /// The families that are totals or parts of one.
    pub(super) fn families(&self) -> HashSet<FamilyId> {
        self.totals.iter().chain(self.totals_of.keys()).copied().collect()
    }

    /// Adds the value of a key.
    pub(super) fn add(&mut self, family: FamilyId, ids: &[String], value: &[u8]) {
        let relevant = self.totals.contains(&family) || self.totals_of.contains_key(&family);
        let Some(number) = relevant.then(|| std::str::from_utf8(value).ok()?.parse::<i64>().ok()).flatten()
        else {
            return;
        };
        if self.totals.contains(&family)
            && let Some(sum) = self.sum(family, ids.to_vec())
        {
            // If a total is split into shards, it is the sum of the shards.
            *sum.total.get_or_insert(0) += i128::from(number);
        }
        for (total, positions) in self.totals_of.get(&family).cloned().unwrap_or_default() {
            let ids = positions.iter().map(|position| ids[*position].clone()).collect();
            if let Some(sum) = self.sum(total, ids) {
                sum.parts += i128::from(number);
            }
        }
    }

    fn sum(&mut self, total: FamilyId, ids: Vec<String>) -> Option<&mut Sum> {
        let key = (total, ids);
        if self.sums.len() >= MAX_TOTALS && !self.sums.contains_key(&key) {
            self.incomplete = true;
            return None;
        }
        Some(self.sums.entry(key).or_default())
    }

    pub(super) fn incomplete(&self) -> bool {
        self.incomplete
    }

    pub(super) fn mismatches(&self) -> Vec<Mismatch> {
        let mut mismatches: Vec<Mismatch> = self
            .sums
            .iter()
            .filter(|(_, sum)| sum.total.unwrap_or(0) != sum.parts)
            .map(|((family, ids), sum)| {
                let message = match sum.total {
                    Some(total) => format!("says {total}, its parts add up to {}", sum.parts),
                    None => format!("is missing, its parts add up to {}", sum.parts),
                };
                Mismatch { family: *family, ids: ids.clone(), message }
            })
            .collect();
        mismatches.sort_by(|left, right| (left.family, &left.ids).cmp(&(right.family, &right.ids)));
        mismatches
    }
}
