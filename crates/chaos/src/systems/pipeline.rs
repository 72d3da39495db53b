//! Pipelines: a run in each round, with a quota. The API counts the calls itself, and the output has every item once.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use axum::extract::{Path as UrlPath, State};
use axum::routing::get;
use axum::{Json, Router};
use futures_util::future::{FutureExt as _, LocalBoxFuture};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::http::{Outcome, serve};
use crate::seed::Random;
use crate::system::{System, pause, within};
use crate::world::World;

const NAME: &str = "pipeline";

/// How many items a run has. With the quota, they take longer than most faults.
const ITEMS: usize = 100;

/// The quota: so many calls in any window.
const LIMIT: usize = 20;
const WINDOW: Duration = Duration::from_secs(5);
/// Redis counts in milliseconds.
const ROUNDING: Duration = Duration::from_millis(5);

/// A run completes within this time after the last fault: its calls, leases, rebuilds, and time for a busy machine.
const COMPLETES_WITHIN: Duration = Duration::from_secs(120);

/// How long the API takes to answer, so that calls are open when a node dies.
const LATENCY: Duration = Duration::from_millis(100);

/// When each call arrived.
type Calls = Arc<Mutex<Vec<Instant>>>;

/// The runs and the API that they call.
pub(crate) struct Pipeline {
    world: Arc<World>,
    folder: PathBuf,
    api: SocketAddr,
    calls: Calls,
    state: Mutex<Progress>,
}

struct Progress {
    random: Random,
    rounds: usize,
    /// The run of this round, once it is started.
    run: Option<String>,
    completed: u64,
    items: u64,
}

/// The folder of all nodes, in the section of `hob.toml`.
pub(crate) fn config(folder: &Path) -> String {
    format!("[pipeline]\nfolder = \"{}\"\n", output(folder).display())
}

fn output(folder: &Path) -> PathBuf {
    folder.join("pipelines")
}

impl Pipeline {
    pub(crate) async fn start(world: &Arc<World>, folder: &Path, seed: u64) -> Result<Self> {
        let calls = Calls::default();
        let router = Router::new().route("/items/{key}", get(item)).with_state(Arc::clone(&calls));
        let state =
            Progress { random: Random::new(seed, NAME), rounds: 0, run: None, completed: 0, items: 0 };
        Ok(Self {
            world: Arc::clone(world),
            folder: output(folder),
            api: serve(router).await?,
            calls,
            state: Mutex::new(state),
        })
    }

    fn plan(&self, name: &str) -> String {
        let keys: Vec<String> = (0..ITEMS).map(|item| format!("\"{name}-{item}\"")).collect();
        format!(
            "name = \"{name}\"\nquota = {{ name = \"api\", windows = \"{LIMIT}/{}s\" }}\n\
             [source]\nstep = \"item\"\nlist = [{}]\n\
             [step.item]\nget = \"http://{}/items/${{key}}\"\nextract = {{ id = \"$.id\" }}\nsink = \"out\"\n\
             [sink.out]\njsonl = \"{name}.jsonl\"\n",
            WINDOW.as_secs(),
            keys.join(", "),
            self.api
        )
    }

    /// Saves the plan and starts its run. Both requests are idempotent: the run's id is given.
    async fn begin(&self, name: &str, stop: &CancellationToken) {
        let (plan, run) = (json!({ "source": self.plan(name) }), json!({ "id": format!("run-{name}") }));
        let first = self.state().random.below(self.world.nodes.len());
        for attempt in 0.. {
            let api = self.world.nodes[(first + attempt) % self.world.nodes.len()].api;
            let saved = self.world.http.post(api, "/api/v1/pipelines", &plan).await;
            if matches!(saved, Outcome::Answered { status: 200..300, .. }) {
                let started =
                    self.world.http.post(api, &format!("/api/v1/pipelines/{name}/runs"), &run).await;
                // A conflict means that an earlier attempt has started it.
                if matches!(started, Outcome::Answered { status: 201 | 409, .. }) {
                    self.state().run = Some(format!("run-{name}"));
                    return;
                }
            }
            if stop.is_cancelled() {
                return;
            }
            pause(Duration::from_millis(300), stop).await;
        }
    }

    /// Waits until the run is completed, and compares its output with its items.
    async fn check_output(&self, run: &str) -> Result<(), String> {
        let view = within(COMPLETES_WITHIN, async || {
            let path = format!("/api/v1/pipelines/runs/{run}");
            let view =
                self.world.http.get(self.world.nodes[1].api, &path).await.ok(200).ok_or("no response")?;
            if view["state"] == "completed" {
                Ok(view)
            } else {
                Err(format!("the run is not completed: {view}"))
            }
        });
        let view = view.await?;
        let file = view["outputs"][0]["file"].as_str().ok_or("the run has no output file")?;
        let text =
            std::fs::read_to_string(self.folder.join(file)).map_err(|error| format!("{file}: {error}"))?;
        let name = run.strip_prefix("run-").unwrap_or(run);
        compare(&text, (0..ITEMS).map(|item| format!("{name}-{item}")))?;
        let mut state = self.state();
        state.completed += 1;
        state.items += ITEMS as u64;
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, Progress> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn calls(&self) -> Vec<Instant> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The output has a line for each item, and no others.
fn compare(text: &str, items: impl Iterator<Item = String>) -> Result<(), String> {
    let mut lines: HashMap<String, usize> = HashMap::new();
    for line in text.lines() {
        let value: Value = serde_json::from_str(line).map_err(|error| format!("{line:?}: {error}"))?;
        *lines.entry(value["id"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
    }
    for item in items {
        match lines.remove(&item) {
            Some(1) => {}
            Some(times) => return Err(format!("{item} is in the output {times} times")),
            None => return Err(format!("{item} is not in the output")),
        }
    }
    lines.keys().next().map_or(Ok(()), |other| Err(format!("{other:?} is in the output, but not an item")))
}

/// A window with more calls than the quota allows.
fn exceeding(calls: &[Instant], limit: usize, window: Duration) -> Option<String> {
    let spans = calls.windows(limit + 1).map(|calls| calls[limit].duration_since(calls[0]));
    let span = spans.min()?;
    (span + ROUNDING < window).then(|| format!("{} calls arrived within {span:?}", limit + 1))
}

async fn item(State(calls): State<Calls>, UrlPath(key): UrlPath<String>) -> Json<Value> {
    calls.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
    tokio::time::sleep(LATENCY).await;
    Json(json!({ "id": key }))
}

impl System for Pipeline {
    fn name(&self) -> &'static str {
        NAME
    }

    fn drive(&self, stop: CancellationToken) -> LocalBoxFuture<'_, ()> {
        async move {
            let (name, delay) = {
                let mut state = self.state();
                state.rounds += 1;
                (format!("round{}", state.rounds), state.random.ms(0..4_000))
            };
            pause(delay, &stop).await;
            self.begin(&name, &stop).await;
        }
        .boxed_local()
    }

    fn settle(&self) -> LocalBoxFuture<'_, ()> {
        async move {
            let run = self.state().run.take();
            if let Some(run) = run
                && let Err(what) = self.check_output(&run).await
            {
                self.world.violations.add(NAME, format!("{run}: {what}"));
            }
            if let Some(what) = exceeding(&self.calls(), LIMIT, WINDOW) {
                self.world.violations.add(NAME, what);
            }
        }
        .boxed_local()
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        let (calls, state) = (self.calls().len() as u64, self.state());
        vec![("items done", state.items), ("runs completed", state.completed), ("calls", calls)]
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{compare, exceeding};

    fn items() -> impl Iterator<Item = String> {
        ["a", "b"].into_iter().map(str::to_owned)
    }

    #[test]
    fn lost_doubled_and_foreign_items_are_found() {
        assert_eq!(compare("{\"id\":\"b\"}\n{\"id\":\"a\"}\n", items()), Ok(()));
        for (text, what) in [
            ("{\"id\":\"a\"}\n", "b is not in the output"),
            ("{\"id\":\"a\"}\n{\"id\":\"b\"}\n{\"id\":\"a\"}\n", "a is in the output 2 times"),
            ("{\"id\":\"a\"}\n{\"id\":\"b\"}\n{\"id\":\"c\"}\n", "\"c\" is in the output, but not an item"),
            ("{\"id\":\"a\"}\n{\"id\":", "EOF"),
        ] {
            let error = compare(text, items()).unwrap_err();
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn exceeded_quota_is_found() {
        let begun = Instant::now();
        let calls = |at_ms: &[u64]| -> Vec<Instant> {
            at_ms.iter().map(|ms| begun + Duration::from_millis(*ms)).collect()
        };
        let window = Duration::from_secs(5);
        assert_eq!(exceeding(&calls(&[0, 100, 4_999, 5_100]), 2, window), None);
        assert!(exceeding(&calls(&[0, 100, 4_900]), 2, window).unwrap().starts_with("3 calls"));
        assert_eq!(exceeding(&calls(&[0]), 2, window), None);
    }
}
