//! Consumes events of incidents from the outbox and adds deliveries for them.

use std::time::Duration;

use hob_database::outbox::{self, Consumer, Event, Replay, Start};
use hob_database::{Database, Transaction, UnixMs};
use hob_service::Task;
use hob_web::live::ChangeListener;

use super::delivery::DeliveryKey;
use super::{Alerts, Notice};
use crate::database::{channels, deliveries};
use crate::error::Result;
use crate::incident::{INCIDENTS, IncidentEvent};

const NAME: &str = "uptime.alerts";
const BATCH: u16 = 100;

/// How often the outbox of a SQLite database is polled without a notification.
const POLL_EVERY: Duration = Duration::from_secs(2);

const AFTER_FAILURE: Duration = Duration::from_secs(2);

/// Consumes new events after each notification, and periodically.
pub(super) async fn run(alerts: Alerts, mut listener: ChangeListener, task: Task) {
    let mut consumer = None;
    let mut numbered = outbox::numbered(alerts.database(), INCIDENTS);
    loop {
        let consumed = consume(alerts.database(), &mut consumer).await;
        task.heartbeat();
        let go_on = match consumed {
            Ok(0) => tokio::select! {
                go_on = task.wait(numbered.wait(POLL_EVERY)) => go_on,
                Some(()) = listener.changed() => true,
            },
            Ok(_) => !task.is_stopping(),
            Err(error) => {
                tracing::warn!(%error, "failed to read incident events");
                task.pause(AFTER_FAILURE).await
            }
        };
        if !go_on {
            return;
        }
    }
}

/// Consumes a batch of events; returns their number.
async fn consume(database: &Database, consumer: &mut Option<Consumer>) -> Result<usize> {
    let consumer = match consumer {
        Some(consumer) => consumer,
        None => consumer.insert(Consumer::open(database, NAME, INCIDENTS, Start::Oldest).await?),
    };
    match consumer.next_batch(BATCH).await? {
        Replay::Events(events) => {
            add_deliveries(database, consumer, &events).await?;
            Ok(events.len())
        }
        Replay::Missed { oldest, newest } => {
            tracing::error!(
                oldest,
                newest,
                "incident events were deleted before they were read, their alerts are not sent"
            );
            consumer.ack(oldest - 1).await?;
            Ok(1)
        }
    }
}

/// Adds the deliveries of some events. Idempotent: several nodes may process the same events.
async fn add_deliveries(database: &Database, consumer: &Consumer, events: &[Event]) -> Result<()> {
    let Some(last) = events.last().map(|event| event.number) else { return Ok(()) };
    database
        .write(|tx: Transaction| async move {
            for event in events {
                match serde_json::from_str::<IncidentEvent>(&event.payload) {
                    Ok(incident) => add_deliveries_for(&tx, incident).await?,
                    Err(error) => {
                        tracing::error!(%error, number = event.number, "unreadable incident event skipped");
                    }
                }
            }
            Ok(consumer.ack_in(&tx, last).await?)
        })
        .await
}

async fn add_deliveries_for(tx: &Transaction, event: IncidentEvent) -> Result<()> {
    let channels = channels::resolve(tx, &event.channels).await?;
    for channel in &channels.missing {
        tracing::warn!(
            monitor = event.monitor,
            channel,
            kind = event.kind.as_str(),
            "alert not sent, channel does not exist"
        );
    }
    let (incident_id, number) = (event.incident.clone(), event.number);
    let notice = Notice::Incident(Box::new(event));
    for channel_id in channels.found {
        let key = DeliveryKey {
            incident_id: incident_id.clone(),
            channel_id,
            recipient: String::new(),
            kind: notice.kind(),
            number,
        };
        deliveries::insert(tx, &key, &notice, UnixMs(0)).await?;
    }
    Ok(())
}
