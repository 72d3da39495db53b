//! The text of a schema file, and the mistakes found in it with their place.

use std::fmt;
use std::ops::Range;

use serde::Serialize;

/// A byte range in the text of a file.
pub(crate) type Span = Range<usize>;

/// Where something stands in a file; both numbers start at one, columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Place {
    pub line: u32,
    pub column: u32,
}

/// One thing that is wrong in a schema file, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mistake {
    pub file: String,
    #[serde(flatten)]
    pub place: Place,
    pub what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.place.line, self.place.column, self.what)?;
        if let Some(instead) = &self.instead {
            write!(f, "\n    write instead: {instead}")?;
        }
        Ok(())
    }
}

/// Every mistake of one file, in the order of the text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mistakes(pub Vec<Mistake>);

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, mistake) in self.0.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{mistake}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}

/// A named text whose byte offsets can be turned into places.
#[derive(Debug)]
pub(crate) struct Source<'t> {
    pub(crate) file: String,
    pub(crate) text: &'t str,
}

impl<'t> Source<'t> {
    pub(crate) fn new(file: impl Into<String>, text: &'t str) -> Self {
        Source { file: file.into(), text }
    }

    pub(crate) fn place(&self, offset: usize) -> Place {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let before = &self.text[..offset];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = 1 + before.bytes().filter(|byte| *byte == b'\n').count();
        let column = 1 + before[line_start..].chars().count();
        Place {
            line: u32::try_from(line).unwrap_or(u32::MAX),
            column: u32::try_from(column).unwrap_or(u32::MAX),
        }
    }

    pub(crate) fn mistake(&self, at: usize, what: impl Into<String>, instead: Option<String>) -> Mistake {
        Mistake { file: self.file.clone(), place: self.place(at), what: what.into(), instead }
    }
}

/// The candidate that `word` was probably meant to be: at most two edits away, fewer for short words.
pub(crate) fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let allowed = if word.chars().count() <= 4 { 1 } else { 2 };
    candidates
        .into_iter()
        .map(|candidate| (edits(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance; both words are short.
fn edits(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, l) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, r) in right.iter().enumerate() {
            let substituted = diagonal + usize::from(l != *r);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_counts_lines_and_characters_from_one() {
        let source = Source::new("x.toml", "a\nöß = 1\n");
        assert_eq!(source.place(0), Place { line: 1, column: 1 });
        let equals = source.text.find('=').unwrap();
        assert_eq!(source.place(equals), Place { line: 2, column: 4 });
        assert_eq!(source.place(9_999).line, 3);
    }

    #[test]
    fn a_misspelt_word_finds_its_neighbour_and_a_strange_one_none() {
        let known = ["pattern", "purpose", "type"];
        assert_eq!(nearest("patern", known), Some("pattern"));
        assert_eq!(nearest("tpe", known), Some("type"));
        assert_eq!(nearest("colour", known), None);
    }
}
