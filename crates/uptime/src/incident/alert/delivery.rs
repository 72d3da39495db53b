//! Deliveries: each notice to each channel, until it arrived or was tried often enough.
//!
//! A delivery is unique per incident, channel, kind and number, and its id goes along as the idempotency key: what
//! arrives twice, since nobody knows whether the first time went well, can be told to be the same.

mod table;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use hob_database::{UnixMs, column};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::channel::ChannelId;
use super::notice::{Notice, NoticeKind};

pub(crate) use table::{Key, add, add_test, attempts, claim, due_channels, forget, page, settle};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeliveryState {
    Waiting,
    Delivered,
    /// Tried as often as allowed.
    Failed,
}

column!(DeliveryState as text);

/// A delivery as it stands in the database.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub id: String,
    pub incident_id: String,
    pub kind: NoticeKind,
    pub number: u32,
    pub state: DeliveryState,
    pub attempts: u32,
    /// When it is tried next, while it waits.
    pub due_at: UnixMs,
    pub created_at: UnixMs,
}

/// A delivery in somebody's hands.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) id: String,
    pub(crate) channel_id: ChannelId,
    pub(crate) notice: Notice,
    /// Attempts before this one.
    pub(crate) attempts: u32,
    pub(crate) fence: u64,
}

/// How a try went.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub delivery_id: String,
    pub number: u32,
    pub at: UnixMs,
    pub took_ms: u64,
    pub delivered: bool,
    /// What the other side said, or why it did not.
    pub message: String,
}

/// What came of a try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    Delivered(String),
    Failed(String),
    /// There is no use in trying again.
    Hopeless(String),
}

/// How often it is tried, and how long between.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) most_attempts: u32,
    pub(crate) first_pause: Duration,
}

/// Nobody is told of an outage hours after it, however long the others waited.
const LONGEST_PAUSE: Duration = Duration::from_secs(30 * 60);

impl Patience {
    /// Where a delivery stands after its `nth` attempt, and how long until the next.
    pub(crate) fn after(&self, nth: u32, arrival: &Arrival) -> (DeliveryState, Duration) {
        match arrival {
            Arrival::Delivered(_) => (DeliveryState::Delivered, Duration::ZERO),
            Arrival::Hopeless(_) => (DeliveryState::Failed, Duration::ZERO),
            Arrival::Failed(_) if nth >= self.most_attempts => (DeliveryState::Failed, Duration::ZERO),
            Arrival::Failed(_) => {
                let doubled = self.first_pause.saturating_mul(1 << (nth - 1).min(20));
                // A channel that comes back is not met by all deliveries at once.
                let pause = LONGEST_PAUSE.min(doubled).mul_f64(rand::random_range(0.75..1.25));
                (DeliveryState::Waiting, pause)
            }
        }
    }
}

impl Arrival {
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Delivered(message) | Self::Failed(message) | Self::Hopeless(message) => message,
        }
    }
}

impl fmt::Display for DeliveryState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waiting => "waiting",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
        })
    }
}

impl FromStr for DeliveryState {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "waiting" => Ok(Self::Waiting),
            "delivered" => Ok(Self::Delivered),
            "failed" => Ok(Self::Failed),
            _ => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit_and_attempts_end() {
        let patience = Patience { most_attempts: 12, first_pause: Duration::from_secs(10) };
        let failed = Arrival::Failed(String::new());
        for (nth, least_s, most_s) in [(1, 7, 13), (2, 15, 25), (3, 30, 50), (11, 1350, 2250)] {
            let (state, pause) = patience.after(nth, &failed);
            assert_eq!(state, DeliveryState::Waiting);
            assert!((least_s..=most_s).contains(&pause.as_secs()), "{nth}: {pause:?}");
        }
        assert_eq!(patience.after(12, &failed).0, DeliveryState::Failed);
        assert_eq!(patience.after(1, &Arrival::Hopeless(String::new())).0, DeliveryState::Failed);
        assert_eq!(patience.after(12, &Arrival::Delivered(String::new())).0, DeliveryState::Delivered);
    }
}
