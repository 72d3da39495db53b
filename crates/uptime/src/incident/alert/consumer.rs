//! Takes in what the outbox tells of incidents, and makes deliveries of it.

use std::time::Duration;

use hob_database::outbox::{Consumer, Event, Replay, Start};
use hob_database::{Database, Transaction, UnixMs};
use hob_service::Task;
use hob_web::live::Hint;

use super::delivery::DeliveryKey;
use super::{Alerts, Notice};
use crate::database::{channels, deliveries};
use crate::error::Result;
use crate::incident::{INCIDENTS, IncidentEvent};

const NAME: &str = "uptime.alerts";
const MAX_CONCURRENT: u16 = 100;

/// How soon something new is seen that nobody told of.
const POLL_EVERY: Duration = Duration::from_secs(2);

/// How long the database is left alone after they did not answer.
const AFTER_FAILURE: Duration = Duration::from_secs(2);

/// Takes in what is new when the hint comes, and now and then without one.
pub(super) async fn run(alerts: Alerts, mut hint: Hint, task: Task) {
    let mut consumer = None;
    loop {
        let pause = match consume(alerts.database(), &mut consumer).await {
            Ok(0) => POLL_EVERY,
            Ok(_) => {
                alerts.new_deliveries.notify_one();
                Duration::ZERO
            }
            Err(error) => {
                tracing::warn!(%error, "what happened to incidents cannot be read");
                AFTER_FAILURE
            }
        };
        task.beat();
        let go_on = tokio::select! {
            go_on = task.pause(pause) => go_on,
            Some(()) = hint.heard() => true,
        };
        if !go_on {
            return;
        }
    }
}

/// Takes in what is new, and says how many events that were.
async fn consume(database: &Database, consumer: &mut Option<Consumer>) -> Result<usize> {
    let consumer = match consumer {
        Some(consumer) => consumer,
        None => consumer.insert(Consumer::open(database, NAME, INCIDENTS, Start::Oldest).await?),
    };
    match consumer.next_batch(MAX_CONCURRENT).await? {
        Replay::Events(events) => {
            add_deliveries(database, consumer, &events).await?;
            Ok(events.len())
        }
        Replay::Missed { oldest, newest } => {
            tracing::error!(oldest, newest, "nobody was told of some incidents: their events are gone");
            consumer.ack(oldest - 1).await?;
            Ok(1)
        }
    }
}

/// Several nodes may do this with the same events: a delivery is entered once, and the place only moves on.
async fn add_deliveries(database: &Database, consumer: &Consumer, events: &[Event]) -> Result<()> {
    let Some(last) = events.last().map(|event| event.number) else { return Ok(()) };
    database
        .write(|tx: Transaction| async move {
            for event in events {
                match serde_json::from_str::<IncidentEvent>(&event.payload) {
                    Ok(incident) => add_deliveries_for(&tx, incident).await?,
                    Err(error) => {
                        tracing::error!(%error, number = event.number, "an event that cannot be read");
                    }
                }
            }
            Ok(consumer.ack_in(&tx, last).await?)
        })
        .await
}

async fn add_deliveries_for(tx: &Transaction, event: IncidentEvent) -> Result<()> {
    let channels = channels::resolve(tx, &event.channels).await?;
    let (incident_id, number) = (event.incident.clone(), event.number);
    let notice = Notice::Incident(Box::new(event));
    for channel_id in channels {
        let key = DeliveryKey { incident_id: incident_id.clone(), channel_id, kind: notice.kind(), number };
        deliveries::insert(tx, &key, &notice, UnixMs(0)).await?;
    }
    Ok(())
}
