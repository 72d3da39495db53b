//! History of monitors: single results for days, hourly and daily summaries for longer, downtime from the incidents.

mod downtime;
mod histogram;
mod points;
mod summary;
mod writer;

use hob_database::UnixMs;
use serde::Serialize;
use utoipa::ToSchema;

pub use downtime::{Downtime, availability};
pub use histogram::Histogram;
pub use points::{Period, Point, Points, points};
pub(crate) use summary::Summary;
pub use summary::{summarize, trim};
pub use writer::write;
pub(crate) use writer::{ResultQueue, ResultReceiver, result_queue, write_queued};

use crate::keys::MonitorId;
use crate::schedule::state::MonitorState;

/// A result to be written to the database.
#[derive(Clone, Debug)]
pub struct NewResult {
    pub monitor: MonitorId,
    pub at: UnixMs,
    pub fence: u64,
    pub state: MonitorState,
    pub latency_us: u64,
    /// `None` if the check succeeded.
    pub error: Option<String>,
}

/// A result as the database has it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ResultRow {
    /// Unix milliseconds.
    pub at_ms: i64,
    pub state: String,
    pub latency_us: u64,
    pub error: Option<String>,
}

/// The length of time that a summary covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    Hour,
    Day,
}

pub(crate) const HOUR_MS: i64 = 3_600_000;
pub(crate) const DAY_MS: i64 = 24 * HOUR_MS;

impl Span {
    /// As the database stores it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "h",
            Self::Day => "d",
        }
    }

    fn length_ms(self) -> i64 {
        match self {
            Self::Hour => HOUR_MS,
            Self::Day => DAY_MS,
        }
    }

    /// The start of the hour or day that holds this time.
    fn start_of(self, at_ms: i64) -> i64 {
        at_ms - at_ms.rem_euclid(self.length_ms())
    }
}
