//! What goes on in the background beside the checks: every round may be done by every node, as often as it likes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use hob_schema::Shard;
use hob_service::Task;
use hob_store::{BusEvent, ChannelFilter, cmd};
use parking_lot::Mutex;

use crate::database::{incidents, monitors};
use crate::error::Result;
use crate::incident;
use crate::keys::MonitorId;
use crate::monitor::history;
use crate::schedule::Leaving;
use crate::schedule::record::{Told, Unsettled};
use crate::schedule::state::Change;
use crate::schedule::worker;
use crate::uptime::{Uptime, now};

/// How soon changes are seen that nobody told of, such as those of `hob uptime apply`.
const LOOK_EVERY: Duration = Duration::from_secs(2);
const SETTLE_EVERY: Duration = Duration::from_secs(2);
/// Whoever found a change brings it into the database itself; others help when it took longer than this.
const HELP_AFTER_MS: u64 = 3_000;
const REMIND_EVERY: Duration = Duration::from_secs(10);
const RECONCILE_EVERY: Duration = Duration::from_secs(60);
const MEASURE_EVERY: Duration = Duration::from_secs(15);
const SUMMARIZE_EVERY: Duration = Duration::from_secs(60);

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
    tasks.spawn("uptime: hear of changes", move |task| listen(this.clone(), task));
    let seen = Arc::new(Mutex::new(None));
    every(uptime, "uptime: look for changes", LOOK_EVERY, move |uptime| {
        let seen = Arc::clone(&seen);
        async move { look(&uptime, &seen).await }
    });
    every(uptime, "uptime: settle incidents", SETTLE_EVERY, async |uptime| settle_all(&uptime).await);
    every(uptime, "uptime: remind", REMIND_EVERY, async |uptime| remind_all(&uptime).await);
    every(uptime, "uptime: reconcile", RECONCILE_EVERY, async |uptime| reconcile(&uptime).await);
    every(uptime, "uptime: measure", MEASURE_EVERY, async |uptime| uptime.measure().await);
    every(uptime, "uptime: summarize", SUMMARIZE_EVERY, async |uptime| {
        let monitors: Vec<MonitorId> = uptime.monitors().iter().map(|monitor| monitor.id.clone()).collect();
        history::summarize(uptime.database(), &monitors, now()).await?;
        history::trim(uptime.database(), &uptime.config(), now()).await
    });
}

/// Does `round` again and again; one that fails is told, and done again.
fn every<R, F>(uptime: &Uptime, name: &'static str, pause: Duration, round: R)
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
                    Ok(()) => task.beat(),
                    Err(error) => tracing::warn!(%error, task = name, "a round failed"),
                }
            }
        }
    });
}

/// Reconciles when the database has other monitors than they had, and the first time: they may have changed since they
/// were read at the start.
async fn look(uptime: &Uptime, seen: &Mutex<Option<(u64, i64)>>) -> Result<()> {
    let now = monitors::edition(uptime.database()).await?;
    let before = seen.lock().replace(now);
    if before != Some(now) {
        reconcile(uptime).await?;
        uptime.inner.wake.notify_one();
        uptime.tell_pages(None);
    }
    Ok(())
}

/// Reads again what other nodes have changed.
async fn listen(uptime: Uptime, task: Task) {
    let channel = uptime.schedule().keys().changed_channel();
    let bus = uptime.inner.context.store.bus();
    while !task.stopping() {
        let Ok(mut heard) = bus.subscribe(&[ChannelFilter::channel(&channel)]).await else {
            task.pause(Duration::from_secs(1)).await;
            continue;
        };
        loop {
            let event = tokio::select! {
                event = heard.next() => event,
                () = task.stopped() => return,
            };
            let read = match event {
                Some(BusEvent::Message { payload, .. }) => {
                    match std::str::from_utf8(&payload).ok().and_then(|id| MonitorId::new(id).ok()) {
                        Some(id) => uptime.inner.roster.refresh_one(&id).await.map(drop),
                        None => Ok(()),
                    }
                }
                Some(BusEvent::Missed) => uptime.inner.roster.refresh().await,
                None => break,
            };
            if let Err(error) = read {
                tracing::warn!(%error, "a change of a monitor is seen later");
            }
            uptime.inner.wake.notify_one();
            task.beat();
        }
    }
}

/// Brings changes into the database that whoever found them could not.
pub(crate) async fn settle_all(uptime: &Uptime) -> Result<()> {
    for shard in uptime.schedule().shards() {
        let now_ms = uptime.schedule().now_ms(shard).await?;
        for change in uptime.schedule().unsettled(shard).await? {
            if change.at_ms + HELP_AFTER_MS > now_ms {
                continue;
            }
            match uptime.inner.roster.at(&change.id, 0).await? {
                Some(monitor) => uptime.settle(&monitor, &change).await?,
                // Of a monitor that is gone there is nothing to tell.
                None => uptime.schedule().settle(&change, Told::NotYet).await?,
            }
            uptime.tell_pages(Some(&change.id));
        }
    }
    Ok(())
}

/// Tells of incidents whose maintenance window is over, and again of those that go on.
pub(crate) async fn remind_all(uptime: &Uptime) -> Result<()> {
    for open in incidents::all_open(uptime.database()).await? {
        let Some(monitor) = uptime.inner.roster.at(&open.monitor_id, 0).await? else { continue };
        let news = uptime.inner.roster.news(&monitor, now());
        if incident::remind(uptime.database(), &monitor, &open, news).await?.is_some() {
            let told = Unsettled {
                id: open.monitor_id,
                fence: hob_store::epoch::Fence::from_u64(open.opened_fence),
                change: Change::Opened,
                at_ms: 0,
                first_failure_ms: 0,
                failures: 0,
                class: None,
                message: String::new(),
            };
            uptime.schedule().settle(&told, Told::Yes).await?;
        }
    }
    Ok(())
}

/// Holds the store to the database: who should take turns does, and nobody else (U1).
pub(crate) async fn reconcile(uptime: &Uptime) -> Result<()> {
    uptime.inner.roster.refresh().await?;
    let monitors = uptime.monitors();
    for shard in uptime.schedule().shards() {
        let known = known(uptime, shard).await?;
        let mine = monitors.iter().filter(|monitor| uptime.schedule().shard_of(&monitor.id) == shard);
        for monitor in mine.clone().filter(|monitor| !monitor.spec.paused) {
            let id = monitor.id.as_str();
            let is_old = known.standings.get(id).is_none_or(|generation| *generation < monitor.generation);
            if is_old || !known.turns.contains(id) {
                uptime.plan(monitor).await?;
            }
        }
        let active: HashSet<&str> =
            mine.filter(|monitor| !monitor.spec.paused).map(|monitor| monitor.id.as_str()).collect();
        for id in known.standings.keys().filter(|id| !active.contains(id.as_str())) {
            let Ok(id) = MonitorId::new(id) else { continue };
            // It may have been added while we looked.
            let leaving = match monitors::by_id(uptime.database(), &id).await? {
                Some(monitor) if monitor.spec.paused => Leaving::Paused,
                Some(_) => continue,
                None => Leaving::Deleted,
            };
            uptime.schedule().forget(&id, leaving).await?;
        }
    }
    Ok(())
}

/// What a shard knows of.
struct Known {
    /// Ids and generations.
    standings: HashMap<String, u64>,
    /// Who has a turn, or is being checked.
    turns: HashSet<String>,
}

async fn known(uptime: &Uptime, shard: Shard) -> Result<Known> {
    let all = uptime.schedule();
    let [schedule, leases, _, standing, _] = all.shard_keys(shard);
    let standings: Vec<(String, String)> = all.run(shard, cmd("HGETALL").arg(&standing)).await?;
    let generation = |text: &str| text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
    let standings = standings.into_iter().map(|(id, text)| (id, generation(&text))).collect();
    // One that is claimed between the two questions is missed, and planned again, which does nothing then.
    let leased: Vec<String> = all.run(shard, cmd("ZRANGE").arg(&leases).arg(0).arg(-1)).await?;
    let scheduled: Vec<String> = all.run(shard, cmd("ZRANGE").arg(&schedule).arg(0).arg(-1)).await?;
    Ok(Known { standings, turns: leased.into_iter().chain(scheduled).collect() })
}
