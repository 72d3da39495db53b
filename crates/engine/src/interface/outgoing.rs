//! What is sent to a client: replies, and messages of its subscriptions.

use super::encode::encode;
use crate::hub::{Delivery, MessageReceiver};
use crate::reply::Reply;
use crate::session::{Protocol, Session};

/// Replies are sent once they reach this size, so that those of a long pipeline do not accumulate.
pub(super) const MAX_OUTPUT_BYTES: usize = 64 * 1024;

pub(super) struct Outgoing {
    pub(super) incoming: MessageReceiver,
    /// Bytes that were not sent yet.
    pub(super) output: Vec<u8>,
}

impl Outgoing {
    pub(super) fn new(incoming: MessageReceiver) -> Outgoing {
        Outgoing { incoming, output: Vec::new() }
    }

    pub(super) fn is_full(&self) -> bool {
        self.output.len() >= MAX_OUTPUT_BYTES
    }

    /// Adds the reply to a command before which the session had this number of subscriptions.
    ///
    /// In RESP3 a client may publish to a channel that it subscribes to. As in Redis 7.0, it gets the message first. A
    /// message must not come before the confirmation of its subscription, so a command that changes subscriptions is
    /// answered first.
    pub(super) fn add_reply(&mut self, reply: &Reply, session: &mut Session, subscriptions_before: usize) {
        let same_subscriptions = session.subscriptions() == subscriptions_before;
        if session.protocol == Protocol::Resp3
            && subscriptions_before > 0
            && same_subscriptions
            && let Some(delivery) = self.incoming.try_recv()
        {
            self.add_messages(delivery, session);
        }
        encode(reply, session.protocol, &mut self.output);
    }

    /// Adds a message, and those that have arrived after it.
    pub(super) fn add_messages(&mut self, delivery: Delivery, session: &mut Session) {
        let mut next = Some(delivery);
        while let Some(delivery) = next {
            let reply = match delivery {
                Delivery::Message { channel, pattern: None, payload } => {
                    push([b"message".as_slice(), &channel, &payload])
                }
                Delivery::Message { channel, pattern: Some(pattern), payload } => {
                    push([b"pmessage".as_slice(), &pattern, &channel, &payload])
                }
                Delivery::MonitorLine(line) => {
                    Reply::Simple(String::from_utf8_lossy(&line).into_owned().into())
                }
            };
            encode(&reply, session.protocol, &mut self.output);
            next = if self.is_full() { None } else { self.incoming.try_recv() };
        }
        // As in Redis, a subscriber that cannot keep up is disconnected.
        session.closing |= self.incoming.has_missed();
    }
}

fn push<const N: usize>(parts: [&[u8]; N]) -> Reply {
    Reply::Push(parts.map(Reply::bulk).into())
}
