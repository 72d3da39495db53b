//! Sends due deliveries, one task per channel.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use hob_service::Task;
use tokio::task::JoinSet;

use super::delivery::{self, ClaimedDelivery};
use super::{Alerts, ChannelId, send};
use crate::database::{channels, deliveries, subscribers};
use crate::error::Result;
use hob_web::webhook::{DeliveryOutcome, RetryPolicy};

/// Concurrent deliveries of one channel.
const MAX_CONCURRENT: u16 = 4;

/// How often deliveries are polled while one is waiting. Without one, the task waits for a signal.
const POLL_EVERY: Duration = Duration::from_millis(500);
const AFTER_FAILURE: Duration = Duration::from_secs(2);
const CLEANUP_EVERY: Duration = Duration::from_secs(600);

pub(super) async fn run(alerts: Alerts, task: Task) {
    let mut senders = JoinSet::new();
    let mut busy = HashSet::new();
    let mut cleaned_up: Option<Instant> = None;
    let mut added = alerts.database().wakeups(deliveries::ADDED);
    loop {
        while let Some(Ok(channel_id)) = senders.try_join_next() {
            busy.remove(&channel_id);
        }
        let pause = match due_channels(&alerts).await {
            Ok(None) => None,
            Ok(Some(due)) => {
                for channel_id in due {
                    if busy.insert(channel_id.clone()) {
                        senders.spawn(send_due(alerts.clone(), channel_id));
                    }
                }
                Some(POLL_EVERY)
            }
            Err(error) => {
                tracing::warn!(%error, "failed to read due alert deliveries");
                Some(AFTER_FAILURE)
            }
        };
        if cleaned_up.is_none_or(|cleaned_up| cleaned_up.elapsed() > CLEANUP_EVERY) {
            delete_old(&alerts).await;
            cleaned_up = Some(Instant::now());
        }
        task.heartbeat();
        let wake = async {
            match pause {
                Some(pause) => added.wait_at_most(pause).await,
                None => added.wait(POLL_EVERY).await,
            }
        };
        if !task.wait(wake).await {
            break;
        }
    }
    // Wait for running attempts: after a restart they would be sent again.
    while senders.join_next().await.is_some() {}
}

/// The channels with due deliveries; `None` if no delivery is waiting at all.
async fn due_channels(alerts: &Alerts) -> Result<Option<Vec<ChannelId>>> {
    if !deliveries::any_waiting(alerts.database()).await? {
        return Ok(None);
    }
    deliveries::due_channels(alerts.database()).await.map(Some)
}

/// Sends all due deliveries of a channel.
async fn send_due(alerts: Alerts, channel_id: ChannelId) -> ChannelId {
    loop {
        match deliveries::claim(alerts.database(), &channel_id, MAX_CONCURRENT, alerts.lease()).await {
            Ok(claimed) if claimed.is_empty() => return channel_id,
            Ok(claimed) => {
                let retry_policy = alerts.retry_policy();
                for sent in
                    join_all(claimed.iter().map(|claimed| deliver(&alerts, claimed, retry_policy))).await
                {
                    if let Err(error) = sent {
                        tracing::warn!(%error, "failed to record an alert delivery, the alert will be sent again");
                    }
                }
            }
            Err(error) => {
                tracing::warn!(%error, channel = %channel_id, "failed to claim alert deliveries");
                return channel_id;
            }
        }
        if alerts.context.tasks.stop_token().is_cancelled() {
            return channel_id;
        }
    }
}

/// Makes one attempt and records it.
pub(super) async fn deliver(
    alerts: &Alerts,
    claimed: &ClaimedDelivery,
    retry_policy: RetryPolicy,
) -> Result<()> {
    let started = Instant::now();
    let (outcome, kind) = if claimed.recipient.is_empty() {
        to_channel(alerts, claimed).await?
    } else {
        to_subscriber(alerts, claimed).await?
    };
    let label = if matches!(outcome, DeliveryOutcome::Delivered(_)) { "delivered" } else { "failed" };
    crate::metrics::alert_attempted(kind, label);
    delivery::finish(alerts.database(), claimed, &outcome, started.elapsed(), retry_policy).await
}

async fn to_channel(alerts: &Alerts, claimed: &ClaimedDelivery) -> Result<(DeliveryOutcome, &'static str)> {
    Ok(match channels::by_id(alerts.database(), &claimed.channel_id).await? {
        Some(channel) => (send::send(alerts, &channel, claimed).await, channel.spec.kind.as_str()),
        None => (DeliveryOutcome::PermanentFailure("the channel was removed".to_owned()), "none"),
    })
}

async fn to_subscriber(
    alerts: &Alerts,
    claimed: &ClaimedDelivery,
) -> Result<(DeliveryOutcome, &'static str)> {
    let outcome = match subscribers::by_id(alerts.database(), &claimed.recipient).await? {
        Some(subscriber) => send::to_subscriber(alerts, &subscriber, claimed).await,
        None => DeliveryOutcome::PermanentFailure("the subscription has ended".to_owned()),
    };
    Ok((outcome, "subscriber"))
}

async fn delete_old(alerts: &Alerts) {
    let keep = alerts.config.current().keep_days.get();
    loop {
        match deliveries::delete_old(alerts.database(), keep).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, "failed to delete old alert deliveries");
                return;
            }
        }
    }
}
