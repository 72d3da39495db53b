//! The records are away, and what does not need them goes on.

use std::time::{Duration, Instant};

use hob_house::{House, NodeName};
use hob_records::{Options, Records};
use hob_testkit::{Database, LIMIT, Layout, TestHouse, wait_for};
use serde_json::Value;

use crate::door::{ADMIN, Locked, NEEDS, token};

const GNOMES: &str = "/api/v1/garden/gnomes";

/// A house whose records give up as soon as a service's do.
async fn impatient(house: &TestHouse) -> House {
    let address = house.database().url().parse().unwrap();
    let options = Options {
        connect_within: Duration::from_millis(500),
        answer_within: Duration::from_secs(2),
        ..Options::default()
    };
    let records = Records::open_with(&address, &[hob_web::MIGRATIONS], options).await.unwrap();
    House::new(house.hot.clone(), house.layout, records, NodeName::random())
}

#[tokio::test]
async fn who_was_known_goes_on_while_the_records_are_away() {
    let plain = hob_testkit::Store::embedded_for(catalog());
    let house = TestHouse::over(NEEDS, plain, Database::postgres()).await;
    let Database::Postgres(postgres) = house.database() else { unreachable!() };
    let house = impatient(&house).await;
    let mut door = Locked::start(&house).await;
    let (known, unknown) = (token(&house, "garden:read").await.0, token(&house, "garden:read").await.0);
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
    // Past the seconds for which an answer of the records is believed anyway.
    tokio::time::sleep_until((last_asked + Duration::from_secs(6)).into()).await;
    assert_eq!(door.with_token(&known).get(GNOMES).await.status, 200, "known a moment ago");

    postgres.restart();
    let door = door.with_token(&unknown);
    wait_for("the records to be back", LIMIT, async || door.get(GNOMES).await.status == 200).await;
    house.tasks.stop(LIMIT).await;
}

fn catalog() -> hob_schema::Catalog {
    let text = include_str!("../../../../schemas/hob.toml");
    let schema = hob_schema::Schema::parse("schemas/hob.toml", text).unwrap();
    hob_schema::Catalog::new(vec![schema], Layout::Plain).unwrap()
}
