//! `hob doctor`.

use std::process::Output;

use hob_testkit::{Postgres, RedisServer};

use crate::program::{Server, hob};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn servers_that_are_well_are_described() {
    let (redis, postgres) = (RedisServer::start(), Postgres::start());
    let mut server = Server::start(&["--redis", &redis.url(), "--database", &postgres.url()]);
    server.terminate();
    let output = hob()
        .arg("doctor")
        .env("HOB_REDIS_URL", redis.url())
        .env("HOB_DATABASE_URL", postgres.url())
        .output()
        .unwrap();
    let text = said(&output);
    for part in ["is Redis 7.", "is PostgreSQL 1", "answers in", "clock and ours are", "MiB", "0 events wait"]
    {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    // A busy machine may well be slow enough for advice.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{text}");
}

#[test]
fn a_store_that_evicts_is_advised_against() {
    let redis = RedisServer::start();
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    for (name, value) in [("maxmemory", "100mb"), ("maxmemory-policy", "allkeys-lru")] {
        redis::cmd("CONFIG").arg("SET").arg(name).arg(value).exec(&mut connection).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let output = hob().current_dir(&folder).arg("doctor").env("HOB_REDIS_URL", redis.url()).output().unwrap();
    assert!(said(&output).contains("evicts keys (allkeys-lru)"), "{}", said(&output));
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn a_store_that_is_away_is_wrong() {
    let redis = RedisServer::start();
    let url = redis.url();
    drop(redis);
    let folder = tempfile::tempdir().unwrap();
    let output = hob().current_dir(&folder).arg("doctor").env("HOB_REDIS_URL", &url).output().unwrap();
    assert!(said(&output).contains("wrong   the store"), "{}", said(&output));
    assert_eq!(output.status.code(), Some(4));
}
