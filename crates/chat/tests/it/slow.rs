//! Long tests: random operations against a model.

mod random_operations;
