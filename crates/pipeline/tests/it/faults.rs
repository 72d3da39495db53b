//! One test per kind of failure.

use hob_web::Service as _;
use std::time::Duration;

use hob_database::{PageRequest, Read as _, sql};
use hob_fixtures::every_service;
use hob_pipeline::fake_api::{FakeApi, FakeApiConfig, Fault};
use hob_pipeline::quota::Limits;
use hob_pipeline::run::{RunAction, RunState};
use hob_pipeline::{Config, FailureClass, ItemState, Pipelines};
use hob_service::{Live, Period};
use hob_testkit::{LIMIT, run, wait_for};

use crate::runs::{api_config, ids_in, plan, start_run, start_run_as, wait_for_state};
use crate::support::{NEEDS, TestEnv, api};

/// The database contains the complete state of a run: the store may lose its data, and its clock may be a month ahead.
#[test]
fn run_resumes_after_a_month() {
    run(async {
        let env = TestEnv::embedded().await;
        // Slow enough that calls remain when the node stops, even if the machine stalls.
        let server = FakeApi::start(FakeApiConfig { latency: Duration::from_millis(400), ..api_config() })
            .await
            .unwrap();
        let node = env.node_with_store(env.store()).await;
        let started = start_run(&node.pipelines, &plan(&server)).await;
        wait_for("some API calls", LIMIT, async || server.served() > 20).await;
        let folder = node.stop().await;
        let before = server.served();
        assert!(before < 78, "the run stopped before its end");
        env.test_store().flush_all().await;
        env.advance(Duration::from_secs(31 * 86_400));

        let node = env.node_in(folder, env.store()).await;
        wait_for_state(&node.pipelines, &started, RunState::Completed).await;
        assert_eq!(ids_in(&node, "out/dockets.jsonl"), (1..=25).collect());
        assert_eq!(server.served(), 78, "no request was repeated");
        let usage = node.pipelines.quotas().usage(&api()).await.unwrap();
        assert!(u64::from(usage.windows[0].used) <= 78 - before, "calls of last month do not count");
    });
}

#[test]
fn lost_cursor_restarts_the_listing_without_duplicates() {
    run(async {
        let env = TestEnv::embedded().await;
        let server = FakeApi::start(api_config()).await.unwrap();
        server.fail("?cursor=c20", Fault::LostCursor);
        let node = env.node().await;
        let started = start_run(&node.pipelines, &plan(&server)).await;
        wait_for_state(&node.pipelines, &started, RunState::Completed).await;
        assert_eq!(ids_in(&node, "out/dockets.jsonl"), (1..=25).collect());
        // 2 pages, the lost one, and 3 after the restart.
        assert_eq!(server.served(), 75 + 2 + 1 + 3);
    });
}

#[test]
fn truncated_response_is_retried() {
    run(async {
        let env = TestEnv::embedded().await;
        let server = FakeApi::start(FakeApiConfig { dockets: 3, entries: 0, ..api_config() }).await.unwrap();
        server.fail("/dockets/2/", Fault::Truncated);
        let node = env.node().await;
        let started = start_run(&node.pipelines, &plan(&server)).await;
        wait_for_state(&node.pipelines, &started, RunState::Completed).await;
        assert_eq!(ids_in(&node, "out/dockets.jsonl"), (1..=3).collect());
        let attempts = sql("SELECT class FROM pipeline_attempt WHERE class <> ''");
        let attempts: Vec<(FailureClass,)> = env.database.all(attempts).await.unwrap();
        assert_eq!(attempts, [(FailureClass::Network,)]);
    });
}

/// A denied address is not retried. On Linux, a connection to 0.0.0.0 reaches this machine.
#[test]
fn denied_address_becomes_a_dead_letter_at_once() {
    run(async {
        let env = TestEnv::embedded().await;
        let server = FakeApi::start(api_config()).await.unwrap();
        let node = env.node().await;
        let local_url = server.url().replace("127.0.0.1", "0.0.0.0");
        for (host, class) in [(local_url.as_str(), "unspecified"), ("http://169.254.169.254", "link-local")] {
            let text = plan(&server).replace(&server.url(), host);
            let started = start_run(&node.pipelines, &text).await;
            wait_for_state(&node.pipelines, &started, RunState::Completed).await;
            let page = PageRequest::first(9);
            let dead = node.pipelines.items(&started.id, Some(ItemState::Quarantined), None, &page);
            let dead = dead.await.unwrap().rows;
            assert_eq!((dead.len(), dead[0].attempts, dead[0].class), (1, 1, Some(FailureClass::Client)));
            let expected =
                format!("{class} addresses are not allowed; to allow it, add it to [outbound] allow");
            assert!(dead[0].error.contains(&expected), "{}", dead[0].error);
        }
        assert_eq!(server.served(), 0);
    });
}

/// An item that crashes every worker becomes a dead letter; the others are done.
#[test]
fn poison_item_becomes_a_dead_letter() {
    run(async {
        let env = TestEnv::embedded().await;
        let server = FakeApi::start(FakeApiConfig { dockets: 5, entries: 0, ..api_config() }).await.unwrap();
        let node = env.node().await;
        let text = plan(&server);
        let source = text.find("pages = ").unwrap()..text.find("[step.docket]").unwrap();
        let mut text = text;
        text.replace_range(source, "list = [\"1\", \"2\", \"3\"]\n");
        let folder = node.stop().await;

        // All workers of item 2 were killed. The last claim exists and has expired.
        let stopped = env.node_in(folder, env.test_store().store().clone()).await;
        let started = start_run(&stopped.pipelines, &text).await;
        let folder = {
            wait_for_state(&stopped.pipelines, &started, RunState::Completed).await;
            stopped.stop().await
        };
        for change in [
            "UPDATE pipeline_item SET state = 'claimed', claim = 900, attempts = 20 WHERE key = '2'",
            "UPDATE pipeline_item SET state = 'claimed', claim = 900, attempts = 1 WHERE key = '3'",
            "UPDATE pipeline_tally SET items = CASE state WHEN 'done' THEN 1 WHEN 'claimed' THEN 2 ELSE 0 END",
            "INSERT INTO pipeline_claim (run, claim, worker, first_seq, last_seq, begun, until)
             SELECT id, 900, 'dead', 1, 2, 0, 1 FROM pipeline_run",
            "UPDATE pipeline_run SET state = 'running'",
        ] {
            env.database.execute(sql(change)).await.unwrap();
        }
        let node = env.node_in(folder, env.test_store().store().clone()).await;
        wait_for_state(&node.pipelines, &started, RunState::Completed).await;
        let page = PageRequest::first(9);
        let dead_letters = node.pipelines.items(&started.id, Some(ItemState::Quarantined), None, &page);
        let dead_letters: Vec<String> =
            dead_letters.await.unwrap().rows.into_iter().map(|item| item.key).collect();
        assert_eq!(dead_letters, ["2"]);
        env.assert_counts_match(&started.id).await;
    });
}

/// The lease of a claim expires while its items wait for the quota, as if the process had been suspended. Another claim
/// takes the items, and the old one does not use the quota for them any more.
#[test]
fn items_of_an_expired_claim_are_not_fetched_twice() {
    const ITEMS: u64 = 60;
    /// Calls that may be made until the next renewal finds that the lease has expired.
    const IN_FLIGHT: u64 = 25;
    run(async {
        let env = TestEnv::embedded().await;
        let server =
            FakeApi::start(FakeApiConfig { dockets: ITEMS, entries: 0, ..api_config() }).await.unwrap();
        let node = env.node().await;
        let mut text = plan(&server).replace("1000/1m", "10/1s");
        let source = text.find("pages = ").unwrap()..text.find("[step.docket]").unwrap();
        let keys: Vec<String> = (1..=ITEMS).map(|key| format!("\"{key}\"")).collect();
        text.replace_range(source, &format!("list = [{}]\n", keys.join(", ")));
        let started = start_run(&node.pipelines, &text).await;
        wait_for("the first calls", LIMIT, async || server.served() > 0).await;
        env.database.execute(sql("UPDATE pipeline_claim SET until = 1")).await.unwrap();
        wait_for_state(&node.pipelines, &started, RunState::Completed).await;
        assert_eq!(ids_in(&node, "out/dockets.jsonl"), (1..=ITEMS).collect());
        assert!(server.served() <= ITEMS + IN_FLIGHT, "{} calls for {ITEMS} items", server.served());
    });
}

/// Results wait in the database while the disk is full, and the run reports it.
#[test]
fn full_disk_keeps_results_waiting() {
    run(async {
        let env = TestEnv::embedded().await;
        let server = FakeApi::start(FakeApiConfig { entries: 0, ..api_config() }).await.unwrap();
        let node = env.node().await;
        let file = node.folder().join("out/dockets-full.jsonl");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink("/dev/full", &file).unwrap();
        let started = start_run_as(&node.pipelines, &plan(&server), "full").await;
        wait_for("the error on the run", LIMIT, async || {
            let trouble = node.pipelines.run(&started.id).await.unwrap().trouble;
            if trouble.contains("dockets") { Ok(()) } else { Err(trouble) }
        })
        .await;
        wait_for("all API calls", LIMIT, async || server.served() == 28).await;
        assert_eq!(node.pipelines.run(&started.id).await.unwrap().state, RunState::Running);

        std::fs::remove_file(&file).unwrap();
        wait_for_state(&node.pipelines, &started, RunState::Completed).await;
        assert_eq!(ids_in(&node, "out/dockets.jsonl"), (1..=25).collect());
        assert_eq!(node.pipelines.run(&started.id).await.unwrap().trouble, "");
    });
}

/// The next writer truncates the uncommitted part of a file after a crash.
#[test]
fn file_is_truncated_to_the_committed_length() {
    run(async {
        let env = TestEnv::embedded().await;
        let server = FakeApi::start(FakeApiConfig { dockets: 3, entries: 0, ..api_config() }).await.unwrap();
        let node = env.node().await;
        let started = start_run(&node.pipelines, &plan(&server)).await;
        wait_for_state(&node.pipelines, &started, RunState::Completed).await;
        let folder = node.stop().await;
        let file = folder.path().join("out/dockets.jsonl");
        let complete = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("{complete}{{\"id\": 3, \"case_na")).unwrap();
        for change in [
            "INSERT INTO pipeline_output (run, sink, seq, line) SELECT id, 'dockets', 99, '{\"id\": 4}' FROM pipeline_run",
            "UPDATE pipeline_run SET state = 'running'",
        ] {
            env.database.execute(sql(change)).await.unwrap();
        }
        let node = env.node_in(folder, env.test_store().store().clone()).await;
        wait_for_state(&node.pipelines, &started, RunState::Completed).await;
        assert_eq!(ids_in(&node, "out/dockets.jsonl"), (1..=4).collect());
    });
}

/// P8, P12: the API throttles a call that the quota granted, as if another client used the credential.
#[test]
fn quota_adapts_to_the_first_refusal() {
    run(async {
        let env = TestEnv::embedded().await;
        // Long enough that a machine that stalls still makes eleven calls in it.
        let limits = vec![(10, Duration::from_secs(8))];
        let server =
            FakeApi::start(FakeApiConfig { dockets: 12, entries: 0, limits, ..api_config() }).await.unwrap();
        let node = env.node().await;
        // The plan has much higher limits than the API.
        let started =
            start_run(&node.pipelines, &plan(&server).replace("[http]", "[http]\nper_host = 1")).await;
        wait_for_state(&node.pipelines, &started, RunState::Completed).await;
        assert_eq!(ids_in(&node, "out/dockets.jsonl"), (1..=12).collect());
        assert!((1..=2).contains(&server.throttled()), "{} refusals", server.throttled());
        let limits = Limits::parse("1000/1m", 0).unwrap();
        assert_eq!(node.pipelines.quotas().definition(&api()).await.unwrap().limits, limits);
    });
}

/// Bodies and concurrency per host are bounded.
#[test]
fn long_responses_are_rejected_and_concurrency_is_limited() {
    run(async {
        let env = TestEnv::embedded().await;
        // Longer than three reservations take on a busy machine, which are made one after the other.
        let latency = Duration::from_millis(300);
        let server =
            FakeApi::start(FakeApiConfig { dockets: 30, entries: 0, latency, ..api_config() }).await.unwrap();
        for _ in 0..2 {
            server.fail("/dockets/7/", Fault::Long(70 * 1024));
        }
        let node = env.node().await;
        let text = plan(&server).replace("[http]", "[http]\nper_host = 3\nmax_body_kib = 64");
        let started = start_run(&node.pipelines, &text).await;
        wait_for_state(&node.pipelines, &started, RunState::Completed).await;
        let page = PageRequest::first(9);
        let dead_letters =
            node.pipelines.items(&started.id, Some(ItemState::Quarantined), None, &page).await.unwrap();
        let dead_letters: Vec<_> = dead_letters
            .rows
            .iter()
            .map(|item| (item.key.as_str(), item.class, item.error.as_str()))
            .collect();
        assert_eq!(
            dead_letters,
            [("7", Some(FailureClass::Parse), "the response is longer than 65536 bytes")]
        );
        assert_eq!(server.max_concurrent(), 3);
    });
}

every_service! {
    NEEDS;

    /// P9: an archived run is deleted with all of its rows, and other runs are preserved.
    async fn archived_runs_are_deleted(context: TestContext) {
        let env = TestEnv::new(context);
        let server = FakeApi::start(FakeApiConfig { dockets: 3, ..api_config() }).await.unwrap();
        let node = env.node().await;
        let mut runs = Vec::new();
        for _ in 0..2 {
            let started = start_run(&node.pipelines, &plan(&server)).await;
            wait_for_state(&node.pipelines, &started, RunState::Completed).await;
            runs.push(started.id);
        }
        node.pipelines.apply(&runs[0], RunAction::Archive).await.unwrap();
        let folder = node.stop().await;
        let context = env.context(env.test_store().store().clone());
        let keep_archived = Period::from_millis(1);
        let config = Config { folder: folder.path().to_owned(), keep_archived, ..Config::default() };
        let pipelines = Pipelines::open(&context, Live::fixed(config)).await.unwrap();
        pipelines.start(&hob_web::Changes::detached(&context));
        wait_for("the archived run to be deleted", LIMIT, async || pipelines.run(&runs[0]).await.is_err())
            .await;
        for query in [
            "SELECT DISTINCT run FROM pipeline_item",
            "SELECT DISTINCT run FROM pipeline_attempt",
            "SELECT DISTINCT run FROM pipeline_tally",
            "SELECT DISTINCT run FROM pipeline_pace",
        ] {
            let runs_left: Vec<(String,)> = env.database.all(sql(query)).await.unwrap();
            assert_eq!(runs_left, [(runs[1].to_string(),)], "{query}");
        }
    }
}
