//! Charts of traffic by hour, which the database keeps for a month.

use std::ops::Range;

use hob_web::chart::{Bars, Line, TimeRange};
use hob_web::components::{Markup, Quantity, Unit};

use crate::Error;
use crate::traffic::statistics::{HourTraffic, Statistics};

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;

/// Traffic by hour, in steps of one or more hours.
pub(super) struct History {
    range: Range<u64>,
    step_ms: u64,
    hours: Vec<HourTraffic>,
}

impl History {
    /// The hours of a range. A range of less than a day is extended to a day, because an hour is one bar.
    pub(super) async fn load(statistics: &Statistics, shown: &TimeRange) -> Result<Self, Error> {
        let from_ms = shown.from_ms.min(shown.to_ms.saturating_sub(DAY_MS));
        let step_ms = match (shown.to_ms - from_ms).div_ceil(DAY_MS) {
            ..=2 => HOUR_MS,
            3..=8 => 2 * HOUR_MS,
            _ => 6 * HOUR_MS,
        };
        // The first bar is a whole one.
        let range = from_ms.next_multiple_of(step_ms)..shown.to_ms;
        let hours = statistics.history(range.clone()).await?;
        Ok(Self { range, step_ms, hours })
    }

    /// Requests by their outcome.
    pub(super) fn requests(&self) -> Markup {
        let series = |count: fn(&HourTraffic) -> u64| {
            self.hours.iter().map(move |hour| (hour.start_unix_ms, count(hour) as f64))
        };
        Bars::new(self.range.clone(), self.step_ms)
            .title(match self.step_ms / HOUR_MS {
                1 => "Requests per hour".to_owned(),
                hours => format!("Requests per {hours} hours"),
            })
            .series("successful", series(|hour| hour.requests.saturating_sub(hour.errors)))
            .series("limited", series(|hour| hour.limited))
            .series("client errors", series(HourTraffic::client_errors))
            .series("server errors", series(|hour| hour.server_errors))
            .render()
    }

    /// Average response times.
    pub(super) fn response_times(&self) -> Markup {
        let steps = self.hours.chunk_by(|one, other| self.step(one) == self.step(other));
        let average = steps.map(|hours| (self.step(&hours[0]), average_ms(hours)));
        Line::new(self.range.clone())
            .title("Average response time")
            .unit(Unit::Millis)
            .every(self.step_ms)
            .series("average", average)
            .render()
    }

    pub(super) fn average(&self) -> Quantity {
        Unit::Millis.of(average_ms(&self.hours).unwrap_or(f64::NAN))
    }

    fn step(&self, hour: &HourTraffic) -> u64 {
        hour.start_unix_ms - hour.start_unix_ms % self.step_ms
    }
}

fn average_ms(hours: &[HourTraffic]) -> Option<f64> {
    let mut sum = HourTraffic::default();
    for hour in hours {
        sum.timed += hour.timed;
        sum.time_us += hour.time_us;
    }
    sum.average_ms()
}
