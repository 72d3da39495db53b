//! Clients that block on both servers, and are then served, or unblocked by another client.

use hob_testkit::wait_until;

use super::{Check, Pair, Side, agree};
use crate::generate::Words;
use crate::wire::{Frame, Wire};

/// A client that sent a blocking command.
struct Waiter {
    wire: Wire,
    id: i64,
    /// Its reply, if it did not block.
    reply: Option<Frame>,
}

impl Side {
    fn blocked_clients(&mut self) -> usize {
        let Frame::Bulk(info) = self.control.ask(&["INFO", "clients"]) else { panic!("INFO returns a text") };
        let info = String::from_utf8_lossy(&info).into_owned();
        let count = info.lines().find_map(|line| line.strip_prefix("blocked_clients:")?.parse().ok());
        count.expect("INFO has the number of blocked clients")
    }

    /// Sends a blocking command over a new connection, until it blocks or has a reply.
    fn begin_wait(&mut self, words: &Words, protocol: &str) -> Waiter {
        let mut wire = Wire::connect(self.port);
        wire.ask(&["HELLO", protocol]);
        let id = wire.ask(&["CLIENT", "ID"]).int().expect("CLIENT ID returns an integer");
        let blocked = self.blocked_clients();
        wire.send(words);
        let replied = wait_until("the client to block", || {
            let replied = wire.has_reply();
            (replied || self.blocked_clients() > blocked).then_some(replied)
        });
        let reply = replied.then(|| wire.read());
        Waiter { wire, id, reply }
    }

    /// The reply of a client, and whether it had to be unblocked.
    fn end_wait(&mut self, mut waiter: Waiter) -> (bool, Frame) {
        if let Some(reply) = waiter.reply {
            return (false, reply);
        }
        let unblocked = self.control.ask(&["CLIENT", "UNBLOCK", &waiter.id.to_string()]);
        (unblocked.int() == Some(1), waiter.wire.read())
    }
}

impl Pair {
    pub(super) fn block(&mut self, begin: Option<&Words>, waiters: &[Words], writes: &[Words]) -> Check {
        if self.queues[0].is_some() {
            return Ok(());
        }
        if let Some(words) = begin {
            self.ask(0, words)?;
        }
        let protocol = self.protocol;
        let [redis, engine] = [&mut self.redis, &mut self.engine]
            .map(|side| waiters.iter().map(|words| side.begin_wait(words, protocol)).collect::<Vec<_>>());
        for (words, (redis, engine)) in waiters.iter().zip(redis.iter().zip(&engine)) {
            agree(words, &redis.reply, &engine.reply)?;
        }
        for words in writes {
            self.ask(0, words)?;
        }
        for (words, (redis, engine)) in waiters.iter().zip(redis.into_iter().zip(engine)) {
            agree(words, &self.redis.end_wait(redis), &self.engine.end_wait(engine))?;
        }
        Ok(())
    }
}
