//! Commands that are sent together, and their replies.

use hob_store::{Call, Cmd, FromRedisValue, Store, Value, cmd};

use crate::error::Error;
use crate::master::{IdleTimes, Master};

/// Commands for one server, in the order of their replies.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    names: Vec<&'static str>,
    commands: Vec<Cmd>,
}

/// The reply to a command that reads a key.
#[derive(Debug)]
pub(crate) enum Reply {
    Value(Value),
    /// The key has another type, or the server lacks a command that no check needs.
    Absent,
    /// The server did not let the client read the key, for this reason.
    Refused(String),
}

/// The store sends at most this many commands in one round trip. Within a round trip no other command of the connection
/// comes between.
const ROUND_TRIP: usize = 1_000;

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

    /// Sends commands that read keys. A refusal that concerns one key is a reply, so that the caller can count the key: data
    /// that could not be read must not count as correct. Any other refusal is an error.
    pub(crate) async fn read(self, master: &Master) -> Result<Vec<Reply>, Error> {
        let replies = match master.idle_times() {
            IdleTimes::Reset => self.send(master.store()).await,
            IdleTimes::Kept => self.send_without_touching(master.store()).await,
        };
        replies.into_iter().map(|(command, reply)| readable(command, reply)).collect()
    }

    /// Sends commands. All of them have to succeed.
    pub(crate) async fn execute(self, store: &Store) -> Result<Vec<Value>, Error> {
        let replies = self.send(store).await;
        let succeeded = |(command, reply): Answer| reply.map_err(|source| Error::Command { command, source });
        replies.into_iter().map(succeeded).collect()
    }

    async fn send(self, store: &Store) -> Vec<Answer> {
        let calls: Vec<Call> = self.commands.into_iter().map(Call::from).collect();
        let replies = if calls.is_empty() { Vec::new() } else { store.batch(&calls).await };
        self.names.into_iter().zip(replies).collect()
    }

    /// The connection may be shared with programs whose reads should count as use, so each round trip turns the setting on
    /// and off again.
    async fn send_without_touching(self, store: &Store) -> Vec<Answer> {
        let switch = |state: &str| {
            let mut command = cmd("CLIENT");
            command.arg("NO-TOUCH").arg(state);
            Call::from(command)
        };
        let mut answers = Vec::with_capacity(self.names.len());
        let mut commands = self.commands.into_iter();
        let mut names = self.names.into_iter();
        while commands.len() > 0 {
            let mut calls = vec![switch("ON")];
            calls.extend(commands.by_ref().take(ROUND_TRIP - 2).map(Call::from));
            calls.push(switch("OFF"));
            let mut replies = store.batch(&calls).await;
            replies.pop();
            answers.extend(names.by_ref().zip(replies.drain(1..)).take(calls.len() - 2));
        }
        answers
    }
}

type Answer = (&'static str, hob_store::Result<Value>);

fn readable(command: &'static str, reply: hob_store::Result<Value>) -> Result<Reply, Error> {
    let (code, detail) = match reply {
        Ok(reply) => return Ok(Reply::Value(reply)),
        Err(hob_store::Error::Refused { code, detail }) => (code, detail),
        Err(source) => return Err(Error::Command { command, source }),
    };
    match &*code {
        "WRONGTYPE" => Ok(Reply::Absent),
        // The report can do without MEMORY USAGE, which some servers that speak Redis's protocol do not implement.
        _ if command == "MEMORY" && (code == "NOPERM" || detail.contains("unknown")) => Ok(Reply::Absent),
        // The stream was deleted after the scan.
        _ if command == "XINFO" && detail.contains("no such key") => Ok(Reply::Absent),
        "NOPERM" => Ok(Reply::Refused(format!("{command}: NOPERM {detail}"))),
        "MOVED" | "ASK" | "TRYAGAIN" => {
            Ok(Reply::Refused("moved to another server during the scan".to_owned()))
        }
        _ => Err(Error::Command { command, source: hob_store::Error::Refused { code, detail } }),
    }
}

/// The next reply as a value of this type. If the server refused it, or it has another form, the reason is kept.
pub(crate) fn next<T: FromRedisValue>(
    replies: &mut impl Iterator<Item = Reply>,
    refused: &mut Option<String>,
) -> Option<T> {
    let value = value(replies.next()?, refused)?;
    let decoded = decode(value);
    if decoded.is_none() {
        refused.get_or_insert_with(|| "the server sent an unexpected reply".to_owned());
    }
    decoded
}

/// The value of a reply; `None` also for a nil reply, the key was then deleted after the scan.
pub(crate) fn value(reply: Reply, refused: &mut Option<String>) -> Option<Value> {
    match reply {
        Reply::Value(Value::Nil) | Reply::Absent => None,
        Reply::Value(value) => Some(value),
        Reply::Refused(reason) => {
            refused.get_or_insert(reason);
            None
        }
    }
}

pub(crate) fn decode<T: FromRedisValue>(reply: Value) -> Option<T> {
    T::from_redis_value(reply).ok()
}
