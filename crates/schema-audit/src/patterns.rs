//! Guesses the patterns of undeclared keys from the keys themselves, in bounded memory.

use std::collections::BTreeMap;

/// If there are more different words than this at one position, they are treated as ids.
const MAX_WORDS: usize = 24;
/// Maximum number of segments. The last segment of a longer key contains the rest of the key.
pub(crate) const MAX_SEGMENTS: usize = 12;
/// If the tree has more nodes than this, every new word is treated as an id.
const MAX_NODES: usize = 20_000;

/// Data about the keys of one pattern, which can be merged when two patterns become one.
pub(crate) trait Merge: Default {
    fn merge(&mut self, other: Self);
}

/// One segment of a guessed pattern.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    Word(String),
    Id,
    /// An id in braces, a hash tag.
    TaggedId,
}

/// Keys by guessed pattern.
#[derive(Debug, Default)]
pub(crate) struct PatternTree<T> {
    root: Branch<T>,
    nodes: usize,
}

#[derive(Debug)]
struct Branch<T> {
    next: BTreeMap<Step, Branch<T>>,
    here: Option<T>,
}

impl<T> Default for Branch<T> {
    fn default() -> Self {
        Branch { next: BTreeMap::new(), here: None }
    }
}

impl<T: Merge> PatternTree<T> {
    /// The data about keys like this one.
    pub(crate) fn entry(&mut self, key: &[u8]) -> &mut T {
        let text = String::from_utf8_lossy(key);
        let full = self.nodes >= MAX_NODES;
        let mut branch = &mut self.root;
        for segment in segments(&text) {
            let step = branch.step_for(segment, full);
            if !branch.next.contains_key(&step) {
                self.nodes += 1;
            }
            branch = branch.next.entry(step).or_default();
        }
        branch.here.get_or_insert_with(T::default)
    }

    /// Every pattern with its data, after words that behave alike were replaced by ids.
    pub(crate) fn into_patterns(mut self) -> Vec<(Vec<Step>, T)> {
        self.root.join_alike();
        let mut patterns = Vec::new();
        self.root.collect(&mut Vec::new(), &mut patterns);
        patterns
    }
}

impl<T: Merge> Branch<T> {
    fn step_for(&mut self, segment: &str, full: bool) -> Step {
        let step = classify(segment);
        if !matches!(step, Step::Word(_)) || self.next.contains_key(&step) {
            return step;
        }
        let words = self.next.keys().filter(|step| matches!(step, Step::Word(_))).count();
        if full || words >= MAX_WORDS {
            self.join_words();
            return Step::Id;
        }
        step
    }

    /// Replaces all words at this position by one id.
    fn join_words(&mut self) {
        let words: Vec<Step> =
            self.next.keys().filter(|step| matches!(step, Step::Word(_))).cloned().collect();
        for word in words {
            if let Some(branch) = self.next.remove(&word) {
                self.next.entry(Step::Id).or_default().absorb(branch);
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
    }

    /// Three or more words with the same continuations are ids: `user:ann:online`, `user:bob:online`,
    /// `user:eve:online`. So is a word with the same continuations as the ids beside it.
    fn join_alike(&mut self) {
        for branch in self.next.values_mut() {
            branch.join_alike();
        }
        self.join_numbered();
        let is_word = |step: &Step| matches!(step, Step::Word(_));
        let shape = |branch: &Branch<T>| branch.next.keys().cloned().collect::<Vec<_>>();
        let words: Vec<Vec<Step>> =
            self.next.iter().filter(|(step, _)| is_word(step)).map(|(_, branch)| shape(branch)).collect();
        // An entity is followed by words (`user:ann:online`), a category by ids (`monitor:status:42`).
        let Some(first) = words.first().filter(|first| first.iter().any(is_word)) else {
            return;
        };
        let alike = words.iter().all(|word| word == first);
        let like_ids = self.next.get(&Step::Id).is_some_and(|ids| shape(ids) == *first);
        if alike && (words.len() >= 3 || like_ids) {
            self.join_words();
        }
    }

    /// Words that differ only in a number at their end are ids: `room1`, `room2`.
    fn join_numbered(&mut self) {
        let stem = |step: &Step| match step {
            Step::Word(word) => {
                let stem = word.trim_end_matches(|char: char| char.is_ascii_digit());
                (stem.len() < word.len()).then(|| stem.to_owned())
            }
            Step::Id | Step::TaggedId => None,
        };
        let stems: Vec<String> = self.next.keys().filter_map(stem).collect();
        let numbered = |step: &Step| {
            stem(step).is_some_and(|own| stems.iter().filter(|other| **other == own).count() > 1)
        };
        let ids: Vec<Step> = self.next.keys().filter(|step| numbered(step)).cloned().collect();
        for id in ids {
            if let Some(branch) = self.next.remove(&id) {
                self.next.entry(Step::Id).or_default().absorb(branch);
            }
        }
    }

    fn collect(self, path: &mut Vec<Step>, patterns: &mut Vec<(Vec<Step>, T)>) {
        if let Some(here) = self.here {
            patterns.push((path.clone(), here));
        }
        for (step, branch) in self.next {
            path.push(step);
            branch.collect(path, patterns);
            path.pop();
        }
    }
}

/// The parts of a key between its colons. A hash tag in braces is one part, whatever it contains.
pub(crate) fn segments(key: &str) -> Vec<&str> {
    let mut segments = Vec::new();
    let mut rest = key;
    while segments.len() + 1 < MAX_SEGMENTS {
        let tag_end = if rest.starts_with('{') { rest.find('}').unwrap_or(0) } else { 0 };
        let Some(colon) = rest[tag_end..].find(':') else {
            break;
        };
        segments.push(&rest[..tag_end + colon]);
        rest = &rest[tag_end + colon + 1..];
    }
    segments.push(rest);
    segments
}

/// A pattern for a report: `user:<…>:online`.
pub(crate) fn display_pattern(steps: &[Step]) -> String {
    let word = |step: &Step| match step {
        Step::Word(word) => word.clone(),
        Step::Id => "<…>".to_owned(),
        Step::TaggedId => "{<…>}".to_owned(),
    };
    steps.iter().map(word).collect::<Vec<_>>().join(":")
}

/// Whether a segment is a word of the pattern or an id.
fn classify(segment: &str) -> Step {
    if let Some(inner) = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'))
        && !inner.is_empty()
    {
        return Step::TaggedId;
    }
    let digits = segment.bytes().filter(u8::is_ascii_digit).count();
    let plain = segment.bytes().all(|byte| byte.is_ascii_lowercase() || matches!(byte, b'_' | b'-' | b'.'));
    // A word is lowercase text, perhaps with a version or a unit at its end (`v2`, `p95`, `http2`).
    let versioned = digits <= 2
        && segment.len() <= 5
        && segment.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let named = digits == 0
        && segment.len() <= 24
        && segment.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    let starts_as_word = segment.starts_with(|char: char| char.is_ascii_lowercase());
    if !segment.is_empty() && segment.len() <= 40 && (plain || named || (versioned && starts_as_word)) {
        return Step::Word(segment.to_owned());
    }
    Step::Id
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
        tree.into_patterns().into_iter().map(|(steps, count)| (display_pattern(&steps), count.0)).collect()
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
}
