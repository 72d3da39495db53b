//! The engine's behaviour beyond Redis's replies: its interfaces, limits and strict mode.

mod blocking;
mod busy;
mod clients;
mod documentation;
mod expiry;
mod hostile;
mod interface;
mod introspection;
mod libraries;
mod limits;
mod lua_libraries;
mod notifications;
mod password;
mod script;
mod server;
mod streams;
mod strict;

use hob_engine::{Engine, Reply, SubscriberLimits};

/// Runs a command written as arguments separated by spaces.
fn run(engine: &Engine, line: &str) -> Reply {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    engine.execute(&words)
}

fn eval(engine: &Engine, script: &str, keys: &[&str]) -> Reply {
    let count = keys.len().to_string();
    let mut words: Vec<&[u8]> = vec![b"EVAL", script.as_bytes(), count.as_bytes()];
    words.extend(keys.iter().map(|key| key.as_bytes()));
    engine.execute(&words)
}

/// Limits of a subscriber with a small queue.
fn messages(messages: usize) -> SubscriberLimits {
    SubscriberLimits { messages, ..SubscriberLimits::default() }
}

#[track_caller]
fn error(reply: Reply) -> String {
    match reply {
        Reply::Error(text) => text.into_owned(),
        other => panic!("expected an error, got {other:?}"),
    }
}
