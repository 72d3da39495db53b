//! Long suites: random lives against a model.

mod lives;
