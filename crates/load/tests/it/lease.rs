//! Runs whose runners cannot reach the database for longer than their lease.

use std::time::Duration;

use hob_database::Database;
use hob_fixtures::TestContext;
use hob_load::{Config, Load, RunRequest, RunState};
use hob_service::{Live, Period, ServiceContext};
use hob_testkit::{LIMIT, TestDatabase, wait_for};
use hob_web::{Service as _, Web};

use crate::kit::{NEEDS, add, queue, wait_for_state, worker_config};
use hob_testkit::{HttpServer, Reply};

const RATE: u64 = 20;
const SECONDS: u64 = 4;

/// L2 L9: a runner that gave up because of its lease has not done its share, even if it is the first to reach the database
/// again. The run must not end as completed.
#[test]
fn run_with_missing_requests_is_not_completed() {
    hob_testkit::run(async {
        let test = TestContext::redis(NEEDS).await;
        let TestDatabase::Postgres(postgres) = test.test_database() else { unreachable!("it is PostgreSQL") };
        // The handle of a service, which does not wait as long as that of a test.
        let sets: Vec<_> = [hob_web::MIGRATIONS].iter().chain(NEEDS.migrations).copied().collect();
        let database = Database::open(&postgres.url().parse().unwrap(), &sets).await.unwrap();
        let context = ServiceContext { database, ..test.context().clone() };
        let lease = Duration::from_millis(800);
        let config = Config { lease: Period::from_millis(800), ..worker_config() };
        let load = Load::open(&context, Live::fixed(config)).await.unwrap();
        load.start(Web::open(&context, Live::fixed(hob_web::Config::default())).unwrap().changes());
        let target = HttpServer::start(|_| Reply::After(Duration::ZERO));
        let plan = add(&load, &target.url(""), u32::try_from(RATE).unwrap(), &format!("{SECONDS}s")).await;
        let id = queue(&load, plan, RunRequest::default()).await;
        wait_for_state(&load, &id, RunState::Running).await;
        wait_for("the first requests", LIMIT, async || target.requests() > RATE / 2).await;

        postgres.stop();
        // Until the runner has stopped its generator: no request for longer than the pause between two.
        wait_for("the end of the requests", LIMIT, async || {
            target.last().is_some_and(|last| last.elapsed() > 2 * lease)
        })
        .await;
        postgres.restart();
        let ended = wait_for("the end of the run", LIMIT, async || {
            let run = load.run(&id).await.ok().flatten().ok_or("no answer")?;
            if run.state.is_final() { Ok(run) } else { Err("not ended") }
        })
        .await;
        assert!(target.requests() < RATE * SECONDS, "the generator did not stop");
        assert_eq!(ended.state, RunState::Lost, "{}", ended.message);
    });
}
