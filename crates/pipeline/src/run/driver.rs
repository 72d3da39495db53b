//! How a node works on a run: it claims what is due, tries it, commits what came of it, and writes the results.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use hob_database::UnixMs;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::database::{outputs, runs};
use crate::error::Result;
use crate::pipeline::Shared;
use crate::plan::Plan;
use crate::run::client::Failure;
use crate::run::item::{self, Claim, Finished, Item, Outcome};
use crate::run::seed;
use crate::run::{self, Run, RunId, RunState, SEEDED};
use crate::sink::{self, Sinks};

/// Between two looks at a run that has nothing to do.
const IDLE: Duration = Duration::from_millis(200);
/// Results that wait for a sink; with more, nothing new is tried.
const MOST_WAITING: u32 = 10_000;
/// Between two writes of results, and two views.
const BREATH: Duration = Duration::from_millis(500);

/// One node's work on one run.
pub(crate) struct Driver {
    pub(crate) shared: Arc<Shared>,
    pub(crate) run: RunId,
    pub(crate) plan: Plan,
    /// The steps whose results are kept, each with the hash of its definition.
    pub(crate) kept_steps: BTreeMap<String, String>,
    /// Who holds the claims: random, so that a restarted node is another.
    worker: String,
    /// The one item of the run that waits for the quota.
    pub(crate) gate: tokio::sync::Mutex<()>,
    /// Nothing new is tried.
    pub(crate) stop: CancellationToken,
    /// Nothing is under way any more.
    over: CancellationToken,
}

/// The claims that are held, with how many of their items are under way.
type Held = BTreeMap<i64, usize>;

impl Driver {
    pub(crate) fn new(shared: &Arc<Shared>, run: &Run, stop: CancellationToken) -> Result<Self> {
        let plan = Plan::parse(&run.text)?;
        Ok(Self {
            shared: Arc::clone(shared),
            run: run.id.clone(),
            kept_steps: plan.kept_steps(),
            plan,
            worker: format!("{}-{:016x}", shared.context.node, rand::random::<u64>()),
            gate: tokio::sync::Mutex::default(),
            stop,
            over: CancellationToken::new(),
        })
    }

    /// Works until the run is over or not running any more, or the node stops.
    pub(crate) async fn drive(self) -> Result<()> {
        let this = Arc::new(self);
        let mut aside = tokio::spawn(Arc::clone(&this).look_after());
        let worked = Arc::clone(&this).work().await;
        this.over.cancel();
        if tokio::time::timeout(Duration::from_secs(30), &mut aside).await.is_err() {
            aside.abort();
        }
        worked
    }

    async fn work(self: Arc<Self>) -> Result<()> {
        let database = &self.shared.context.database;
        // Tasks, which go on while this one waits for the database: they may hold what it waits for.
        let mut under_way = JoinSet::new();
        let mut held = Held::new();
        loop {
            if !self.stop.is_cancelled() {
                let run = run::find(database, &self.run).await?;
                if run.state != RunState::Running {
                    self.stop.cancel();
                } else if run.seeded_to != SEEDED {
                    seed::seed(database, &run, &self.plan, &self.shared.folder).await?;
                }
            }
            let claimed = self.claim(under_way.len()).await?;
            if let Some(Claim { number, items }) = claimed {
                held.insert(number, items.len());
                for item in items {
                    under_way.spawn(Arc::clone(&self).finish(number, item));
                }
            }
            let mut finished = Vec::new();
            tokio::select! {
                Some(one) = under_way.join_next() => finished.extend(one),
                () = tokio::time::sleep(IDLE) => {}
            }
            while let Some(one) = under_way.try_join_next() {
                finished.extend(one);
            }
            self.commit(&finished, &mut held).await?;
            let idle = under_way.is_empty() && held.is_empty();
            if idle && (self.stop.is_cancelled() || self.complete().await?) {
                return Ok(());
            }
        }
    }

    /// Ends a run that has nothing left to do, and says whether it did. Its files get their names before that: if this
    /// process dies in between, the run goes on and does it again.
    async fn complete(&self) -> Result<bool> {
        let database = &self.shared.context.database;
        Ok(runs::has_nothing_left(database, &self.run).await?
            && sink::publish(database, &self.run, &self.plan, &self.shared.folder).await?
            && run::complete(database, &self.run).await?)
    }

    async fn claim(&self, under_way: usize) -> Result<Option<Claim>> {
        let config = self.shared.config.now();
        let room = config.batch.saturating_sub(u32::try_from(under_way).unwrap_or(u32::MAX));
        // In halves at least: a claim for each single item would be a write for each.
        if self.stop.is_cancelled() || room < config.batch.div_ceil(2) {
            return Ok(None);
        }
        let database = &self.shared.context.database;
        if !self.plan.sinks.is_empty() && outputs::has_more_than(database, &self.run, MOST_WAITING).await? {
            return Ok(None);
        }
        item::claim(database, &self.run, &self.worker, room, config.lease.get()).await
    }

    async fn finish(self: Arc<Self>, claim: i64, item: Item) -> Finished {
        let begun_at = UnixMs(jiff::Timestamp::now().as_millisecond());
        let tried = AssertUnwindSafe(self.attempt(&item)).catch_unwind().await;
        let (status, calls, result) = match tried {
            Ok(tried) => (tried.status, tried.calls, tried.result),
            Err(_) => {
                let failure = Failure::parse("the attempt panicked");
                let Failure { class, error } = failure;
                (0, 0, Outcome::Quarantined { class, error })
            }
        };
        Finished { item, claim, begun_at, status, calls, result }
    }

    async fn commit(&self, finished: &[Finished], held: &mut Held) -> Result<()> {
        if finished.is_empty() {
            return Ok(());
        }
        for one in finished {
            if let Some(left) = held.get_mut(&one.claim) {
                *left -= 1;
            }
        }
        let over: Vec<i64> = held.extract_if(.., |_, left| *left == 0).map(|(claim, _)| claim).collect();
        let database = &self.shared.context.database;
        let counted = item::commit(database, &self.run, self.plan.name.as_str(), finished, &over).await?;
        let late = finished.len() as u64 - counted;
        if late > 0 {
            tracing::warn!(run = %self.run, late, "results came after their claim was over; the items are tried again");
        }
        let failed = finished
            .iter()
            .filter(|one| matches!(one.result, Outcome::Again { .. } | Outcome::Quarantined { .. }));
        let failed: Vec<&str> = failed.map(|one| one.item.key.as_str()).collect();
        let done = finished.iter().filter(|one| matches!(one.result, Outcome::Done { .. })).count();
        for (outcome, count) in [("done", done), ("failed", failed.len())] {
            crate::metrics::items(outcome, count);
        }
        if let Err(error) = self.shared.views.show_failed(failed).await {
            tracing::debug!(%error, "failures are not shown");
        }
        Ok(())
    }

    /// What goes on beside the work, each at its own pace: a store or a sink that hangs must not cost the claims.
    async fn look_after(self: Arc<Self>) {
        tokio::join!(self.keep_claims(), self.write_results(), self.show());
    }

    async fn keep_claims(&self) {
        while self.takes_breath().await {
            let lease = self.shared.config.now().lease.get();
            if let Err(error) =
                item::renew(&self.shared.context.database, &self.run, &self.worker, lease).await
            {
                tracing::warn!(run = %self.run, %error, "claims could not be renewed");
            }
        }
    }

    /// Once more when the work is over: its last results are there by then.
    async fn write_results(&self) {
        let database = &self.shared.context.database;
        let mut sinks = Sinks::new(database, &self.run, &self.plan, &self.shared.folder);
        let mut trouble = String::new();
        let mut working = true;
        while working {
            working = self.takes_breath().await;
            let now = match sinks.drain(&self.shared.context.secrets).await {
                Ok(_) => String::new(),
                Err(error) => error.to_string(),
            };
            if now != trouble {
                tracing::warn!(run = %self.run, trouble = %now, "the sinks' state changed");
                if runs::set_trouble(database, &self.run, &now).await.is_ok() {
                    trouble = now;
                }
            }
        }
        if let Err(error) = sinks.release().await {
            tracing::warn!(run = %self.run, %error, "sinks could not be released");
        }
    }

    async fn show(&self) {
        let mut working = true;
        while working {
            working = self.takes_breath().await;
            if let Err(error) = self.shared.show(&self.run).await {
                tracing::debug!(run = %self.run, %error, "the run is not shown");
            }
            self.shared.tell();
        }
    }

    /// Waits a moment; `false` once the work is over.
    async fn takes_breath(&self) -> bool {
        tokio::time::timeout(BREATH, self.over.cancelled()).await.is_err()
    }
}
