//! Stores, databases, service contexts and whole apps for tests of Hob itself.

#[cfg(feature = "app")]
pub(crate) mod app;
#[cfg(feature = "app")]
pub(crate) mod context;
pub(crate) mod database;
pub(crate) mod declared;
pub(crate) mod store;
