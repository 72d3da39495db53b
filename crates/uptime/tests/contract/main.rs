//! The promises of the contract, on every store with its database, read with plain commands as an outsider would.

mod bench;
mod history;
mod incidents;
mod model;
mod rebuild;
mod record;
mod schedule;
mod wrong_types;
