//! Several schemas together: finds the family and the ids of a key.

pub(crate) mod overlap;

use std::borrow::Cow;

use crate::keyspace::{Keyspace, Layout, Part};
use crate::model::id::IdRule;
use crate::model::{Family, Schema};
use overlap::{PatternAutomaton, shared_key};

/// Identifies one family of several schemas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FamilyId {
    pub schema: usize,
    pub family: usize,
}

/// A key that belongs to a family.
#[derive(Debug, PartialEq, Eq)]
pub struct KeyMatch<'k> {
    pub family: FamilyId,
    /// The ids of the placeholders, decoded, from left to right.
    pub ids: Vec<Cow<'k, str>>,
}

/// Two families of different schemas that could have the same key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key families {left} and {right} conflict: the key {key:?} matches both")]
pub struct KeyConflict {
    pub left: String,
    pub right: String,
    pub key: String,
}

/// Schemas that share a server.
#[derive(Debug)]
pub struct Catalog {
    spaces: Vec<Keyspace>,
    prefixes: PrefixTrie,
}

impl Catalog {
    /// Fails if two families could have the same key.
    pub fn new(schemas: Vec<Schema>, layout: Layout) -> Result<Catalog, KeyConflict> {
        Catalog::with_libraries(schemas, Vec::new(), layout)
    }

    /// Also declares the keys of libraries, whose patterns were not chosen to fit others. A key that matches two families
    /// belongs to the one with the longer literal text before its first placeholder: to `bull:<queue>:<job>`, not to
    /// `<host>:<pid>:<nonce>`. Fails if these texts are equal.
    pub fn with_libraries(
        schemas: Vec<Schema>,
        libraries: Vec<Schema>,
        layout: Layout,
    ) -> Result<Catalog, KeyConflict> {
        let own = schemas.len();
        let spaces: Vec<Keyspace> =
            schemas.into_iter().chain(libraries).map(|schema| Keyspace::new(schema, layout)).collect();
        for (later, space) in spaces.iter().enumerate() {
            let overlap = if later < own { Overlap::Refused } else { Overlap::Ranked };
            for earlier in &spaces[..later] {
                check_conflict(earlier, space, overlap)?;
            }
        }
        let prefixes = PrefixTrie::new(&spaces);
        Ok(Catalog { spaces, prefixes })
    }

    pub fn spaces(&self) -> &[Keyspace] {
        &self.spaces
    }

    pub fn schema(&self, id: FamilyId) -> &Schema {
        self.spaces[id.schema].schema()
    }

    pub fn family(&self, id: FamilyId) -> &Family {
        &self.schema(id).families[id.family]
    }

    /// Every family, schema by schema.
    pub fn families(&self) -> impl Iterator<Item = (FamilyId, &Family)> {
        self.spaces.iter().enumerate().flat_map(|(schema, space)| {
            let families = space.schema().families.iter().enumerate();
            families.map(move |(family, declared)| (FamilyId { schema, family }, declared))
        })
    }

    /// The family that a key belongs to, with its ids.
    pub fn find<'k>(&self, key: &'k [u8]) -> Option<KeyMatch<'k>> {
        let mut ids = Vec::new();
        let family = self.search(key, Some(&mut ids))?;
        Some(KeyMatch { family, ids })
    }

    /// The family that a key belongs to. Does not allocate memory for the ids.
    pub fn family_of(&self, key: &[u8]) -> Option<FamilyId> {
        self.search(key, None)
    }

    fn search<'k>(&self, key: &'k [u8], mut ids: Option<&mut Vec<Cow<'k, str>>>) -> Option<FamilyId> {
        self.prefixes.find(key, |id| {
            let space = &self.spaces[id.schema];
            let parts = &space.templates()[id.family].parts;
            read_parts(parts, key, &space.schema().ids, ids.as_deref_mut())
        })
    }
}

/// What happens to a key that two families could have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overlap {
    Refused,
    /// The family with the longer head has it.
    Ranked,
}

fn check_conflict(left: &Keyspace, right: &Keyspace, overlap: Overlap) -> Result<(), KeyConflict> {
    for (l, left_template) in left.templates().iter().enumerate() {
        let left_side = PatternAutomaton::new(left_template, &left.schema().ids);
        for (r, right_template) in right.templates().iter().enumerate() {
            if overlap == Overlap::Ranked && left_template.head().len() != right_template.head().len() {
                continue;
            }
            let right_side = PatternAutomaton::new(right_template, &right.schema().ids);
            if let Some(key) = shared_key(&left_side, &right_side) {
                let name = |space: &Keyspace, family: usize| {
                    format!("{}.{}", space.schema().name, space.schema().families[family].name)
                };
                return Err(KeyConflict { left: name(left, l), right: name(right, r), key });
            }
        }
    }
    Ok(())
}

/// A byte trie of the literal prefixes of all families. Only the families on the path of a key are tried, so the cost of
/// a match does not depend on the number of families.
#[derive(Debug)]
struct PrefixTrie {
    nodes: Vec<PrefixNode>,
}

#[derive(Debug, Default)]
struct PrefixNode {
    next: Vec<(u8, usize)>,
    families: Vec<FamilyId>,
    /// The nearest node above that has families.
    shorter: Option<usize>,
}

impl PrefixTrie {
    fn new(spaces: &[Keyspace]) -> PrefixTrie {
        let mut prefixes = PrefixTrie { nodes: vec![PrefixNode::default()] };
        for (schema, space) in spaces.iter().enumerate() {
            for (family, template) in space.templates().iter().enumerate() {
                let node = prefixes.insert(template.head());
                prefixes.nodes[node].families.push(FamilyId { schema, family });
            }
        }
        prefixes.link();
        prefixes
    }

    fn insert(&mut self, head: &[u8]) -> usize {
        head.iter().fold(0, |at, byte| {
            self.next(at, *byte).unwrap_or_else(|| {
                self.nodes.push(PrefixNode::default());
                let node = self.nodes.len() - 1;
                self.nodes[at].next.push((*byte, node));
                node
            })
        })
    }

    /// Sets [`PrefixNode::shorter`]. A node is after the node above it.
    fn link(&mut self) {
        for node in 0..self.nodes.len() {
            let PrefixNode { next, families, shorter } = &self.nodes[node];
            let shorter = if families.is_empty() { *shorter } else { Some(node) };
            for (_, below) in next.clone() {
                self.nodes[below].shorter = shorter;
            }
        }
    }

    fn next(&self, node: usize, byte: u8) -> Option<usize> {
        self.nodes[node].next.iter().find(|(label, _)| *label == byte).map(|(_, node)| *node)
    }

    /// The family that fits and has the longest of the literal prefixes that the key has.
    fn find(&self, key: &[u8], mut fits: impl FnMut(FamilyId) -> bool) -> Option<FamilyId> {
        let mut at = 0;
        for byte in key {
            match self.next(at, *byte) {
                Some(next) => at = next,
                None => break,
            }
        }
        loop {
            let node = &self.nodes[at];
            if let Some(family) = node.families.iter().find(|id| fits(**id)) {
                return Some(*family);
            }
            at = node.shorter?;
        }
    }
}

const MAX_SHARD_DIGITS: usize = 9;

/// Whether a key has these parts, and their ids if the caller needs them. A valid schema has no key that could be read in two
/// ways, so the first way that fits is the only one.
fn read_parts<'k>(
    parts: &[Part],
    key: &'k [u8],
    rules: &[IdRule],
    mut ids: Option<&mut Vec<Cow<'k, str>>>,
) -> bool {
    let Some((part, later)) = parts.split_first() else {
        return key.is_empty();
    };
    // Most patterns end with an id, and most callers need only the family.
    if let (Part::Id(id), [], None) = (part, later, &ids) {
        return rules[*id].matches(key);
    }
    if let Part::Literal(text) = part {
        return key.strip_prefix(text.as_slice()).is_some_and(|rest| read_parts(later, rest, rules, ids));
    }
    for end in ends(part, later, key, rules) {
        let (value, rest) = key.split_at(end);
        let id = match part {
            Part::Id(id) => match rules[*id].decode(value) {
                Some(text) => Some(text),
                None => continue,
            },
            Part::Literal(_) | Part::Shard => None,
        };
        let before = ids.as_ref().map_or(0, |ids| ids.len());
        if let Some(ids) = &mut ids {
            ids.extend(id);
        }
        if read_parts(later, rest, rules, ids.as_deref_mut()) {
            return true;
        }
        if let Some(ids) = &mut ids {
            ids.truncate(before);
        }
    }
    false
}

/// Where a placeholder can end: before the text that follows it, or at the end of the key.
fn ends(part: &Part, later: &[Part], key: &[u8], rules: &[IdRule]) -> impl Iterator<Item = usize> {
    let longest = match part {
        Part::Id(id) => rules[*id].form.span(key),
        Part::Literal(_) | Part::Shard => {
            key.iter().take(MAX_SHARD_DIGITS).take_while(|byte| byte.is_ascii_digit()).count()
        }
    };
    let first = if later.is_empty() { longest.max(1) } else { 1 };
    (first..=longest).filter(move |end| match later.first() {
        None => *end == key.len(),
        Some(Part::Literal(text)) => key[*end..].starts_with(text),
        Some(Part::Id(_) | Part::Shard) => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(name: &str, pattern: &str) -> Schema {
        let text = format!(
            "[schema]\nname = \"{name}\"\nversion = 1\n[ids]\na = {{ form = \"verbatim\" }}\n[key.k]\n\
             pattern = \"{pattern}\"\ntype = \"set\"\n"
        );
        Schema::parse(name, &text).unwrap_or_else(|errors| panic!("{errors}"))
    }

    #[test]
    fn key_of_two_libraries_belongs_to_the_family_with_the_longer_literal_text() {
        let all = || vec![schema("wide", "<a>:x"), schema("narrow", "q:<a>"), schema("one", "q:7:x")];
        let catalog = Catalog::with_libraries(Vec::new(), all(), Layout::Plain).unwrap();
        for (key, name) in [("q:7:x", "one"), ("q:8:x", "narrow"), ("q", ""), ("r:x", "wide"), ("r:y", "")] {
            let found = catalog.family_of(key.as_bytes()).map(|id| catalog.schema(id).name.as_str());
            assert_eq!(found.unwrap_or_default(), name, "{key}");
        }
        let conflict = Catalog::new(all(), Layout::Plain).unwrap_err();
        assert_eq!((&*conflict.left, &*conflict.right), ("wide.k", "narrow.k"));
        let same = vec![schema("other", "q:<a>:z")];
        let conflict = Catalog::with_libraries(all()[1..2].to_vec(), same, Layout::Plain).unwrap_err();
        assert_eq!((&*conflict.left, &*conflict.right), ("narrow.k", "other.k"));
    }
}
