//! The gateway: requests through all nodes, one route with an exact limit. Each request counts once, and no window has
//! more than the limit.

mod ledger;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use axum::Router;
use futures_util::future::{FutureExt as _, LocalBoxFuture, join_all};
use tokio_util::sync::CancellationToken;

use self::ledger::{Ledger, Loss, exceeding};
use crate::fault::{AFTERMATH, Fault, FaultEvent, seconds};
use crate::http::{Outcome, serve};
use crate::seed::Random;
use crate::system::{System, pause, within};
use crate::world::World;

const NAME: &str = "gateway";
const SENDERS: usize = 3;

/// The limit of the route `/limited`, in any window.
const LIMIT: usize = 20;
const WINDOW: Duration = Duration::from_secs(5);

/// The interval of checkpoints, and of flushes, as configured and documented.
const CHECKPOINT: Duration = Duration::from_secs(2);
const FLUSH: Duration = Duration::from_millis(100);
/// Added to what a killed node may lose, because the machine may be busy.
const SLACK: Duration = Duration::from_secs(5);
/// After this time, the totals of all nodes must be complete.
const SETTLED_WITHIN: Duration = Duration::from_secs(45);

/// The traffic through the gateways.
pub(crate) struct Gateway {
    world: Arc<World>,
    ledger: Mutex<Ledger>,
    random: Mutex<Random>,
}

/// What a request is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Route {
    Limited,
    Free,
}

impl Route {
    fn path(self) -> &'static str {
        match self {
            Self::Limited => "/limited",
            Self::Free => "/free",
        }
    }
}

/// Starts the upstream, and returns the section of `hob.toml`.
pub(crate) async fn config() -> Result<String> {
    let upstream = serve(Router::new().fallback(async || "ok")).await?;
    Ok(format!(
        "[gateway]\nupstream = [\"http://{upstream}\"]\ncheckpoint_interval = \"{}s\"\n\
         [[gateway.rules]]\nname = \"limited\"\nroute = \"/limited\"\nby = \"everyone\"\n\
         windows = \"{LIMIT}/{}s\"\non_store_failure = \"closed\"\n",
        CHECKPOINT.as_secs(),
        WINDOW.as_secs()
    ))
}

impl Gateway {
    pub(crate) fn new(world: &Arc<World>, seed: u64) -> Self {
        Self {
            world: Arc::clone(world),
            ledger: Mutex::default(),
            random: Mutex::new(Random::new(seed, NAME)),
        }
    }

    async fn send(&self, mut random: Random, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            let node = random.below(self.world.nodes.len());
            let route = if random.below(3) > 0 { Route::Limited } else { Route::Free };
            let sent = Instant::now();
            let outcome = self.world.http.get(self.world.nodes[node].gateway, route.path()).await;
            self.record(node, route, sent, &outcome);
            pause(random.ms(50..200) / self.world.traffic, stop).await;
        }
    }

    fn record(&self, node: usize, route: Route, sent: Instant, outcome: &Outcome) {
        let mut ledger = self.ledger();
        match outcome {
            Outcome::Answered { status, .. } => {
                ledger.answered(node, sent);
                if route == Route::Limited && *status == 200 {
                    ledger.passed(sent, Instant::now());
                }
            }
            Outcome::NotSent => {}
            Outcome::Unknown => ledger.uncertain(),
        }
    }

    async fn check_totals(&self) {
        let checked = within(SETTLED_WITHIN, async || {
            let answer = self.world.http.get(self.world.nodes[0].api, "/api/v1/gateway/summary").await;
            let total = answer.ok(200).and_then(|body| body["total"].as_u64()).ok_or("no response")?;
            let lost = self.may_have_lost();
            self.ledger().compare(total, lost)
        });
        if let Err(what) = checked.await {
            self.world.violations.add(NAME, what);
        }
    }

    /// How many requests killed nodes may have lost: what they had not flushed and, if Redis lost its data at any time since,
    /// what they had not saved. While a server is away, a node can do neither.
    fn may_have_lost(&self) -> u64 {
        let (faults, ledger) = (self.world.faults.all(), self.ledger());
        let mut lost = 0;
        for killed in &faults {
            let Fault::KillNode(node) = killed.fault else { continue };
            let minute_ago = killed.began.checked_sub(Duration::from_secs(60)).unwrap_or(self.world.begun);
            let away = self.world.faults.total_between(minute_ago, killed.began);
            let rebuilt = |other: &FaultEvent| {
                let moves = matches!(other.fault, Fault::MoveSlots(_));
                (other.fault.may_lose_writes() || moves)
                    && other.ended.is_none_or(|ended| ended + AFTERMATH >= minute_ago)
            };
            let unsaved = if faults.iter().any(rebuilt) { CHECKPOINT } else { FLUSH };
            let since = killed.began.checked_sub(unsaved + SLACK + away).unwrap_or(self.world.begun);
            lost += ledger.answered_between(node, since, killed.began);
        }
        lost
    }

    fn check_limit(&self) {
        let losses = self.losses();
        let exceeded = exceeding(&self.ledger().take_passed(), LIMIT, WINDOW, &losses);
        if let Some((from, what)) = exceeded {
            let at = seconds(from.duration_since(self.world.begun));
            self.world.violations.add(NAME, format!("from {at}, {what}"));
        }
    }

    /// When Redis may have forgotten requests: each loss allows a caller its limit once more.
    fn losses(&self) -> Vec<Loss> {
        let losing = self.world.faults.all().into_iter().filter(|event| event.fault.may_lose_writes());
        let loss = |event: FaultEvent| Loss {
            from: event.began,
            to: event.ended.unwrap_or_else(Instant::now) + AFTERMATH,
            times: match event.fault {
                // Keys are deleted again and again.
                Fault::Evict(_) => None,
                // The master restarts, and its replica is promoted.
                Fault::KillMaster(_) | Fault::FreezeMaster(_) => Some(2),
                _ => Some(1),
            },
        };
        losing.map(loss).collect()
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl System for Gateway {
    fn name(&self) -> &'static str {
        NAME
    }

    fn drive(&self, stop: CancellationToken) -> LocalBoxFuture<'_, ()> {
        async move {
            let seeds = {
                let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
                [(); SENDERS].map(|()| random.next())
            };
            join_all(seeds.map(|seed| self.send(Random::new(seed, "sender"), &stop))).await;
        }
        .boxed_local()
    }

    fn settle(&self) -> LocalBoxFuture<'_, ()> {
        async move {
            self.check_limit();
            self.check_totals().await;
        }
        .boxed_local()
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        let counts = self.ledger().counts();
        vec![
            ("answered requests", counts.answered),
            ("requests without an answer", counts.uncertain),
            ("total that the gateway reports", counts.reported),
            ("requests that killed nodes may have lost", self.may_have_lost()),
            ("requests that passed the limit", counts.passed),
        ]
    }
}
