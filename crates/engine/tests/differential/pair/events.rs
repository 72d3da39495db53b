//! Keyspace notifications of both servers.

use super::{Check, Pair, Side, agree};
use crate::generate::{KEYS, Words};
use crate::wire::{Frame, Wire};

const MARKER: &str = "__key:marker";

/// A connection that gets all notifications.
pub(super) fn subscribe(port: u16, protocol: &str) -> Wire {
    let mut wire = Wire::connect(port);
    wire.ask(&["HELLO", protocol]);
    wire.ask(&["PSUBSCRIBE", "__key*"]);
    wire
}

impl Side {
    /// The notifications since the last call.
    fn events(&mut self) -> Vec<Frame> {
        self.control.ask(&["PUBLISH", MARKER, ""]);
        let is = |frame: &Frame, at: usize, text: &str| matches!(frame.items().get(at), Some(Frame::Bulk(bytes)) if bytes == text.as_bytes());
        let events = std::iter::from_fn(|| Some(self.events.read()).filter(|event| !is(event, 2, MARKER)));
        // When a key expires depends on when each server removes it.
        events.filter(|event| !is(event, 3, "expired") && !is(event, 2, "__keyevent@0__:expired")).collect()
    }
}

impl Pair {
    pub(super) fn notify(&mut self, flags: &str) -> Check {
        self.remove_expired();
        let words = ["CONFIG", "SET", "notify-keyspace-events", flags];
        let [redis, engine] = [&mut self.redis, &mut self.engine].map(|side| side.control.ask(&words));
        self.notified |= !flags.is_empty();
        agree(&words.map(|word| word.as_bytes().to_vec()).into(), &redis, &engine)?;
        let words = ["CONFIG", "GET", "notify-keyspace-events"];
        let [redis, engine] = [&mut self.redis, &mut self.engine].map(|side| side.control.ask(&words));
        agree(&words.map(|word| word.as_bytes().to_vec()).into(), &redis, &engine)
    }

    /// Makes both servers remove expired keys. Redis reports `del` for one that it happens to replace before that.
    pub(super) fn remove_expired(&mut self) {
        let words = [&["EXISTS"], &KEYS[..]].concat();
        self.redis.control.ask(&words);
        self.engine.control.ask(&words);
    }

    /// Both servers must have sent the same notifications.
    pub(super) fn compare_events(&mut self, words: &Words) -> Check {
        if !self.notified {
            return Ok(());
        }
        let (redis, engine) = (self.redis.events(), self.engine.events());
        agree(words, &redis, &engine)
    }
}
