//! Adding up what the probes bring in, in memory that does not grow with the number of keys.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

use super::guess::{Gathered, PatternTree, Step, spell};
use super::probe::Probed;
use super::report::{AuditReport, BigKey, Example, FamilyUse, UndeclaredGroup, ViolationGroup};
use super::sums::Sums;
use crate::catalog::{Catalog, FamilyId};
use crate::check::{Breach, Sample, judge};
use crate::model::{Family, Tag};
use crate::shape::quoted;
use crate::units::format_count;

const EXAMPLES: usize = 5;
const BIGGEST: usize = 20;
const GROUPS: usize = 200;

#[derive(Debug)]
pub(super) struct Tally<'c> {
    catalog: &'c Catalog,
    keys: u64,
    families: BTreeMap<FamilyId, Weight>,
    violations: BTreeMap<(FamilyId, Breach), Found>,
    undeclared: PatternTree<Strangers>,
    biggest: Vec<BigKey>,
    sums: Sums,
}

/// Keys of one kind, of which some were weighed.
#[derive(Debug, Default)]
struct Weight {
    keys: u64,
    weighed: u64,
    bytes: u64,
    longest: u64,
}

impl Weight {
    fn add(&mut self, bytes: Option<u64>, len: Option<u64>) {
        self.keys += 1;
        self.longest = self.longest.max(len.unwrap_or(0));
        if let Some(bytes) = bytes {
            self.weighed += 1;
            self.bytes += bytes;
        }
    }

    fn estimate(&self) -> u64 {
        if self.weighed == 0 {
            return 0;
        }
        u64::try_from(u128::from(self.bytes) * u128::from(self.keys) / u128::from(self.weighed))
            .unwrap_or(u64::MAX)
    }
}

#[derive(Debug, Default)]
struct Found {
    keys: u64,
    examples: Vec<Example>,
}

/// Keys that nobody declared.
#[derive(Debug, Default)]
struct Strangers {
    weight: Weight,
    kinds: Vec<String>,
    example: String,
}

impl Gathered for Strangers {
    fn merge(&mut self, other: Self) {
        self.weight.keys += other.weight.keys;
        self.weight.weighed += other.weight.weighed;
        self.weight.bytes += other.weight.bytes;
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

impl<'c> Tally<'c> {
    pub(super) fn new(catalog: &'c Catalog) -> Tally<'c> {
        Tally {
            catalog,
            keys: 0,
            families: BTreeMap::new(),
            violations: BTreeMap::new(),
            undeclared: PatternTree::default(),
            biggest: Vec::new(),
            sums: Sums::new(catalog),
        }
    }

    /// The families whose ids it needs.
    pub(super) fn identified(&self) -> HashSet<FamilyId> {
        self.sums.families()
    }

    pub(super) fn keys(&self) -> u64 {
        self.keys
    }

    pub(super) fn add(&mut self, probed: &Probed) {
        if probed.gone {
            return;
        }
        self.keys += 1;
        self.weigh(probed);
        let Some(id) = probed.family else {
            self.add_stranger(probed);
            return;
        };
        self.families.entry(id).or_default().add(probed.bytes, probed.facts.len);
        let mut last = None;
        for violation in judge(self.catalog.schema(id), self.catalog.family(id), &probed.facts) {
            // Two wrong fields are two examples of one key.
            let keys = u64::from(last.replace(violation.breach) != Some(violation.breach));
            self.found(id, violation.breach, &probed.key, violation.message, keys);
        }
        if let Sample::Text(value) = &probed.facts.sample {
            self.sums.add(id, &probed.ids, value);
        }
    }

    fn add_stranger(&mut self, probed: &Probed) {
        let strangers = self.undeclared.entry(&probed.key);
        strangers.weight.add(probed.bytes, None);
        if strangers.example.is_empty() {
            strangers.example = shown(&probed.key);
        }
        if let Some(kind) = &probed.facts.kind
            && !strangers.kinds.contains(kind)
        {
            strangers.kinds.push(kind.clone());
        }
    }

    fn found(&mut self, family: FamilyId, breach: Breach, key: &[u8], message: String, keys: u64) {
        let found = self.violations.entry((family, breach)).or_default();
        found.keys += keys;
        if found.examples.len() < EXAMPLES {
            found.examples.push(Example { key: shown(key), message });
        }
    }

    /// Keeps the key if it is among the biggest that were weighed.
    fn weigh(&mut self, probed: &Probed) {
        let Some(bytes) = probed.bytes else { return };
        if self.biggest.len() == BIGGEST && self.biggest.last().is_some_and(|least| least.bytes >= bytes) {
            return;
        }
        let key = shown(&probed.key);
        if self.biggest.iter().any(|big| big.key == key) {
            return;
        }
        let family = probed.family.map(|id| family_name(self.catalog, id));
        let at = self.biggest.partition_point(|big| big.bytes >= bytes);
        self.biggest.insert(at, BigKey { key, family, bytes, len: probed.facts.len });
        self.biggest.truncate(BIGGEST);
    }

    pub(super) fn report(mut self) -> AuditReport {
        self.check_counts();
        self.check_sums();
        let mut notes = Vec::new();
        if self.sums.left_out() {
            notes.push(
                "there are more totals than are followed at once; some sums were not checked".to_owned(),
            );
        }
        let families = self.family_uses();
        let violations = violation_groups(self.catalog, self.violations);
        let mut undeclared = undeclared_groups(self.undeclared);
        if undeclared.len() > GROUPS {
            notes.push(format!("{} more undeclared patterns are not shown", undeclared.len() - GROUPS));
            undeclared.truncate(GROUPS);
        }
        AuditReport {
            keys: self.keys,
            families,
            violations,
            undeclared,
            biggest: self.biggest,
            notes,
            ..AuditReport::default()
        }
    }

    /// Every declared family, used or not.
    fn family_uses(&mut self) -> Vec<FamilyUse> {
        let catalog = self.catalog;
        let family_use = |(id, family): (FamilyId, &Family)| {
            let weight = self.families.remove(&id).unwrap_or_default();
            FamilyUse {
                family: family_name(catalog, id),
                pattern: format!("{}{}", catalog.schema(id).prefix.value, family.pattern.text),
                keys: weight.keys,
                bytes: weight.estimate(),
                longest: weight.longest,
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
            let most = limit.value.saturating_mul(shards);
            let keys = self.families.get(&id).map_or(0, |weight| weight.keys);
            if keys > most {
                let message = format!("{} keys, more than {}", format_count(keys), format_count(most));
                let glob = space.glob(id.family);
                self.found(id, Breach::TooManyKeys, &glob, message, 1);
            }
        }
    }

    fn check_sums(&mut self) {
        for mismatch in self.sums.mismatches() {
            let space = &self.catalog.spaces()[mismatch.family.schema];
            let ids: Vec<&str> = mismatch.ids.iter().map(String::as_str).collect();
            let key = space.key(mismatch.family.family, &ids, None);
            self.found(mismatch.family, Breach::BrokenSum, key.as_bytes(), mismatch.message, 1);
        }
    }
}

/// The worst first.
fn violation_groups(catalog: &Catalog, found: BTreeMap<(FamilyId, Breach), Found>) -> Vec<ViolationGroup> {
    let group = |((id, breach), found): ((FamilyId, Breach), Found)| ViolationGroup {
        family: family_name(catalog, id),
        breach,
        severity: breach.severity(),
        keys: found.keys,
        examples: found.examples,
    };
    let mut groups: Vec<ViolationGroup> = found.into_iter().map(group).collect();
    groups.sort_by_key(|group| Reverse(group.severity));
    groups
}

/// The most frequent first.
fn undeclared_groups(tree: PatternTree<Strangers>) -> Vec<UndeclaredGroup> {
    let group = |(steps, strangers): (Vec<Step>, Strangers)| UndeclaredGroup {
        pattern: spell(&steps),
        keys: strangers.weight.keys,
        bytes: strangers.weight.estimate(),
        kinds: strangers.kinds,
        example: strangers.example,
    };
    let mut groups: Vec<UndeclaredGroup> = tree.into_patterns().into_iter().map(group).collect();
    groups.sort_by_key(|group| Reverse(group.keys));
    groups
}

pub(super) fn family_name(catalog: &Catalog, id: FamilyId) -> String {
    format!("{}.{}", catalog.schema(id).name, catalog.family(id).name)
}

/// A key for a report: what is not plain text is escaped, long ones are cut.
pub(super) fn shown(key: &[u8]) -> String {
    let text = String::from_utf8_lossy(key);
    let plain =
        text.chars().all(|char| !char.is_control() && char != '\u{fffd}') && text.chars().count() <= 200;
    if plain { text.into_owned() } else { quoted(&text) }
}
