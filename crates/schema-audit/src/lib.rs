//! Compares a live Redis with its key schema: [`audit`] reports keys that break the schema, [`infer`] proposes a schema
//! for a Redis that has none, [`clean`] deletes the keys of a family or adds missing TTLs.
//!
//! All three walk the keys of a [`Store`](hob_store::Store) with `SCAN`, on every master of a Cluster. `audit` and
//! `infer` only read; `clean` changes nothing unless [`CleanOptions::apply`] is set.

mod audit;
mod batch;
mod clean;
mod connect;
mod display;
mod error;
mod infer;
mod master;
mod patterns;
mod sample;
mod scan;

pub use audit::baseline::Baseline;
pub use audit::report::{AuditReport, BigKey, Example, FamilyUse, UndeclaredGroup, ViolationGroup};
pub use audit::{AuditOptions, audit};
pub use clean::{CleanAction, CleanOptions, CleanReport, clean};
pub use connect::connect;
pub use error::Error;
pub use infer::{InferOptions, Inferred, infer};
pub use scan::{Pace, Progress};
