//! What a system takes of the store.

use crate::look::Quantity;

/// How much memory a system's things take in the store, as it measured that last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    pub system: &'static str,
    /// What there are so many of: `monitors`.
    pub things: &'static str,
    pub count: usize,
    pub bytes: u64,
}

impl Footprint {
    /// Nothing where there is no thing.
    #[must_use]
    pub fn per_thing(&self) -> Option<u64> {
        self.bytes.checked_div(self.count as u64)
    }

    /// That for people.
    #[must_use]
    pub fn each(&self) -> String {
        self.per_thing().map_or_else(|| "–".to_owned(), |bytes| Quantity::bytes(bytes).to_string())
    }
}
