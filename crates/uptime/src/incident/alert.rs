//! Alerts: notices of incidents, delivered to channels.
//!
//! Incidents write events to the outbox. The consumer turns each event into a [`delivery`] for every channel of the
//! monitor, a unique row; the sender delivers those that are due. It sends a few at a time for each channel, so that an
//! unresponsive channel delays no other channel and no check. Deliveries of one incident to one channel keep their order:
//! the notice that it was resolved waits until the notice that it was opened has arrived or failed. A failed attempt is
//! retried a bounded number of times with growing pauses, and every attempt is recorded.
//!
//! Every node consumes and sends. If a node dies, its deliveries are sent by another node when their leases expire, perhaps
//! a second time, with the same idempotency key.

pub mod channel;
mod consumer;
pub mod delivery;
mod mail;
mod message;
mod notice;
mod send;
mod sender;

use std::time::Duration;

use hob_database::Database;
use hob_service::{Live, ServiceContext};
use hob_web::{Changes, Routes};

pub use channel::{Channel, ChannelId, ChannelKind, ChannelPatch, ChannelSpec, ChannelTarget};
pub use delivery::{Attempt, Delivery, DeliveryState};
pub use notice::{Notice, NoticeKind, StatusNotice};

use crate::Config;
use crate::database::{channels, deliveries};
use crate::error::Result;
use crate::incident::INCIDENTS;
use crate::probe::Probe;
use crate::{pages, routes};
use hob_web::webhook::RetryPolicy;

/// Sends alerts. Clones share one state.
#[derive(Clone, Debug)]
pub struct Alerts {
    pub(crate) context: ServiceContext,
    probe: Probe,
    config: Live<Config>,
}

impl Alerts {
    /// Webhooks are sent with the limits of the probe.
    #[must_use]
    pub fn new(context: &ServiceContext, probe: &Probe, config: Live<Config>) -> Self {
        Self { context: context.clone(), probe: probe.clone(), config }
    }

    /// Starts the consumer and the sender; `changes` wake the consumer.
    pub fn start(&self, changes: &Changes) {
        let (alerts, changes) = (self.clone(), changes.clone());
        self.context.tasks.spawn("uptime: consume incident events", move |task| {
            consumer::run(alerts.clone(), changes.listen(INCIDENTS.0), task)
        });
        let alerts = self.clone();
        self.context.tasks.spawn("uptime: send alerts", move |task| sender::run(alerts.clone(), task));
    }

    #[must_use]
    pub fn routes<S>(&self) -> Routes<S> {
        routes::channels::routes().merge(pages::channels::routes()).with_state(self.clone())
    }

    /// Sends a test notice once, now; `None` if there is no such channel.
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
        let config = self.config.current();
        RetryPolicy { max_attempts: config.alert_attempts.max(1), first_pause: config.alert_backoff.get() }
    }

    /// Timeout of an attempt.
    fn timeout(&self) -> Duration {
        self.config.current().alert_timeout.get()
    }

    /// How long a claim lasts: the attempt, and the time to record it.
    fn lease(&self) -> Duration {
        self.timeout() + self.config.current().grace.get()
    }
}
