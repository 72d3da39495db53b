//! The runs of an earlier version of Hob after the migrations.

use hob_database::{Database, Migrations, sql};
use hob_fixtures::{Layout, TestContext, TestStore};
use hob_load::{MIGRATIONS, RunState};
use hob_testkit::{TestDatabase, run};

use crate::kit::{self, NEEDS, queue_node};

const PLAN: &str = "INSERT INTO load_plan (id, name, version, created_at, updated_at, deleted) VALUES (1, 'Shop', 1, 1, 1, $1)";
const VERSION: &str = "INSERT INTO load_plan_version (plan_id, version, format, source, created_at) VALUES (1, 1, 'toml', '', 1)";
/// States were in upper case.
const RUNS: &str = "
    INSERT INTO load_run (id, plan_id, plan_version, run_type, priority, max_users, runners, seed, state, ending, message,
                          holder, fence, epoch, lease_until, rank, queued_at, start_at, ended_at) VALUES
    ('waits', 1, 1, 'default', 1, NULL, 1, 1, 'PENDING', NULL, '', NULL, 0, 0, 0, 1, 1, NULL, NULL),
    ('stops', 1, 1, 'default', 1, 7, 1, 1, 'STOPPING', 'CANCELLED', '', 'node', 1, 1, 9, 1, 2, 2, NULL),
    ('ended', 1, 1, 'default', 1, NULL, 1, 1, 'COMPLETED', NULL, '', 'node', 1, 1, 9, 1, 3, 3, 4)";

async fn runs_of_an_earlier_version_keep_their_states(test_database: TestDatabase) {
    let earlier = Migrations { service: MIGRATIONS.service, steps: &MIGRATIONS.steps[..2] };
    let database = Database::open(&test_database.url().parse().unwrap(), &[earlier]).await.unwrap();
    database.execute(sql(PLAN).bind(false)).await.unwrap();
    for statement in [VERSION, RUNS] {
        database.execute(sql(statement)).await.unwrap();
    }
    database.close().await;

    let context = TestContext::start_on(NEEDS, TestStore::embedded(Layout::Plain), test_database).await;
    let load = queue_node(context.context()).await;
    let states = [
        ("waits", RunState::Pending, None, 0.0),
        ("stops", RunState::Stopping, Some(RunState::Cancelled), 0.0),
        ("ended", RunState::Completed, None, 100.0),
    ];
    for (id, state, ending, progress) in states {
        let run = kit::run(&load, &id.parse().unwrap()).await;
        assert_eq!((run.state, run.ending, run.progress), (state, ending, progress), "{id}");
    }
    assert_eq!(load.pending().await.unwrap().len(), 1);
}

#[test]
fn runs_of_an_earlier_version_keep_their_states_with_sqlite() {
    run(runs_of_an_earlier_version_keep_their_states(TestDatabase::sqlite()));
}

#[test]
fn runs_of_an_earlier_version_keep_their_states_with_postgres() {
    run(runs_of_an_earlier_version_keep_their_states(TestDatabase::postgres()));
}
