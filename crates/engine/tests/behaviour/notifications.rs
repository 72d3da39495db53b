//! Keyspace notifications, with a clock that the test sets. The differential suite compares the events of every command
//! with those of Redis, except when a key expires.

use std::time::Duration;

use hob_engine::{Clock, Config, DrivenClock, Engine, Event, Reply, Subscriber};
use hob_testkit::LIMIT;
use tokio::time::timeout;

use crate::{error, eval, run};

/// The next events up to a marker, as "channel text".
async fn events(engine: &Engine, subscriber: &mut Subscriber) -> Vec<String> {
    run(engine, "PUBLISH __key:end end");
    let mut events = Vec::new();
    loop {
        let event = timeout(LIMIT, subscriber.next()).await.expect("the marker arrives").unwrap();
        let Event::Message { channel, payload, .. } = event else { panic!("{event:?}") };
        if channel == "__key:end" {
            return events;
        }
        let text = [&channel[..], b" ", &payload[..]].concat();
        events.push(String::from_utf8(text).unwrap());
    }
}

#[tokio::test]
async fn notifications_are_off_by_default() {
    let engine = Engine::default();
    let mut subscriber = engine.subscriber();
    subscriber.psubscribe(b"__key*");
    run(&engine, "SET k v");
    assert!(events(&engine, &mut subscriber).await.is_empty());
    run(&engine, "CONFIG SET notify-keyspace-events KEA");
    run(&engine, "SET k v");
    assert_eq!(events(&engine, &mut subscriber).await, ["__keyspace@0__:k set", "__keyevent@0__:set k"]);
    let refused = error(run(&engine, "CONFIG SET notify-keyspace-events KEq"));
    assert!(refused.contains("Invalid event class character"), "{refused}");
    // As in Redis, events are published only if K or E selects a channel.
    run(&engine, "CONFIG SET notify-keyspace-events A");
    run(&engine, "SET k v");
    assert!(events(&engine, &mut subscriber).await.is_empty());
}

#[tokio::test]
async fn expired_keys_are_reported_when_they_are_removed() {
    let clock = DrivenClock::starting_at(Duration::from_secs(1_700_000_000));
    let engine = Engine::new(Config { clock: Clock::Driven(clock.clone()), ..Config::default() });
    run(&engine, "CONFIG SET notify-keyspace-events Exg");
    let mut subscriber = engine.subscriber();
    subscriber.psubscribe(b"__key*");
    run(&engine, "SET read v PX 10");
    run(&engine, "SET swept v PX 10");
    run(&engine, "SET replaced v PX 10");
    let expire = |key: &str| format!("__keyevent@0__:expire {key}");
    let expected = [expire("read"), expire("swept"), expire("replaced")];
    assert_eq!(events(&engine, &mut subscriber).await, expected);
    clock.advance(Duration::from_millis(11));
    assert_eq!(run(&engine, "GET read"), Reply::Null);
    assert_eq!(events(&engine, &mut subscriber).await, ["__keyevent@0__:expired read"]);
    run(&engine, "SET replaced v");
    assert_eq!(events(&engine, &mut subscriber).await, ["__keyevent@0__:expired replaced"]);
    assert_eq!(engine.sweep(100), 1);
    assert_eq!(events(&engine, &mut subscriber).await, ["__keyevent@0__:expired swept"]);
}

/// Events are published one by one, in the order of the commands and messages of a script.
#[tokio::test]
async fn script_publishes_events_in_order() {
    let engine = Engine::default();
    run(&engine, "CONFIG SET notify-keyspace-events Kl");
    let mut subscriber = engine.subscriber();
    subscriber.psubscribe(b"__key*");
    eval(
        &engine,
        "redis.call('RPUSH', KEYS[1], 'a', 'b') redis.call('PUBLISH', '__key:own', 'text') redis.call('LPOP', KEYS[1])",
        &["l"],
    );
    let expected = ["__keyspace@0__:l rpush", "__key:own text", "__keyspace@0__:l lpop"];
    assert_eq!(events(&engine, &mut subscriber).await, expected);
}
