//! Finds keys that could belong to two families, or that one family could read in two ways: the intersection of two small
//! automata.
//!
//! The automata accept some invalid numbers and escapes (`007` counts as a number here). So a reported overlap may
//! require an id that is not valid, but a real overlap is never missed.

use std::collections::{HashMap, VecDeque};

use crate::keyspace::{Keyspace, Layout, Part, Template};
use crate::model::Schema;
use crate::model::id::{IdForm, IdRule};
use crate::parse::source::{ParseError, Source};

/// Reports every pattern that could read a key in two ways, and every pair of families of a schema that could share a key,
/// under either layout.
pub(crate) fn check_schema(schema: &Schema, source: &Source<'_>, errors: &mut Vec<ParseError>) {
    let mut spaces =
        [Layout::Plain, Layout::Tagged].map(|layout| Keyspace::new(schema.clone(), layout)).to_vec();
    // Without tags the layouts are equal.
    spaces.dedup_by(|tagged, plain| tagged.templates() == plain.templates());
    check_ambiguity(schema, &spaces, errors);
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
                    families: vec![other.name.clone(), family.name.clone()],
                });
            }
        }
    }
}

fn check_ambiguity(schema: &Schema, spaces: &[Keyspace], errors: &mut Vec<ParseError>) {
    let families = schema.families.iter().map(|family| (&*family.name, &family.pattern, family.position));
    let channels = schema.channels.iter().map(|channel| (&*channel.name, &channel.pattern, channel.position));
    for (index, (name, pattern, position)) in families.chain(channels).enumerate() {
        let key = spaces.iter().find_map(|space| {
            let template = space.templates().iter().chain(space.channel_templates()).nth(index)?;
            ambiguous_key(&PatternAutomaton::new(template, &schema.ids))
        });
        if let Some(key) = key {
            errors.push(ParseError {
                file: schema.file.clone(),
                position,
                message: format!("{:?} can read the key {key:?} in two ways", pattern.text),
                suggestion: Some(
                    "a character between the placeholders that one of them cannot contain, such as a colon"
                        .into(),
                ),
                families: vec![name.to_owned()],
            });
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
            _ if !form.may_contain(byte) => None,
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

/// A key that both accept, if there is one.
pub(crate) fn shared_key(left: &PatternAutomaton<'_>, right: &PatternAutomaton<'_>) -> Option<String> {
    search(left, right, Reading::Any)
}

/// A key that a pattern can read in two ways, with different ids.
fn ambiguous_key(pattern: &PatternAutomaton<'_>) -> Option<String> {
    search(pattern, pattern, Reading::Same)
}

/// Whether two readings of a key are relevant: any two, or only two that have differed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Reading {
    Any,
    /// Both readings have assigned every byte so far to the same part.
    Same,
    Different,
}

impl Reading {
    fn after(self, left: State, right: State) -> Reading {
        match self {
            Reading::Same if left.part != right.part => Reading::Different,
            reading => reading,
        }
    }
}

fn search(left: &PatternAutomaton<'_>, right: &PatternAutomaton<'_>, reading: Reading) -> Option<String> {
    // One byte of each class, and every byte that some literal or reserved word distinguishes.
    let mut alphabet: Vec<u8> = b"x0A_-/ :%~\xc3".to_vec();
    alphabet.extend(left.bytes().chain(right.bytes()));
    alphabet.sort_unstable_by_key(|byte| (!byte.is_ascii_alphanumeric(), *byte));
    alphabet.dedup();
    let start = State { part: 0, inner: 0 };
    let mut came_from = HashMap::from([((start, start, reading), None)]);
    let mut queue = VecDeque::from([(start, start, reading)]);
    while let Some((l, r, reading)) = queue.pop_front() {
        if left.at_end(l) && right.at_end(r) && reading != Reading::Same {
            return Some(trace(&came_from, (l, r, reading)));
        }
        let forced = left.literal_byte(l).or_else(|| right.literal_byte(r));
        let bytes = forced.as_ref().map_or(alphabet.as_slice(), std::slice::from_ref);
        for byte in bytes {
            for next_l in left.step(l, *byte) {
                for next_r in right.step(r, *byte) {
                    let next = (next_l, next_r, reading.after(next_l, next_r));
                    came_from.entry(next).or_insert_with(|| {
                        queue.push_back(next);
                        Some(((l, r, reading), *byte))
                    });
                }
            }
        }
    }
    None
}

type Step = (State, State, Reading);

fn trace(came_from: &HashMap<Step, Option<(Step, u8)>>, mut at: Step) -> String {
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

    #[test]
    fn placeholders_that_a_key_could_split_in_two_ways_are_refused() {
        let one = |pattern: &str| errors(&format!("[key.one]\npattern = \"{pattern}\"\ntype = \"string\"\n"));
        for pattern in [
            "celery-task-meta-<a>",
            "cart/<a>",
            "user.<a>.settings",
            "room<n>",
            "<n>.<a>",
            "<a>:<b>",
            "<a>/<b>",
            "task:<r>:<a>",
            "<a>-:<b>",
        ] {
            assert_eq!(one(pattern), [""; 0], "{pattern}");
        }
        assert_eq!(one("<a>-<b>"), ["\"<a>-<b>\" can read the key \"0--0\" in two ways"]);
        for pattern in ["<a><b>", "<a><n>", "<a>.x.<b>", "task:<r>:<r>"] {
            assert_eq!(one(pattern).len(), 1, "{pattern}");
        }
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
