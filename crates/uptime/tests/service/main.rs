//! The whole service: the worker checks real targets, the API answers over the wire.

mod api;
mod browser;
mod flow;
mod memory;
mod pages;
mod target;
