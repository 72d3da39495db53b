//! The server: an [`App`] of all routes, the middleware around them, and the listener that accepts connections.

pub(crate) mod app;
pub(crate) mod listener;
pub(crate) mod middleware;
pub(crate) mod stopping;
