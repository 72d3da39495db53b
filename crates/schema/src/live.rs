//! Schemas against a live server: audit, infer, clean. Read-only unless told to apply.

mod audit;
mod baseline;
mod clean;
mod guess;
mod infer;
mod narrow;
mod probe;
mod propose;
mod report;
mod scan;
mod sums;
mod tally;
mod target;

pub use audit::{AuditOptions, audit, audit_nodes};
pub use baseline::Baseline;
pub use clean::{CleanOptions, CleanReport, Cleaning, clean, clean_nodes};
pub use infer::{InferOptions, infer, infer_nodes};
pub use report::{AuditReport, BigKey, Example, FamilyUse, UndeclaredGroup, ViolationGroup};
pub use scan::{Pace, Progress};
pub use target::{Node, connect};
