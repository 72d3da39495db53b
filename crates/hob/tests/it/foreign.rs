//! Values that another client writes into Hob's keys are replaced, logged and counted, and no page fails.

use hob_testkit::{LIMIT, RedisServer, wait_for};
use redis::{Client, Commands, Connection};

use crate::degraded::metric;
use crate::program::Server;

const REPLACED: &str = "replaced a key that another client had changed";
const METRIC: &str = "hob_store_foreign_keys_total";
const PAGES: [&str; 6] = ["/", "/uptime", "/api/v1/uptime/monitors", "/gateway", "/health", "/metrics"];

/// A key of the uptime monitors, one of the gateway's totals, and the list of nodes, each with its system and its type.
const KEYS: [(&str, &str, &str); 3] = [
    ("monitor:status:*", "uptime", "hash"),
    ("ha:requests:accepted", "gateway", "string"),
    ("hob:nodes*", "hob", "zset"),
];

fn count(server: &Server, system: &str) -> f64 {
    metric(server, METRIC, &format!("system=\"{system}\""))
}

async fn foreign_keys_are_replaced_and_counted(server: &Server, store: &mut Connection) {
    for (pattern, system, kind) in KEYS {
        let of_kind = |store: &mut Connection| {
            let mut found: Vec<String> = store.keys(pattern).unwrap();
            found.sort();
            found.into_iter().find(|key| redis::cmd("TYPE").arg(key).query::<String>(store).unwrap() == kind)
        };
        let key = wait_for(format_args!("a key {pattern}"), LIMIT, async || of_kind(store)).await;
        assert_eq!(count(server, system), 0.0, "{system}");
        store.set::<_, _, ()>(&key, "abc").unwrap();
        wait_for(format_args!("{key} to be replaced"), LIMIT, async || {
            for page in PAGES {
                let response = server.get(page);
                assert_eq!(response.status, 200, "{page} after {key}: {}", response.body);
            }
            let found: String = redis::cmd("TYPE").arg(&key).query(store).unwrap();
            let is_foreign = found == "string" && store.get::<_, String>(&key).unwrap() == "abc";
            if found == kind && !is_foreign && count(server, system) > 0.0 { Ok(()) } else { Err(found) }
        })
        .await;
        let log = server.log();
        let lines = log.lines().filter(|line| line.contains(REPLACED) && line.contains(&key)).count();
        assert_eq!(lines, 1, "{log}");
        assert_eq!(count(server, system), 1.0, "{log}");
    }
}

#[tokio::test]
async fn foreign_keys_in_the_embedded_store_are_replaced_and_counted() {
    let server = Server::start_logged(&["--demo"]);
    let port = server.store_port.expect("the embedded store does not listen");
    let mut store = Client::open(("127.0.0.1", port)).unwrap().get_connection().unwrap();
    foreign_keys_are_replaced_and_counted(&server, &mut store).await;
}

#[tokio::test]
async fn foreign_keys_in_redis_are_replaced_and_counted() {
    let redis = RedisServer::start();
    let server = Server::start_logged(&["--demo", "--redis", &redis.url()]);
    foreign_keys_are_replaced_and_counted(&server, &mut redis.connect()).await;
}
