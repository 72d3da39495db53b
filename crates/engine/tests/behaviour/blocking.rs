//! Commands that wait for a key.

use std::io::Read;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hob_engine::{Clock, Config, DrivenClock, Engine, Reply};
use hob_testkit::{LIMIT, wait_until};
use redis::{AsyncCommands, Pipeline};
use tokio::time::timeout;

use crate::server::{Server, ask, read_to, send};
use crate::{error, eval, run};

fn blocked_clients(engine: &Engine) -> usize {
    let Reply::Text(info) = run(engine, "INFO clients") else { panic!("expected a text") };
    let count = info.lines().find_map(|line| line.strip_prefix("blocked_clients:")).unwrap();
    count.parse().unwrap()
}

/// Sends a blocking command, and waits until it blocks.
pub(crate) fn block(server: &Server, line: &str) -> TcpStream {
    let before = blocked_clients(&server.engine);
    let mut client = server.connect();
    send(&mut client, line);
    wait_until("the client to block", || blocked_clients(&server.engine) > before);
    client
}

fn list(engine: &Engine, key: &str) -> Vec<String> {
    let Reply::Array(items) = run(engine, &format!("LRANGE {key} 0 -1")) else { panic!("expected a list") };
    let text = |item: Reply| match item {
        Reply::Bulk(bytes) => String::from_utf8(bytes).unwrap(),
        other => panic!("{other:?}"),
    };
    items.into_iter().map(text).collect()
}

const POPPED: &str = "*2\r\n$1\r\nl\r\n$1\r\n";

#[test]
fn clients_are_served_in_the_order_in_which_they_began_to_wait() {
    let server = Server::start(Config::default());
    let mut first = block(&server, "BLPOP other l 0");
    let mut second = block(&server, "BRPOP l 0");
    let mut third = block(&server, "BLPOP l 0");
    assert_eq!(run(&server.engine, "RPUSH l a b"), Reply::Int(2));
    assert_eq!(read_to(&mut first, "a\r\n"), format!("{POPPED}a\r\n"));
    assert_eq!(read_to(&mut second, "b\r\n"), format!("{POPPED}b\r\n"));
    run(&server.engine, "RPUSH l c");
    assert_eq!(read_to(&mut third, "c\r\n"), format!("{POPPED}c\r\n"));
    assert_eq!(run(&server.engine, "EXISTS l other"), Reply::Int(0));
    // A served client no longer waits for its other keys.
    run(&server.engine, "RPUSH other d");
    assert_eq!(list(&server.engine, "other"), ["d"]);
}

#[test]
fn client_is_served_after_the_whole_transaction_or_script() {
    let server = Server::start(Config::default());
    let mut client = block(&server, "BLPOP l 0");
    let mut pusher = server.connect();
    ask(&mut pusher, "MULTI", "\r\n");
    for line in ["RPUSH l a", "LPUSH l b", "LRANGE l 0 -1"] {
        ask(&mut pusher, line, "\r\n");
    }
    assert!(ask(&mut pusher, "EXEC", "$1\r\na\r\n").contains("*2\r\n$1\r\nb\r\n"));
    assert_eq!(read_to(&mut client, "b\r\n"), format!("{POPPED}b\r\n"));
    run(&server.engine, "DEL l");
    let mut client = block(&server, "BLPOP l 0");
    let script = "redis.call('RPUSH', 'l', 'a') redis.call('DEL', 'l') redis.call('RPUSH', 'l', 'c', 'd')
                  return redis.call('LLEN', 'l')";
    assert_eq!(eval(&server.engine, script, &["l"]), Reply::Int(2));
    assert_eq!(read_to(&mut client, "c\r\n"), format!("{POPPED}c\r\n"));
}

#[test]
fn transaction_and_script_do_not_wait() {
    let server = Server::start(Config::default());
    let mut client = server.connect();
    ask(&mut client, "MULTI", "\r\n");
    for line in ["BLPOP l 0", "BLMOVE l m LEFT LEFT 0", "BZPOPMIN z 0", "BLMPOP 0 1 l LEFT"] {
        assert_eq!(ask(&mut client, line, "\r\n"), "+QUEUED\r\n");
    }
    assert_eq!(ask(&mut client, "EXEC", "*-1\r\n*-1\r\n"), "*4\r\n*-1\r\n$-1\r\n*-1\r\n*-1\r\n");
    assert_eq!(
        eval(&server.engine, "return redis.call('BLMPOP', 0, 1, KEYS[1], 'LEFT')", &["l"]),
        Reply::Null
    );
    let refused = error(eval(&server.engine, "return redis.call('BLPOP', KEYS[1], 0)", &["l"]));
    assert!(refused.contains("not allowed from script"), "{refused}");
    assert_eq!(run(&server.engine, "BLPOP l 0"), Reply::NullArray);
}

#[test]
fn chain_of_moves_serves_every_client() {
    let server = Server::start(Config::default());
    let mut last = block(&server, "BLPOP c 0");
    let mut second = block(&server, "BLMOVE b c RIGHT LEFT 0");
    let mut first = block(&server, "BRPOPLPUSH a b 0");
    run(&server.engine, "RPUSH a x");
    assert_eq!(read_to(&mut first, "x\r\n"), "$1\r\nx\r\n");
    assert_eq!(read_to(&mut second, "x\r\n"), "$1\r\nx\r\n");
    assert_eq!(read_to(&mut last, "x\r\n"), "*2\r\n$1\r\nc\r\n$1\r\nx\r\n");
    assert_eq!(run(&server.engine, "DBSIZE"), Reply::Int(0));
}

#[test]
fn client_may_move_an_item_to_the_same_list() {
    let server = Server::start(Config::default());
    let mut client = block(&server, "BLMOVE l l LEFT RIGHT 0");
    run(&server.engine, "RPUSH l a b");
    assert_eq!(read_to(&mut client, "a\r\n"), "$1\r\na\r\n");
    assert_eq!(list(&server.engine, "l"), ["b", "a"]);
}

#[test]
fn key_of_another_type_is_ignored_while_waiting() {
    let server = Server::start(Config::default());
    let mut client = block(&server, "BLPOP l 0");
    run(&server.engine, "SET l text");
    run(&server.engine, "DEL l");
    run(&server.engine, "ZADD l 1 m");
    run(&server.engine, "DEL l");
    run(&server.engine, "RPUSH l a");
    assert_eq!(read_to(&mut client, "a\r\n"), format!("{POPPED}a\r\n"));
    // A target of another type is an error, and the item stays where it was.
    let mut client = block(&server, "BLMOVE l m LEFT LEFT 0");
    run(&server.engine, "SET m text");
    run(&server.engine, "RPUSH l b");
    assert!(read_to(&mut client, "\r\n").starts_with("-WRONGTYPE"));
    assert_eq!(list(&server.engine, "l"), ["b"]);
}

#[test]
fn client_that_disconnects_loses_no_item() {
    let server = Server::start(Config::default());
    let client = block(&server, "BLPOP l 0");
    drop(client);
    wait_until("the wait to end", || blocked_clients(&server.engine) == 0);
    run(&server.engine, "RPUSH l a");
    assert_eq!(list(&server.engine, "l"), ["a"]);
}

#[test]
fn blocked_client_can_be_listed_unblocked_and_killed() {
    let server = Server::start(Config::default());
    let mut admin = server.connect();
    let mut client = server.connect();
    let id = ask(&mut client, "CLIENT ID", "\r\n");
    let id = id.trim_start_matches(':').trim_end();
    for (reason, reply) in [
        ("", "*-1\r\n"),
        (" TIMEOUT", "*-1\r\n"),
        (" ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n"),
    ] {
        let unblock = format!("CLIENT UNBLOCK {id}{reason}");
        assert_eq!(ask(&mut admin, &unblock, "\r\n"), ":0\r\n", "it does not wait yet");
        send(&mut client, "BLMOVE l m LEFT LEFT 0");
        wait_until("the client to block", || blocked_clients(&server.engine) == 1);
        let clients = ask(&mut admin, "CLIENT LIST", "\n\r\n");
        let line = clients.lines().find(|line| line.contains(&format!("id={id} "))).unwrap();
        assert!(line.contains(" flags=b "), "{line}");
        assert_eq!(ask(&mut admin, &unblock, "\r\n"), ":1\r\n");
        assert_eq!(read_to(&mut client, "\r\n"), reply);
    }
    send(&mut client, "BLPOP l 0");
    wait_until("the client to block", || blocked_clients(&server.engine) == 1);
    assert_eq!(ask(&mut admin, &format!("CLIENT KILL ID {id}"), "\r\n"), ":1\r\n");
    assert_eq!(client.read(&mut [0]).unwrap(), 0, "the connection is closed");
    wait_until("the wait to end", || blocked_clients(&server.engine) == 0);
    run(&server.engine, "RPUSH l a");
    assert_eq!(list(&server.engine, "l"), ["a"]);
}

#[test]
fn wait_ends_at_its_timeout_by_the_clock_of_the_engine() {
    let clock = DrivenClock::starting_at(Duration::from_secs(1_700_000_000));
    let server = Server::start(Config { clock: Clock::Driven(clock.clone()), ..Config::default() });
    let mut client = block(&server, "BLPOP l 0.5");
    let mut other = block(&server, "BZPOPMIN z 10");
    clock.advance(Duration::from_millis(499));
    assert_eq!(blocked_clients(&server.engine), 2);
    clock.advance(Duration::from_millis(1));
    assert_eq!(read_to(&mut client, "\r\n"), "*-1\r\n");
    assert_eq!(blocked_clients(&server.engine), 1);
    run(&server.engine, "ZADD z 1.5 m");
    assert_eq!(read_to(&mut other, "1.5\r\n"), "*3\r\n$1\r\nz\r\n$1\r\nm\r\n$3\r\n1.5\r\n");
}

#[test]
fn requests_behind_a_blocking_command_wait_for_it() {
    let server = Server::start(Config::default());
    let mut client = block(&server, "BLPOP l 0\r\nLPUSH l b\r\nBLPOP l 0\r\nPING");
    run(&server.engine, "RPUSH l a");
    let answer = format!("{POPPED}a\r\n:1\r\n{POPPED}b\r\n+PONG\r\n");
    assert_eq!(read_to(&mut client, "PONG\r\n"), answer);
    // The requests after a script run on the script's thread.
    let mut client = block(&server, "EVAL return(1) 0\r\nBLPOP l 0\r\nPING");
    assert_eq!(read_to(&mut client, "\r\n"), ":1\r\n");
    run(&server.engine, "RPUSH l a");
    assert_eq!(read_to(&mut client, "PONG\r\n"), format!("{POPPED}a\r\n+PONG\r\n"));
}

#[test]
fn subscriber_gets_messages_while_it_waits() {
    let server = Server::start(Config::default());
    let mut client = server.connect();
    ask(&mut client, "HELLO 3", "modules\r\n*0\r\n");
    ask(&mut client, "SUBSCRIBE news", ":1\r\n");
    send(&mut client, "BLPOP l 0");
    wait_until("the client to block", || blocked_clients(&server.engine) == 1);
    run(&server.engine, "PUBLISH news hello");
    assert_eq!(read_to(&mut client, "hello\r\n"), ">3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$5\r\nhello\r\n");
    run(&server.engine, "RPUSH l a");
    assert_eq!(read_to(&mut client, "a\r\n"), format!("{POPPED}a\r\n"));
}

#[test]
fn keys_and_blocked_clients_are_bounded() {
    let server = Server::start(Config { max_clients: 1, ..Config::default() });
    let mut client = block(&server, "BLPOP l 0");
    let mut handle = server.engine.connection();
    let refused = server.runtime.block_on(async { handle.blpop::<_, ()>("l", 0.0).await }).unwrap_err();
    assert!(refused.to_string().contains("max number of blocked clients"), "{refused}");
    run(&server.engine, "RPUSH l a");
    read_to(&mut client, "a\r\n");
    let keys: Vec<String> = (0..10_001).map(|n| format!("key:{n}")).collect();
    let refused = server.runtime.block_on(async { handle.blpop::<_, ()>(&keys, 0.0).await }).unwrap_err();
    assert!(refused.to_string().contains("too many keys"), "{refused}");
}

#[tokio::test]
async fn handle_waits_without_blocking_its_thread() {
    let engine = Engine::default();
    let (mut waiting, mut pushing) = (engine.connection(), engine.connection());
    let popped = tokio::spawn(async move { waiting.blpop::<_, (String, String)>(&["k", "l"], 0.0).await });
    wait_until_blocked(&engine).await;
    let _: () = pushing.rpush("l", "a").await.unwrap();
    let popped = timeout(LIMIT, popped).await.expect("the handle is served").unwrap().unwrap();
    assert_eq!(popped, ("l".to_owned(), "a".to_owned()));
    // In an atomic pipeline it does not wait.
    let mut atomic = Pipeline::new();
    atomic.atomic().cmd("BLPOP").arg("l").arg(0);
    let replies: Vec<Option<(String, String)>> = atomic.query_async(&mut pushing).await.unwrap();
    assert_eq!(replies, [None]);
}

#[tokio::test]
async fn dropped_future_ends_the_wait() {
    let engine = Engine::default();
    let mut waiting = engine.connection();
    let popped = tokio::spawn(async move { waiting.blpop::<_, (String, String)>("l", 0.0).await });
    wait_until_blocked(&engine).await;
    popped.abort();
    assert!(popped.await.unwrap_err().is_cancelled());
    assert_eq!(blocked_clients(&engine), 0);
    run(&engine, "RPUSH l a");
    assert_eq!(list(&engine, "l"), ["a"]);
}

/// A push and a timeout may happen at the same moment: then the client gets either the item or nothing, and in the second
/// case the item stays in the list.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_item_is_lost_between_a_push_and_a_timeout() {
    const ITEMS: usize = 2000;
    let engine = Engine::default();
    let popped = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let (mut connection, popped) = (engine.connection(), Arc::clone(&popped));
            tokio::spawn(async move {
                while popped.load(Ordering::SeqCst) < ITEMS {
                    let item: Option<(String, String)> = connection.blpop("l", 0.001).await.unwrap();
                    popped.fetch_add(usize::from(item.is_some()), Ordering::SeqCst);
                }
            })
        })
        .collect();
    let mut pusher = engine.connection();
    for item in 0..ITEMS {
        let _: () = pusher.rpush("l", item).await.unwrap();
        if item % 20 == 0 {
            // Long enough for some clients to time out.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    for client in clients {
        timeout(LIMIT, client).await.expect("every item is popped").unwrap();
    }
    assert_eq!((popped.load(Ordering::SeqCst), run(&engine, "LLEN l")), (ITEMS, Reply::Int(0)));
}

async fn wait_until_blocked(engine: &Engine) {
    hob_testkit::wait_for("the handle to block", LIMIT, async || blocked_clients(engine) == 1).await;
}
