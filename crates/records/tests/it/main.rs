//! The records on both databases: every test runs on a SQLite file and on a PostgreSQL server.

mod notes;
mod outbox;
mod service;
