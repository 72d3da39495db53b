//! Deliveries: one notice to one channel, until it is delivered or has failed for good.
//!
//! A delivery is unique per incident, channel, recipient, kind and number. Its id is the idempotency key, so that a receiver can
//! recognize a notice that arrives twice.

use std::time::Duration;

use hob_database::{Database, Transaction, UnixMs, column};
use hob_web::webhook::{AfterAttempt, DeliveryOutcome, RetryPolicy};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::channel::ChannelId;
use super::notice::{Notice, NoticeKind};

use crate::database::deliveries;
use crate::error::Result as UptimeResult;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeliveryState {
    Waiting,
    Delivered,
    /// All attempts failed.
    Failed,
}

column!(DeliveryState as text);

/// A delivery as the database has it.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub id: String,
    pub incident_id: String,
    pub kind: NoticeKind,
    pub number: u32,
    pub state: DeliveryState,
    pub attempts: u32,
    /// Time of the next attempt, while it is waiting.
    pub due_at: UnixMs,
    pub created_at: UnixMs,
}

/// A delivery that this node has claimed.
#[derive(Clone, Debug)]
pub(crate) struct ClaimedDelivery {
    pub(crate) id: String,
    pub(crate) channel_id: ChannelId,
    /// The id of a subscriber; empty if the channel is not a status page.
    pub(crate) recipient: String,
    pub(crate) notice: Notice,
    /// Attempts before this one.
    pub(crate) attempts: u32,
    pub(crate) fence: u64,
}

/// One attempt of a delivery.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub delivery_id: String,
    pub number: u32,
    pub at: UnixMs,
    pub took_ms: u64,
    pub delivered: bool,
    /// The response, or why there was none.
    pub message: String,
}

/// What identifies a delivery.
#[derive(Clone, Debug)]
pub(crate) struct DeliveryKey {
    pub(crate) incident_id: String,
    pub(crate) channel_id: ChannelId,
    /// The id of a subscriber; empty if the channel is not a status page.
    pub(crate) recipient: String,
    pub(crate) kind: NoticeKind,
    pub(crate) number: u32,
}

impl DeliveryKey {
    pub(crate) fn id(&self) -> String {
        format!("{}.{}.{}.{}", self.incident_id, self.channel_id, self.kind, self.number)
    }
}

/// Adds a test delivery that the caller holds, so that no other node sends it.
pub(super) async fn add_test(
    database: &Database,
    channel_id: &ChannelId,
    lease: Duration,
) -> UptimeResult<ClaimedDelivery> {
    let key = &DeliveryKey {
        incident_id: format!("t{:016x}", rand::random::<u64>()),
        channel_id: channel_id.clone(),
        recipient: String::new(),
        kind: NoticeKind::Test,
        number: 1,
    };
    let work = |tx: Transaction| async move {
        deliveries::insert(&tx, key, &Notice::Test, tx.now().plus(lease)).await
    };
    database.write(work).await?;
    Ok(ClaimedDelivery {
        id: key.id(),
        channel_id: channel_id.clone(),
        recipient: String::new(),
        notice: Notice::Test,
        attempts: 0,
        fence: 0,
    })
}

/// Records an attempt and what becomes of the delivery. Does nothing if the lease expired and another node has claimed
/// the delivery.
pub(super) async fn finish(
    database: &Database,
    claimed: &ClaimedDelivery,
    outcome: &DeliveryOutcome,
    took: Duration,
    retry_policy: RetryPolicy,
) -> UptimeResult<()> {
    let number = claimed.attempts + 1;
    let (state, pause) = match retry_policy.after(number, outcome) {
        AfterAttempt::Delivered => (DeliveryState::Delivered, Duration::ZERO),
        AfterAttempt::Failed => (DeliveryState::Failed, Duration::ZERO),
        AfterAttempt::Retry(pause) => (DeliveryState::Waiting, pause),
    };
    let message = outcome.message();
    let work = |tx: Transaction| async move {
        if !deliveries::release(&tx, claimed, state, pause).await? {
            return Ok(());
        }
        let attempt = Attempt {
            delivery_id: claimed.id.clone(),
            number,
            at: tx.now(),
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX >> 1),
            delivered: matches!(outcome, DeliveryOutcome::Delivered(_)),
            message: message.to_owned(),
        };
        deliveries::insert_attempt(&tx, &attempt).await
    };
    database.write(work).await
}

hob_units::names!(DeliveryState { Waiting = "waiting", Delivered = "delivered", Failed = "failed" });
