//! The three interfaces: connections for redis-rs, in-process subscribers, and the listener.

use std::io::Read;

use hob_engine::{Config, Engine, Event, Listener};
use redis::{AsyncCommands, AsyncIter, Pipeline};

use crate::messages;
use crate::server::{Server, ask, read_to};

#[tokio::test]
async fn redis_rs_works_with_a_handle() {
    let engine = Engine::default();
    let mut connection = engine.connection();
    let _: () = connection.set("visits", 41).await.unwrap();
    let mut clone = connection.clone();
    let visits: i64 = clone.incr("visits", 1).await.unwrap();
    assert_eq!(visits, 42);
    let _: () = connection.hset_multiple("h", &[("a", 1), ("b", 2)]).await.unwrap();
    let all: std::collections::BTreeMap<String, i64> = connection.hgetall("h").await.unwrap();
    assert_eq!(all, [("a".to_owned(), 1), ("b".to_owned(), 2)].into());
    let _: () = connection.zadd("z", "m", 1.5).await.unwrap();
    let scored: Vec<(String, f64)> = connection.zrange_withscores("z", 0, -1).await.unwrap();
    assert_eq!(scored, [("m".to_owned(), 1.5)]);
    let error =
        redis::cmd("LPUSH").arg("visits").arg(1).query_async::<()>(&mut connection).await.unwrap_err();
    assert_eq!(error.code(), Some("WRONGTYPE"));
}

#[tokio::test]
async fn pipelines_reply_in_order() {
    let engine = Engine::default();
    let mut connection = engine.connection();
    let mut pipeline = Pipeline::new();
    pipeline.set("a", 1).ignore().incr("a", 5).cmd("GET").arg("a");
    let answers: (i64, String) = pipeline.query_async(&mut connection).await.unwrap();
    assert_eq!(answers, (6, "6".to_owned()));
    let mut atomic = Pipeline::new();
    atomic.atomic().incr("a", 1).lpush("a", 1).incr("a", 1);
    // A command that fails at run time does not undo the others, as in Redis.
    assert!(atomic.query_async::<()>(&mut connection).await.is_err());
    assert_eq!(connection.get::<_, i64>("a").await.unwrap(), 8);
    let mut refused = Pipeline::new();
    refused.atomic().incr("a", 1).cmd("NOPE");
    let error = refused.query_async::<()>(&mut connection).await.unwrap_err();
    assert_eq!(error.code(), Some("EXECABORT"));
    assert_eq!(connection.get::<_, i64>("a").await.unwrap(), 8);
}

#[tokio::test]
async fn redis_rs_scan_finds_every_key() {
    let engine = Engine::default();
    let mut connection = engine.connection();
    let mut mset = redis::cmd("MSET");
    (0..500).for_each(|n| {
        mset.arg(format!("key:{n}")).arg(n);
    });
    mset.exec_async(&mut connection).await.unwrap();
    let mut found = std::collections::BTreeSet::new();
    let mut walk: AsyncIter<'_, String> = connection.scan_match("key:*").await.unwrap();
    while let Some(key) = walk.next_item().await {
        found.insert(key.unwrap());
    }
    assert_eq!(found.len(), 500);
}

/// SCAN returns every element that exists from its first call to its last.
#[test]
fn scan_finds_every_element_that_exists_throughout() {
    let engine = Engine::default();
    for n in 0..1000 {
        crate::run(&engine, &format!("SET stays:{n} 1"));
        crate::run(&engine, &format!("SET goes:{n} 1"));
    }
    let mut found = std::collections::BTreeSet::new();
    let (mut cursor, mut round) = ("0".to_owned(), 0);
    loop {
        let hob_engine::Reply::Array(page) = crate::run(&engine, &format!("SCAN {cursor} COUNT 7")) else {
            panic!("expected a page from SCAN")
        };
        let [hob_engine::Reply::Bulk(next), hob_engine::Reply::Array(keys)] = page.as_slice() else {
            panic!("expected a cursor and keys")
        };
        found.extend(keys.iter().map(|key| match key {
            hob_engine::Reply::Bulk(key) => String::from_utf8(key.clone()).unwrap(),
            other => panic!("{other:?}"),
        }));
        crate::run(&engine, &format!("DEL goes:{} goes:{}", round * 2, round * 2 + 1));
        crate::run(&engine, &format!("SET comes:{round} 1"));
        round += 1;
        cursor = String::from_utf8(next.clone()).unwrap();
        if cursor == "0" {
            break;
        }
    }
    assert!(round > 100, "the iteration must overlap with the changes");
    assert_eq!(found.iter().filter(|key| key.starts_with("stays:")).count(), 1000);
}

#[tokio::test]
async fn shared_handle_refuses_commands_that_change_its_state() {
    let mut connection = Engine::default().connection();
    for command in ["WATCH k", "SUBSCRIBE c", "PSUBSCRIBE c", "MONITOR", "MULTI", "EXEC", "RESET"] {
        let mut words = command.split(' ');
        let mut command = redis::cmd(words.next().unwrap());
        words.for_each(|word| {
            command.arg(word);
        });
        let error = command.query_async::<()>(&mut connection).await.unwrap_err();
        assert!(error.to_string().contains("not allowed on a shared handle"), "{error}");
    }
}

#[tokio::test]
async fn subscriber_gets_messages_and_the_number_of_missed_ones() {
    let engine = Engine::new(Config { subscriber_limits: messages(3), ..Config::default() });
    let mut subscriber = engine.subscriber();
    subscriber.subscribe(b"news");
    subscriber.psubscribe(b"n*");
    assert_eq!(crate::run(&engine, "PUBLISH news hello"), hob_engine::Reply::Int(2));
    let message = |pattern: Option<&'static str>| Event::Message {
        channel: "news".into(),
        pattern: pattern.map(Into::into),
        payload: "hello".into(),
    };
    assert_eq!(subscriber.next().await, Some(message(None)));
    assert_eq!(subscriber.next().await, Some(message(Some("n*"))));
    subscriber.punsubscribe(b"n*");
    for _ in 0..5 {
        crate::run(&engine, "PUBLISH news hello");
    }
    assert_eq!(subscriber.next().await, Some(Event::Missed(2)));
    assert_eq!(subscriber.next().await, Some(message(None)));
    drop(subscriber);
    assert_eq!(crate::run(&engine, "PUBLISH news hello"), hob_engine::Reply::Int(0));
}

/// In RESP2 a subscriber may not write, but this transaction was queued before it subscribed.
#[test]
fn transaction_that_subscribes_also_writes() {
    let server = Server::start(Config::default());
    let mut client = server.connect();
    ask(&mut client, "MULTI", "\r\n");
    for command in ["SUBSCRIBE c", "SET k v", "INCR n"] {
        assert_eq!(ask(&mut client, command, "\r\n"), "+QUEUED\r\n");
    }
    let replies = ask(&mut client, "EXEC", "+OK\r\n:1\r\n");
    assert_eq!(replies, "*3\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n+OK\r\n:1\r\n");
    assert_eq!(crate::run(&server.engine, "GET k"), hob_engine::Reply::Bulk(b"v".to_vec()));
    assert_eq!(crate::run(&server.engine, "PUBLISH c hello"), hob_engine::Reply::Int(1));
}

#[tokio::test]
async fn public_address_needs_a_password() {
    let anywhere = ([0, 0, 0, 0], 0).into();
    assert!(Listener::bind(Engine::default(), anywhere).await.is_err());
    let locked = Engine::new(Config { password: Some("secret".into()), ..Config::default() });
    assert!(Listener::bind(locked, anywhere).await.is_ok());
}

#[test]
fn password_is_required_and_never_shown() {
    let config = Config { password: Some("opensesame".into()), ..Config::default() };
    assert!(!format!("{config:?}").contains("opensesame"));
    let server = Server::start(config);
    let mut stream = server.connect();
    assert_eq!(ask(&mut stream, "GET k", "\r\n"), "-NOAUTH Authentication required.\r\n");
    assert!(ask(&mut stream, "HELLO 3", "\r\n").starts_with("-NOAUTH HELLO must be called"));
    assert!(ask(&mut stream, "AUTH wrong", "\r\n").starts_with("-WRONGPASS"));
    assert!(ask(&mut stream, "AUTH default wrong", "\r\n").starts_with("-WRONGPASS"));
    assert_eq!(ask(&mut stream, "AUTH opensesame", "\r\n"), "+OK\r\n");
    assert_eq!(ask(&mut stream, "GET k", "\r\n"), "$-1\r\n");
    let mut other = server.connect();
    assert!(ask(&mut other, "HELLO 3 AUTH default opensesame", "modules\r\n*0\r\n").starts_with("%7\r\n"));
}

#[test]
fn monitor_does_not_show_passwords() {
    let server = Server::start(Config { password: Some("opensesame".into()), ..Config::default() });
    let mut watcher = server.connect();
    ask(&mut watcher, "AUTH opensesame", "\r\n");
    assert_eq!(ask(&mut watcher, "MONITOR", "\r\n"), "+OK\r\n");
    let mut client = server.connect();
    ask(&mut client, "AUTH opensesame", "\r\n");
    ask(&mut client, "SET k \"a\\nb\"", "\r\n");
    let seen = read_to(&mut watcher, "\"SET\" \"k\" \"a\\nb\"\r\n");
    assert!(seen.contains("\"AUTH\" \"(redacted)\""), "{seen}");
    assert!(!seen.contains("opensesame"));
}

#[test]
fn client_can_be_listed_named_and_killed() {
    let server = Server::start(Config::default());
    let mut victim = server.connect();
    assert_eq!(ask(&mut victim, "CLIENT SETNAME victim", "\r\n"), "+OK\r\n");
    let mut killer = server.connect();
    let list = ask(&mut killer, "CLIENT LIST", "\n\r\n");
    let line = list.lines().find(|line| line.contains("name=victim")).unwrap();
    let id = line.split(' ').find_map(|field| field.strip_prefix("id=")).unwrap();
    assert_eq!(ask(&mut killer, &format!("CLIENT KILL ID {id}"), "\r\n"), ":1\r\n");
    assert_eq!(victim.read(&mut [0]).unwrap(), 0, "the victim's connection is closed");
    assert_eq!(ask(&mut killer, "PING", "\r\n"), "+PONG\r\n");
}

#[tokio::test]
async fn unix_socket_works() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.sock");
    let listener = Listener::bind_unix(Engine::default(), &path).unwrap();
    let serving = tokio::spawn(listener.serve(std::future::pending()));
    let client = redis::Client::open(format!("unix://{}", path.display())).unwrap();
    // The default timeouts of the client are too short for a busy machine.
    let config = redis::AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await.unwrap();
    assert_eq!(connection.incr::<_, _, i64>("k", 2).await.unwrap(), 2);
    serving.abort();
}
