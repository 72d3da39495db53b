//! The database: a SQLite file or a PostgreSQL server, behind one set of queries.
//!
//! Each service owns its tables and queries. This crate contains the parts that they share: opening and migrating the
//! database, transactions that are retried after a conflict, paging, time, the [`outbox`], backup and copy.
//!
//! ```
//! use hob_database::outbox::Topic;
//! use hob_database::{Address, Error, Migration, Migrations, Query, Read, Database, UnixMs, column, from_row, sql};
//!
//! // A service keeps its migrations in files, one folder per dialect, and lists them with `migrations!`.
//! const MIGRATIONS: Migrations = Migrations {
//!     service: "notes",
//!     steps: &[Migration {
//!         name: "0001_notes",
//!         sqlite: "CREATE TABLE notes_note (id TEXT PRIMARY KEY, title TEXT NOT NULL, created_at INTEGER) STRICT",
//!         postgres: r#"CREATE TABLE notes_note (id TEXT COLLATE "C" PRIMARY KEY, title TEXT NOT NULL, created_at BIGINT)"#,
//!     }],
//! };
//! const ADDED: Topic = Topic("notes.note.added");
//!
//! #[derive(Clone)]
//! struct NoteId(String);
//! struct Note {
//!     id: NoteId,
//!     title: String,
//!     created_at: UnixMs,
//! }
//! column!(NoteId(String));
//! from_row!(Note { id, title, created_at });
//!
//! // A query is a value. It runs on the database, in a snapshot, or in a transaction.
//! fn by_id(id: &NoteId) -> Query<Note> {
//!     sql("SELECT id, title, created_at FROM notes_note WHERE id = $1").bind(id)
//! }
//!
//! // A write is a closure that may run more than once, so it borrows what it needs.
//! async fn add(database: &Database, id: &NoteId, title: &str) -> Result<(), Error> {
//!     database
//!         .write(|tx| async move {
//!             let insert = sql("INSERT INTO notes_note (id, title, created_at) VALUES ($1, $2, $3)");
//!             tx.execute(insert.bind(id).bind(title).bind(tx.now())).await?;
//!             tx.emit(ADDED, &id.0, title)
//!         })
//!         .await
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Error> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("notes.db");
//! let address: Address = path.to_str().unwrap().parse()?; // or "postgres://hob@db/hob"
//! let database = Database::open(&address, &[MIGRATIONS]).await?;
//! add(&database, &NoteId("n1".into()), "On engines").await?;
//! let note = database.one(by_id(&NoteId("n1".into()))).await?;
//! assert_eq!(note.title, "On engines");
//! # Ok(())
//! # }
//! ```
//!
//! # One query for both dialects
//!
//! Placeholders are `$1`, `$2`, … Both databases support `INSERT … ON CONFLICT … DO UPDATE`, `RETURNING`, row values
//! such as `(a, b) < ($1, $2)`, `WITH`, window functions, `TRUE` and `FALSE`. Where they differ, write the query once
//! for each with [`PerDialect`].
//!
//! | Rust | SQLite column | PostgreSQL column |
//! |---|---|---|
//! | integers, [`UnixMs`] | `INTEGER` | `BIGINT` |
//! | `f64` | `REAL` | `DOUBLE PRECISION` |
//! | `bool` | `INTEGER` | `BOOLEAN` |
//! | `String`, `&str` | `TEXT` | `TEXT`; with `COLLATE "C"` if it is compared or sorted, to sort by bytes as SQLite does |
//! | `Vec<u8>`, `&[u8]` | `BLOB` | `BYTEA` |
//!
//! SQLite tables are `STRICT`. A value that only one database could store is refused on both: text with a zero byte,
//! NaN, integers above 2⁶³ − 1. Write the sum of an integer column as `CAST(sum(n) AS BIGINT)`. `LIKE` is
//! case-sensitive on PostgreSQL only. On both, a transaction does not commit after one of its statements failed.
//!
//! # Failures
//!
//! Every call ends in bounded time ([`Options`]). After [`Error::Unavailable`] and [`Error::Conflict`] nothing was
//! changed: retry later. After [`Error::Uncertain`] the change may or may not have been applied, so a write that must
//! take effect exactly once has to be idempotent. Lost connections are replaced automatically.

mod address;
mod backup;
mod connection;
mod copy;
mod database;
mod error;
mod meta;
mod migration;
pub mod outbox;
pub mod private_file;
mod query;
mod signal;
mod transaction;
mod value;

pub use address::{Address, Dialect};
pub use connection::Isolation;
pub use copy::CopySummary;
pub use database::{Database, Options};
pub use error::{Constraint, Error, MigrationError};
pub use meta::DatabaseId;
pub use migration::{Migration, Migrations, PendingMigration};
pub use query::insert::Binds;
pub use query::page::{Cursor, Keyset, Page, PageRequest};
pub use query::read::{MAX_ROWS, Read};
pub use query::{PerDialect, Query, Sql, sql};
pub use signal::{Signal, Wakeups};
pub use transaction::{Snapshot, Transaction};
pub use value::row::{FromRow, Row};
pub use value::time::UnixMs;
pub use value::{Bind, Column, Value, ValueKind};
