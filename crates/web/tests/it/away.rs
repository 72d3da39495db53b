//! The database is away, and what does not need them goes on.

use std::time::{Duration, Instant};

use hob_database::{Database, Options};
use hob_fixtures::{Layout, TestContext};
use hob_service::{NodeName, ServiceContext};
use hob_testkit::{LIMIT, TestDatabase, wait_for};
use serde_json::Value;

use crate::door::{ADMIN, Locked, NEEDS, token};

const GNOMES: &str = "/api/v1/garden/gnomes";

/// A context whose database gives up as soon as a service's does.
async fn impatient(context: &TestContext) -> ServiceContext {
    let address = context.test_database().url().parse().unwrap();
    let options = Options {
        connect_timeout: Duration::from_millis(500),
        statement_timeout: Duration::from_secs(2),
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
    let context = impatient(&context).await;
    let mut door = Locked::start(&context).await;
    let (known, unknown) = (token(&context, "garden:read").await.0, token(&context, "garden:read").await.0);
    assert_eq!(door.with_token(&known).get(GNOMES).await.status, 200);
    let last_asked = Instant::now();

    postgres.stop();
    assert_eq!(door.with_token(ADMIN).get(GNOMES).await.status, 200, "the configuration knows the admin");
    for (caller, path) in [(ADMIN, "/api/v1/tokens"), (&*unknown, GNOMES)] {
        let answer = door.with_token(caller).get(path).await;
        assert_eq!(answer.status, 503, "{path}: {}", answer.text());
        assert_eq!(answer.header("retry-after"), "1");
        assert_eq!(answer.json::<Value>()["title"], "Service Unavailable");
    }
    // Past the seconds for which an answer of the database is believed anyway.
    tokio::time::sleep_until((last_asked + Duration::from_secs(6)).into()).await;
    assert_eq!(door.with_token(&known).get(GNOMES).await.status, 200, "known a moment ago");

    postgres.restart();
    let door = door.with_token(&unknown);
    wait_for("the database to be back", LIMIT, async || door.get(GNOMES).await.status == 200).await;
    context.tasks.stop(LIMIT).await;
}

fn catalog() -> hob_schema::Catalog {
    let text = include_str!("../../../../schemas/hob.toml");
    let schema = hob_schema::Schema::parse("schemas/hob.toml", text).unwrap();
    hob_schema::Catalog::new(vec![schema], Layout::Plain).unwrap()
}
