//! What users search for. The same syntax is translated for both databases.
//!
//! Words are sequences of letters and digits; case does not matter. A message is found if it has all of them. `"two words"` must
//! follow each other, `word*` is the beginning of a word, and `-word` must not occur.

use crate::error::Refusal;

const MAX_BYTES: usize = 200;
const MAX_TERMS: usize = 20;

/// A parsed search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchQuery {
    terms: Vec<Term>,
}

/// Words that follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    words: Vec<String>,
    /// Whether the last word is only the beginning of a word.
    is_prefix: bool,
    is_excluded: bool,
}

impl SearchQuery {
    /// Parses what a user has entered.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let bad = |reason: &str| Refusal::InvalidField { field: "q", reason: reason.to_owned() };
        if text.len() > MAX_BYTES || text.contains('\0') {
            return Err(bad("at most 200 bytes of text"));
        }
        let terms: Vec<Term> = split(text).into_iter().filter_map(Term::parse).collect();
        if terms.len() > MAX_TERMS {
            return Err(bad("at most 20 words"));
        }
        if terms.iter().all(|term| term.is_excluded) {
            return Err(bad("needs a word to search for"));
        }
        Ok(Self { terms })
    }

    /// The query in the syntax of FTS5.
    pub(crate) fn fts5(&self) -> String {
        let phrase = |term: &Term| {
            let star = if term.is_prefix { "*" } else { "" };
            format!("\"{}\"{star}", term.words.join(" "))
        };
        let (excluded, wanted): (Vec<&Term>, Vec<&Term>) =
            self.terms.iter().partition(|term| term.is_excluded);
        let wanted: Vec<String> = wanted.into_iter().map(phrase).collect();
        let mut text = format!("words : ({}", wanted.join(" AND "));
        for term in excluded {
            text = format!("{text} NOT {}", phrase(term));
        }
        text + ")"
    }

    /// The query as the text of a `tsquery`.
    pub(crate) fn tsquery(&self) -> String {
        let one = |term: &Term| {
            let last = term.words.len() - 1;
            let words = term.words.iter().enumerate().map(|(at, word)| {
                let star = if term.is_prefix && at == last { ":*" } else { "" };
                format!("'{word}'{star}")
            });
            let not = if term.is_excluded { "!" } else { "" };
            format!("{not}({})", words.collect::<Vec<_>>().join(" <-> "))
        };
        self.terms.iter().map(one).collect::<Vec<_>>().join(" & ")
    }
}

impl Term {
    /// `None` if the text contains no word.
    fn parse(text: &str) -> Option<Self> {
        let (is_excluded, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let words = text.split(|character: char| !character.is_alphanumeric());
        let words: Vec<String> = words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
        let is_prefix = text.trim_end_matches('"').ends_with('*');
        (!words.is_empty()).then_some(Self { words, is_prefix, is_excluded })
    }
}

/// Splits at spaces that are not inside quotation marks.
fn split(text: &str) -> Vec<&str> {
    let mut is_quoted = false;
    let parts = text.split(|character: char| {
        is_quoted ^= character == '"';
        !is_quoted && character.is_whitespace()
    });
    parts.filter(|part| !part.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::SearchQuery;
    use crate::error::Refusal;

    fn both(text: &str) -> (String, String) {
        let query = SearchQuery::parse(text).unwrap();
        (query.fts5(), query.tsquery())
    }

    fn pair(fts5: &str, tsquery: &str) -> (String, String) {
        (fts5.to_owned(), tsquery.to_owned())
    }

    #[test]
    fn words_phrases_beginnings_and_exclusions_are_translated() {
        assert_eq!(both("Tea cup"), pair(r#"words : ("tea" AND "cup")"#, "('tea') & ('cup')"));
        assert_eq!(
            both(r#"-milk "black tea" cup*"#),
            pair(
                r#"words : ("black tea" AND "cup"* NOT "milk")"#,
                "!('milk') & ('black' <-> 'tea') & ('cup':*)"
            )
        );
        assert_eq!(
            both("files.example/tea"),
            pair(r#"words : ("files example tea")"#, "('files' <-> 'example' <-> 'tea')")
        );
    }

    #[test]
    fn operators_of_the_databases_are_words() {
        assert_eq!(
            both(r#"a OR b) NEAR(c) 'x' & !y "#),
            pair(
                r#"words : ("a" AND "or" AND "b" AND "near c" AND "x" AND "y")"#,
                "('a') & ('or') & ('b') & ('near' <-> 'c') & ('x') & ('y')"
            )
        );
        assert_eq!(both(r#""open tea"#), pair(r#"words : ("open tea")"#, "('open' <-> 'tea')"));
    }

    #[test]
    fn search_needs_a_word() {
        for bad in ["", "  ", "-tea", "* - \" !", "\0", &"x".repeat(201), &"x ".repeat(21)] {
            assert!(
                matches!(SearchQuery::parse(bad), Err(Refusal::InvalidField { field: "q", .. })),
                "{bad:?}"
            );
        }
    }
}
