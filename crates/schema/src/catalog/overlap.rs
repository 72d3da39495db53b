//! Finds keys that could belong to two families: the intersection of two small automata.
//!
//! The automata accept some invalid numbers and escapes (`007` counts as a number here). So a reported overlap may
//! require an id that is not valid, but a real overlap is never missed.

use std::collections::{HashMap, VecDeque};

use crate::keyspace::{Keyspace, Layout, Part, Template};
use crate::model::Schema;
use crate::model::id::{IdForm, IdRule};
use crate::parse::source::{ParseError, Source};

/// Reports every pair of families of a schema that could share a key, under either layout.
pub(crate) fn check_schema(schema: &Schema, source: &Source<'_>, errors: &mut Vec<ParseError>) {
    let spaces = [Layout::Plain, Layout::Tagged].map(|layout| Keyspace::new(schema.clone(), layout));
    for (later, family) in schema.families.iter().enumerate() {
        for (earlier, other) in schema.families[..later].iter().enumerate() {
            let shared = spaces.iter().find_map(|space| {
                let side = |index: usize| PatternAutomaton::new(&space.templates()[index], &schema.ids);
                shared_key(&side(earlier), &side(later))
            });
            if let Some(key) = shared {
                errors.push(ParseError {
                    file: source.file.clone(),
                    position: family.position,
                    message: format!("the key {key:?} matches both `{}` and `{}`", other.name, family.name),
                    suggestion: Some("another literal, or `not = [\"…\"]` for the id".into()),
                });
            }
        }
    }
}

/// A pattern as an automaton over bytes.
pub(crate) struct PatternAutomaton<'t> {
    template: &'t Template,
    ids: &'t [IdRule],
    tries: HashMap<usize, Trie>,
}

/// A part and the position in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    part: usize,
    inner: usize,
}

/// The inner state of a placeholder that can no longer become a reserved word.
const FREE: usize = usize::MAX;

impl<'t> PatternAutomaton<'t> {
    pub(crate) fn new(template: &'t Template, ids: &'t [IdRule]) -> PatternAutomaton<'t> {
        let mut tries = HashMap::new();
        for part in &template.parts {
            if let Part::Id(id) = part {
                let words = if let IdForm::OneOf(words) = &ids[*id].form { words } else { &ids[*id].not };
                tries.insert(*id, Trie::new(&ids[*id], words));
            }
        }
        PatternAutomaton { template, ids, tries }
    }

    fn at_end(&self, state: State) -> bool {
        state.part == self.template.parts.len()
    }

    /// The states after one more byte.
    fn step(&self, state: State, byte: u8) -> Vec<State> {
        let next_part = State { part: state.part + 1, inner: 0 };
        let Some(part) = self.template.parts.get(state.part) else {
            return Vec::new();
        };
        let (inner, accepting) = match part {
            Part::Literal(text) if text[state.inner] != byte => return Vec::new(),
            Part::Literal(text) if state.inner + 1 == text.len() => return vec![next_part],
            Part::Literal(_) => (state.inner + 1, false),
            Part::Shard if byte.is_ascii_digit() => (0, true),
            Part::Shard => return Vec::new(),
            Part::Id(id) => match self.step_id(*id, state.inner, byte) {
                Some(next) => next,
                None => return Vec::new(),
            },
        };
        let stay = State { part: state.part, inner };
        if accepting { vec![stay, next_part] } else { vec![stay] }
    }

    /// The next inner state of a placeholder and whether the id may end there.
    fn step_id(&self, id: usize, inner: usize, byte: u8) -> Option<(usize, bool)> {
        const HOUR: &[u8; 13] = b"dddd-dd-dd_dd";
        let (form, trie) = (&self.ids[id].form, &self.tries[&id]);
        match form {
            IdForm::OneOf(_) => trie.next(inner, byte).map(|node| (node, trie.nodes[node].terminal)),
            IdForm::Hour => {
                let fits = match HOUR.get(inner)? {
                    b'd' => byte.is_ascii_digit(),
                    literal => byte == *literal,
                };
                fits.then_some((inner + 1, inner + 1 == HOUR.len()))
            }
            _ if !allowed(form, byte) => None,
            _ => Some(match (inner != FREE).then(|| trie.next(inner, byte)).flatten() {
                Some(node) => (node, !trie.nodes[node].terminal),
                None => (FREE, true),
            }),
        }
    }

    fn literal_byte(&self, state: State) -> Option<u8> {
        match self.template.parts.get(state.part)? {
            Part::Literal(text) => Some(text[state.inner]),
            _ => None,
        }
    }

    fn bytes(&self) -> impl Iterator<Item = u8> + '_ {
        let literals = self.template.parts.iter().filter_map(|part| match part {
            Part::Literal(text) => Some(text.as_slice()),
            _ => None,
        });
        let words = self.tries.values().flat_map(|trie| trie.nodes.iter()).flat_map(|node| node.next.iter());
        literals.flatten().copied().chain(words.map(|(byte, _)| *byte))
    }
}

fn allowed(form: &IdForm, byte: u8) -> bool {
    match form {
        IdForm::Int { .. } => byte.is_ascii_digit(),
        IdForm::Endpoint { space } => byte == *space || byte == b'%' || form.stays_raw(byte),
        _ => byte == b'%' || form.stays_raw(byte),
    }
}

/// A key that both accept, if there is one.
pub(crate) fn shared_key(left: &PatternAutomaton<'_>, right: &PatternAutomaton<'_>) -> Option<String> {
    // One byte of each class, and every byte that some literal or reserved word distinguishes.
    let mut alphabet: Vec<u8> = b"x0A_-/ :%~\xc3".to_vec();
    alphabet.extend(left.bytes().chain(right.bytes()));
    alphabet.sort_unstable_by_key(|byte| (!byte.is_ascii_alphanumeric(), *byte));
    alphabet.dedup();
    let start = State { part: 0, inner: 0 };
    let mut came_from = HashMap::from([((start, start), None)]);
    let mut queue = VecDeque::from([(start, start)]);
    while let Some((l, r)) = queue.pop_front() {
        if left.at_end(l) && right.at_end(r) {
            return Some(trace(&came_from, (l, r)));
        }
        let forced = left.literal_byte(l).or_else(|| right.literal_byte(r));
        let bytes = forced.as_ref().map_or(alphabet.as_slice(), std::slice::from_ref);
        for byte in bytes {
            for next_l in left.step(l, *byte) {
                for next_r in right.step(r, *byte) {
                    came_from.entry((next_l, next_r)).or_insert_with(|| {
                        queue.push_back((next_l, next_r));
                        Some(((l, r), *byte))
                    });
                }
            }
        }
    }
    None
}

type Pair = (State, State);

fn trace(came_from: &HashMap<Pair, Option<(Pair, u8)>>, mut at: Pair) -> String {
    let mut key = Vec::new();
    while let Some(Some((before, byte))) = came_from.get(&at) {
        key.push(*byte);
        at = *before;
    }
    key.reverse();
    String::from_utf8_lossy(&key).into_owned()
}

/// The reserved or allowed words of an id, as encoded in a key.
struct Trie {
    nodes: Vec<Node>,
}

#[derive(Default)]
struct Node {
    next: Vec<(u8, usize)>,
    terminal: bool,
}

impl Trie {
    fn new(rule: &IdRule, words: &[String]) -> Trie {
        let mut trie = Trie { nodes: vec![Node::default()] };
        for word in words {
            let mut spelled = Vec::new();
            rule.encode_into(word, &mut spelled);
            let mut at = 0;
            for byte in spelled {
                at = trie.next(at, byte).unwrap_or_else(|| {
                    trie.nodes.push(Node::default());
                    let node = trie.nodes.len() - 1;
                    trie.nodes[at].next.push((byte, node));
                    node
                });
            }
            trie.nodes[at].terminal = true;
        }
        trie
    }

    fn next(&self, node: usize, byte: u8) -> Option<usize> {
        self.nodes.get(node)?.next.iter().find(|(label, _)| *label == byte).map(|(_, node)| *node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(keys: &str) -> Vec<String> {
        let text = format!(
            "[schema]\nname = \"t\"\nversion = 1\n[ids]\na = {{}}\nb = {{ not = [\"total\"] }}\n\
             n = {{ form = \"int\" }}\nr = {{ raw = \":\" }}\nh = {{ form = \"hour\" }}\n\
             w = {{ one_of = [\"tps\", \"users\"] }}\n{keys}"
        );
        match Schema::parse("t.toml", &text) {
            Ok(_) => Vec::new(),
            Err(errors) => errors.0.into_iter().map(|error| error.message).collect(),
        }
    }

    fn pair(first: &str, second: &str) -> Vec<String> {
        let key = |name, pattern| format!("[key.{name}]\npattern = \"{pattern}\"\ntype = \"string\"\n");
        errors(&(key("one", first) + &key("two", second)))
    }

    #[test]
    fn two_families_that_share_a_key_are_reported_with_it() {
        assert_eq!(pair("u:<a>:<a>", "u:<a>:total"), ["the key \"u:0:total\" matches both `one` and `two`"]);
        assert_eq!(pair("q:<a>", "q:<n>"), ["the key \"q:0\" matches both `one` and `two`"]);
        assert_eq!(pair("q:<r>", "q:<r>:done"), ["the key \"q:0:done\" matches both `one` and `two`"]);
        assert_eq!(pair("x", "x").len(), 1);
        assert_eq!(pair("h:<h>", "h:<a>").len(), 1);
        assert_eq!(pair("t:<w>", "t:<a>").len(), 1);
    }

    /// C9
    #[test]
    fn reserved_word_keeps_families_apart() {
        assert!(pair("u:<a>:<b>", "u:<a>:total").is_empty());
        assert!(!pair("u:<a>:<b>", "u:<a>:totals").is_empty());
        assert!(!pair("u:<a>:<b>", "u:<a>:tota").is_empty());
    }

    #[test]
    fn literals_depth_and_forms_keep_families_apart() {
        assert!(pair("u:<a>:on", "u:<a>:off").is_empty());
        assert!(pair("u:<a>", "u:<a>:x").is_empty());
        assert!(pair("h:<h>", "h:<n>").is_empty());
        assert!(pair("t:<w>", "t:<h>").is_empty());
        assert!(pair("u:<r>:<n>", "u:<r>:<w>").is_empty());
    }
}
