//! Commands that are sent together, and their replies.

use hob_store::{Call, Cmd, FromRedisValue, Store, Value, cmd};

use crate::error::Error;

/// Commands for one server, in the order of their replies.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    names: Vec<&'static str>,
    commands: Vec<Cmd>,
}

/// A reply, `None` where the key has another type or has moved to another node since it was scanned.
pub(crate) type Reply = Option<Value>;

impl Batch {
    pub(crate) fn with_capacity(commands: usize) -> Batch {
        Batch { names: Vec::with_capacity(commands), commands: Vec::with_capacity(commands) }
    }

    /// Adds a command; its arguments follow.
    pub(crate) fn cmd(&mut self, name: &'static str) -> &mut Cmd {
        let index = self.commands.len();
        self.names.push(name);
        self.commands.push(cmd(name));
        &mut self.commands[index]
    }

    /// Sends commands that read keys. A refusal is an error unless it was caused by a change of the key itself: data
    /// that cannot be read, for example because a permission is missing, must not count as correct.
    pub(crate) async fn read(self, store: &Store) -> Result<Vec<Reply>, Error> {
        let replies = self.send(store).await;
        replies.map(|(command, reply)| readable(command, reply)).collect()
    }

    /// Sends commands. All of them have to succeed.
    pub(crate) async fn execute(self, store: &Store) -> Result<Vec<Value>, Error> {
        let replies = self.send(store).await;
        replies.map(|(command, reply)| reply.map_err(|source| Error::Command { command, source })).collect()
    }

    async fn send(
        self,
        store: &Store,
    ) -> impl Iterator<Item = (&'static str, hob_store::Result<Value>)> + use<> {
        let calls: Vec<Call> = self.commands.into_iter().map(Call::from).collect();
        let replies = if calls.is_empty() { Vec::new() } else { store.batch(&calls).await };
        self.names.into_iter().zip(replies)
    }
}

fn readable(command: &'static str, reply: hob_store::Result<Value>) -> Result<Reply, Error> {
    match reply {
        Ok(reply) => Ok(Some(reply)),
        Err(hob_store::Error::Refused { code, .. }) if matches!(&*code, "WRONGTYPE" | "MOVED" | "ASK") => {
            Ok(None)
        }
        // Some servers that speak Redis's protocol do not implement MEMORY USAGE.
        Err(hob_store::Error::Refused { detail, .. })
            if command == "MEMORY" && detail.contains("unknown") =>
        {
            Ok(None)
        }
        Err(source) => Err(Error::Command { command, source }),
    }
}

/// The next reply as a value of this type.
pub(crate) fn next<T: FromRedisValue>(replies: &mut impl Iterator<Item = Reply>) -> Option<T> {
    replies.next().flatten().and_then(decode)
}

pub(crate) fn decode<T: FromRedisValue>(reply: Value) -> Option<T> {
    T::from_redis_value(reply).ok()
}
