//! Alerts: who is told of incidents, and that it arrived.
//!
//! Incidents say what happened through the outbox. What is taken in from there becomes a [`delivery`] for each channel
//! of the monitor, a row that is unique, and couriers carry those that are due: some at a time for each channel, so that
//! one that swallows everything delays no other, and no check. What a channel is told of one incident it is told in its
//! order: the end waits until the beginning has arrived, or was tried often enough. A delivery that fails is tried again,
//! a bounded number of times and with growing pauses, and every attempt is kept to be looked at.
//!
//! Any node may take in and carry. A node that dies in the middle holds a delivery until its lease runs out; then
//! another carries it, perhaps for the second time, under the same idempotency key.

pub mod channel;
mod consumer;
pub mod delivery;
mod mail;
mod message;
mod notice;
mod send;
mod sender;
pub mod signature;

use std::sync::Arc;
use std::time::Duration;

use hob_database::Database;
use hob_service::{Live, ServiceContext};
use hob_web::{Changes, Routes};
use tokio::sync::Notify;

pub use channel::{Channel, ChannelId, ChannelKind, ChannelPatch, ChannelSpec, ChannelTarget};
pub use delivery::{Attempt, Delivery, DeliveryState};
pub use notice::{Notice, NoticeKind};

use crate::Config;
use crate::database::{channels, deliveries};
use crate::error::Result;
use crate::incident::INCIDENTS;
use crate::probe::Probe;
use crate::{pages, routes};
use delivery::RetryPolicy;

/// What tells people. Clones are handles to the same.
#[derive(Clone, Debug)]
pub struct Alerts {
    pub(crate) context: ServiceContext,
    probe: Probe,
    config: Live<Config>,
    /// Told when there are new deliveries.
    new_deliveries: Arc<Notify>,
}

impl Alerts {
    /// Webhooks go the same guarded way as the probe's checks.
    #[must_use]
    pub fn new(context: &ServiceContext, probe: &Probe, config: Live<Config>) -> Self {
        Self { context: context.clone(), probe: probe.clone(), config, new_deliveries: Arc::default() }
    }

    /// Takes in and carries from now on; `changes` tell when there is something to take in.
    pub fn start(&self, changes: &Changes) {
        let (alerts, changes) = (self.clone(), changes.clone());
        self.context.tasks.spawn("uptime alerts intake", move |task| {
            consumer::run(alerts.clone(), changes.hint(INCIDENTS.0), task)
        });
        let alerts = self.clone();
        self.context.tasks.spawn("uptime alerts couriers", move |task| sender::run(alerts.clone(), task));
    }

    #[must_use]
    pub fn routes<S>(&self) -> Routes<S> {
        routes::channels::routes().merge(pages::channels::routes()).with_state(self.clone())
    }

    /// Tells a channel that this is a test, once and now. `None`: there is no such channel.
    pub async fn test(&self, id: &ChannelId) -> Result<Option<Attempt>> {
        if channels::by_id(self.database(), id).await?.is_none() {
            return Ok(None);
        }
        let claimed = delivery::add_test(self.database(), id, self.lease()).await?;
        let once = RetryPolicy { max_attempts: 1, ..self.retry_policy() };
        sender::deliver(self, &claimed, once).await?;
        let tried = deliveries::attempts(self.database(), &[claimed.id.as_str()]).await?;
        Ok(tried.into_iter().next())
    }

    pub(crate) fn database(&self) -> &Database {
        &self.context.database
    }

    fn retry_policy(&self) -> RetryPolicy {
        let config = self.config.now();
        RetryPolicy { max_attempts: config.alert_attempts.max(1), first_pause: config.alert_pause.get() }
    }

    /// How long one attempt may take.
    fn timeout(&self) -> Duration {
        self.config.now().alert_timeout.get()
    }

    /// How long a delivery is held: what it may take, and what the database may take to hear of it.
    fn lease(&self) -> Duration {
        self.timeout() + self.config.now().grace.get()
    }
}
