//! What a search in the console finds.

/// An object of a service, found by a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchHit {
    /// What it is: `monitor`.
    pub kind: &'static str,
    pub title: String,
    /// What else there is to know, such as an address; may be empty.
    pub detail: String,
    pub href: String,
}

/// The most hits of each kind.
pub const MAX_SEARCH_HITS: usize = 10;

impl SearchHit {
    /// Whether one of these texts contains what was searched for, in upper or lower case. `query` is in lower case.
    #[must_use]
    pub fn matches(query: &str, texts: &[&str]) -> bool {
        texts.iter().any(|text| text.to_lowercase().contains(query))
    }
}
