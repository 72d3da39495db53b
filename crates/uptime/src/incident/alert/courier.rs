//! Carries deliveries that are due, each channel's apart from the others'.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use hob_service::Task;
use tokio::task::JoinSet;

use super::delivery::{self, Arrival, Held, Patience};
use super::{Alerts, ChannelId, send};
use crate::database::{channels, deliveries};
use crate::error::Result;

/// How many deliveries of one channel are on their way at the same time.
const AT_ONCE: u16 = 4;

/// How soon a delivery is carried that is due again, or that another node has entered.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const AFTER_FAILURE: Duration = Duration::from_secs(2);
const FORGET_EVERY: Duration = Duration::from_secs(600);

pub(super) async fn run(alerts: Alerts, task: Task) {
    let mut couriers = JoinSet::new();
    let mut busy = HashSet::new();
    let mut forgot: Option<Instant> = None;
    loop {
        while let Some(Ok(channel_id)) = couriers.try_join_next() {
            busy.remove(&channel_id);
        }
        let pause = match deliveries::due_channels(alerts.database()).await {
            Ok(due) => {
                for channel_id in due {
                    if busy.insert(channel_id.clone()) {
                        couriers.spawn(serve(alerts.clone(), channel_id));
                    }
                }
                LOOK_EVERY
            }
            Err(error) => {
                tracing::warn!(%error, "deliveries that are due cannot be read");
                AFTER_FAILURE
            }
        };
        if forgot.is_none_or(|forgot| forgot.elapsed() > FORGET_EVERY) {
            forget(&alerts).await;
            forgot = Some(Instant::now());
        }
        task.beat();
        let go_on = tokio::select! {
            go_on = task.pause(pause) => go_on,
            () = alerts.entered.notified() => true,
        };
        if !go_on {
            break;
        }
    }
    // What is on its way arrives, or has had its time: told again after a restart it would be told twice.
    while couriers.join_next().await.is_some() {}
}

/// Carries all that is due for a channel.
async fn serve(alerts: Alerts, channel_id: ChannelId) -> ChannelId {
    loop {
        match deliveries::claim(alerts.database(), &channel_id, AT_ONCE, alerts.lease()).await {
            Ok(held) if held.is_empty() => return channel_id,
            Ok(held) => {
                let patience = alerts.patience();
                for carried in join_all(held.iter().map(|held| carry(&alerts, held, patience))).await {
                    if let Err(error) = carried {
                        tracing::warn!(%error, "a delivery's end cannot be written down; it is carried again");
                    }
                }
            }
            Err(error) => {
                tracing::warn!(%error, %channel_id, "deliveries cannot be claimed");
                return channel_id;
            }
        }
        if alerts.context.tasks.stop_token().is_cancelled() {
            return channel_id;
        }
    }
}

/// One attempt, written down.
pub(super) async fn carry(alerts: &Alerts, held: &Held, patience: Patience) -> Result<()> {
    let begun = Instant::now();
    let (arrival, kind) = match channels::by_id(alerts.database(), &held.channel_id).await {
        Ok(Some(channel)) => (send::send(alerts, &channel, held).await, channel.spec.kind.as_str()),
        Ok(None) => (Arrival::Hopeless("the channel was removed".to_owned()), "none"),
        Err(error) => return Err(error),
    };
    let outcome = if matches!(arrival, Arrival::Delivered(_)) { "delivered" } else { "failed" };
    crate::metrics::alert_attempted(kind, outcome);
    delivery::finish(alerts.database(), held, &arrival, begun.elapsed(), patience).await
}

async fn forget(alerts: &Alerts) {
    let keep = alerts.config.now().keep_days.get();
    loop {
        match deliveries::delete_old(alerts.database(), keep).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, "old deliveries are still kept");
                return;
            }
        }
    }
}
