//! Background tasks. Every task is idempotent and runs on every node.

use std::time::Duration;

use hob_database::UnixMs;
use hob_service::Task;
use hob_store::{BusEvent, ChannelFilter};

use crate::database::{incidents, monitors};
use crate::error::Result;
use crate::incident;
use crate::keys::MonitorId;
use crate::monitor::history;
use crate::schedule::reconcile::reconcile;
use crate::schedule::record::{Alerted, PendingChange};
use crate::schedule::state::IncidentChange;
use crate::schedule::worker;
use crate::uptime::Uptime;

/// How often a SQLite database is polled for edits of another process, such as those of `hob uptime apply`.
const POLL_EVERY: Duration = Duration::from_secs(2);
const SAVE_CHANGES_EVERY: Duration = Duration::from_secs(2);
/// The node that finds a change writes it to the database. Other nodes take over after this time.
const TAKEOVER_AFTER_MS: u64 = 3_000;
/// The longest pause between two rounds of reminders, and so the delay until a node sees a change of another node.
pub(super) const MAX_REMIND_PAUSE: Duration = Duration::from_secs(10);
/// The shortest. The clock of the database decides, and may be behind that of the node.
const MIN_REMIND_PAUSE: Duration = Duration::from_millis(200);
const RECONCILE_EVERY: Duration = Duration::from_secs(60);
/// How long a page may contradict itself after the store has gone back in time.
const RECONCILE_INCIDENTS_EVERY: Duration = Duration::from_secs(5);
const MEASURE_EVERY: Duration = Duration::from_secs(15);
const SUMMARIZE_EVERY: Duration = Duration::from_secs(60);
const TRIM_EVERY: Duration = Duration::from_mins(5);

pub(crate) fn start(uptime: &Uptime) {
    let tasks = &uptime.inner.context.tasks;
    let this = uptime.clone();
    tasks.spawn("uptime: check", move |task| worker::work(this.clone(), task));
    let this = uptime.clone();
    tasks.spawn("uptime: write results", move |task| {
        let this = this.clone();
        async move {
            let mut queue = this.inner.queued_results.lock().await;
            history::write_queued(this.database(), &mut queue, &task).await;
        }
    });
    let this = uptime.clone();
    tasks.spawn("uptime: listen for edits", move |task| listen(this.clone(), task));
    let this = uptime.clone();
    tasks.spawn("uptime: watch for edits", move |task| watch_for_edits(this.clone(), task));
    spawn_periodic(uptime, "uptime: save changes", SAVE_CHANGES_EVERY, async |uptime| {
        save_pending_changes(&uptime).await
    });
    let this = uptime.clone();
    tasks.spawn("uptime: remind", move |task| remind(this.clone(), task));
    let this = uptime.clone();
    tasks.spawn("uptime: reload settings", move |task| reload(this.clone(), task));
    spawn_periodic(uptime, "uptime: reconcile", RECONCILE_EVERY, async |uptime| reconcile(&uptime).await);
    spawn_periodic(uptime, "uptime: reconcile incidents", RECONCILE_INCIDENTS_EVERY, async |uptime| {
        if uptime.monitors().is_empty() {
            return Ok(());
        }
        let grace = uptime.config().grace.get();
        uptime.schedule().reconcile_incidents(uptime.database(), grace).await
    });
    spawn_periodic(uptime, "uptime: measure", MEASURE_EVERY, async |uptime| uptime.measure().await);
    spawn_periodic(uptime, "uptime: summarize", SUMMARIZE_EVERY, async |uptime| {
        let monitors: Vec<MonitorId> = uptime.monitors().iter().map(|monitor| monitor.id.clone()).collect();
        history::summarize(uptime.database(), &monitors, UnixMs::now()).await
    });
    spawn_periodic(uptime, "uptime: delete old results", TRIM_EVERY, async |uptime| {
        history::trim(uptime.database(), &uptime.config(), UnixMs::now()).await
    });
}

/// Spawns a task that runs `round` again and again. A round that fails is logged.
fn spawn_periodic<R, F>(uptime: &Uptime, name: &'static str, pause: Duration, round: R)
where
    R: Fn(Uptime) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<()>> + Send + 'static,
{
    let this = uptime.clone();
    uptime.inner.context.tasks.spawn(name, move |task: Task| {
        let (this, round) = (this.clone(), round.clone());
        async move {
            while task.pause(pause).await {
                match round(this.clone()).await {
                    Ok(()) => task.heartbeat(),
                    Err(error) if error.is_reported() => {}
                    Err(error) => tracing::warn!(%error, task = name, "uptime task failed, retrying"),
                }
            }
        }
    });
}

/// Finds edits of other nodes and of `hob uptime apply`. The bus announces edits as well, but it may lose one.
async fn watch_for_edits(uptime: Uptime, task: Task) {
    let mut changed = uptime.database().wakeups(monitors::CHANGED);
    let mut seen = None;
    let mut go_on = task.pause(POLL_EVERY).await;
    while go_on {
        let checked = check_for_edits(&uptime, &mut seen).await;
        task.heartbeat();
        go_on = match checked {
            Ok(()) => task.wait(changed.wait(POLL_EVERY)).await,
            Err(error) => {
                if !error.is_reported() {
                    tracing::warn!(%error, task = "uptime: watch for edits", "uptime task failed, retrying");
                }
                task.pause(POLL_EVERY).await
            }
        };
    }
}

/// Reconciles if the monitors in the database have changed, and on the first call: they may have changed since they were
/// read at the start.
async fn check_for_edits(uptime: &Uptime, seen: &mut Option<(u64, i64)>) -> Result<()> {
    let now = monitors::fingerprint(uptime.database()).await?;
    if *seen != Some(now) {
        reconcile(uptime).await?;
        *seen = Some(now);
        uptime.inner.wake.notify_one();
        uptime.notify_pages(None);
    }
    Ok(())
}

/// Reloads monitors that other nodes have changed.
async fn listen(uptime: Uptime, task: Task) {
    let channel = uptime.schedule().keys().changed_channel();
    let mut listener = uptime.inner.context.store.bus().listen(vec![ChannelFilter::channel(&channel)]);
    loop {
        let event = tokio::select! {
            event = listener.next() => event,
            () = task.stop_requested() => return,
        };
        let read = match event {
            BusEvent::Message { payload, .. } => {
                match std::str::from_utf8(&payload).ok().and_then(|id| MonitorId::new(id).ok()) {
                    Some(id) => uptime.inner.cache.refresh_one(&id).await.map(drop),
                    None => Ok(()),
                }
            }
            BusEvent::Missed => uptime.inner.cache.refresh().await,
        };
        if let Err(error) = read {
            tracing::warn!(%error, "failed to reload monitors");
        }
        uptime.inner.wake.notify_one();
        task.heartbeat();
    }
}

/// Writes changes to the database that the node that found them could not write.
pub(crate) async fn save_pending_changes(uptime: &Uptime) -> Result<()> {
    for shard in uptime.schedule().shards() {
        let now_ms = uptime.schedule().now_ms(shard).await?;
        for change in uptime.schedule().pending_changes(shard).await? {
            if change.at_ms + TAKEOVER_AFTER_MS > now_ms {
                continue;
            }
            match uptime.inner.cache.at_least(&change.id, 0).await? {
                Some(monitor) => uptime.save_change(&monitor, &change).await?,
                // A deleted monitor has no incidents.
                None => uptime.schedule().confirm_change(&change, Alerted::NotYet).await?,
            }
            uptime.notify_pages(Some(&change.id));
        }
    }
    Ok(())
}

/// Sends reminders when they are due. An incident that this node opens wakes the task if its reminders are frequent; every
/// node does this for its own incidents.
async fn remind(uptime: Uptime, task: Task) {
    loop {
        let pause = match send_reminders(&uptime).await {
            Ok(pause) => pause,
            Err(error) => {
                if !error.is_reported() {
                    tracing::warn!(%error, task = "uptime: remind", "uptime task failed, retrying");
                }
                MAX_REMIND_PAUSE
            }
        };
        task.heartbeat();
        let go_on = tokio::select! {
            go_on = task.pause(pause) => go_on,
            () = uptime.inner.new_incident.notified() => true,
        };
        if !go_on {
            return;
        }
    }
}

/// Applies changed settings to the probe. It reads `ca_file` again even if the setting is the same, because its content may
/// have changed.
async fn reload(uptime: Uptime, task: Task) {
    let mut config = uptime.inner.config.clone();
    loop {
        let config = tokio::select! {
            config = config.changed() => config,
            () = task.stop_requested() => return,
        };
        match config.limits(&uptime.inner.context.outbound) {
            Ok(limits) => uptime.inner.probe.replace(limits),
            Err(error) => tracing::error!(%error, "settings of checks not reloaded"),
        }
        task.heartbeat();
    }
}

/// Sends the alerts of incidents whose maintenance window has ended, and reminders of open incidents. Returns the time
/// until the next one.
async fn send_reminders(uptime: &Uptime) -> Result<Duration> {
    let mut pause = MAX_REMIND_PAUSE;
    if uptime.monitors().is_empty() {
        return Ok(pause);
    }
    for open in incidents::all_open(uptime.database()).await? {
        let Some(monitor) = uptime.inner.cache.at_least(&open.monitor_id, 0).await? else { continue };
        let Some(due_at) = incident::next_alert_at(&monitor, &open) else { continue };
        let now = UnixMs::now();
        let covered_until = uptime.inner.cache.covered_until(&monitor, now);
        let due_at = covered_until.map_or(due_at, |end| due_at.max(end));
        if due_at > now {
            let left = Duration::from_millis(due_at.0.abs_diff(now.0));
            pause = pause.min(left.max(MIN_REMIND_PAUSE));
            continue;
        }
        // Another reminder follows.
        let every = Duration::from_secs(monitor.spec.remind_s.into());
        if !every.is_zero() {
            pause = pause.min(every.max(MIN_REMIND_PAUSE));
        }
        let alerting = uptime.inner.cache.alerting(&monitor, now);
        if incident::remind(uptime.database(), &monitor, &open, alerting).await?.is_some() {
            let change = PendingChange {
                id: open.monitor_id,
                fence: hob_store::epoch::Fence::from_u64(open.opened_fence),
                change: IncidentChange::Opened,
                at_ms: 0,
                first_failure_ms: 0,
                failures: 0,
                class: None,
                message: String::new(),
            };
            uptime.schedule().confirm_change(&change, Alerted::Yes).await?;
        }
    }
    Ok(pause)
}
