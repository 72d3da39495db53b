//! What is measured of each system.

pub(crate) mod chat;
pub(crate) mod gateway;
pub(crate) mod load;
pub(crate) mod pipeline;
pub(crate) mod uptime;
