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
        let spaces: Vec<Keyspace> = schemas.into_iter().map(|schema| Keyspace::new(schema, layout)).collect();
        for (later, space) in spaces.iter().enumerate() {
            for earlier in &spaces[..later] {
                check_conflict(earlier, space)?;
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

fn check_conflict(left: &Keyspace, right: &Keyspace) -> Result<(), KeyConflict> {
    for (l, left_template) in left.templates().iter().enumerate() {
        let left_side = PatternAutomaton::new(left_template, &left.schema().ids);
        for (r, right_template) in right.templates().iter().enumerate() {
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

    fn next(&self, node: usize, byte: u8) -> Option<usize> {
        self.nodes[node].next.iter().find(|(label, _)| *label == byte).map(|(_, node)| *node)
    }

    /// The first family that fits, of those whose literal prefix the key has.
    fn find(&self, key: &[u8], mut fits: impl FnMut(FamilyId) -> bool) -> Option<FamilyId> {
        let mut at = 0;
        let mut rest = key.iter();
        loop {
            for id in &self.nodes[at].families {
                if fits(*id) {
                    return Some(*id);
                }
            }
            at = self.next(at, *rest.next()?)?;
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
