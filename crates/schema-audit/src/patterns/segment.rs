//! The segments of a key, and whether a segment is a word of the pattern or an id.

use super::Step;

/// Maximum number of segments. The last segment of a longer key contains the rest of the key.
const MAX_SEGMENTS: usize = 12;
/// Longer words are ids.
const MAX_WORD_BYTES: usize = 40;
const MAX_NAME_BYTES: usize = 24;
/// In a longer segment no words are looked for.
const MAX_AFFIXED_BYTES: usize = 256;

/// The character that separates the segments of a key: the first of these that the key contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Separator {
    #[default]
    Colon,
    Slash,
    Dot,
}

impl Separator {
    pub(crate) fn of(key: &[u8]) -> Separator {
        let all = [Separator::Colon, Separator::Slash, Separator::Dot];
        all.into_iter().find(|separator| key.contains(&separator.byte())).unwrap_or_default()
    }

    fn byte(self) -> u8 {
        self.as_str().as_bytes()[0]
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Separator::Colon => ":",
            Separator::Slash => "/",
            Separator::Dot => ".",
        }
    }
}

/// The parts of a key between its separators. A hash tag in braces is one part, whatever it contains.
pub(crate) fn segments(key: &[u8], separator: Separator) -> Vec<&[u8]> {
    let find = |text: &[u8], byte: u8| text.iter().position(|other| *other == byte);
    let mut segments = Vec::new();
    let mut rest = key;
    while segments.len() + 1 < MAX_SEGMENTS {
        let tag_end = if rest.starts_with(b"{") { find(rest, b'}').unwrap_or(0) } else { 0 };
        let Some(at) = find(&rest[tag_end..], separator.byte()) else {
            break;
        };
        segments.push(&rest[..tag_end + at]);
        rest = &rest[tag_end + at + 1..];
    }
    segments.push(rest);
    segments
}

/// Whether a segment is a word of the pattern, an id, or both.
pub(super) fn classify(segment: &[u8]) -> Step {
    if let [b'{', inner @ .., b'}'] = segment
        && !inner.is_empty()
        && !inner.contains(&b'}')
    {
        return Step::TaggedId;
    }
    let Ok(text) = std::str::from_utf8(segment) else {
        return Step::Id;
    };
    if text.is_empty() || is_word(text) {
        return Step::Word(text.to_owned());
    }
    let affixed = (text.len() <= MAX_AFFIXED_BYTES).then(|| affixed(text)).flatten();
    affixed.unwrap_or(Step::Id)
}

fn is_word(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let plain = text.bytes().all(|byte| byte.is_ascii_lowercase() || matches!(byte, b'_' | b'-' | b'.'));
    // A word is lowercase text, perhaps with a version or a unit at its end (`v2`, `p95`, `http2`).
    let versioned = digits <= 2
        && text.len() <= 5
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let named = digits == 0
        && text.len() <= MAX_NAME_BYTES
        && text.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    let starts_as_word = text.starts_with(|char: char| char.is_ascii_lowercase());
    text.len() <= MAX_WORD_BYTES && (plain || named || (versioned && starts_as_word))
}

/// An id between words, if the segment has such a form: everything from the first to the last part that is not a word.
fn affixed(text: &str) -> Option<Step> {
    let separates = |char: char| matches!(char, '_' | '-' | '.' | '/');
    let mut id: Option<(usize, usize)> = uuid(text);
    let mut start = 0;
    for part in text.split_inclusive(separates) {
        let word = part.trim_end_matches(separates);
        let inside = id.is_some_and(|(from, to)| from <= start && start < to);
        if !inside && !is_name(word) {
            let (from, to) = id.unwrap_or((start, start));
            id = Some((from.min(start), to.max(start + word.len())));
        }
        start += part.len();
    }
    let (from, to) = id?;
    let (before, after) = (&text[..from], &text[to..]);
    let has_word = |text: &str| text.bytes().any(|byte| byte.is_ascii_alphabetic());
    (has_word(before) || has_word(after))
        .then(|| Step::Affixed { before: before.to_owned(), after: after.to_owned() })
}

/// Whether a part of a segment is a word, or empty.
fn is_name(part: &str) -> bool {
    part.len() <= MAX_NAME_BYTES && part.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// The position of a UUID. Its groups may look like words.
fn uuid(text: &str) -> Option<(usize, usize)> {
    const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
    const BYTES: usize = 36;
    let is_uuid = |text: &str| {
        let groups: Vec<&str> = text.split('-').collect();
        groups.len() == GROUPS.len()
            && groups
                .iter()
                .zip(GROUPS)
                .all(|(group, len)| group.len() == len && group.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    let last = text.len().checked_sub(BYTES)?;
    (0..=last).find(|start| text.get(*start..start + BYTES).is_some_and(is_uuid)).map(|at| (at, at + BYTES))
}
