//! History: single results for a while, hours and days for long.

mod latencies;
mod query;
mod summary;
mod writer;

use hob_database::UnixMs;

pub use latencies::Latencies;
pub use query::{Downtime, Period, Point, Points, ResultRow, Span, availability, latest, points};
pub use summary::{summarize, trim};
pub use writer::write;
pub(crate) use writer::{Intake, Waiting, intake, write_results};

use crate::keys::MonitorId;
use crate::schedule::state::State;

/// One result on its way into the database.
#[derive(Clone, Debug)]
pub struct Finding {
    pub monitor: MonitorId,
    pub at: UnixMs,
    pub fence: u64,
    pub state: State,
    pub latency_us: u64,
    /// `None` if it went well.
    pub error: Option<String>,
}

pub(crate) const HOUR_MS: i64 = 3_600_000;
pub(crate) const DAY_MS: i64 = 24 * HOUR_MS;
