//! History: single results for a while, hours and days for long.

mod latencies;
mod query;
mod summary;
mod writer;

use hob_records::UnixMs;

pub use latencies::Latencies;
pub use query::{Downtime, Period, Point, Points, ResultRow, Span, availability, latest, points};
pub(crate) use summary::{summarize, trim};
pub(crate) use writer::{Intake, Waiting, intake, write_results};

use crate::keys::MonitorId;
use crate::state::State;

/// One result on its way into the records.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) monitor: MonitorId,
    pub(crate) at: UnixMs,
    pub(crate) fence: u64,
    pub(crate) state: State,
    pub(crate) latency_us: u64,
    pub(crate) error: Option<String>,
}

pub(crate) const HOUR_MS: i64 = 3_600_000;
pub(crate) const DAY_MS: i64 = 24 * HOUR_MS;
