//! Executes a run on one node: claims due items, attempts them, commits the results, and writes them to the sinks.

use std::collections::{BTreeMap, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use hob_database::UnixMs;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::database::{outputs, runs};
use crate::error::Result;
use crate::pipeline::Shared;
use crate::plan::Plan;
use crate::run::client::AttemptFailure;
use crate::run::held_claims::{HeldClaim, HeldClaims};
use crate::run::item::{self, AttemptOutcome, Claim, FinishedAttempt, Item};
use crate::run::seed;
use crate::run::{self, Run, RunId, RunState, SEEDED};
use crate::sink::{self, Sinks};

/// Wait when a run has nothing to do.
const IDLE_WAIT: Duration = Duration::from_millis(200);
/// With more results waiting for their sinks, no items are claimed.
const MAX_PENDING_RESULTS: u32 = 10_000;
/// Hosts whose gates are kept; more only while items wait for them.
const MAX_GATES: usize = 1000;
/// Interval of renewals, writes to sinks, and views.
const TICK: Duration = Duration::from_millis(500);

/// Executes one run on one node.
pub(crate) struct Driver {
    pub(crate) shared: Arc<Shared>,
    pub(crate) run: RunId,
    pub(crate) plan: Plan,
    /// The steps whose results are stored, with the hash of their definition.
    pub(crate) stored_steps: BTreeMap<String, String>,
    /// Owner of the claims. Random, so that a restarted node is a new worker.
    worker: String,
    held: HeldClaims,
    /// Held by the item that asks the quota: when to ask again.
    pub(crate) quota_gate: tokio::sync::Mutex<Instant>,
    /// Held by the item that is next for each host.
    host_gates: Mutex<HashMap<String, Gate>>,
    /// Stops claims and new attempts.
    pub(crate) stop: CancellationToken,
    /// No attempt is in flight any more.
    finished: CancellationToken,
}

type Gate = Arc<tokio::sync::Mutex<()>>;

/// Claims with the number of their items in flight.
type OpenClaims = BTreeMap<i64, usize>;

impl Driver {
    pub(crate) fn new(shared: &Arc<Shared>, run: &Run, stop: CancellationToken) -> Result<Self> {
        let plan = Plan::parse(&run.text)?;
        Ok(Self {
            shared: Arc::clone(shared),
            run: run.id.clone(),
            stored_steps: plan.stored_steps(),
            plan,
            worker: format!("{}-{:016x}", shared.context.node, rand::random::<u64>()),
            held: HeldClaims::default(),
            quota_gate: tokio::sync::Mutex::new(Instant::now()),
            host_gates: Mutex::default(),
            stop,
            finished: CancellationToken::new(),
        })
    }

    pub(crate) fn host_gate(&self, host: &str) -> Gate {
        let mut gates = self.host_gates.lock().unwrap_or_else(PoisonError::into_inner);
        if gates.len() >= MAX_GATES {
            gates.retain(|_, gate| Arc::strong_count(gate) > 1);
        }
        Arc::clone(gates.entry(host.to_owned()).or_default())
    }

    /// Runs until the run leaves the state running, or the node stops.
    pub(crate) async fn drive(self) -> Result<()> {
        let this = Arc::new(self);
        let mut background = tokio::spawn(Arc::clone(&this).run_background());
        let result = Arc::clone(&this).work().await;
        this.finished.cancel();
        if tokio::time::timeout(Duration::from_secs(30), &mut background).await.is_err() {
            background.abort();
        }
        result
    }

    async fn work(self: Arc<Self>) -> Result<()> {
        let database = &self.shared.context.database;
        // Spawned, so that they make progress while this task waits for the database.
        let mut in_flight = JoinSet::new();
        let mut open_claims = OpenClaims::new();
        loop {
            if !self.stop.is_cancelled() {
                let run = run::find(database, &self.run).await?;
                if run.state != RunState::Running {
                    self.stop.cancel();
                } else if run.seeded_to != SEEDED {
                    seed::seed(database, &run, &self.plan, &self.shared.folder).await?;
                }
            }
            let began = Instant::now();
            let claimed = self.claim(in_flight.len()).await?;
            if let Some(Claim { number, items }) = claimed {
                open_claims.insert(number, items.len());
                let claim = self.held.add(number, began, &self.stop);
                for item in items {
                    in_flight.spawn(Arc::clone(&self).attempt_item(Arc::clone(&claim), item));
                }
            }
            let mut finished = Vec::new();
            tokio::select! {
                Some(attempt) = in_flight.join_next() => finished.extend(attempt),
                () = tokio::time::sleep(IDLE_WAIT) => {}
            }
            while let Some(attempt) = in_flight.try_join_next() {
                finished.extend(attempt);
            }
            self.commit(&finished, &mut open_claims).await?;
            let idle = in_flight.is_empty() && open_claims.is_empty();
            if idle && (self.stop.is_cancelled() || self.complete().await?) {
                return Ok(());
            }
        }
    }

    /// Completes a run that has nothing left to do; `false` if it has. The output links are updated first: after a
    /// crash in between, the run is still running and updates them again.
    async fn complete(&self) -> Result<bool> {
        let database = &self.shared.context.database;
        Ok(runs::has_nothing_left(database, &self.run).await?
            && sink::publish(database, &self.run, &self.plan, &self.shared.folder).await?
            && run::complete(database, &self.run).await?)
    }

    async fn claim(&self, in_flight: usize) -> Result<Option<Claim>> {
        let config = self.shared.config.current();
        let room = config.batch_size.saturating_sub(u32::try_from(in_flight).unwrap_or(u32::MAX));
        // At least half a batch: claims of single items would cost a write each.
        if self.stop.is_cancelled() || room < config.batch_size.div_ceil(2) {
            return Ok(None);
        }
        let database = &self.shared.context.database;
        if !self.plan.sinks.is_empty()
            && outputs::has_more_than(database, &self.run, MAX_PENDING_RESULTS).await?
        {
            return Ok(None);
        }
        item::claim(database, &self.run, &self.worker, room, config.lease.get()).await
    }

    async fn attempt_item(self: Arc<Self>, claim: Arc<HeldClaim>, item: Item) -> FinishedAttempt {
        let begun_at = UnixMs(jiff::Timestamp::now().as_millisecond());
        let tried = AssertUnwindSafe(self.attempt(&claim, &item)).catch_unwind().await;
        let (status, calls, outcome) = match tried {
            Ok(tried) => (tried.status, tried.calls, tried.outcome),
            Err(_) => {
                let failure = AttemptFailure::parse("the attempt panicked");
                let AttemptFailure { class, error } = failure;
                (0, 0, AttemptOutcome::Quarantined { class, error })
            }
        };
        FinishedAttempt { item, claim: claim.number, begun_at, status, calls, outcome }
    }

    /// Whether this worker holds a claim. Asks the database if the lease may have expired, such as after the process was
    /// suspended.
    pub(crate) async fn holds(&self, claim: &HeldClaim) -> bool {
        let lease = self.shared.config.current().lease.get();
        if !claim.is_certain(lease, Instant::now()) && !claim.dropped.is_cancelled() {
            self.renew().await;
        }
        claim.is_certain(lease, Instant::now())
    }

    async fn commit(&self, finished: &[FinishedAttempt], open_claims: &mut OpenClaims) -> Result<()> {
        if finished.is_empty() {
            return Ok(());
        }
        for attempt in finished {
            if let Some(left) = open_claims.get_mut(&attempt.claim) {
                *left -= 1;
            }
        }
        let ended_claims: Vec<i64> =
            open_claims.extract_if(.., |_, left| *left == 0).map(|(claim, _)| claim).collect();
        self.held.remove(&ended_claims);
        let database = &self.shared.context.database;
        let counted =
            item::commit(database, &self.run, self.plan.name.as_str(), finished, &ended_claims).await?;
        let released = finished.iter().filter(|attempt| matches!(attempt.outcome, AttemptOutcome::Released));
        // Items of a dropped claim are released without a result.
        let late = (finished.len() as u64 - counted).saturating_sub(released.count() as u64);
        if late > 0 {
            tracing::warn!(run = %self.run, late, "claim expired before its results were saved, results dropped");
        }
        let failed = finished.iter().filter(|attempt| {
            matches!(attempt.outcome, AttemptOutcome::Retry { .. } | AttemptOutcome::Quarantined { .. })
        });
        let failed: Vec<&Item> = failed.map(|attempt| &attempt.item).collect();
        let done =
            finished.iter().filter(|attempt| matches!(attempt.outcome, AttemptOutcome::Done { .. })).count();
        for (outcome, count) in [("done", done), ("failed", failed.len())] {
            crate::metrics::items(outcome, count);
        }
        // The public list has the items of the source only.
        let of_source = failed.iter().filter(|item| item.step == self.plan.source.step());
        let of_source = of_source.map(|item| item.key.as_str());
        if let Err(error) = self.shared.views.publish_failed(of_source).await {
            tracing::debug!(%error, "failed to publish the failed items of a run");
        }
        Ok(())
    }

    /// Independent loops: a store or sink that hangs must not delay the renewal of claims.
    async fn run_background(self: Arc<Self>) {
        tokio::join!(self.renew_claims(), self.write_results(), self.publish_view());
    }

    async fn renew_claims(&self) {
        while self.tick().await {
            self.renew().await;
        }
    }

    /// Renews the claims, and drops those whose lease has expired.
    async fn renew(&self) {
        let lease = self.shared.config.current().lease.get();
        let (began, newest) = (Instant::now(), self.held.newest());
        match item::renew(&self.shared.context.database, &self.run, &self.worker, lease).await {
            Ok(found) => {
                let dropped = self.held.renewed(began, newest, &found);
                if dropped > 0 {
                    tracing::warn!(run = %self.run, claims = dropped, "lease on pipeline items expired, their work is dropped");
                }
            }
            Err(error) => {
                tracing::warn!(run = %self.run, %error, "failed to renew the lease on pipeline items");
            }
        }
    }

    /// Drains the sinks once more at the end, for the last results.
    async fn write_results(&self) {
        let database = &self.shared.context.database;
        let mut sinks = Sinks::new(database, &self.run, &self.plan, &self.shared.folder);
        let mut trouble = String::new();
        let mut working = true;
        while working {
            working = self.tick().await;
            let now = match sinks.drain(&self.shared.context.secrets).await {
                Ok(_) => String::new(),
                Err(error) => error.to_string(),
            };
            if now != trouble {
                if now.is_empty() {
                    tracing::info!(run = %self.run, "sinks of a pipeline run recovered");
                } else {
                    tracing::warn!(run = %self.run, error = %now, "failed to write to the sinks of a pipeline run, retrying");
                }
                if runs::set_trouble(database, &self.run, &now).await.is_ok() {
                    trouble = now;
                }
            }
        }
        if let Err(error) = sinks.release().await {
            tracing::warn!(run = %self.run, %error, "failed to release the leases on the sinks");
        }
    }

    async fn publish_view(&self) {
        let mut working = true;
        while working {
            working = self.tick().await;
            if let Err(error) = self.shared.publish_view(&self.run).await {
                tracing::debug!(run = %self.run, %error, "failed to publish the view of a pipeline run");
            }
            self.shared.notify_pages();
        }
    }

    /// Waits for the next tick; `false` when the run has finished.
    async fn tick(&self) -> bool {
        tokio::time::timeout(TICK, self.finished.cancelled()).await.is_err()
    }
}
