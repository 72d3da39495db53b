//! The worker: claims due monitors, checks them with bounded concurrency and records the results.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hob_service::Task;
use hob_store::epoch::Outcome;
use hob_store::repair;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::database::monitors;
use crate::error::Result;
use crate::incident::{self, Alerting, unix_ms};
use crate::keys::MonitorId;
use crate::metrics;
use crate::monitor::Monitor;
use crate::monitor::check::{Check, FailureClass, Observation};
use crate::monitor::history::NewResult;
use crate::probe::network::{NetworkHealth, may_be_local};
use crate::schedule::background::MAX_REMIND_PAUSE;
use crate::schedule::rebuild::unix_u64;
use crate::schedule::record::{JudgedResult, PendingChange, RecordOutcome};
use crate::schedule::state::MonitorState;
use crate::schedule::{Claim, ClaimBatch, RemovalReason};
use crate::uptime::Uptime;

/// The longest sleep of a worker, and so the longest delay until it sees monitors of other nodes.
const MAX_IDLE: Duration = Duration::from_millis(500);
/// The longest sleep without monitors. A new monitor wakes the worker.
const MAX_IDLE_WITHOUT_MONITORS: Duration = Duration::from_secs(5);
const MIN_IDLE: Duration = Duration::from_millis(2);
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Bounds a claim, so that several nodes share the due monitors.
const MAX_CLAIMS: usize = 100;
/// When a monitor is checked again whose result did not count.
const RECHECK_AFTER_MS: u64 = 5_000;
/// How long running checks have to finish when the process stops. Other nodes claim the rest when the leases expire.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(3);

/// Claims and checks monitors until the task should stop.
pub(crate) async fn work(uptime: Uptime, task: Task) {
    let concurrency = uptime.config().concurrency.min(65_536);
    if concurrency == 0 {
        task.stop_requested().await;
        return;
    }
    let slots = Arc::new(Semaphore::new(concurrency as usize));
    while !task.is_stopping() {
        let idle = match claim_due(&uptime, &slots).await {
            Ok(idle) => idle,
            Err(error) => {
                if !error.is_reported() {
                    tracing::warn!(%error, "failed to claim due monitors");
                }
                AFTER_FAILURE
            }
        };
        task.heartbeat();
        tokio::select! {
            () = tokio::time::sleep(idle) => {}
            () = uptime.inner.wake.notified() => {}
            () = task.stop_requested() => {}
        }
    }
    let _ = tokio::time::timeout(SHUTDOWN_LIMIT, slots.acquire_many(concurrency)).await;
}

/// Claims due monitors on every shard; returns how long to sleep.
async fn claim_due(uptime: &Uptime, slots: &Arc<Semaphore>) -> Result<Duration> {
    let mut idle = if uptime.monitors().is_empty() { MAX_IDLE_WITHOUT_MONITORS } else { MAX_IDLE };
    for shard in uptime.schedule().shards() {
        let free = slots.available_permits().min(MAX_CLAIMS);
        if free == 0 {
            // Claim again as soon as a slot is free.
            let _ = slots.acquire().await;
            return Ok(Duration::ZERO);
        }
        match uptime.schedule().claim(shard, u32::try_from(free).unwrap_or(1)).await? {
            Outcome::Lost { .. } => {
                uptime.rebuild(shard).await?;
                idle = Duration::ZERO;
            }
            Outcome::Done(claims) => {
                idle = if claims.claims.len() == free { Duration::ZERO } else { until_next(&claims, idle) };
                spawn_checks(uptime, slots, claims);
            }
        }
    }
    Ok(idle)
}

fn until_next(claims: &ClaimBatch, max: Duration) -> Duration {
    claims.next_due_in.map_or(max, |next| next.max(MIN_IDLE).min(max))
}

fn spawn_checks(uptime: &Uptime, slots: &Arc<Semaphore>, claims: ClaimBatch) {
    for id in claims.dropped {
        tokio::spawn(check_dropped(uptime.clone(), id));
    }
    let claimed = Instant::now();
    for claim in claims.claims {
        let Ok(slot) = Arc::clone(slots).try_acquire_owned() else { return };
        tokio::spawn(check(uptime.clone(), claim, claimed, slot));
    }
}

/// Plans a monitor again if its entry was unreadable. Any other id was added to the schedule by another client.
async fn check_dropped(uptime: Uptime, id: String) {
    let monitor = MonitorId::new(&id).ok().and_then(|id| uptime.inner.cache.get(&id));
    let Some(monitor) = monitor.filter(|monitor| !monitor.spec.paused) else {
        tracing::warn!(monitor = id, "unknown monitor dropped from the schedule");
        return;
    };
    let standing = uptime.schedule().keys().standing(uptime.schedule().shard_of(&monitor.id));
    repair::report("uptime", standing.as_bytes());
    if let Err(error) = uptime.plan(&monitor).await
        && !error.is_reported()
    {
        tracing::warn!(%error, monitor = id, "failed to update the schedule, reconciliation will do it");
    }
}

async fn check(uptime: Uptime, claim: Claim, claimed: Instant, _slot: OwnedSemaphorePermit) {
    if let Err(error) = run(&uptime, &claim, claimed).await
        && !error.is_reported()
    {
        // The lease expires, and the monitor is claimed again.
        tracing::warn!(%error, monitor = %claim.id, "check was not run or its result was not recorded");
    }
}

async fn run(uptime: &Uptime, claim: &Claim, claimed: Instant) -> Result<()> {
    let Some(monitor) = uptime.inner.cache.at_least(&claim.id, claim.generation).await? else {
        return uptime.schedule().remove(&claim.id, RemovalReason::Deleted).await;
    };
    if monitor.generation < claim.generation {
        // The database was restored from an older backup. It is the source of truth all the same.
        uptime.schedule().remove(&claim.id, RemovalReason::Deleted).await?;
    }
    if monitor.generation != claim.generation || monitor.spec.paused {
        uptime.sync_schedule(&monitor).await;
        return Ok(());
    }
    let late_ms = now_ms(claim, claimed).saturating_sub(claim.slot_ms);
    metrics::late(late_ms);
    let observation = match &monitor.check {
        Check::Heartbeat(heartbeat) => {
            // The store may have lost the last call. The database has it.
            let ids = std::slice::from_ref(&monitor.id);
            let since = monitors::waiting_since(uptime.database(), ids).await?.remove(&monitor.id);
            let deadline_ms =
                since.map_or(0, |since| heartbeat.deadline_ms(monitor.interval(), unix_u64(since)));
            if deadline_ms > now_ms(claim, claimed) {
                return uptime.schedule().release(claim, deadline_ms).await;
            }
            Observation::failed(FailureClass::Silent, "the job did not call in time")
        }
        _ => uptime.probe(&monitor).await,
    };
    let targets = &uptime.config().connectivity_targets;
    if may_be_local(&observation) && uptime.inner.network.health(targets).await == NetworkHealth::Down {
        metrics::unjudged();
        let again_ms = now_ms(claim, claimed) + RECHECK_AFTER_MS;
        return uptime.schedule().release(claim, again_ms).await;
    }
    uptime.record_result(&monitor, claim, &observation, claimed).await?;
    Ok(())
}

/// The store's time, estimated from the time of the claim.
fn now_ms(claim: &Claim, claimed: Instant) -> u64 {
    claim.claimed_ms + u64::try_from(claimed.elapsed().as_millis()).unwrap_or(0)
}

impl Uptime {
    /// Records a result and its consequences; returns the new state, or `None` if the result was refused.
    pub(crate) async fn record_result(
        &self,
        monitor: &Monitor,
        claim: &Claim,
        observation: &Observation,
        claimed: Instant,
    ) -> Result<Option<MonitorState>> {
        let result = JudgedResult::new(monitor, claim, observation, now_ms(claim, claimed));
        match self.schedule().record(&result).await? {
            Outcome::Lost { .. } => {
                self.rebuild(self.schedule().shard_of(&claim.id)).await?;
                return Ok(None);
            }
            Outcome::Done(RecordOutcome::Refused(refusal)) => {
                tracing::debug!(monitor = %claim.id, ?refusal, "check result refused");
                metrics::refused();
                return Ok(None);
            }
            Outcome::Done(RecordOutcome::Recorded) => {}
        }
        let outcome = observation.failure().map_or("ok", |failure| failure.class.as_str());
        metrics::checked(outcome);
        if result.health.state == MonitorState::Up {
            let missed = monitor.missed_checks(claim.slot_ms, result.next_ms);
            metrics::missed(missed);
        }
        self.inner.results.push(new_result(&result));
        if let Some(change) = result.pending_change() {
            tracing::info!(monitor = %monitor.id, name = monitor.spec.name, change = change.change.as_str(), "incident changed");
            if let Err(error) = self.save_change(monitor, &change).await {
                tracing::warn!(%error, monitor = %monitor.id, "failed to save an incident to the database, retrying later");
            }
        }
        self.notify_pages(Some(&monitor.id));
        Ok(Some(result.health.state))
    }

    /// Writes a change to the database and then confirms it in the store.
    pub(crate) async fn save_change(&self, monitor: &Monitor, change: &PendingChange) -> Result<()> {
        let alerting: Alerting = self.inner.cache.alerting(monitor, unix_ms(change.first_failure_ms));
        let alerted = incident::save_change(self.database(), monitor, change, alerting).await?;
        // Others are found by the next round: in an outage of many monitors, each would cause a round.
        if (1..MAX_REMIND_PAUSE.as_secs()).contains(&monitor.spec.remind_s.into()) {
            self.inner.new_incident.notify_one();
        }
        self.schedule().confirm_change(change, alerted).await
    }
}

fn new_result(result: &JudgedResult<'_>) -> NewResult {
    let total = result.observation.phases.total.unwrap_or_default();
    NewResult {
        monitor: result.claim.id.clone(),
        at: unix_ms(result.health.last_ms),
        fence: result.claim.fence.get(),
        state: result.health.state,
        latency_us: u64::try_from(total.as_micros()).unwrap_or(u64::MAX >> 1),
        error: result.observation.failure().map(ToString::to_string),
    }
}
