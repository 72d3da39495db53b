//! The long-term truth: records in a SQLite file, or in PostgreSQL, through one set of queries.
//!
//! Services own their tables and their queries. They share what is here: opening and migrating the records,
//! transactions that are repeated when others are in the way, paging, time, the outbox, backup and copy.

mod address;
mod backup;
mod connection;
mod copy;
mod error;
mod insert;
mod meta;
mod migration;
pub mod outbox;
mod page;
mod pools;
mod query;
mod read;
mod records;
mod retry;
mod row;
mod time;
mod transaction;
mod value;

pub use address::{Address, Engine};
pub use connection::Isolation;
pub use copy::{Copied, copy};
pub use error::{Constraint, Error, MigrationRefused};
pub use insert::Binds;
pub use meta::{Epoch, RecordsId};
pub use migration::{Migration, Migrations};
pub use page::{Cursor, Keyset, Page, PageRequest};
pub use query::{PerEngine, Query, Text, sql};
pub use read::{MOST_ROWS, Read};
pub use records::{Options, Records};
pub use row::{FromRow, Row};
pub use time::UnixMs;
pub use transaction::{Snapshot, Transaction};
pub use value::{Bind, Column, Kind, Value};
