//! The queries on the tables of load.

pub(crate) mod plans;
pub(crate) mod runs;
pub(crate) mod seconds;
#[cfg(test)]
mod tests;
