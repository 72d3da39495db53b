//! While the database is down, requests that do not need it are served.

use std::time::{Duration, Instant};

use hob_database::{Database, Options};
use hob_fixtures::{Layout, TestContext};
use hob_service::{NodeName, ServiceContext};
use hob_testkit::{LIMIT, TestDatabase, wait_for};
use serde_json::Value;

use crate::protected::{ADMIN, NEEDS, ProtectedApp, token};

const GNOMES: &str = "/api/v1/garden/gnomes";

/// A context with database timeouts that are shorter than those of a request, and long enough for a busy machine.
async fn with_short_timeouts(context: &TestContext) -> ServiceContext {
    let address = context.test_database().url().parse().unwrap();
    let options = Options {
        connect_timeout: Duration::from_secs(5),
        statement_timeout: Duration::from_secs(10),
        ..Options::default()
    };
    let database = Database::open_with(&address, &[hob_web::MIGRATIONS], options).await.unwrap();
    ServiceContext::new(context.store.clone(), context.layout, database, NodeName::random())
}

#[tokio::test]
async fn cached_callers_stay_authenticated_while_the_database_is_down() {
    let plain = hob_fixtures::TestStore::embedded_for(catalog());
    let context = TestContext::start_on(NEEDS, plain, TestDatabase::postgres()).await;
    let TestDatabase::Postgres(postgres) = context.test_database() else { unreachable!() };
    let context = with_short_timeouts(&context).await;
    let mut protected = ProtectedApp::start(&context).await;
    let (cached, uncached) = (token(&context, "garden:read").await.0, token(&context, "garden:read").await.0);
    assert_eq!(protected.with_token(&cached).get(GNOMES).await.status, 200);
    let last_checked = Instant::now();

    postgres.stop();
    assert_eq!(
        protected.with_token(ADMIN).get(GNOMES).await.status,
        200,
        "the admin token is in the configuration"
    );
    for (caller, path) in [(ADMIN, "/api/v1/tokens"), (&*uncached, GNOMES)] {
        let answer = protected.with_token(caller).get(path).await;
        assert_eq!(answer.status, 503, "{path}: {}", answer.text());
        assert_eq!(answer.header("retry-after"), "1");
        assert_eq!(answer.json::<Value>()["title"], "Service Unavailable");
    }
    // Longer than a cached token is accepted without a query.
    tokio::time::sleep_until((last_checked + Duration::from_secs(6)).into()).await;
    assert_eq!(protected.with_token(&cached).get(GNOMES).await.status, 200, "the cached token stays valid");

    postgres.restart();
    let protected = protected.with_token(&uncached);
    wait_for("the database to be available", LIMIT, async || protected.get(GNOMES).await.status == 200).await;
    context.tasks.stop(LIMIT).await;
}

fn catalog() -> hob_schema::Catalog {
    let text = include_str!("../../../../schemas/hob.toml");
    let schema = hob_schema::Schema::parse("schemas/hob.toml", text).unwrap();
    hob_schema::Catalog::new(vec![schema], Layout::Plain).unwrap()
}
