//! Reservations: calls that a caller may make.

use std::time::Duration;

use hob_database::UnixMs;

use super::log::LoggedCall;
use super::{Limits, MAX_HOLD, QuotaName};
use crate::error::{Error, Result};

/// A reservation to make.
#[derive(Clone, Debug)]
pub struct NewReservation {
    /// Chosen by the caller. Idempotent: the same id returns the same reservation.
    pub id: String,
    pub calls: u32,
    /// Runs that wait for the same quota share it by weight.
    pub run: String,
    pub weight: u32,
    /// The calls end within this time.
    pub hold: Duration,
}

/// Calls that the caller may make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    pub id: String,
    pub quota: QuotaName,
    pub calls: u32,
    /// By the store's clock.
    pub reserved_at: UnixMs,
    /// When a call that is not settled counts as ended.
    pub until: UnixMs,
}

/// Whether calls are granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReserveDecision {
    Granted(Reservation),
    Wait {
        /// The earliest time at which the calls may fit, by the store's clock.
        at: UnixMs,
        /// Time until `at`, for callers with another clock.
        after: Duration,
    },
}

impl NewReservation {
    /// A unique id: 80 random bits, since the store keeps one per call.
    pub fn random_id() -> String {
        format!("{:020x}", rand::random::<u128>() >> 48)
    }

    pub(super) fn check(&self, limits: &Limits) -> Result<()> {
        if self.calls == 0 || self.calls > limits.max_calls_per_reservation() {
            let max = limits.max_calls_per_reservation();
            return Err(Error::invalid(
                "calls",
                format!("must be between 1 and {max}, the smallest window minus the buffer"),
            ));
        }
        if self.id.is_empty()
            || self.id.len() > 64
            || !self.id.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':')
        {
            return Err(Error::invalid("id", "must have 1 to 64 visible characters without ':'"));
        }
        if self.run.is_empty() || self.run.len() > 250 || self.run.chars().any(char::is_control) {
            return Err(Error::invalid("run", "must have 1 to 250 characters"));
        }
        if !(1..=1000).contains(&self.weight) {
            return Err(Error::invalid("weight", "must be between 1 and 1000"));
        }
        if self.hold < Duration::from_secs(1) || self.hold > MAX_HOLD {
            return Err(Error::invalid("hold", "must be between 1 second and 1 hour"));
        }
        Ok(())
    }
}

impl Reservation {
    pub(super) fn of(call: &LoggedCall) -> Self {
        Self {
            id: call.id.clone(),
            quota: call.quota.clone(),
            calls: call.calls,
            reserved_at: call.reserved_at,
            until: call.until,
        }
    }
}
