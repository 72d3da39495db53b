//! Crashes of nodes and losses of the store during a run.

use std::time::Duration;

use hob_fixtures::TestStore;
use hob_pipeline::fake_api::{FakeApi, FakeApiConfig};
use hob_pipeline::run::RunState;
use hob_testkit::{LIMIT, RedisServer, TestDatabase, run, wait_for};

use crate::runs::{api_config, ids_in, plan, start_run, wait_for_state};
use crate::support::TestEnv;

/// Calls that may have been granted just before the outage.
const IN_FLIGHT: u64 = 4;

/// P12: the quota fails closed, and the run continues after the store has recovered.
async fn no_calls_during(fail: impl Fn(&RedisServer), recover: impl Fn(&RedisServer)) {
    let env = TestEnv::over(TestStore::redis().await, TestDatabase::sqlite()).await;
    // Slow enough that calls remain when the store fails, even if the machine stalls.
    let latency = Duration::from_millis(60);
    let api =
        FakeApi::start(FakeApiConfig { dockets: 300, entries: 0, latency, ..api_config() }).await.unwrap();
    let node = env.node().await;
    let started = start_run(&node.pipelines, &plan(&api)).await;
    wait_for("some API calls", LIMIT, async || api.served() > 20).await;
    fail(env.redis());
    let before = api.served();
    // Longer than the deadline of a store call, and long enough for all remaining calls.
    tokio::time::sleep(hob_store::DEFAULT_DEADLINE * 2).await;
    assert!(api.served() <= before + IN_FLIGHT, "{} calls without a quota", api.served() - before);
    assert_eq!(node.pipelines.run(&started.id).await.unwrap().state, RunState::Running);
    recover(env.redis());
    wait_for_state(&node.pipelines, &started, RunState::Completed).await;
    assert_eq!(ids_in(&node, "out/dockets.jsonl"), (1..=300).collect());
    env.assert_counts_match(&started.id).await;
}

#[test]
fn no_calls_while_the_store_hangs() {
    run(no_calls_during(RedisServer::freeze, RedisServer::unfreeze));
}

#[test]
fn no_calls_while_the_store_restarts_empty() {
    run(no_calls_during(RedisServer::kill, RedisServer::restart));
}

mod slow {
    use std::time::Instant;

    use hob_testkit::budget;
    use tempfile::TempDir;

    use super::*;

    /// P8, P12: no item is lost or written twice, the quota is never exceeded, and calls resume within ten seconds.
    #[test]
    fn every_result_arrives_once_despite_crashes() {
        run(async {
            let env = TestEnv::over(TestStore::redis().await, TestDatabase::postgres()).await;
            let dockets = budget(400, 8_000);
            let limits = vec![(60, Duration::from_secs(2))];
            let latency = Duration::from_millis(15);
            let api_config = FakeApiConfig { dockets, entries: 0, page: 50, limits, token: None, latency };
            let api = FakeApi::start(api_config).await.unwrap();
            let text = plan(&api).replace("1000/1m", "60/2s");
            let folder = TempDir::new().unwrap();
            let mut killable = Some(env.killable_node(folder.path()).await);
            // On that node: another one has another folder, and might begin to execute the run.
            let started = start_run(killable.as_ref().expect("it was just started"), &text).await;
            let runs = hob_pipeline::Runs::new(&env.database);
            let mut round = 0_u64;
            let mut slowest = Duration::ZERO;
            loop {
                round += 1;
                let (before, injected) = (api.served(), Instant::now());
                wait_for("the next call", LIMIT, async || {
                    let completed = runs.run(&started.id).await.unwrap().state == RunState::Completed;
                    completed || api.served() > before
                })
                .await;
                slowest = slowest.max(injected.elapsed());
                wait_for("more calls", LIMIT, async || {
                    let completed = runs.run(&started.id).await.unwrap().state == RunState::Completed;
                    completed || api.served() > before + round % 13
                })
                .await;
                if runs.run(&started.id).await.unwrap().state == RunState::Completed {
                    break;
                }
                match round % 5 {
                    0 => {
                        env.redis().kill();
                        env.redis().restart();
                    }
                    1 | 3 => env.test_store().flush_all().await,
                    _ => {}
                }
                if round.is_multiple_of(4) {
                    drop(killable.take());
                    killable = Some(env.killable_node(folder.path()).await);
                }
            }
            // In the short run, the machine may be busy with other tests.
            let limit = Duration::from_secs(budget(60, 10));
            assert!(slowest <= limit, "{slowest:?} without a call, in {round} rounds");
            env.assert_counts_match(&started.id).await;
            drop(killable);
            assert_eq!(api.throttled(), 0, "the quota was never exceeded");
            let node = env.node_in(folder, env.test_store().store().clone()).await;
            assert_eq!(ids_in(&node, "out/dockets.jsonl"), (1..=dockets).collect());
        });
    }
}
