//! Long suites: several processes are killed under load.

mod chat;
