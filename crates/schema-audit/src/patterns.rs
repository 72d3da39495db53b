//! Guesses the patterns of undeclared keys from the keys themselves, in bounded memory.

mod segment;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use segment::{Separator, segments};

/// If there are more different words than this at one position, they are treated as ids.
const MAX_WORDS: usize = 24;
/// If the tree has more nodes than this, every new word is treated as an id.
const MAX_NODES: usize = 20_000;

/// Data about the keys of one pattern, which can be merged when two patterns become one.
pub(crate) trait Merge: Default {
    fn merge(&mut self, other: Self);

    /// Whether this many words at the end of a pattern, with these data, are values of one id.
    fn are_values(_words: &[&Self]) -> bool {
        false
    }
}

/// One segment of a guessed pattern.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    Word(String),
    /// One of a few words that are used alike.
    Choice(BTreeSet<String>),
    /// An id with text around it, such as `celery-task-meta-<id>`.
    Affixed {
        before: String,
        after: String,
    },
    Id,
    /// An id in braces, a hash tag.
    TaggedId,
    /// The rest of the key, with its separators.
    Rest,
}

/// A guessed pattern: the steps between the separators.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeyPattern {
    pub(crate) separator: Separator,
    pub(crate) steps: Vec<Step>,
}

/// Keys by guessed pattern.
#[derive(Debug, Default)]
pub(crate) struct PatternTree<T> {
    roots: BTreeMap<Separator, Branch<T>>,
    nodes: usize,
}

#[derive(Debug)]
struct Branch<T> {
    next: BTreeMap<Step, Branch<T>>,
    here: Option<T>,
    /// There were too many words at this position: all of them are ids, also those that come later.
    words_are_ids: bool,
}

impl<T> Default for Branch<T> {
    fn default() -> Self {
        Branch { next: BTreeMap::new(), here: None, words_are_ids: false }
    }
}

impl<T: Merge> PatternTree<T> {
    /// The data about keys like this one.
    pub(crate) fn entry(&mut self, key: &[u8]) -> &mut T {
        let separator = Separator::of(key);
        let full = self.nodes >= MAX_NODES;
        let mut branch = self.roots.entry(separator).or_default();
        for segment in segments(key, separator) {
            let step = branch.step_for(segment, full);
            if !branch.next.contains_key(&step) {
                self.nodes += 1;
            }
            branch = branch.next.entry(step).or_default();
        }
        branch.here.get_or_insert_with(T::default)
    }

    /// Every pattern with its data, after words that behave alike were replaced by ids.
    pub(crate) fn into_patterns(self) -> Vec<(KeyPattern, T)> {
        let mut patterns = Vec::new();
        for (separator, mut root) in self.roots {
            root.join_alike();
            root.collect(separator, &mut Vec::new(), &mut patterns);
        }
        patterns
    }
}

/// Whether a step is text that could also be the value of an id. An empty segment could not.
fn is_word(step: &Step) -> bool {
    match step {
        Step::Word(word) => !word.is_empty(),
        Step::Affixed { .. } => true,
        Step::Choice(_) | Step::Id | Step::TaggedId | Step::Rest => false,
    }
}

impl<T: Merge> Branch<T> {
    fn step_for(&mut self, segment: &[u8], full: bool) -> Step {
        let step = segment::classify(segment);
        if !is_word(&step) || self.next.contains_key(&step) {
            return step;
        }
        if self.words_are_ids {
            return Step::Id;
        }
        let words = self.next.keys().filter(|step| is_word(step)).count();
        if full || words >= MAX_WORDS {
            self.join_words();
            self.words_are_ids = true;
            return Step::Id;
        }
        step
    }

    /// Replaces all words at this position by one id.
    fn join_words(&mut self) {
        let words: Vec<Step> = self.next.keys().filter(|step| is_word(step)).cloned().collect();
        self.join(words, &Step::Id);
    }

    fn join(&mut self, steps: Vec<Step>, into: &Step) {
        for step in steps {
            if let Some(branch) = self.next.remove(&step) {
                self.next.entry(into.clone()).or_default().absorb(branch);
            }
        }
    }

    fn absorb(&mut self, other: Branch<T>) {
        if let Some(here) = other.here {
            self.here.get_or_insert_with(T::default).merge(here);
        }
        for (step, branch) in other.next {
            self.next.entry(step).or_default().absorb(branch);
        }
        self.words_are_ids |= other.words_are_ids;
        if self.words_are_ids {
            self.join_words();
        }
    }

    /// Three or more words with the same continuations are ids: `user:ann:online`, `user:bob:online`,
    /// `user:eve:online`. So is a word with the same continuations as the ids beside it.
    fn join_alike(&mut self) {
        for branch in self.next.values_mut() {
            branch.join_alike();
        }
        self.join_numbered();
        self.join_values();
        let is_plain_word = |step: &Step| matches!(step, Step::Word(word) if !word.is_empty());
        let shape = |branch: &Branch<T>| branch.next.keys().cloned().collect::<Vec<_>>();
        let words: Vec<Vec<Step>> = self
            .next
            .iter()
            .filter(|(step, _)| is_plain_word(step))
            .map(|(_, branch)| shape(branch))
            .collect();
        // An entity is followed by words (`user:ann:online`), a category by ids (`monitor:status:42`).
        let Some(first) = words.first().filter(|first| first.iter().any(is_plain_word)) else {
            return;
        };
        let alike = words.iter().all(|word| word == first);
        let like_ids = self.next.get(&Step::Id).is_some_and(|ids| shape(ids) == *first);
        if alike && (words.len() >= 3 || like_ids) {
            self.join_words();
        }
    }

    /// Words at the end of a key with data of the same kind are values of one id: `leaderboard:eu`, `leaderboard:us`.
    fn join_values(&mut self) {
        let ends = |branch: &Branch<T>| branch.next.is_empty();
        let only_words = self.next.iter().all(|(step, branch)| matches!(step, Step::Word(_)) && ends(branch));
        let data: Vec<&T> = self.next.values().filter_map(|branch| branch.here.as_ref()).collect();
        if !only_words || data.len() < self.next.len() || !T::are_values(&data) {
            return;
        }
        let words: Vec<Step> = self.next.keys().cloned().collect();
        let spelled = words.iter().filter_map(|step| match step {
            Step::Word(word) if !word.is_empty() => Some(word.clone()),
            _ => None,
        });
        let choice: BTreeSet<String> = spelled.collect();
        if choice.len() == words.len() {
            self.join(words, &Step::Choice(choice));
        }
    }

    /// Words that differ only in a number at their end are ids: `room1`, `room2`.
    fn join_numbered(&mut self) {
        let stem = |step: &Step| match step {
            Step::Word(word) => {
                let stem = word.trim_end_matches(|char: char| char.is_ascii_digit());
                (stem.len() < word.len()).then(|| stem.to_owned())
            }
            _ => None,
        };
        let stems: Vec<String> = self.next.keys().filter_map(stem).collect();
        let numbered = |step: &Step| {
            stem(step).is_some_and(|own| stems.iter().filter(|other| **other == own).count() > 1)
        };
        let ids: Vec<Step> = self.next.keys().filter(|step| numbered(step)).cloned().collect();
        self.join(ids, &Step::Id);
    }

    fn collect(self, separator: Separator, path: &mut Vec<Step>, patterns: &mut Vec<(KeyPattern, T)>) {
        if let Some(here) = self.here {
            patterns.push((KeyPattern { separator, steps: path.clone() }, here));
        }
        for (step, branch) in self.next {
            path.push(step);
            branch.collect(separator, path, patterns);
            path.pop();
        }
    }
}

/// A pattern for a report: `user:<…>:online`.
pub(crate) fn display_pattern(pattern: &KeyPattern) -> String {
    let text = pattern.spelled(|_, _| "<…>".to_owned());
    // The empty key.
    if text.is_empty() { "\"\"".to_owned() } else { text }
}

impl KeyPattern {
    /// The pattern with a text for each placeholder, which is given the position of its step.
    pub(crate) fn spelled(&self, placeholder: impl Fn(usize, &Step) -> String) -> String {
        let spell = |(position, step): (usize, &Step)| match step {
            Step::Word(word) => word.clone(),
            Step::Affixed { before, after } => format!("{before}{}{after}", placeholder(position, step)),
            Step::TaggedId => format!("{{{}}}", placeholder(position, step)),
            Step::Choice(_) | Step::Id | Step::Rest => placeholder(position, step),
        };
        let steps: Vec<String> = self.steps.iter().enumerate().map(spell).collect();
        steps.join(self.separator.as_str())
    }

    /// The values of the placeholders in a key of this pattern, with the positions of their steps.
    pub(crate) fn values<'k>(&self, key: &'k [u8]) -> Vec<(usize, &'k [u8])> {
        let segments = segments(key, self.separator);
        let mut values = Vec::new();
        let mut start = 0;
        for (position, step) in self.steps.iter().enumerate() {
            let segment = segments.get(position).copied().unwrap_or_default();
            let value = match step {
                Step::Word(_) => None,
                Step::Choice(_) | Step::Id => Some(segment),
                Step::TaggedId => segment.get(1..segment.len().saturating_sub(1)),
                Step::Affixed { before, after } => segment
                    .strip_prefix(before.as_bytes())
                    .and_then(|rest| rest.strip_suffix(after.as_bytes())),
                Step::Rest => key.get(start..),
            };
            values.extend(value.map(|value| (position, value)));
            start += segment.len() + 1;
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq)]
    struct Count(usize);

    impl Merge for Count {
        fn merge(&mut self, other: Self) {
            self.0 += other.0;
        }
    }

    fn patterns(keys: &[&str]) -> Vec<(String, usize)> {
        let mut tree = PatternTree::<Count>::default();
        for key in keys {
            tree.entry(key.as_bytes()).0 += 1;
        }
        tree.into_patterns()
            .into_iter()
            .map(|(pattern, count)| (display_pattern(&pattern), count.0))
            .collect()
    }

    fn pattern(text: &str, count: usize) -> (String, usize) {
        (text.to_owned(), count)
    }

    #[test]
    fn ids_are_distinguished_from_words() {
        let keys = [
            "user:507f1f77bcf86cd799439011:online",
            "user:42:online",
            "monitor:schedule",
            "cache:v2:17",
            "q:{a9:b}:x",
        ];
        let expected = [
            pattern("cache:v2:<…>", 1),
            pattern("monitor:schedule", 1),
            pattern("q:{<…>}:x", 1),
            pattern("user:<…>:online", 2),
        ];
        assert_eq!(patterns(&keys), expected);
    }

    #[test]
    fn words_that_lead_on_alike_were_ids() {
        let keys = [
            "user:ann:online",
            "user:bob:online",
            "user:eve:online",
            "job:1:x",
            "job:ann:x",
            "requests:total",
            "requests:accepted",
        ];
        let expected = [
            pattern("job:<…>:x", 2),
            pattern("requests:accepted", 1),
            pattern("requests:total", 1),
            pattern("user:<…>:online", 3),
        ];
        assert_eq!(patterns(&keys), expected);
    }

    #[test]
    fn many_words_at_one_position_are_ids_and_memory_stays_bounded() {
        let letters =
            |n: u32| n.to_string().bytes().map(|digit| char::from(digit - b'0' + b'a')).collect::<String>();
        let keys: Vec<String> = (0..50_000).map(|n| format!("name:{}", letters(n))).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        assert_eq!(patterns(&keys), [pattern("name:<…>", 50_000)]);
    }

    #[test]
    fn other_separators_than_the_colon_are_found() {
        let keys = [
            "celery-task-meta-550e8400-e29b-41d4-a716-446655440000",
            "celery-task-meta-650e8400-e29b-41d4-a716-446655440000",
            "cart/17",
            "user.5.settings",
            "page_views_2024-01-01",
            ":1:views.decorators.cache.cache_page..GET.0123456789abcdef0123456789abcdef.en-us.UTC",
        ];
        let expected = [
            pattern(":<…>:views.decorators.cache.cache_page..GET.<…>.en-us.UTC", 1),
            pattern("celery-task-meta-<…>", 2),
            pattern("page_views_<…>", 1),
            pattern("cart/<…>", 1),
            pattern("user.<…>.settings", 1),
        ];
        assert_eq!(patterns(&keys), expected);
    }

    #[test]
    fn values_are_read_from_a_key() {
        let mut tree = PatternTree::<Count>::default();
        let key = b"q:{a:b}:job-7-done:x";
        tree.entry(key).0 += 1;
        let (pattern, _) = tree.into_patterns().remove(0);
        let values: Vec<&[u8]> = pattern.values(key).into_iter().map(|(_, value)| value).collect();
        assert_eq!(values, [b"a:b".as_slice(), b"7"]);
    }
}
