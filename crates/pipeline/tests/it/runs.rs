//! Runs against the fake API: every result arrives once.

use std::collections::BTreeSet;
use std::time::Duration;

use hob_database::{PageRequest, Read as _, sql};
use hob_fixtures::every_service;
use hob_pipeline::fake_api::{FakeApi, FakeApiConfig, Fault};
use hob_pipeline::keys::{HourKey, TaskId};
use hob_pipeline::run::{Run, RunAction, RunState};
use hob_pipeline::{Error, FailureClass, ItemState, Pipelines};
use hob_store::cmd;
use hob_testkit::{LIMIT, wait_for};

use crate::support::{NEEDS, Node, TestEnv};

pub(crate) fn api_config() -> FakeApiConfig {
    let limits = vec![(1000, Duration::from_secs(60))];
    FakeApiConfig { dockets: 25, entries: 2, page: 10, limits, token: None, latency: Duration::ZERO }
}

pub(crate) fn plan(api: &FakeApi) -> String {
    format!(
        r#"name = "dockets"
quota = {{ name = "api", windows = "1000/1m" }}
[source]
step = "docket"
pages = {{ url = "{0}/dockets/", items = "$.results[*]", key = "$.id", next = "$.next" }}
[step.docket]
get = "{0}/dockets/${{key}}/"
conditional = true
extract = {{ id = "$.id", case_name = "$.case_name" }}
follow = [{{ step = "entry", items = "$.docket_entries[*]", key = "$.id" }}]
sink = "dockets"
[step.entry]
get = "{0}/docket-entries/${{key}}/"
extract = {{ id = "$.id", docket = "$.docket" }}
sink = "entries"
[sink.dockets]
jsonl = "out/dockets.jsonl"
[sink.entries]
table = "entries"
sqlite = "out/entries.db"
key = ["id"]
[retry]
network = {{ attempts = 5, first = "10ms" }}
server = {{ attempts = 3, first = "10ms" }}
parse = {{ attempts = 2, first = "10ms" }}
[http]
timeout = "10s"
"#,
        api.url()
    )
}

pub(crate) async fn start_run(pipelines: &Pipelines, text: &str) -> Run {
    let plan = pipelines.put_plan(text).await.unwrap();
    pipelines.start_run(&plan.name, None).await.unwrap()
}

/// Starts a run with an id.
pub(crate) async fn start_run_as(pipelines: &Pipelines, text: &str, id: &str) -> Run {
    let plan = pipelines.put_plan(text).await.unwrap();
    pipelines.start_run(&plan.name, Some(id.parse().unwrap())).await.unwrap()
}

pub(crate) async fn wait_for_state(pipelines: &Pipelines, run: &Run, state: RunState) {
    wait_for(format!("the run to be {state:?}"), LIMIT * 2, async || {
        let run = pipelines.run(&run.id).await.unwrap();
        if run.state == state { Ok(()) } else { Err(run) }
    })
    .await;
}

/// The ids in a JSON Lines file, without duplicates.
pub(crate) fn ids_in(node: &Node, file: &str) -> BTreeSet<u64> {
    let text = std::fs::read_to_string(node.folder().join(file)).unwrap();
    let mut ids = BTreeSet::new();
    for line in text.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(ids.insert(line["id"].as_u64().unwrap()), "duplicate {line}");
    }
    ids
}

async fn rows_in(node: &Node, file: &str) -> usize {
    let path = node.folder().join(file);
    let pool = sqlx::SqlitePool::connect(&format!("sqlite:{}", path.display())).await.unwrap();
    let count = "SELECT count(*) FROM entries WHERE typeof(id) = 'integer'";
    let (rows,): (i64,) = sqlx::query_as(count).fetch_one(&pool).await.unwrap();
    usize::try_from(rows).unwrap()
}

every_service! {
    NEEDS;

    /// P3, P9
    async fn run_fetches_all_items_and_follows_them(context: TestContext) {
        let env = TestEnv::new(context);
        let api = FakeApi::start(api_config()).await.unwrap();
        let node = env.node().await;
        let run = start_run(&node.pipelines, &plan(&api)).await;
        wait_for_state(&node.pipelines, &run, RunState::Completed).await;
        assert_eq!(ids_in(&node, "out/dockets.jsonl"), (1..=25).collect());
        assert_eq!(rows_in(&node, "out/entries.db").await, 50);
        // 3 pages, 25 dockets, 50 entries.
        assert_eq!((api.served(), api.throttled()), (78, 0));
        let progress = node.pipelines.progress(&run.id).await.unwrap();
        assert_eq!((progress.of(ItemState::Done), progress.total()), (78, 78));
        assert_eq!(node.pipelines.run(&run.id).await.unwrap().calls, 78);
        env.assert_counts_match(&run.id).await;

        // A second run makes conditional requests.
        let again = start_run(&node.pipelines, &plan(&api)).await;
        wait_for_state(&node.pipelines, &again, RunState::Completed).await;
        assert_eq!(api.served(), 78 + 28, "pages and dockets, without entries");
        assert_eq!(ids_in(&node, "out/dockets.jsonl"), (1..=25).collect());
        assert_eq!(rows_in(&node, "out/entries.db").await, 50);
    }

    /// P3, P4, P5, P7
    async fn public_views_show_the_run(context: TestContext) {
        let env = TestEnv::new(context);
        // Slow enough that a machine that stalls sees the start of a task.
        let latency = Duration::from_secs(4);
        let api = FakeApi::start(FakeApiConfig { dockets: 3, entries: 0, latency, ..api_config() }).await.unwrap();
        let node = env.node().await;
        let text = plan(&api).replace("server = { attempts = 3", "server = { attempts = 1");
        api.fail("/dockets/2/", Fault::Status(500));
        let run = start_run(&node.pipelines, &text).await;
        let (store, keys) = (env.test_store().store(), env.keys());
        let id = hob_pipeline::keys::DagRunId::new(run.id.as_str()).unwrap();
        let start = keys.task_start(&id, &TaskId::new("docket_1").unwrap());
        wait_for("the start of a task", LIMIT, async || env.get(&start).await).await;
        wait_for_state(&node.pipelines, &run, RunState::Completed).await;
        assert_eq!(env.get(&start).await, None, "the attempt has ended");

        let state: std::collections::HashMap<String, String> = wait_for("the final view", LIMIT, async || {
            let all = store.run(cmd("HGETALL").arg(keys.state(&id).as_bytes())).await;
            all.ok().filter(|all: &std::collections::HashMap<String, String>| all.get("status").is_some_and(|s| s == "completed"))
        })
        .await;
        assert_eq!(state["dag_run_id"], run.id.as_str());
        let processed: Vec<String> = serde_json::from_str(&state["dockets_processed"]).unwrap();
        assert!(processed.contains(&"1".to_owned()) && !processed.contains(&"2".to_owned()), "{processed:?}");
        // The hour may have changed since the failure.
        let started = jiff::Timestamp::from_millisecond(run.started_at.0).unwrap();
        let mut hours = vec![started.strftime("%Y-%m-%d_%H").to_string(), state["current_hour"].clone()];
        hours.dedup();
        let mut failed = Vec::new();
        for hour in &hours {
            let list = keys.failed(&HourKey::new(hour).unwrap(), keys.space().shard_of("failed"));
            let list: Vec<String> = store.run(cmd("LRANGE").arg(list.as_bytes()).arg(0).arg(-1)).await.unwrap();
            failed.extend(list);
        }
        assert_eq!(failed, ["2"]);
        let attempts: Vec<(i64, i64, String)> = env
            .database
            .all(sql("SELECT begun_at, ended_at, class FROM pipeline_attempt WHERE run = $1 AND status = 500").bind(&run.id))
            .await
            .unwrap();
        assert!(matches!(&attempts[..], [(begun, ended, class)] if begun < ended && class == "server"), "{attempts:?}");
    }

    /// P5: failures are retried by class, become dead letters, and are replayed.
    async fn failures_are_retried_and_dead_letters_replayed(context: TestContext) {
        let env = TestEnv::new(context);
        let api = FakeApi::start(FakeApiConfig { entries: 0, ..api_config() }).await.unwrap();
        let node = env.node().await;
        api.fail("/dockets/3/", Fault::Truncated);
        api.fail("/dockets/4/", Fault::Status(503));
        for _ in 0..2 {
            api.fail("/dockets/5/", Fault::Garbage);
        }
        api.fail("/dockets/6/", Fault::Status(403));
        let run = start_run(&node.pipelines, &plan(&api)).await;
        wait_for_state(&node.pipelines, &run, RunState::Completed).await;
        let done: BTreeSet<u64> = (1..=25).filter(|id| ![5, 6].contains(id)).collect();
        assert_eq!(ids_in(&node, "out/dockets.jsonl"), done, "retries succeeded");
        let quarantined = ItemState::Quarantined;
        env.assert_counts_match(&run.id).await;
        let failures = node.pipelines.progress(&run.id).await.unwrap().failures;
        assert_eq!(failures, [(FailureClass::Client, quarantined, 1), (FailureClass::Parse, quarantined, 1)]);
        let page = node.pipelines.items(&run.id, Some(quarantined), Some(FailureClass::Parse), &PageRequest::first(10)).await;
        let page = page.unwrap();
        assert!(page.rows[0].error.contains("maintenance"), "{:?}", page.rows);
        assert_eq!((page.rows[0].key.as_str(), page.rows[0].attempts), ("5", 2));

        assert_eq!(node.pipelines.replay(&run.id, Some(FailureClass::Parse)).await.unwrap(), 1);
        env.assert_counts_match(&run.id).await;
        wait_for_state(&node.pipelines, &run, RunState::Completed).await;
        assert!(ids_in(&node, "out/dockets.jsonl").contains(&5));
        assert_eq!(node.pipelines.replay(&run.id, None).await.unwrap(), 1);
        wait_for_state(&node.pipelines, &run, RunState::Completed).await;
        assert_eq!(ids_in(&node, "out/dockets.jsonl"), (1..=25).collect());
    }

    /// P12: every result arrives once, although the store loses its data twice.
    async fn run_survives_losses_of_the_store(context: TestContext) {
        let env = TestEnv::new(context);
        let api = FakeApi::start(FakeApiConfig { latency: Duration::from_millis(20), ..api_config() }).await.unwrap();
        let node = env.node().await;
        let run = start_run(&node.pipelines, &plan(&api)).await;
        wait_for("some API calls", LIMIT, async || api.served() > 10).await;
        env.test_store().flush_all().await;
        wait_for("more API calls", LIMIT, async || api.served() > 30).await;
        env.test_store().flush_all().await;
        wait_for_state(&node.pipelines, &run, RunState::Completed).await;
        assert_eq!(ids_in(&node, "out/dockets.jsonl"), (1..=25).collect());
        let used = node.pipelines.quotas().usage(&"api".parse().unwrap()).await.unwrap().windows[0].used;
        assert!(u64::from(used) >= api.served(), "{used} of {}", api.served());
    }

    /// P7
    async fn run_is_paused_resumed_and_cancelled(context: TestContext) {
        let env = TestEnv::new(context);
        // Slow enough that calls remain when the run is paused, even if the machine stalls.
        let api = FakeApi::start(FakeApiConfig { latency: Duration::from_millis(300), ..api_config() }).await.unwrap();
        let node = env.node().await;
        let run = start_run(&node.pipelines, &plan(&api)).await;
        wait_for("some API calls", LIMIT, async || api.served() > 5).await;
        node.pipelines.apply(&run.id, RunAction::Pause).await.unwrap();
        wait_for("all claims to be released", LIMIT, async || {
            let (claims,): (i64,) = env.database.one(sql("SELECT CAST(count(*) AS BIGINT) FROM pipeline_claim")).await.unwrap();
            claims == 0
        })
        .await;
        let progress = node.pipelines.progress(&run.id).await.unwrap();
        assert_eq!(progress.of(ItemState::Claimed), 0);
        assert!(progress.of(ItemState::Waiting) > 0);
        env.assert_counts_match(&run.id).await;
        let archived = node.pipelines.apply(&run.id, RunAction::Archive).await;
        assert!(matches!(archived, Err(Error::Conflict(_))), "{archived:?}");
        node.pipelines.apply(&run.id, RunAction::Resume).await.unwrap();
        wait_for_state(&node.pipelines, &run, RunState::Completed).await;
        assert_eq!(ids_in(&node, "out/dockets.jsonl"), (1..=25).collect());

        let other = start_run(&node.pipelines, &plan(&api)).await;
        node.pipelines.apply(&other.id, RunAction::Cancel).await.unwrap();
        let resumed = node.pipelines.apply(&other.id, RunAction::Resume).await;
        assert!(matches!(resumed, Err(Error::Conflict(_))), "{resumed:?}");
    }
}
