//! Takes in what the outbox tells of incidents, and makes deliveries of it.

use std::time::Duration;

use hob_house::Task;
use hob_records::outbox::{Consumer, Event, Replay, Start, Topic};
use hob_records::{Records, Transaction};

use super::delivery::{self, Key};
use super::{Alerts, Notice, channel};
use crate::error::Result;
use crate::incident::{IncidentEvent, OPENED, REMINDED, RESOLVED};

const NAME: &str = "uptime.alerts";
const TOPICS: [Topic; 3] = [OPENED, REMINDED, RESOLVED];
const AT_ONCE: u16 = 100;

/// How soon something new is seen.
const POLL: Duration = Duration::from_millis(500);

/// How long the records are left alone after they did not answer.
const AFTER_FAILURE: Duration = Duration::from_secs(2);

pub(super) async fn run(alerts: Alerts, task: Task) {
    let mut consumers = Vec::new();
    loop {
        let pause = match round(alerts.records(), &mut consumers).await {
            Ok(0) => POLL,
            Ok(_) => Duration::ZERO,
            Err(error) => {
                tracing::warn!(%error, "what happened to incidents cannot be read");
                AFTER_FAILURE
            }
        };
        task.beat();
        if !task.pause(pause).await {
            return;
        }
    }
}

/// Takes in what is new of each topic, and says how many events that were.
async fn round(records: &Records, consumers: &mut Vec<Consumer>) -> Result<usize> {
    while let Some(topic) = TOPICS.get(consumers.len()) {
        consumers.push(Consumer::open(records, NAME, *topic, Start::Oldest).await?);
    }
    let mut count = 0;
    for (consumer, topic) in consumers.iter().zip(TOPICS) {
        match consumer.next_batch(AT_ONCE).await? {
            Replay::Events(events) => {
                take_in(records, consumer, &events).await?;
                count += events.len();
            }
            Replay::Missed { oldest, newest } => {
                tracing::error!(
                    topic = topic.0,
                    oldest,
                    newest,
                    "nobody was told of some incidents: their events are gone"
                );
                consumer.ack(oldest - 1).await?;
            }
        }
    }
    Ok(count)
}

/// Several nodes may do this with the same events: a delivery is entered once, and the place only moves on.
async fn take_in(records: &Records, consumer: &Consumer, events: &[Event]) -> Result<()> {
    let Some(last) = events.last().map(|event| event.number) else { return Ok(()) };
    records
        .write(|tx: Transaction| async move {
            for event in events {
                match serde_json::from_str::<IncidentEvent>(&event.payload) {
                    Ok(incident) => enter(&tx, incident).await?,
                    Err(error) => {
                        tracing::error!(%error, number = event.number, "an event that cannot be read");
                    }
                }
            }
            Ok(consumer.ack_in(&tx, last).await?)
        })
        .await
}

async fn enter(tx: &Transaction, event: IncidentEvent) -> Result<()> {
    let channels = channel::named(tx, &event.channels).await?;
    let (incident_id, number) = (event.incident.clone(), event.number);
    let notice = Notice::Incident(Box::new(event));
    for channel_id in channels {
        let key = Key { incident_id: incident_id.clone(), channel_id, kind: notice.kind(), number };
        delivery::add(tx, &key, &notice).await?;
    }
    Ok(())
}
