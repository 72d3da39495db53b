//! History of monitors: single results for days, hourly and daily summaries for longer, downtime from the incidents.

mod downtime;
mod points;
mod summary;
mod writer;

use hob_database::UnixMs;
use serde::Serialize;
use utoipa::ToSchema;

pub use downtime::{Downtime, availability};
pub use points::{Period, Point, Points, points, points_between};
pub(crate) use summary::Summary;
pub use summary::{summarize, trim};
pub use writer::write;
pub(crate) use writer::{ResultQueue, ResultReceiver, result_queue, write_queued};

use crate::keys::MonitorId;
use crate::schedule::state::MonitorState;

/// Latencies in microseconds. A bucket is at most a sixteenth of its values wide.
pub type Histogram = hob_histogram::Histogram<4>;

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
    pub state: MonitorState,
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

// As the database stores it.
hob_units::names!(Span { Hour = "h", Day = "d" });

impl Span {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The results 0, 1, 15, 16, 31, 32, 33, 100, 999, 1000, 12345, 777777, 59999999, 2^32 and 2^64 - 1, and 300 times 20007,
    /// as earlier versions stored them.
    const STORED: &[u8] = b"\x00\x01\x00\x01\x0d\x01\x00\x01\x0e\x01\x00\x02\x18\x01\x35\x02\x38\x01\x0a\xac\x02\x53\x01\x64\x01\x63\x01\xfe\x03\x01";

    #[test]
    fn stored_latencies_can_be_read() {
        let histogram = Histogram::decode(STORED).unwrap();
        let mut recorded = Histogram::default();
        let us = [0, 1, 15, 16, 31, 32, 33, 100, 999, 1_000, 12_345, 777_777, 59_999_999, 1 << 32, u64::MAX];
        us.into_iter().chain(std::iter::repeat_n(20_007, 300)).for_each(|us| recorded.record(us));
        assert_eq!(histogram, recorded);
        assert_eq!(histogram.encode(), STORED);
        let quantiles = [0.0, 0.01, 0.02, 0.03, 0.5, 0.95, 0.99, 0.995, 1.0];
        let middles = quantiles.map(|quantile| histogram.quantile(quantile).unwrap().middle());
        let shown = [0, 16, 33, 1_008, 19_968, 19_968, 770_048, 4_429_185_024, 18_158_513_697_557_839_872];
        assert_eq!(middles, shown);
    }
}
