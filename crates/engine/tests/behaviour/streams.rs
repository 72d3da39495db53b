//! Streams beyond what is compared with Redis: ids from the clock, memory, and readers that wait.

use std::time::Duration;

use hob_engine::{Clock, Config, DrivenClock, Engine, Reply};

use crate::blocking::block;
use crate::server::{Server, ask, read_to};
use crate::{error, eval, run};

fn text(reply: Reply) -> String {
    match reply {
        Reply::Bulk(bytes) => String::from_utf8(bytes).unwrap(),
        other => panic!("expected a bulk string, got {other:?}"),
    }
}

#[test]
fn server_chooses_ids_from_its_clock() {
    let clock = DrivenClock::starting_at(Duration::from_secs(1_000_000));
    let engine = Engine::new(Config { clock: Clock::Driven(clock.clone()), ..Config::default() });
    let first = text(run(&engine, "XADD s * f v"));
    let (ms, seq) = first.split_once('-').unwrap();
    assert_eq!(seq, "0");
    assert_eq!(text(run(&engine, "XADD s * f v")), format!("{ms}-1"));
    clock.advance(Duration::from_millis(5));
    let later = ms.parse::<u64>().unwrap() + 5;
    assert_eq!(text(run(&engine, "XADD s * f v")), format!("{later}-0"));
    assert_eq!(text(run(&engine, "XADD s 18446744073709551614-5 f v")), "18446744073709551614-5");
    assert_eq!(text(run(&engine, "XADD s * f v")), "18446744073709551614-6");
}

#[test]
fn idle_entries_can_be_claimed() {
    let clock = DrivenClock::starting_at(Duration::from_secs(1_000_000));
    let engine = Engine::new(Config { clock: Clock::Driven(clock.clone()), ..Config::default() });
    run(&engine, "XADD s 1-1 f v");
    run(&engine, "XGROUP CREATE s g 0");
    run(&engine, "XREADGROUP GROUP g alice STREAMS s >");
    assert_eq!(run(&engine, "XCLAIM s g bob 1000 1-1 JUSTID"), Reply::Array(vec![]));
    clock.advance(Duration::from_secs(1));
    assert_eq!(
        run(&engine, "XPENDING s g IDLE 1000 - + 10"),
        Reply::Array(vec![Reply::Array(vec![
            Reply::Bulk(b"1-1".to_vec()),
            Reply::Bulk(b"alice".to_vec()),
            Reply::Int(1000),
            Reply::Int(1),
        ])])
    );
    let claimed = run(&engine, "XCLAIM s g bob 1000 1-1 JUSTID");
    assert_eq!(claimed, Reply::Array(vec![Reply::Bulk(b"1-1".to_vec())]));
    assert_eq!(run(&engine, "XACK s g 1-1"), Reply::Int(1));
}

#[test]
fn streams_count_towards_the_memory_limit() {
    let engine = Engine::new(Config { max_memory_bytes: 1_000_000, ..Config::default() });
    let refused = (1..100_000)
        .find(|ms| matches!(run(&engine, &format!("XADD s {ms} field {}", "x".repeat(50))), Reply::Error(_)));
    let stored = refused.expect("the memory limit is reached");
    assert!((2_000..12_000).contains(&stored), "{stored} entries of 55 bytes fill a million bytes");
    assert!(error(run(&engine, "XADD s * f v")).starts_with("OOM "));
    run(&engine, "XTRIM s MAXLEN 10");
    assert_eq!(run(&engine, "XLEN s"), Reply::Int(10));
    text(run(&engine, "XADD s * f v"));
}

#[test]
fn script_reads_and_writes_streams() {
    let engine = Engine::default();
    let script = "redis.call('XADD', KEYS[1], '1-1', 'f', 'v') \
                  local found = redis.call('XREAD', 'STREAMS', KEYS[1], '0') \
                  return {found[1][1], found[1][2][1][1], found[1][2][1][2][2], redis.call('TYPE', KEYS[1]).ok}";
    let words = ["s", "1-1", "v", "stream"].map(|word| Reply::Bulk(word.as_bytes().to_vec()));
    assert_eq!(eval(&engine, script, &["s"]), Reply::Array(words.into()));
    let blocking = eval(&engine, "return redis.call('XREAD', 'BLOCK', '1', 'STREAMS', KEYS[1], '$')", &["s"]);
    assert!(error(blocking).starts_with("ERR XREAD command is not allowed with BLOCK option from scripts"));
}

/// The reply of `XREAD` with one entry.
fn one_entry(id: &str) -> String {
    format!("*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n${}\r\n{id}\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n", id.len())
}

#[test]
fn reader_waits_for_an_entry_after_its_id() {
    let server = Server::start(Config::default());
    run(&server.engine, "XADD s 1-1 f v");
    let mut last = block(&server, "XREAD BLOCK 0 STREAMS other s 0 $");
    let mut later = block(&server, "XREAD BLOCK 0 COUNT 5 STREAMS s 5-0");
    run(&server.engine, "XADD s 2-1 f v");
    assert_eq!(read_to(&mut last, "v\r\n"), one_entry("2-1"));
    run(&server.engine, "XADD s 6-1 f v");
    assert_eq!(read_to(&mut later, "v\r\n"), one_entry("6-1"));
}

#[test]
fn reader_without_new_entries_gets_a_null_after_its_timeout() {
    let server = Server::start(Config::default());
    let mut client = server.connect();
    assert_eq!(ask(&mut client, "XREAD BLOCK 10 STREAMS s 0", "\r\n"), "*-1\r\n");
    assert_eq!(run(&server.engine, "XREAD BLOCK 0 STREAMS s 0"), Reply::NullArray);
}

#[test]
fn entry_goes_to_one_consumer_of_a_group() {
    let server = Server::start(Config::default());
    run(&server.engine, "XGROUP CREATE s g $ MKSTREAM");
    let mut alice = block(&server, "XREADGROUP GROUP g alice BLOCK 0 STREAMS s >");
    let mut bob = block(&server, "XREADGROUP GROUP g bob BLOCK 0 NOACK STREAMS s >");
    run(&server.engine, "XADD s 1-1 f v");
    assert_eq!(read_to(&mut alice, "v\r\n"), one_entry("1-1"));
    run(&server.engine, "XADD s 2-1 f v");
    assert_eq!(read_to(&mut bob, "v\r\n"), one_entry("2-1"));
    // Bob's entry counts as acknowledged.
    assert_eq!(run(&server.engine, "XACK s g 1-1 2-1"), Reply::Int(1));
}

#[test]
fn consumer_stops_waiting_when_its_group_or_stream_is_gone() {
    let server = Server::start(Config::default());
    let gone = "-UNBLOCKED the stream key no longer exists\r\n";
    let no_group = "-NOGROUP the consumer group this client was blocked on no longer exists\r\n";
    for (change, expected) in [("XGROUP DESTROY s g", no_group), ("DEL s", gone), ("SET s v", gone)] {
        run(&server.engine, "DEL s");
        run(&server.engine, "XGROUP CREATE s g $ MKSTREAM");
        let mut reader = block(&server, "XREAD BLOCK 0 STREAMS s $");
        let mut consumer = block(&server, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
        run(&server.engine, "CONFIG RESETSTAT");
        run(&server.engine, change);
        assert_eq!(read_to(&mut consumer, "\r\n"), expected, "{change}");
        let Reply::Text(errors) = run(&server.engine, "INFO errorstats") else { panic!("expected a text") };
        let code = &expected[1..expected.find(' ').unwrap()];
        assert!(errors.contains(&format!("errorstat_{code}:count=1")), "{errors}");
        // A reader without a group waits for the next stream.
        run(&server.engine, "DEL s");
        run(&server.engine, "XADD s 1-1 f v");
        assert_eq!(read_to(&mut reader, "v\r\n"), one_entry("1-1"));
    }
}

/// Found by the differential fuzzer: the consumer got an empty list.
#[test]
fn removed_entries_do_not_serve_a_waiting_consumer() {
    let server = Server::start(Config::default());
    run(&server.engine, "XADD s 1-1 f v");
    run(&server.engine, "XGROUP CREATE s g $");
    let mut consumer = block(&server, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
    let script = "redis.call('XTRIM', KEYS[1], 'MAXLEN', 0) redis.call('XGROUP', 'SETID', KEYS[1], 'g', 0)";
    eval(&server.engine, script, &["s"]);
    run(&server.engine, "XADD s 2-1 f v");
    assert_eq!(read_to(&mut consumer, "v\r\n"), one_entry("2-1"));
}
