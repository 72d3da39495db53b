//! Collects the violations of all probed keys in memory that does not grow with the number of keys.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

use hob_schema::check::{Breach, Sample, check_facts};
use hob_schema::{Catalog, Family, FamilyId, Tag, format_count};

use super::estimate::{Drawn, Estimate};
use super::probe::ProbedKey;
use super::report::{AuditReport, BigKey, Example, FamilyUse, UndeclaredGroup, ViolationGroup};
use super::sampling::{Choice, Selection};
use super::sums::Sums;
use crate::display::{display_key, family_name};
use crate::patterns::{KeyPattern, Merge, PatternTree, display_pattern};

const MAX_EXAMPLES: usize = 5;
const MAX_BIG_KEYS: usize = 20;
const MAX_UNDECLARED: usize = 200;

#[derive(Debug)]
pub(crate) struct Findings<'c> {
    catalog: &'c Catalog,
    selection: Selection,
    keys: u64,
    checked: u64,
    families: BTreeMap<FamilyId, KeyTotals>,
    violations: BTreeMap<(FamilyId, Breach), ViolationTotals>,
    undeclared: PatternTree<UndeclaredKeys>,
    biggest: Vec<BigKey>,
    sums: Sums,
}

/// Keys of one family or pattern, with the memory of a sample.
#[derive(Debug, Default)]
struct KeyTotals {
    keys: u64,
    /// Keys that were checked in any case, and those that the sample chose from the others.
    always: u64,
    chosen: u64,
    measured: u64,
    bytes: u64,
    longest: u64,
}

impl KeyTotals {
    fn add(&mut self, bytes: Option<u64>, len: Option<u64>) {
        self.keys += 1;
        self.longest = self.longest.max(len.unwrap_or(0));
        if let Some(bytes) = bytes {
            self.measured += 1;
            self.bytes += bytes;
        }
    }

    /// The part of the keys from which the sample was drawn.
    fn drawn(&self) -> Drawn {
        Drawn { population: self.keys - self.always, sample: self.chosen }
    }

    fn estimated_bytes(&self) -> u64 {
        if self.measured == 0 {
            return 0;
        }
        u64::try_from(u128::from(self.bytes) * u128::from(self.keys) / u128::from(self.measured))
            .unwrap_or(u64::MAX)
    }
}

#[derive(Debug, Default)]
struct ViolationTotals {
    keys: u64,
    /// Of these, the keys that the sample chose.
    chosen: u64,
    examples: Vec<Example>,
}

/// Undeclared keys of one pattern.
#[derive(Debug, Default)]
struct UndeclaredKeys {
    totals: KeyTotals,
    kinds: Vec<String>,
    example: String,
}

impl Merge for UndeclaredKeys {
    fn merge(&mut self, other: Self) {
        self.totals.keys += other.totals.keys;
        self.totals.measured += other.totals.measured;
        self.totals.bytes += other.totals.bytes;
        for kind in other.kinds {
            if !self.kinds.contains(&kind) {
                self.kinds.push(kind);
            }
        }
        if self.example.is_empty() {
            self.example = other.example;
        }
    }
}

impl<'c> Findings<'c> {
    pub(crate) fn new(catalog: &'c Catalog, selection: Selection) -> Findings<'c> {
        Findings {
            catalog,
            selection,
            keys: 0,
            checked: 0,
            families: BTreeMap::new(),
            violations: BTreeMap::new(),
            undeclared: PatternTree::default(),
            biggest: Vec::new(),
            // A part of the keys does not add up to a total.
            sums: match selection {
                Selection::All => Sums::new(catalog),
                Selection::Part { .. } => Sums::default(),
            },
        }
    }

    /// The families for whose keys the ids are needed.
    pub(crate) fn identified(&self) -> HashSet<FamilyId> {
        self.sums.families()
    }

    pub(super) fn keys(&self) -> u64 {
        self.keys
    }

    pub(crate) fn add(&mut self, probed: &ProbedKey) {
        if probed.gone {
            return;
        }
        self.keys += 1;
        self.rank_by_size(probed);
        let Some(id) = probed.family else {
            self.add_undeclared(probed);
            return;
        };
        let totals = self.families.entry(id).or_default();
        totals.add(probed.bytes, probed.facts.len);
        match probed.choice {
            Choice::LeftOut => return,
            Choice::Always => totals.always += 1,
            Choice::Chosen => totals.chosen += 1,
        }
        self.checked += 1;
        let chosen = probed.choice == Choice::Chosen;
        if let Some(reason) = &probed.refused {
            self.add_violation(id, Breach::Unreadable, &probed.key, reason.clone());
            self.count_violation(id, Breach::Unreadable, chosen);
        }
        let mut last = None;
        for violation in check_facts(self.catalog.schema(id), self.catalog.family(id), &probed.facts) {
            // Two wrong fields are two examples, but one key.
            if last.replace(violation.breach) != Some(violation.breach) {
                self.count_violation(id, violation.breach, chosen);
            }
            self.add_violation(id, violation.breach, &probed.key, violation.message);
        }
        if let Sample::Text(value) = &probed.facts.sample {
            self.sums.add(id, &probed.ids, value);
        }
    }

    fn add_undeclared(&mut self, probed: &ProbedKey) {
        let undeclared = self.undeclared.entry(&probed.key);
        undeclared.totals.add(probed.bytes, None);
        if undeclared.example.is_empty() {
            undeclared.example = display_key(&probed.key);
        }
        if let Some(kind) = &probed.facts.kind
            && !undeclared.kinds.contains(kind)
        {
            undeclared.kinds.push(kind.clone());
        }
    }

    fn count_violation(&mut self, family: FamilyId, breach: Breach, chosen: bool) {
        let found = self.violations.entry((family, breach)).or_default();
        found.keys += 1;
        found.chosen += u64::from(chosen);
    }

    fn add_violation(&mut self, family: FamilyId, breach: Breach, key: &[u8], message: String) {
        let found = self.violations.entry((family, breach)).or_default();
        if found.examples.len() < MAX_EXAMPLES {
            found.examples.push(Example { key: display_key(key), message });
        }
    }

    /// Keeps the key if it is among the biggest of the sample.
    fn rank_by_size(&mut self, probed: &ProbedKey) {
        let Some(bytes) = probed.bytes else { return };
        if self.biggest.len() == MAX_BIG_KEYS && self.biggest.last().is_some_and(|least| least.bytes >= bytes)
        {
            return;
        }
        let key = display_key(&probed.key);
        if self.biggest.iter().any(|big| big.key == key) {
            return;
        }
        let family = probed.family.map(|id| family_name(self.catalog, id));
        let at = self.biggest.partition_point(|big| big.bytes >= bytes);
        self.biggest.insert(at, BigKey { key, family, bytes, len: probed.facts.len });
        self.biggest.truncate(MAX_BIG_KEYS);
    }

    pub(crate) fn report(mut self) -> AuditReport {
        self.check_counts();
        self.check_sums();
        let mut notes = Vec::new();
        if self.sums.incomplete() {
            notes.push("too many totals (`sums`) to check at once; some were not checked".to_owned());
        }
        if matches!(self.selection, Selection::Part { .. })
            && self.catalog.families().any(|(_, family)| family.sums.is_some())
        {
            notes.push("totals (`sums`) are not checked in a sample".to_owned());
        }
        let violations = self.violation_groups();
        let families = self.family_uses();
        let mut undeclared = undeclared_groups(self.undeclared);
        if undeclared.len() > MAX_UNDECLARED {
            notes.push(format!(
                "{} more undeclared patterns are not shown",
                undeclared.len() - MAX_UNDECLARED
            ));
            undeclared.truncate(MAX_UNDECLARED);
        }
        AuditReport {
            keys: self.keys,
            sampling: self.selection.facts(self.checked),
            families,
            violations,
            undeclared,
            biggest: self.biggest,
            notes,
            ..AuditReport::default()
        }
    }

    /// The worst first.
    fn violation_groups(&mut self) -> Vec<ViolationGroup> {
        let found = std::mem::take(&mut self.violations);
        let group = |((id, breach), found): ((FamilyId, Breach), ViolationTotals)| ViolationGroup {
            family: family_name(self.catalog, id),
            breach,
            severity: breach.severity(),
            keys: found.keys,
            estimate: self.estimate(id, breach, &found),
            examples: found.examples,
        };
        let mut groups: Vec<ViolationGroup> = found.into_iter().map(group).collect();
        groups.sort_by_key(|group| Reverse(group.severity));
        groups
    }

    /// The number of keys in the whole family, if only a sample of them was checked.
    fn estimate(&self, id: FamilyId, breach: Breach, found: &ViolationTotals) -> Option<Estimate> {
        if matches!(self.selection, Selection::All) || breach == Breach::TooManyKeys {
            return None;
        }
        let rest = self.families.get(&id)?.drawn().estimate(found.chosen);
        let certain = found.keys - found.chosen;
        let Estimate { keys, low, high } = rest;
        Some(Estimate { keys: certain + keys, low: certain + low, high: certain + high })
    }

    /// Every declared family, used or not.
    fn family_uses(&mut self) -> Vec<FamilyUse> {
        let (catalog, is_sample) = (self.catalog, matches!(self.selection, Selection::Part { .. }));
        let family_use = |(id, family): (FamilyId, &Family)| {
            let totals = self.families.remove(&id).unwrap_or_default();
            FamilyUse {
                family: family_name(catalog, id),
                pattern: format!("{}{}", catalog.schema(id).prefix.value, family.pattern.text),
                keys: totals.keys,
                bytes: totals.estimated_bytes(),
                longest: totals.longest,
                checked: totals.always + totals.chosen,
                unseen_at_most: is_sample.then(|| totals.drawn().unseen()),
            }
        };
        catalog.families().map(family_use).collect()
    }

    fn check_counts(&mut self) {
        for (id, family) in self.catalog.families() {
            let Some(limit) = &family.max_keys else { continue };
            let space = &self.catalog.spaces()[id.schema];
            let shards =
                if matches!(family.tag, Tag::Shard { by: None }) { space.shards().count() as u64 } else { 1 };
            let max = limit.value.saturating_mul(shards);
            let keys = self.families.get(&id).map_or(0, |totals| totals.keys);
            if keys > max {
                let message = format!("{} keys, more than {}", format_count(keys), format_count(max));
                let glob = space.glob(id.family);
                self.add_violation(id, Breach::TooManyKeys, &glob, message);
                self.count_violation(id, Breach::TooManyKeys, false);
            }
        }
    }

    fn check_sums(&mut self) {
        for mismatch in self.sums.mismatches() {
            let space = &self.catalog.spaces()[mismatch.family.schema];
            let ids: Vec<&str> = mismatch.ids.iter().map(String::as_str).collect();
            let key = space.key(mismatch.family.family, &ids, None);
            self.add_violation(mismatch.family, Breach::BrokenSum, key.as_bytes(), mismatch.message);
            self.count_violation(mismatch.family, Breach::BrokenSum, false);
        }
    }
}

/// The most frequent first.
fn undeclared_groups(tree: PatternTree<UndeclaredKeys>) -> Vec<UndeclaredGroup> {
    let group = |(pattern, undeclared): (KeyPattern, UndeclaredKeys)| UndeclaredGroup {
        pattern: display_pattern(&pattern),
        keys: undeclared.totals.keys,
        bytes: undeclared.totals.estimated_bytes(),
        kinds: undeclared.kinds,
        example: undeclared.example,
    };
    let mut groups: Vec<UndeclaredGroup> = tree.into_patterns().into_iter().map(group).collect();
    groups.sort_by_key(|group| Reverse(group.keys));
    groups
}
