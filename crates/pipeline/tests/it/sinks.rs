//! Sinks in a real PostgreSQL.

use hob_web::Service as _;
use std::time::Duration;

use hob_pipeline::fake_api::{FakeApi, FakeApiConfig};
use hob_pipeline::run::RunState;
use hob_pipeline::{Config, Pipelines};
use hob_service::Live;
use hob_service::config::Secrets;
use hob_testkit::{LIMIT, Postgres, run, wait_for};
use tempfile::TempDir;

use crate::runs::{api_config, plan, start_run, wait_for_state};
use crate::secrets::secret;
use crate::support::TestEnv;

/// A node with a secret for the URL of the warehouse.
async fn node(
    env: &TestEnv,
    folder: &TempDir,
    warehouse: &Postgres,
) -> (hob_service::ServiceContext, Pipelines) {
    let file = folder.path().join("warehouse");
    std::fs::write(&file, warehouse.url()).unwrap();
    let mut context = env.context(env.test_store().store().clone());
    context.secrets = Secrets::new(Live::fixed(secret("warehouse", &file, &["127.0.0.1", "localhost"])));
    let config = Config { folder: folder.path().to_owned(), ..Config::default() };
    let pipelines = Pipelines::open(&context, Live::fixed(config)).await.unwrap();
    pipelines.start(&hob_web::Changes::detached(&context));
    (context, pipelines)
}

/// A plan that writes entries to the warehouse.
fn plan_for_warehouse(api: &FakeApi) -> String {
    plan(api)
        .replace("sqlite = \"out/entries.db\"", "postgres = \"warehouse\"")
        .replace("conditional = true", "")
}

/// A new table gets the types of the first results, or those of the plan.
#[test]
fn columns_have_types() {
    run(async {
        let (env, warehouse) = (TestEnv::embedded().await, Postgres::start());
        let folder = TempDir::new().unwrap();
        let api = FakeApi::start(api_config()).await.unwrap();
        let (_context, pipelines) = node(&env, &folder, &warehouse).await;
        let text = plan_for_warehouse(&api)
            .replace("docket = \"$.docket\"", "docket = \"$.docket\", about = \"$.description\"")
            .replace("key = [\"id\"]", "key = [\"id\"]\ntypes = { docket = \"text\" }");
        let started = start_run(&pipelines, &text).await;
        wait_for_state(&pipelines, &started, RunState::Completed).await;
        let types = warehouse.psql(
            "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'entries' ORDER BY 1",
        );
        assert_eq!(types.trim(), "about|text\ndocket|text\nid|bigint");
        assert_eq!(warehouse.psql("SELECT docket FROM entries WHERE id = 3000").trim(), "3");
    });
}

#[test]
fn postgres_table_receives_every_result_once() {
    run(async {
        let (env, warehouse) = (TestEnv::embedded().await, Postgres::start());
        // An existing table with its own types and an additional column.
        warehouse.psql(
            "CREATE TABLE entries (id BIGINT PRIMARY KEY, docket BIGINT, seen_at TIMESTAMPTZ DEFAULT now())",
        );
        let folder = TempDir::new().unwrap();
        let api = FakeApi::start(api_config()).await.unwrap();
        let (_context, pipelines) = node(&env, &folder, &warehouse).await;
        for _ in 0..2 {
            // The second run writes the same rows.
            let started = start_run(&pipelines, &plan_for_warehouse(&api)).await;
            wait_for_state(&pipelines, &started, RunState::Completed).await;
            let row = warehouse.psql("SELECT count(*), count(seen_at), sum(id), max(docket) FROM entries");
            let sum: u64 = (1..=25).flat_map(|docket| [docket * 1000, docket * 1000 + 1]).sum();
            assert_eq!(row.trim(), format!("50|50|{sum}|25"));
        }
    });
}

/// The run reports the error and continues when the database is back.
#[test]
fn results_wait_while_the_sink_database_is_unavailable() {
    run(async {
        let (env, warehouse) = (TestEnv::embedded().await, Postgres::start());
        let folder = TempDir::new().unwrap();
        // Slow enough that calls remain when the database is killed, even if the machine stalls.
        let api = FakeApi::start(FakeApiConfig { latency: Duration::from_millis(600), ..api_config() })
            .await
            .unwrap();
        let (_context, pipelines) = node(&env, &folder, &warehouse).await;
        let started = start_run(&pipelines, &plan_for_warehouse(&api)).await;
        wait_for("the first rows", LIMIT, async || {
            warehouse.psql("SELECT to_regclass('entries') IS NOT NULL").trim() == "t"
        })
        .await;
        warehouse.kill();
        wait_for("the error on the run", LIMIT, async || {
            let trouble = pipelines.run(&started.id).await.unwrap().trouble;
            if trouble.contains("entries") { Ok(()) } else { Err(trouble) }
        })
        .await;
        assert_eq!(pipelines.run(&started.id).await.unwrap().state, RunState::Running);
        warehouse.restart();
        wait_for_state(&pipelines, &started, RunState::Completed).await;
        assert_eq!(warehouse.psql("SELECT count(*) FROM entries").trim(), "50");
        assert_eq!(pipelines.run(&started.id).await.unwrap().trouble, "");
    });
}
