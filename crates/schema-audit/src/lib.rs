//! Compares a live Redis with its key schema: [`audit`] reports keys that break the schema, [`infer`] proposes a schema
//! for a Redis that has none, [`clean`] deletes the keys of a family or adds missing TTLs.
//!
//! All three walk the keys of a [`Store`](hob_store::Store) with `SCAN`, on every master of a Cluster. `audit` and
//! `infer` only read; `clean` changes nothing unless [`CleanOptions::apply`] is set. [`audit_rdb`] audits a snapshot instead.
//! [`Watch`] audits a store again and again, and [`History`] keeps the sizes of earlier audits.

mod audit;
mod batch;
mod clean;
mod connect;
mod display;
mod error;
#[cfg(feature = "guard")]
mod guard;
mod history;
mod infer;
mod master;
mod patterns;
mod rdb;
mod ready;
mod sample;
mod scan;
mod single_keys;
mod watch;
mod written_keys;

pub use audit::baseline::Baseline;
pub use audit::estimate::Estimate;
pub use audit::report::{AuditReport, BigKey, Example, FamilyUse, UndeclaredGroup, ViolationGroup};
pub use audit::sampling::{BadSampleSize, SampleFacts, SampleSize, Sampling};
pub use audit::{AuditOptions, audit};
pub use clean::{CleanAction, CleanOptions, CleanReport, clean};
pub use connect::connect;
pub use error::Error;
#[cfg(feature = "guard")]
pub use guard::{BrokenKey, broken_keys};
pub use history::{Amount, Grown, GrownFinding, Growth, History, HistoryEntry, HistoryError, growth_text};
pub use infer::{InferOptions, Inferred, Known, infer};
pub use rdb::{RdbError, audit_rdb};
pub use ready::{ready_name, ready_schema, ready_schemas, ready_text, recognizable};
pub use scan::{Pace, Progress};
pub use single_keys::{KeyChecker, MismatchedKey};
pub use watch::{Watch, WatchOptions};
pub use written_keys::{Turn, TurnFailed, WrittenKeys};
