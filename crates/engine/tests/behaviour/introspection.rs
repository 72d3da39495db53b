//! What the engine tells tools about itself: `INFO`, and the list of clients.

use std::io::Read;
use std::net::TcpStream;

use hob_engine::{Config, Engine, Reply};
use hob_testkit::{LIMIT, wait_for};

use crate::server::{Server, ask, send};
use crate::{error, eval, run};

fn info(engine: &Engine, sections: &str) -> String {
    match run(engine, format!("INFO {sections}").trim_end()) {
        Reply::Text(text) => text,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn field(text: &str, name: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} is missing in {text}")).to_owned()
}

fn titles(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix("# ")).collect()
}

#[test]
fn info_has_the_fields_that_monitoring_tools_read() {
    let text = info(&Engine::default(), "");
    for name in [
        "redis_version",
        "run_id",
        "process_id",
        "uptime_in_seconds",
        "connected_clients",
        "blocked_clients",
        "maxclients",
        "used_memory",
        "used_memory_human",
        "used_memory_peak_human",
        "maxmemory_human",
        "loading",
        "rdb_bgsave_in_progress",
        "total_connections_received",
        "total_commands_processed",
        "instantaneous_ops_per_sec",
        "rejected_connections",
        "expired_keys",
        "evicted_keys",
        "keyspace_hits",
        "keyspace_misses",
        "pubsub_channels",
        "role",
        "cluster_enabled",
    ] {
        assert!(!field(&text, name).is_empty(), "{name}");
    }
    let run_id = field(&text, "run_id");
    assert!(run_id.len() == 40 && run_id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{run_id}");
    assert_ne!(run_id, field(&info(&Engine::default(), ""), "run_id"), "each engine has its own");
}

#[test]
fn info_shows_the_sections_that_are_asked_for() {
    let engine = Engine::default();
    assert_eq!(titles(&info(&engine, "server CLIENTS nope")), ["Server", "Clients"]);
    assert!(!titles(&info(&engine, "")).contains(&"Commandstats"));
    assert_eq!(titles(&info(&engine, "default")), titles(&info(&engine, "")));
    for all in ["all", "everything", "default commandstats"] {
        assert!(titles(&info(&engine, all)).contains(&"Commandstats"), "{all}");
    }
    assert_eq!(info(&engine, "nope"), "");
}

#[test]
fn hits_and_misses_are_those_of_commands_that_read() {
    let engine = Engine::default();
    run(&engine, "SET k v");
    for line in ["GET k", "GET none", "EXISTS k k none", "SET k w", "APPEND k x"] {
        run(&engine, line);
    }
    eval(&engine, "return redis.call('GET', KEYS[1])", &["k"]);
    let stats = info(&engine, "stats");
    assert_eq!(field(&stats, "keyspace_hits"), "4");
    assert_eq!(field(&stats, "keyspace_misses"), "2");
}

#[test]
fn calls_and_errors_are_counted_by_command() {
    let engine = Engine::default();
    run(&engine, "SET k v");
    run(&engine, "LPUSH k x");
    run(&engine, "GET");
    eval(&engine, "redis.call('GET', 'k') return redis.call('GET', 'k')", &[]);
    let text = info(&engine, "commandstats errorstats");
    assert!(field(&text, "cmdstat_get").starts_with("calls=2,"), "{text}");
    assert!(field(&text, "cmdstat_lpush").ends_with("rejected_calls=0,failed_calls=1"), "{text}");
    assert!(field(&text, "cmdstat_eval").starts_with("calls=1,"), "{text}");
    assert_eq!(field(&text, "errorstat_WRONGTYPE"), "count=1");
    assert_eq!(field(&text, "errorstat_ERR"), "count=1");
    assert_eq!(run(&engine, "CONFIG RESETSTAT"), Reply::OK);
    let text = info(&engine, "commandstats errorstats stats");
    assert!(!text.contains("cmdstat_get") && !text.contains("errorstat_"), "{text}");
    assert_eq!(field(&text, "keyspace_hits"), "0");
}

/// Waits until the server has closed a connection.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.read(&mut [0; 64]).is_ok_and(|count| count == 0)
}

fn client_id(stream: &mut TcpStream) -> String {
    ask(stream, "CLIENT ID", "\r\n").trim_matches([':', '\r', '\n']).to_owned()
}

#[test]
fn clients_are_killed_by_every_filter() {
    let server = Server::start(Config::default());
    let mut own = server.connect();
    let mut kill = |filter: &str| ask(&mut own, &format!("CLIENT KILL {filter}"), "\r\n");
    let local = server.address;
    for filter in
        ["ID {id}", "USER default ID {id}", &format!("LADDR {local}"), "TYPE normal", "ID {id} SKIPME no"]
    {
        let mut other = server.connect();
        let filter = filter.replace("{id}", &client_id(&mut other));
        assert_eq!(kill(&filter), ":1\r\n", "{filter}");
        assert!(is_closed(&mut other), "{filter}");
        tokio::runtime::Runtime::new().unwrap().block_on(wait_for("the client to be gone", LIMIT, async || {
            !matches!(run(&server.engine, "CLIENT LIST"), Reply::Text(text) if text.lines().count() > 1)
        }));
    }
    assert_eq!(kill("LADDR 1.2.3.4:5"), ":0\r\n");
    assert_eq!(kill("TYPE normal SKIPME no"), ":1\r\n", "a client may kill itself, and gets the reply");
    assert!(is_closed(&mut own));
}

#[test]
fn client_list_shows_transactions_and_subscriptions() {
    let server = Server::start(Config::default());
    let list = || match run(&server.engine, "CLIENT LIST") {
        Reply::Text(text) => text,
        other => panic!("{other:?}"),
    };
    let mut client = server.connect();
    let id = client_id(&mut client);
    ask(&mut client, "CLIENT SETINFO LIB-NAME probe", "\r\n");
    ask(&mut client, "MULTI", "\r\n");
    ask(&mut client, "SET k v", "\r\n");
    assert!(
        list().contains(" flags=x ") && list().contains(" multi=1 ") && list().contains(" lib-name=probe ")
    );
    ask(&mut client, "DISCARD", "\r\n");
    assert!(list().contains(" flags=N ") && list().contains(" multi=-1 "));
    ask(&mut client, "SUBSCRIBE a b", ":2\r\n");
    ask(&mut client, "PSUBSCRIBE c*", ":3\r\n");
    assert!(list().contains(" flags=P ") && list().contains(" sub=2 psub=1 "), "{}", list());
    let by_id = |ids: &str| run(&server.engine, &format!("CLIENT LIST ID {ids}"));
    assert_eq!(by_id(&format!("12345 {id}")), Reply::Text(list()));
    assert_eq!(run(&server.engine, "CLIENT LIST TYPE pubsub"), Reply::Text(list()));
    assert_eq!(run(&server.engine, "CLIENT LIST TYPE normal"), Reply::Text(String::new()));
    assert_eq!(error(by_id("x")), "ERR Invalid client ID");
    send(&mut client, "QUIT");
}
