//! Memory use in the store.

use crate::components::Quantity;

/// The memory that the objects of a service use in the store, as last measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUsage {
    pub service: &'static str,
    /// What is counted: `monitors`.
    pub objects: &'static str,
    pub count: usize,
    pub bytes: u64,
}

impl MemoryUsage {
    /// `None` if the count is 0.
    #[must_use]
    pub fn bytes_per_object(&self) -> Option<u64> {
        self.bytes.checked_div(self.count as u64)
    }

    /// The average as text.
    #[must_use]
    pub fn average(&self) -> String {
        self.bytes_per_object().map_or_else(|| "–".to_owned(), |bytes| Quantity::bytes(bytes).to_string())
    }
}
