//! Consumes status events from the outbox and adds deliveries for the subscribers of each page that they concern.

use std::time::Duration;

use hob_database::outbox::{self, Consumer, Event, Replay, Start};
use hob_database::{Transaction, UnixMs};
use hob_service::Task;
use hob_web::Changes;
use hob_web::live::ChangeListener;

use super::event::{STATUS, StatusChange, StatusEvent};
use super::page::StatusPage;
use crate::database::{status_pages, subscribers};
use crate::error::Result;
use crate::incident::alert::{Notice, StatusNotice};
use crate::keys::MonitorId;
use crate::monitor::maintenance::{Maintenance, MaintenanceSpec};
use crate::uptime::Uptime;

const NAME: &str = "uptime.subscribers";
const BATCH: u16 = 20;

/// How often the outbox of a SQLite database is polled without a notification.
const POLL_EVERY: Duration = Duration::from_secs(2);
const AFTER_FAILURE: Duration = Duration::from_secs(2);

/// Starts the consumer; `changes` wake it.
pub(crate) fn start(uptime: &Uptime, changes: &Changes) {
    let (this, changes) = (uptime.clone(), changes.clone());
    uptime.inner.context.tasks.spawn("uptime: consume status events", move |task| {
        run(this.clone(), changes.listen(STATUS.0), task)
    });
}

async fn run(uptime: Uptime, mut listener: ChangeListener, task: Task) {
    let mut consumer = None;
    let mut numbered = outbox::numbered(uptime.database(), STATUS);
    loop {
        let consumed = consume(&uptime, &mut consumer).await;
        task.heartbeat();
        let go_on = match consumed {
            Ok(0) => tokio::select! {
                go_on = task.wait(numbered.wait(POLL_EVERY)) => go_on,
                Some(()) = listener.changed() => true,
            },
            Ok(_) => !task.is_stopping(),
            Err(error) => {
                tracing::warn!(%error, "failed to read status events");
                task.pause(AFTER_FAILURE).await
            }
        };
        if !go_on {
            return;
        }
    }
}

/// Consumes a batch of events; returns their number.
async fn consume(uptime: &Uptime, consumer: &mut Option<Consumer>) -> Result<usize> {
    let consumer = match consumer {
        Some(consumer) => consumer,
        None => consumer.insert(Consumer::open(uptime.database(), NAME, STATUS, Start::Oldest).await?),
    };
    match consumer.next_batch(BATCH).await? {
        Replay::Events(events) => {
            add_deliveries(uptime, consumer, &events).await?;
            Ok(events.len())
        }
        Replay::Missed { oldest, newest } => {
            tracing::error!(
                oldest,
                newest,
                "status events were deleted before they were read, their e-mails are not sent"
            );
            consumer.ack(oldest - 1).await?;
            Ok(1)
        }
    }
}

/// Adds the deliveries of some events. Idempotent: several nodes may process the same events.
async fn add_deliveries(uptime: &Uptime, consumer: &Consumer, events: &[Event]) -> Result<()> {
    let Some(last) = events.last().map(|event| event.number) else { return Ok(()) };
    let mut pages = status_pages::all(uptime.database()).await?;
    pages.push(StatusPage::default_page(&uptime.config()));
    let pages = &pages;
    uptime
        .database()
        .write(|tx: Transaction| async move {
            for event in events {
                match serde_json::from_str::<StatusEvent>(&event.payload) {
                    Ok(status) => {
                        for page in pages.iter().filter(|page| concerns(uptime, &status, page)) {
                            let notice = Notice::Status(Box::new(StatusNotice::new(page, &status)));
                            let number = event.number;
                            subscribers::add_deliveries(&tx, &page.slug, &status.about, number, &notice)
                                .await?;
                        }
                    }
                    Err(error) => {
                        tracing::error!(%error, number = event.number, "unreadable status event skipped");
                    }
                }
            }
            Ok(consumer.ack_in(&tx, last).await?)
        })
        .await
}

/// Whether the page shows a monitor that the event is about.
fn concerns(uptime: &Uptime, event: &StatusEvent, page: &StatusPage) -> bool {
    match &event.change {
        StatusChange::Opened { monitor }
        | StatusChange::Updated { monitor, .. }
        | StatusChange::Resolved { monitor } => {
            let monitor = MonitorId::new(monitor.as_str()).ok().and_then(|id| uptime.inner.cache.get(&id));
            monitor.is_some_and(|monitor| page.shows(&monitor))
        }
        StatusChange::Planned { covers, starts_at_ms, ends_at_ms } => {
            let (starts_at_ms, ends_at_ms) = (*starts_at_ms, *ends_at_ms);
            let spec =
                MaintenanceSpec { title: String::new(), covers: covers.clone(), starts_at_ms, ends_at_ms };
            let window = Maintenance { id: String::new(), spec };
            let start = UnixMs(starts_at_ms);
            uptime.monitors().iter().any(|monitor| page.shows(monitor) && window.covers(monitor, start))
        }
    }
}
