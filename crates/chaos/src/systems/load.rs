//! Load: runs on two runners, queued under faults and in the calm. Every run ends, and a completed one has all its requests
//! in its merged report.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use axum::Router;
use axum::extract::{Path, State};
use axum::routing::get;
use futures_util::future::{FutureExt as _, LocalBoxFuture};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::http::serve;
use crate::seed::Random;
use crate::system::{System, pause, within};
use crate::world::World;

const NAME: &str = "load";

/// The load of a run, and the number of its requests.
const RATE: u64 = 20;
const SECONDS: u64 = 5;
const REQUESTS: u64 = RATE * SECONDS;

/// A run ends within this time: the leases of its coordinator and its runners, the time to gather runners, its duration,
/// and time for a busy machine.
const ENDS_WITHIN: Duration = Duration::from_secs(75);

/// Requests by the name of the plan.
type Served = Arc<Mutex<HashMap<String, u64>>>;

/// The runs and their target.
pub(crate) struct Load {
    world: Arc<World>,
    target: SocketAddr,
    served: Served,
    state: Mutex<Progress>,
}

struct Progress {
    random: Random,
    plans: u64,
    open: Vec<Run>,
    ended: HashMap<String, u64>,
    requests: u64,
}

/// A run that was queued.
#[derive(Clone, Debug)]
struct Run {
    id: String,
    plan: String,
    queued: Instant,
}

/// How a run ended, and what is known about it.
#[derive(Clone, Copy, Debug)]
struct Ending<'a> {
    state: &'a str,
    /// The requests in the report, and how many of them failed, if there is a report.
    reported: Option<(u64, u64)>,
    served: u64,
    /// Whether a fault lasted while the run did.
    disturbed: bool,
}

impl Ending<'_> {
    fn check(&self) -> Result<(), String> {
        let (requests, failed) = self.reported.unwrap_or((0, 0));
        if requests > self.served {
            return Err(format!("the report has {requests} requests, but the target served {}", self.served));
        }
        match self.state {
            "completed" if (requests, failed) == (REQUESTS, 0) => Ok(()),
            "completed" => Err(format!(
                "the report of a completed run has {requests} requests, {failed} failed, instead of {REQUESTS}"
            )),
            "lost" if self.disturbed => Ok(()),
            other => Err(format!("the run ended as {other}, disturbed by a fault: {}", self.disturbed)),
        }
    }
}

impl Load {
    pub(crate) async fn start(world: &Arc<World>, seed: u64) -> Result<Self> {
        let served = Served::default();
        let router = Router::new().route("/{plan}", get(answer)).with_state(Arc::clone(&served));
        let state = Progress {
            random: Random::new(seed, NAME),
            plans: 0,
            open: Vec::new(),
            ended: HashMap::new(),
            requests: 0,
        };
        Ok(Self { world: Arc::clone(world), target: serve(router).await?, served, state: Mutex::new(state) })
    }

    /// Saves a new plan and queues a run of it. A request without an answer may have queued a run; the next attempt uses
    /// another plan, so the requests of the two are counted separately.
    async fn queue(&self, node: usize) -> Option<()> {
        let plan = {
            let mut state = self.state();
            state.plans += 1;
            format!("plan{}", state.plans)
        };
        let source = format!(
            "name = \"{plan}\"\ntarget = \"http://{}\"\n[[scenario]]\nname = \"s\"\n\
             load = {{ rate = {RATE}, for = \"{SECONDS}s\" }}\n[[scenario.step]]\nname = \"get\"\nrequest = \"GET /{plan}\"\n",
            self.target
        );
        let api = self.world.nodes[node].api;
        let queued = Instant::now();
        let saved =
            self.world.http.post(api, "/api/v1/load/plans", &json!({ "source": source })).await.ok(201)?;
        let path = format!("/api/v1/load/plans/{}/runs", saved["id"]);
        let run = self.world.http.post(api, &path, &json!({ "runners": 2 })).await.ok(202)?;
        let id = run["id"].as_str()?.to_owned();
        self.state().open.push(Run { id, plan, queued });
        Some(())
    }

    async fn queue_on_any_node(&self, stop: &CancellationToken) {
        let first = self.state().random.below(self.world.nodes.len());
        for attempt in 0.. {
            if self.queue((first + attempt) % self.world.nodes.len()).await.is_some() || stop.is_cancelled() {
                return;
            }
            pause(Duration::from_millis(500), stop).await;
        }
    }

    /// Waits until all queued runs have ended, and checks them.
    async fn check_runs(&self) {
        let open = std::mem::take(&mut self.state().open);
        for run in open {
            let ended = within(ENDS_WITHIN, async || self.ending(&run).await).await;
            if let Err(what) = ended.flatten() {
                self.world.violations.add(NAME, format!("{} of {}: {what}", run.id, run.plan));
            }
        }
    }

    /// The check of a run that has ended. An error if it has not.
    async fn ending(&self, run: &Run) -> Result<Result<(), String>, String> {
        let api = self.world.nodes[0].api;
        let found = self.world.http.get(api, &format!("/api/v1/load/runs/{}", run.id)).await.ok(200);
        let found = found.ok_or("no response")?;
        let state = found["state"].as_str().unwrap_or_default();
        if !["completed", "failed", "cancelled", "lost"].contains(&state) {
            return Err(format!("the run has not ended, it is {state}"));
        }
        let report = self.world.http.get(api, &format!("/api/v1/load/runs/{}/report", run.id)).await.ok(200);
        let count = |report: &Value, name: &str| report[name].as_u64().unwrap_or(0);
        let reported = report.map(|report| (count(&report, "requests"), count(&report, "failed")));
        let served =
            self.served.lock().unwrap_or_else(PoisonError::into_inner).get(&run.plan).copied().unwrap_or(0);
        let disturbed = !self.world.faults.between(run.queued, Instant::now()).is_empty();
        let mut progress = self.state();
        *progress.ended.entry(state.to_owned()).or_default() += 1;
        progress.requests += reported.map_or(0, |(requests, _)| requests);
        Ok(Ending { state, reported, served, disturbed }.check())
    }

    fn state(&self) -> MutexGuard<'_, Progress> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn answer(State(served): State<Served>, Path(plan): Path<String>) -> &'static str {
    *served.lock().unwrap_or_else(PoisonError::into_inner).entry(plan).or_default() += 1;
    "ok"
}

impl System for Load {
    fn name(&self) -> &'static str {
        NAME
    }

    fn drive(&self, stop: CancellationToken) -> LocalBoxFuture<'_, ()> {
        async move {
            let delay = self.state().random.ms(500..10_000);
            pause(delay, &stop).await;
            self.queue_on_any_node(&stop).await;
        }
        .boxed_local()
    }

    fn settle(&self) -> LocalBoxFuture<'_, ()> {
        async move {
            self.check_runs().await;
            // Without faults, a run must complete.
            if self.queue(0).await.is_none() {
                self.world.violations.add(NAME, "a run cannot be queued without faults".to_owned());
            }
            self.check_runs().await;
        }
        .boxed_local()
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        let state = self.state();
        let ended = |name: &str| state.ended.get(name).copied().unwrap_or(0);
        vec![
            ("runs completed", ended("completed")),
            ("runs lost because of a fault", ended("lost")),
            ("requests in reports", state.requests),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::{Ending, REQUESTS};

    fn ending(state: &str, requests: u64) -> Ending<'_> {
        Ending { state, reported: Some((requests, 0)), served: REQUESTS, disturbed: false }
    }

    #[test]
    fn complete_and_excused_runs_are_accepted() {
        assert_eq!(ending("completed", REQUESTS).check(), Ok(()));
        assert_eq!(Ending { disturbed: true, ..ending("lost", 7) }.check(), Ok(()));
        assert_eq!(Ending { disturbed: true, reported: None, ..ending("lost", 0) }.check(), Ok(()));
    }

    #[test]
    fn lost_and_doubled_results_are_found() {
        assert!(ending("completed", REQUESTS - 1).check().is_err());
        assert!(ending("completed", REQUESTS + 1).check().unwrap_err().contains("the target served"));
        assert!(Ending { reported: None, ..ending("completed", 0) }.check().is_err());
        assert!(Ending { reported: Some((REQUESTS, 1)), ..ending("completed", 0) }.check().is_err());
    }

    #[test]
    fn run_that_fails_without_a_reason_is_found() {
        assert!(ending("lost", 7).check().is_err());
        assert!(Ending { disturbed: true, ..ending("failed", REQUESTS) }.check().is_err());
    }
}
