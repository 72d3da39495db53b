//! Long suites: random lives against a model, and nodes that die under load.

mod chaos;
mod lives;
