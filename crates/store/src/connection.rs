//! Connections to one server, to the master that sentinels report, to every master of a Cluster, and to the embedded
//! engine.

pub(crate) mod backoff;
pub(crate) mod cluster;
pub(crate) mod deadline;
pub(crate) mod dial;
#[cfg_attr(not(feature = "embedded"), path = "connection/no_engine.rs")]
pub(crate) mod embedded;
pub(crate) mod history;
pub(crate) mod logged;
pub(crate) mod route;
pub(crate) mod sentinel;
pub(crate) mod server;
mod slots;
mod topology;
