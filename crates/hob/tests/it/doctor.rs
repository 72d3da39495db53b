//! `hob doctor`.

use std::process::Output;

use hob_testkit::{Postgres, RedisServer};

use crate::program::{Server, hob};

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn doctor_describes_healthy_servers() {
    let (redis, postgres) = (RedisServer::start(), Postgres::start());
    let mut server = Server::start(&["--redis", &redis.url(), "--database", &postgres.url()]);
    server.terminate();
    let output = hob()
        .arg("doctor")
        .env("HOB_REDIS_URL", redis.url())
        .env("HOB_DATABASE_URL", postgres.url())
        .output()
        .unwrap();
    let text = stdout(&output);
    for part in
        ["is Redis 7.", "is PostgreSQL 1", "responds in", "the clock of", "MiB", "0 events are waiting"]
    {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    // On a busy machine, slow responses may cause a warning.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{text}");
}

#[test]
fn doctor_warns_about_eviction() {
    let redis = RedisServer::start();
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    for (name, value) in [("maxmemory", "100mb"), ("maxmemory-policy", "allkeys-lru")] {
        redis::cmd("CONFIG").arg("SET").arg(name).arg(value).exec(&mut connection).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let output = hob().current_dir(&folder).arg("doctor").env("HOB_REDIS_URL", redis.url()).output().unwrap();
    assert!(stdout(&output).contains("evicts keys (allkeys-lru)"), "{}", stdout(&output));
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn doctor_reports_an_unavailable_redis() {
    let redis = RedisServer::start();
    // Not dropped: its port stays reserved.
    redis.kill();
    let folder = tempfile::tempdir().unwrap();
    let output = hob().current_dir(&folder).arg("doctor").env("HOB_REDIS_URL", redis.url()).output().unwrap();
    assert!(stdout(&output).contains("error    redis"), "{}", stdout(&output));
    assert_eq!(output.status.code(), Some(4));
}
