//! Both servers side by side: every step goes to both, and their replies are compared.

mod blocking;
mod events;

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hob_engine::{Engine, Listener};
use hob_testkit::wait_until;
use proptest::test_runner::TestCaseError;

use crate::generate::{KEYS, Step, Words};
use crate::wire::{Frame, Wire};

/// The engine behind its listener, on its own thread.
pub(crate) struct EngineServer {
    address: SocketAddr,
    _runtime: tokio::runtime::Runtime,
}

impl EngineServer {
    pub(crate) fn start() -> EngineServer {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = runtime.block_on(Listener::bind(Engine::default(), loopback)).unwrap();
        let address = listener.address().unwrap();
        runtime.spawn(listener.serve(std::future::pending()));
        EngineServer { address, _runtime: runtime }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }
}

/// One server with its connections: two ordinary ones, a subscriber, one that gets keyspace notifications, and one that
/// is never in a transaction.
struct Side {
    port: u16,
    clients: [Wire; 2],
    subscriber: Wire,
    events: Wire,
    control: Wire,
}

impl Side {
    fn connect(port: u16, protocol: &str) -> Side {
        let mut side = Side {
            port,
            clients: [Wire::connect(port), Wire::connect(port)],
            subscriber: Wire::connect(port),
            events: Wire::connect(port),
            control: Wire::connect(port),
        };
        for wire in side.clients.iter_mut().chain([&mut side.subscriber]) {
            wire.ask(&["HELLO", protocol]);
        }
        side.clients[0].ask(&["CONFIG", "SET", "notify-keyspace-events", ""]);
        side.clients[0].ask(&["FLUSHALL"]);
        // The server ends the subscriptions of the last sequence when it detects that their connections are closed.
        wait_until("the previous subscriptions to end", || {
            let [patterns, channels] =
                ["NUMPAT", "CHANNELS"].map(|what| side.clients[0].ask(&["PUBSUB", what]));
            patterns.int() == Some(0) && channels.items().is_empty()
        });
        side.events = events::subscribe(port, protocol);
        side
    }

    /// All elements of an iteration with cursors, without duplicates. An error is an element too.
    fn walk(&mut self, words: &Words) -> BTreeSet<Frame> {
        let cursor_at = if words[0] == b"SCAN" { 1 } else { 2 };
        let width = if matches!(words[0].as_slice(), b"HSCAN" | b"ZSCAN") { 2 } else { 1 };
        let mut words = words.clone();
        let mut found = BTreeSet::new();
        for _ in 0..10_000 {
            let reply = self.clients[0].ask(&words);
            let [Frame::Bulk(cursor), page] = reply.items() else {
                found.insert(reply);
                return found;
            };
            found.extend(page.items().chunks(width).map(|item| Frame::List('*', item.to_vec())));
            if cursor == b"0" {
                return found;
            }
            words[cursor_at].clone_from(cursor);
        }
        panic!("an iteration does not end: {words:?}");
    }
}

pub(crate) struct Pair {
    protocol: &'static str,
    redis: Side,
    engine: Side,
    started: Instant,
    /// The commands that each ordinary connection has queued since its MULTI.
    queues: [Option<Vec<Words>>; 2],
    channels: BTreeSet<Vec<u8>>,
    patterns: BTreeSet<Vec<u8>>,
    /// Whether keyspace notifications are or were switched on.
    notified: bool,
}

type Check = Result<(), TestCaseError>;

impl Pair {
    pub(crate) fn connect(redis: u16, engine: u16, protocol: &'static str) -> Pair {
        Pair {
            protocol,
            redis: Side::connect(redis, protocol),
            engine: Side::connect(engine, protocol),
            started: Instant::now(),
            queues: [None, None],
            channels: BTreeSet::new(),
            patterns: BTreeSet::new(),
            notified: false,
        }
    }

    pub(crate) fn play(mut self, steps: &[Step]) -> Check {
        for step in steps {
            match step {
                Step::Ask { client, words } => self.ask(*client, words)?,
                Step::Expire { words } => {
                    self.ask(0, words)?;
                    // A key that was queued for expiration gets its deadline only at EXEC.
                    if self.queues[0].is_none() {
                        std::thread::sleep(Duration::from_millis(5));
                        if self.notified {
                            self.remove_expired();
                        }
                    } else {
                        self.ask(0, &vec![b"DISCARD".to_vec()])?;
                    }
                }
                Step::Walk { words } => self.walk(words)?,
                Step::PopAny { key } => self.pop_any(key)?,
                Step::Listen { words } => self.listen(words)?,
                Step::Mix { commands } => self.mix(commands)?,
                Step::Block { begin, waiters, writes } => self.block(begin.as_ref(), waiters, writes)?,
                Step::Notify { flags } => self.notify(flags)?,
            }
            self.compare_events(&vec![format!("events of {step}").into_bytes()])?;
        }
        self.compare_keyspaces()
    }

    fn ask(&mut self, client: usize, words: &Words) -> Check {
        let redis = self.redis.clients[client].ask(words);
        let engine = self.engine.clients[client].ask(words);
        // One side may have set a deadline later, by at most the time since the beginning.
        let slack_ms = 50 + self.started.elapsed().as_millis() as i64;
        let name = words[0].to_ascii_uppercase();
        let queued = redis == Frame::Line("+QUEUED".into());
        if name == b"EXEC" && !redis.is_error() {
            let queue = self.queues[client].take().unwrap_or_default();
            agree(words, &redis.items().len(), &engine.items().len())?;
            for (index, words) in queue.iter().enumerate().take(redis.items().len()) {
                self.compare(words, &redis.items()[index], &engine.items()[index], slack_ms)?;
                self.compare_published(words, &redis.items()[index])?;
            }
            if redis.items().is_empty() {
                agree(words, &redis, &engine)?;
            }
            return Ok(());
        }
        match name.as_slice() {
            b"MULTI" if !redis.is_error() => self.queues[client] = Some(Vec::new()),
            b"DISCARD" if !redis.is_error() => self.queues[client] = None,
            b"EXEC" => self.queues[client] = None,
            _ => {}
        }
        if queued {
            self.queues[client].as_mut().expect("only a transaction queues").push(words.clone());
            return agree(words, &redis, &engine);
        }
        self.compare(words, &redis, &engine, slack_ms)?;
        self.compare_published(words, &redis)
    }

    /// After a PUBLISH, the subscribers must have received the same.
    fn compare_published(&mut self, words: &Words, reply: &Frame) -> Check {
        let inner = inner_command(words);
        if !inner.first().is_some_and(|name| name.eq_ignore_ascii_case(b"PUBLISH")) || inner.len() != 3 {
            return Ok(());
        }
        let direct = usize::from(self.channels.contains(&inner[1]));
        let by_pattern =
            self.patterns.iter().filter(|pattern| hob_engine::glob_matches(pattern, &inner[1])).count();
        if reply.is_error() {
            return Ok(());
        }
        let mut received = [Vec::new(), Vec::new()];
        for _ in 0..direct + by_pattern {
            received[0].push(self.redis.subscriber.read());
            received[1].push(self.engine.subscriber.read());
        }
        // The order among patterns is not defined.
        received.iter_mut().for_each(|messages| messages.sort());
        agree(words, &received[0], &received[1])
    }

    fn compare(&self, words: &Words, redis: &Frame, engine: &Frame, slack_ms: i64) -> Check {
        let words = &inner_command(words);
        let name = words.first().map(|name| name.to_ascii_uppercase()).unwrap_or_default();
        match name.as_slice() {
            b"PTTL" | b"PEXPIRETIME" => close(words, redis, engine, slack_ms),
            b"TTL" | b"EXPIRETIME" => close(words, redis, engine, 1 + slack_ms / 1000),
            b"TIME" => agree(words, &redis.items().len(), &engine.items().len()),
            // Redis may also report an expired key that it has not removed yet.
            b"MEMORY" => agree(words, &redis.is_error(), &engine.is_error()),
            b"RANDOMKEY" => agree(words, &matches!(redis, Frame::Bulk(_)), &matches!(engine, Frame::Bulk(_))),
            b"XPENDING" | b"XINFO" => agree(words, &without_times(redis), &without_times(engine)),
            b"SRANDMEMBER" | b"HRANDFIELD" | b"ZRANDMEMBER" => same_shape(words, redis, engine),
            b"KEYS" | b"HGETALL" | b"HKEYS" | b"HVALS" | b"SMEMBERS" | b"SINTER" | b"SUNION" | b"SDIFF"
            | b"SPOP" | b"PUBSUB" => agree(words, &sorted(&name, redis), &sorted(&name, engine)),
            _ => agree(words, redis, engine),
        }
    }

    fn walk(&mut self, words: &Words) -> Check {
        if self.queues[0].is_some() {
            return Ok(());
        }
        let (redis, engine) = (self.redis.walk(words), self.engine.walk(words));
        agree(words, &redis, &engine)
    }

    fn pop_any(&mut self, key: &[u8]) -> Check {
        if self.queues[0].is_some() {
            return Ok(());
        }
        let words = vec![b"SPOP".to_vec(), key.to_vec()];
        let (redis, engine) = (self.redis.clients[0].ask(&words), self.engine.clients[0].ask(&words));
        same_shape(&words, &redis, &engine)?;
        self.ask(0, &vec![b"SCARD".to_vec(), key.to_vec()])?;
        self.ask(0, &vec![b"DEL".to_vec(), key.to_vec()])
    }

    fn listen(&mut self, words: &Words) -> Check {
        let replies = match (words[0].as_slice(), words.len() - 1) {
            (b"UNSUBSCRIBE", 0) => self.channels.len().max(1),
            (b"PUNSUBSCRIBE", 0) => self.patterns.len().max(1),
            (b"SUBSCRIBE" | b"PSUBSCRIBE" | b"UNSUBSCRIBE" | b"PUNSUBSCRIBE", count) => count,
            _ => 1,
        };
        let mut answers = [Vec::new(), Vec::new()];
        for (side, answers) in [&mut self.redis, &mut self.engine].into_iter().zip(&mut answers) {
            answers.push(side.subscriber.ask(words));
            answers.extend((1..replies).map(|_| side.subscriber.read()));
            if words.len() == 1 && words[0].ends_with(b"UNSUBSCRIBE") {
                // Without names, the order of unsubscribing is not defined, and neither are the counts.
                answers.sort_by_key(|answer| answer.items().get(1).cloned());
                answers.iter_mut().for_each(|answer| {
                    if let Frame::List(_, items) = answer {
                        items.truncate(2);
                    }
                });
            }
        }
        match words[0].as_slice() {
            b"SUBSCRIBE" => self.channels.extend(words[1..].iter().cloned()),
            b"PSUBSCRIBE" => self.patterns.extend(words[1..].iter().cloned()),
            b"UNSUBSCRIBE" if words.len() == 1 => self.channels.clear(),
            b"PUNSUBSCRIBE" if words.len() == 1 => self.patterns.clear(),
            b"UNSUBSCRIBE" => self.channels.retain(|name| !words.contains(name)),
            b"PUNSUBSCRIBE" => self.patterns.retain(|name| !words.contains(name)),
            _ => {}
        }
        agree(words, &answers[0], &answers[1])
    }

    /// All commands of a connection, until the server closes it.
    fn mix(&mut self, commands: &[Words]) -> Check {
        let [redis, engine] = [self.redis.port, self.engine.port].map(|port| {
            let mut wire = Wire::connect(port);
            wire.ask(&["HELLO", self.protocol]);
            // Invalid UTF-8 in errors is replaced, as everywhere else in this comparison.
            String::from_utf8_lossy(&wire.read_until_closed(commands)).into_owned()
        });
        agree(&commands.join(&b";".to_vec()), &redis, &engine)
    }

    /// Ends open transactions, then compares every key.
    fn compare_keyspaces(&mut self) -> Check {
        for client in 0..2 {
            self.ask(client, &vec![b"DISCARD".to_vec()])?;
        }
        for key in KEYS {
            let ask = |command: &str, rest: &[&str]| -> Words {
                [&[command, key], rest].concat().iter().map(|word| word.as_bytes().to_vec()).collect()
            };
            for words in [
                ask("TYPE", &[]),
                ask("PTTL", &[]),
                ask("GET", &[]),
                ask("HGETALL", &[]),
                ask("LRANGE", &["0", "-1"]),
                ask("SMEMBERS", &[]),
                ask("ZRANGE", &["0", "-1", "WITHSCORES"]),
                ask("XRANGE", &["-", "+"]),
                vec![b"XINFO".to_vec(), b"STREAM".to_vec(), key.as_bytes().to_vec(), b"FULL".to_vec()],
            ] {
                self.ask(0, &words)?;
            }
        }
        // Commands may have been sent to other keys by mistake ("extra", "*"): every key must be compared.
        self.ask(0, &vec![b"KEYS".to_vec(), b"*".to_vec()])
    }
}

/// The command inside one of the test's scripts, or the command itself.
fn inner_command(words: &Words) -> Words {
    match words.as_slice() {
        [name, body, _, inner @ ..] if name == b"EVAL" && find(body, b"unpack(ARGV)") => inner.to_vec(),
        _ => words.clone(),
    }
}

fn find(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn sorted(name: &[u8], frame: &Frame) -> Frame {
    let Frame::List(sign, items) = frame else {
        return frame.clone();
    };
    let width = if name == b"HGETALL" { 2 } else { 1 };
    let mut groups: Vec<&[Frame]> = items.chunks(width).collect();
    groups.sort();
    Frame::List(*sign, groups.concat())
}

fn agree<T: PartialEq + fmt::Debug>(words: &Words, redis: &T, engine: &T) -> Check {
    if redis == engine {
        return Ok(());
    }
    Err(TestCaseError::fail(format!("{}\n  redis  {redis:?}\n  engine {engine:?}", Line(words))))
}

/// Replaces times and durations in replies about consumers, and the size of Redis's radix tree.
fn without_times(frame: &Frame) -> Frame {
    const UNKNOWN: [&[u8]; 4] = [b"idle", b"seen-time", b"radix-tree-keys", b"radix-tree-nodes"];
    let Frame::List(sign, items) = frame else {
        return frame.clone();
    };
    let mut masked: Vec<Frame> = items.iter().map(without_times).collect();
    // `id consumer time deliveries` or `id time deliveries`.
    let time_at = match items.as_slice() {
        [Frame::Bulk(_), Frame::Bulk(_), time, Frame::Line(_)] if time.int().is_some() => Some(2),
        [Frame::Bulk(_), time, Frame::Line(_)] if time.int().is_some() => Some(1),
        _ => None,
    };
    for (at, pair) in items.windows(2).enumerate() {
        if matches!(&pair[0], Frame::Bulk(name) if UNKNOWN.contains(&name.as_slice()))
            || time_at == Some(at + 1)
        {
            masked[at + 1] = Frame::Line("time".into());
        }
    }
    Frame::List(*sign, masked)
}

/// Compares times, which depend on when each server received the command.
fn close(words: &Words, redis: &Frame, engine: &Frame, slack: i64) -> Check {
    match (redis.int(), engine.int()) {
        (Some(a), Some(b)) if a >= 0 && b >= 0 && (a - b).abs() <= slack => Ok(()),
        _ => agree(words, redis, engine),
    }
}

/// Compares random replies by type and number of elements.
fn same_shape(words: &Words, redis: &Frame, engine: &Frame) -> Check {
    let shape = |frame: &Frame| match frame {
        Frame::Bulk(_) => ("bulk".to_owned(), 0),
        Frame::List(sign, items) => (sign.to_string(), items.len()),
        Frame::Line(line) => (line.clone(), 0),
    };
    agree(words, &shape(redis), &shape(engine))
}

struct Line<'a>(&'a Words);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|word| write!(f, "\"{}\" ", word.escape_ascii()))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Ask { client, words } => write!(f, "client {client}: {}", Line(words)),
            Step::Expire { words } => write!(f, "then wait: {}", Line(words)),
            Step::Walk { words } => write!(f, "walk: {}", Line(words)),
            Step::PopAny { key } => write!(f, "pop any of {}", key.escape_ascii()),
            Step::Listen { words } => write!(f, "subscriber: {}", Line(words)),
            Step::Block { begin, waiters, writes } => {
                begin.iter().try_for_each(|words| write!(f, "begin: {}; ", Line(words)))?;
                waiters.iter().try_for_each(|words| write!(f, "waiter: {}; ", Line(words)))?;
                writes.iter().try_for_each(|words| write!(f, "write: {}; ", Line(words)))
            }
            Step::Notify { flags } => write!(f, "notify-keyspace-events {flags:?}"),
            Step::Mix { commands } => {
                commands.iter().try_for_each(|words| write!(f, "mix: {}; ", Line(words)))
            }
        }
    }
}
