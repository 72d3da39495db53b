//! A run that an earlier version of Hob started continues after the migration.

use hob_database::{Database, Migrations, Read as _, sql};
use hob_fixtures::{Layout, TestStore};
use hob_pipeline::fake_api::{FakeApi, FakeApiConfig};
use hob_pipeline::plan::Plan;
use hob_pipeline::run::{RunId, RunState};
use hob_pipeline::{MIGRATIONS, keys};
use hob_schema::Catalog;
use hob_testkit::{LIMIT, TestDatabase, run, wait_for};
use tempfile::TempDir;

use crate::runs::{api_config, ids_in, plan, start_run, wait_for_state};
use crate::support::TestEnv;

/// Three dockets: one is done, one was claimed by a crashed node, one failed and waits for a retry.
const ITEMS: &str = "
    INSERT INTO pipeline_item (run, seq, step, key, data, state, attempts, due_at, claim, class, error) VALUES
    ('old', 1, 'docket', '1', '{}', 'done', 1, 0, 0, '', ''),
    ('old', 2, 'docket', '2', '{}', 'claimed', 1, 0, 2, '', ''),
    ('old', 3, 'docket', '3', '{}', 'waiting', 1, 0, 0, 'server', 'answered with 500')";
const QUOTA: &str = "
    INSERT INTO pipeline_quota (name, windows, buffer, blocked_until, epoch, updated_at)
    VALUES ('api', '1000/1m', 0, 0, 1, 1)";
const CLAIM: &str =
    "INSERT INTO pipeline_claim (run, claim, worker, begun, until) VALUES ('old', 2, 'gone', 1, 2)";
const ATTEMPTS: &str = "
    INSERT INTO pipeline_attempt (run, seq, claim, begun_at, ended_at, status, class) VALUES
    ('old', 1, 1, 10, 20, 200, ''), ('old', 3, 1, 10, 20, 500, 'server')";

/// The first docket is in the file, which has the path in the plan.
const SINK: &str = "
    INSERT INTO pipeline_sink (run, sink, length, rows, fence, writer, until, trouble)
    VALUES ('old', 'dockets', 10, 1, 1, 'gone', 2, '')";

async fn run_of_an_earlier_version_continues(test_database: TestDatabase) {
    let api = FakeApi::start(FakeApiConfig { dockets: 3, entries: 0, ..api_config() }).await.unwrap();
    let first = Migrations { service: MIGRATIONS.service, steps: &MIGRATIONS.steps[..1] };
    let database = Database::open(&test_database.url().parse().unwrap(), &[first]).await.unwrap();
    let text = plan(&api);
    let insert_plan =
        "INSERT INTO pipeline_plan (name, text, created_at, updated_at) VALUES ('dockets', $1, 1, 1)";
    let insert_run =
        "INSERT INTO pipeline_run (id, plan, text, state, version, seeded_to, items, claims, calls, trouble,
                 started_at, changed_at) VALUES ('old', 'dockets', $1, 'running', 1, -1, 3, 2, 2, '', 1, 1)";
    // In the earlier version, variables had no dollar sign.
    let old_text = text.replace("${", "{");
    assert!(old_text != text && Plan::parse(&old_text).is_err());
    for statement in [insert_plan, insert_run] {
        database.execute(sql(statement).bind(&old_text)).await.unwrap();
    }
    for statement in [QUOTA, ITEMS, CLAIM, ATTEMPTS, SINK] {
        database.execute(sql(statement)).await.unwrap();
    }
    database.close().await;

    let catalog = Catalog::new(vec![keys::schema().clone()], Layout::Plain).unwrap();
    let env = TestEnv::over(TestStore::embedded_for(catalog), test_database).await;
    let id: RunId = "old".parse().unwrap();
    let texts = sql("SELECT text FROM pipeline_plan UNION ALL SELECT text FROM pipeline_run");
    let texts: Vec<(String,)> = env.database.all(texts).await.unwrap();
    assert_eq!(texts, [(text.clone(),), (text.clone(),)]);
    env.assert_counts_match(&id).await;
    let folder = TempDir::new().unwrap();
    std::fs::create_dir(folder.path().join("out")).unwrap();
    std::fs::write(folder.path().join("out/dockets.jsonl"), "{\"id\": 1}\n{\"id").unwrap();
    let node = env.node_in(folder, env.test_store().store().clone()).await;
    wait_for("the run to complete", LIMIT, async || {
        node.pipelines.run(&id).await.unwrap().state == RunState::Completed
    })
    .await;
    env.assert_counts_match(&id).await;
    assert_eq!(ids_in(&node, "out/dockets.jsonl"), (1..=3).collect(), "the remaining dockets are appended");
    let attempts =
        sql("SELECT seq, CAST(count(*) AS BIGINT) FROM pipeline_attempt GROUP BY seq ORDER BY seq");
    let attempts: Vec<(i64, i64)> = env.database.all(attempts).await.unwrap();
    assert_eq!(attempts, [(1, 1), (2, 1), (3, 2)]);

    // The next run preserves that file.
    let next = start_run(&node.pipelines, &text).await;
    wait_for_state(&node.pipelines, &next, RunState::Completed).await;
    assert!(node.folder().join("out/dockets.jsonl").is_symlink());
    assert_eq!(ids_in(&node, "out/dockets.jsonl"), (1..=3).collect());
    assert_eq!(ids_in(&node, "out/dockets-earlier.jsonl"), (1..=3).collect());
}

#[test]
fn run_of_an_earlier_version_continues_with_sqlite() {
    run(run_of_an_earlier_version_continues(TestDatabase::sqlite()));
}

#[test]
fn run_of_an_earlier_version_continues_with_postgres() {
    run(run_of_an_earlier_version_continues(TestDatabase::postgres()));
}
