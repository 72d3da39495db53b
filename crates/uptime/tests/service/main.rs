//! The whole service: the worker checks real targets, the API answers over the wire.

mod api;
mod flow;
mod target;
