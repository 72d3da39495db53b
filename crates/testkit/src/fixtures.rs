//! What a test of Hob's own parts runs on: stores, databases, service contexts, a whole app.

#[cfg(feature = "app")]
pub(crate) mod app;
#[cfg(feature = "app")]
pub(crate) mod context;
pub(crate) mod database;
pub(crate) mod declared;
pub(crate) mod store;
