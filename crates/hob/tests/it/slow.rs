//! Long suites: several processes under load that are killed.

mod chat;
