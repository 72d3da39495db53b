//! Limits on memory, clients, subscriptions and replies.

use std::io::Read;
use std::io::Write;
use std::time::Duration;

use hob_engine::{Clock, Config, DrivenClock, Engine, Event, Reply, SubscriberLimits};
use hob_testkit::{LIMIT, wait_for, wait_until};

use crate::server::{Server, ask};
use crate::{error, eval, messages, run};

const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

#[test]
fn full_store_refuses_only_commands_that_need_memory() {
    let engine = Engine::new(Config { max_memory_bytes: 1_000_000, ..Config::default() });
    let mut refusal = None;
    for n in 0..100_000 {
        if let Reply::Error(text) = run(&engine, &format!("SET key:{n} {}", "x".repeat(50))) {
            refusal = Some((n, text));
            break;
        }
    }
    let (stored, text) = refusal.expect("the memory limit is reached");
    assert_eq!(text, OOM);
    assert!(stored > 3_000, "{stored} keys of 50 bytes fill a million bytes");
    assert_eq!(run(&engine, "GET key:0"), Reply::Bulk("x".repeat(50).into_bytes()));
    assert_eq!(error(run(&engine, "HSET h f v")), OOM);
    let writing = eval(&engine, "return redis.call('SET', KEYS[1], 'v')", &["k"]);
    assert!(error(writing).starts_with(OOM));
    assert_eq!(eval(&engine, "return redis.call('DEL', KEYS[1])", &["key:0"]), Reply::Int(1));
    run(&engine, "FLUSHALL");
    assert_eq!(run(&engine, "HSET h f v"), Reply::Int(1));
}

/// Every command that changes a value must update the memory count.
#[test]
fn memory_is_freed_to_the_byte() {
    let engine = Engine::default();
    let empty = engine.memory();
    for line in [
        "SET s hello",
        "APPEND s world",
        "INCR n",
        "HSET h a 1 b 2",
        "HSET h a longer-than-before",
        "HDEL h b",
        "RPUSH l a b c d",
        "LSET l 1 something-longer",
        "LTRIM l 1 2",
        "LREM l 0 c",
        "SADD t a b c",
        "SREM t a",
        "SPOP t",
        "ZADD z 1 a 2 b 3 c",
        "ZADD z 9 a",
        "ZPOPMIN z",
        "ZREMRANGEBYSCORE z 9 9",
        "XADD x 1-1 f v",
        "XADD x MAXLEN 2 2-1 f a-longer-value f v",
        "XGROUP CREATE x g 0",
        "XGROUP CREATE x h $",
        "XREADGROUP GROUP g alice STREAMS x >",
        "XCLAIM x g bob 0 2-1",
        "XDEL x 1-1",
        "XAUTOCLAIM x g carol 0 0",
        "XGROUP DELCONSUMER x g bob",
        "XACK x g 2-1",
        "XTRIM x MAXLEN 0",
        "XGROUP DESTROY x h",
        "RENAME s renamed",
        "EXPIRE h 100",
        "PERSIST h",
        "GETSET renamed x",
    ] {
        run(&engine, line);
        assert!(engine.memory() > empty, "{line}");
    }
    run(&engine, "DEL s renamed n h l t z x");
    // The table of keys keeps its capacity; all keys and values are freed.
    run(&engine, "SET probe 1");
    run(&engine, "DEL probe");
    let one_table = engine.memory();
    run(&engine, "FLUSHALL");
    assert_eq!(engine.memory(), empty);
    assert!(one_table < 2_000, "{one_table} bytes are used by an empty store");
}

#[test]
fn client_beyond_the_maximum_is_refused() {
    let server = Server::start(Config { max_clients: 2, ..Config::default() });
    let mut first = server.connect();
    ask(&mut first, "PING", "\r\n");
    let mut second = server.connect();
    ask(&mut second, "PING", "\r\n");
    assert_eq!(server.read_until_closed(b""), "-ERR max number of clients reached\r\n");
    drop(second);
    tokio::runtime::Runtime::new().unwrap().block_on(wait_for("a free connection slot", LIMIT, async || {
        let mut third = server.connect();
        third.write_all(b"PING\r\n").is_ok() && third.read(&mut [0; 8]).is_ok_and(|count| count == 7)
    }));
}

#[test]
fn slow_subscriber_is_disconnected() {
    let server = Server::start(Config { subscriber_limits: messages(100), ..Config::default() });
    let mut slow = server.connect();
    ask(&mut slow, "SUBSCRIBE news", ":1\r\n");
    // Far more than the queue and the socket's buffers hold.
    let message = format!("PUBLISH news {}", "x".repeat(60_000));
    let disconnected = (0..10_000).any(|_| run(&server.engine, &message) == Reply::Int(0));
    assert!(disconnected, "the subscriber is disconnected");
}

#[test]
fn slow_subscriber_is_disconnected_when_too_many_bytes_wait_for_it() {
    let limits = SubscriberLimits { hard_bytes: 4 << 20, ..messages(1_000_000) };
    let server = Server::start(Config { subscriber_limits: limits, ..Config::default() });
    let mut slow = server.connect();
    ask(&mut slow, "SUBSCRIBE news", ":1\r\n");
    let message = format!("PUBLISH news {}", "x".repeat(1 << 20));
    let mut peak = 0;
    wait_until("the subscriber to be disconnected", || {
        let subscribers = run(&server.engine, &message);
        peak = peak.max(server.engine.memory());
        subscribers == Reply::Int(0)
    });
    assert!((1 << 20..5 << 20).contains(&peak), "{peak} bytes were buffered");
    wait_until("the buffers to be freed", || server.engine.memory() < 1 << 20);
}

/// A large message that is being written to the socket still counts.
#[test]
fn unread_messages_are_part_of_the_memory() {
    let server = Server::start(Config::default());
    let mut slow = server.connect();
    ask(&mut slow, "SUBSCRIBE news", ":1\r\n");
    let message = format!("PUBLISH news {}", "x".repeat(1 << 20));
    let buffered = |engine: &Engine| match run(engine, "INFO memory") {
        Reply::Text(text) => {
            let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.parse().ok());
            let used: usize = value("used_memory:").unwrap();
            (value("mem_clients_normal:").unwrap(), used)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(buffered(&server.engine).0, 0_usize);
    // More than the buffers of the two sockets hold.
    (0..20).for_each(|_| assert_eq!(run(&server.engine, &message), Reply::Int(1)));
    let (waiting, used) = buffered(&server.engine);
    assert!(waiting > 1 << 20 && used >= waiting, "{waiting} of {used} bytes");
    let mut read = vec![0; 20 << 20];
    slow.read_exact(&mut read).unwrap();
    wait_until("the buffers to be freed", || buffered(&server.engine).0 == 0);
}

#[tokio::test]
async fn subscriber_in_this_process_loses_messages_beyond_its_limits_of_bytes() {
    let clock = DrivenClock::starting_at(Duration::from_secs(1_700_000_000));
    let limits = SubscriberLimits {
        hard_bytes: 1_000_000,
        soft_bytes: 400_000,
        soft_duration: Duration::from_secs(60),
        ..messages(100)
    };
    let engine = Engine::new(Config {
        clock: Clock::Driven(clock.clone()),
        subscriber_limits: limits,
        ..Config::default()
    });
    let empty = engine.memory();
    let mut subscriber = engine.subscriber();
    subscriber.subscribe(b"news");
    let publish = |count: usize| {
        let message = format!("PUBLISH news {}", "x".repeat(300_000));
        (0..count).for_each(|_| assert_eq!(run(&engine, &message), Reply::Int(1)));
    };
    let read = async |subscriber: &mut hob_engine::Subscriber, count: usize| {
        for _ in 0..count {
            let event = subscriber.next().await;
            assert!(matches!(event, Some(Event::Message { .. })), "{event:?}");
        }
    };
    publish(5);
    assert!(engine.memory() > empty + 900_000);
    assert_eq!(subscriber.next().await, Some(Event::Missed(2)), "the hard limit");
    read(&mut subscriber, 3).await;
    assert_eq!(engine.memory(), empty);

    publish(2);
    clock.advance(Duration::from_secs(59));
    publish(1);
    clock.advance(Duration::from_secs(2));
    publish(1);
    assert_eq!(subscriber.next().await, Some(Event::Missed(1)), "over the soft limit for 61 seconds");
    read(&mut subscriber, 3).await;
    publish(2);
    clock.advance(Duration::from_secs(59));
    publish(1);
    read(&mut subscriber, 3).await;

    publish(1);
    assert!(engine.memory() > empty);
    drop(subscriber);
    assert_eq!(engine.memory(), empty, "the messages of a subscriber that was dropped are freed");
}

#[test]
fn subscriptions_are_bounded() {
    let server = Server::start(Config { max_subscriptions: 2, ..Config::default() });
    let mut client = server.connect();
    ask(&mut client, "SUBSCRIBE a b", ":2\r\n");
    assert_eq!(
        ask(&mut client, "PSUBSCRIBE c*", "\r\n"),
        "-ERR too many subscriptions on this connection\r\n"
    );
    assert_eq!(run(&server.engine, "PUBLISH cc x"), Reply::Int(0));
    ask(&mut client, "UNSUBSCRIBE a", ":1\r\n");
    ask(&mut client, "PSUBSCRIBE c*", ":2\r\n");
}

#[test]
fn transaction_queue_is_bounded() {
    let server = Server::start(Config { max_command_bytes: 10_000, ..Config::default() });
    let mut client = server.connect();
    ask(&mut client, "MULTI", "\r\n");
    let command = format!("SET k {}", "x".repeat(3_000));
    let refused = (0..10).any(|_| ask(&mut client, &command, "\r\n").starts_with("-ERR the transaction"));
    assert!(refused);
    assert!(ask(&mut client, "EXEC", "\r\n").starts_with("-EXECABORT"));
}

#[test]
fn reply_with_repetitions_is_bounded() {
    let engine = Engine::new(Config { max_reply_items: 1_000, ..Config::default() });
    run(&engine, "SADD s a");
    assert_eq!(error(run(&engine, "SRANDMEMBER s -1001")), "ERR value is out of range");
    assert!(matches!(run(&engine, "SRANDMEMBER s -1000"), Reply::Array(items) if items.len() == 1_000));
}

#[test]
fn script_cache_drops_the_oldest() {
    let engine = Engine::new(Config { max_scripts: 10, ..Config::default() });
    let load = |n: usize| match engine.execute(&[b"SCRIPT", b"LOAD", format!("return {n}").as_bytes()]) {
        Reply::Bulk(sha) => String::from_utf8(sha).unwrap(),
        other => panic!("{other:?}"),
    };
    let first = load(0);
    let others: Vec<String> = (1..=10).map(load).collect();
    assert!(error(run(&engine, &format!("EVALSHA {first} 0"))).starts_with("NOSCRIPT"));
    assert_eq!(run(&engine, &format!("EVALSHA {} 0", others[9])), Reply::Int(10));
}
