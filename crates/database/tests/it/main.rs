//! Tests of the database crate. Most of them run on a SQLite file and on a PostgreSQL server.

mod copy;
mod failure;
mod files;
mod migration;
mod notes;
mod outbox;
mod service;
mod transaction;
mod values;
