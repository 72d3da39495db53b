//! The interface for redis-rs, without a socket and without encoding to bytes.

use std::fmt;

use redis::aio::ConnectionLike;
use redis::{Arg, Cmd, Pipeline, RedisFuture, RedisResult, Value};
use tokio::time::Instant;

use super::request::RequestParser;
use crate::engine::Engine;
use crate::number::write_float;
use crate::reply::Reply;

/// A handle to an engine that implements redis-rs's connection trait. Clones may be used concurrently, so commands that
/// change the state of a connection (WATCH, SUBSCRIBE, MONITOR…) are refused; an atomic [`Pipeline`] runs as a
/// transaction. A blocking command (BLPOP…) waits without blocking its thread; dropping its future ends the wait.
///
/// While a client's script runs, a call waits without blocking its thread, and then fails with the code `BUSY`. This
/// needs a tokio runtime with timers.
#[derive(Clone)]
pub struct Connection {
    engine: Engine,
    deadline: Option<Instant>,
}

impl Connection {
    pub(crate) fn new(engine: Engine) -> Connection {
        Connection { engine, deadline: None }
    }

    /// The same handle, whose calls wait for a script until this deadline at most. A call that then fails with `BUSY`
    /// was not executed.
    #[must_use]
    pub fn until(&self, deadline: Instant) -> Connection {
        Connection { deadline: Some(deadline), ..self.clone() }
    }

    /// Runs one command; like `req_packed_command`, but without an allocation.
    pub async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        self.run(command).await?.extract_error()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(self.send(command))
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            if pipeline.is_transaction() {
                return Ok(vec![self.run_transaction(pipeline).await?]);
            }
            let mut values = Vec::with_capacity(count);
            for (index, command) in pipeline.cmd_iter().enumerate() {
                let value = self.run(command).await;
                if (offset..offset + count).contains(&index) {
                    values.push(value?);
                }
            }
            Ok(values)
        })
    }

    fn get_db(&self) -> i64 {
        0
    }
}

impl Connection {
    async fn run(&self, command: &Cmd) -> RedisResult<Value> {
        let mut session = self.engine.handle_session();
        let immediate = with_words(command, |words| self.engine.try_run(&mut session, words));
        let reply = match immediate {
            Some(reply) => reply,
            None => {
                let words = owned_words(command);
                let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                self.engine.run(&mut session, &words, self.deadline).await
            }
        };
        match self.engine.pending(&mut session) {
            Some(mut pending) => to_value(pending.reply().await),
            None => to_value(reply),
        }
    }

    async fn run_transaction(&self, pipeline: &Pipeline) -> RedisResult<Value> {
        let owned: Vec<Vec<Vec<u8>>> = pipeline.cmd_iter().map(owned_words).collect();
        let queue: Vec<Vec<&[u8]>> =
            owned.iter().map(|words| words.iter().map(Vec::as_slice).collect()).collect();
        let mut session = self.engine.handle_session();
        let reply = self.engine.run_transaction(&mut session, &queue, self.deadline).await;
        match to_value(reply)? {
            error @ Value::ServerError(_) => error.extract_error(),
            replies => Ok(replies),
        }
    }
}

fn owned_words(command: &Cmd) -> Vec<Vec<u8>> {
    with_words(command, |words| words.iter().map(|word| word.to_vec()).collect())
}

/// Calls `run` with a command's arguments, on the stack if there are few.
fn with_words<R>(command: &Cmd, run: impl FnOnce(&[&[u8]]) -> R) -> R {
    const MAX_ON_STACK: usize = 16;
    let mut on_stack: [&[u8]; MAX_ON_STACK] = [b""; MAX_ON_STACK];
    let mut count = 0;
    for word in command.args_iter() {
        match word {
            Arg::Simple(word) if count < MAX_ON_STACK => on_stack[count] = word,
            _ => return with_packed_words(command, run),
        }
        count += 1;
    }
    run(&on_stack[..count])
}

/// For commands with many arguments, or with a cursor, which only the packed form contains.
fn with_packed_words<R>(command: &Cmd, run: impl FnOnce(&[&[u8]]) -> R) -> R {
    let packed = command.get_packed_command();
    let mut parser = RequestParser::new(packed.len(), packed.len());
    parser.parse(&packed).ok().flatten().expect("redis-rs packs whole, well-formed commands");
    run(&parser.words(&packed))
}

/// A reply as redis-rs would read it from a RESP2 connection.
fn to_value(reply: Reply) -> RedisResult<Value> {
    let values = |items: Vec<Reply>| items.into_iter().map(to_value).collect::<RedisResult<Vec<_>>>();
    Ok(match reply {
        Reply::Null | Reply::NullArray | Reply::Nothing => Value::Nil,
        Reply::Int(value) => Value::Int(value),
        Reply::Bool(value) => Value::Int(value.into()),
        Reply::BigNumber(digits) => Value::BulkString(digits.into_bytes()),
        Reply::Verbatim { text, .. } => Value::BulkString(text),
        Reply::Bulk(bytes) => Value::BulkString(bytes),
        Reply::Text(text) => Value::BulkString(text.into_bytes()),
        Reply::Double(value) => Value::BulkString(write_float(value).into_bytes()),
        Reply::Simple(text) if text == "OK" => Value::Okay,
        Reply::Simple(text) => Value::SimpleString(text.into_owned()),
        // Only redis-rs can create its errors, and only from bytes.
        Reply::Error(text) => redis::parse_redis_value(format!("-{text}\r\n").as_bytes())?,
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) | Reply::Several(items) => {
            Value::Array(values(items)?)
        }
        Reply::Map(pairs) | Reply::Pairs(pairs) => {
            Value::Array(values(pairs.into_iter().flat_map(|(key, value)| [key, value]).collect())?)
        }
        Reply::Keyed(pairs) => {
            let pair = |(key, value)| Ok(Value::Array(values(vec![key, value])?));
            Value::Array(pairs.into_iter().map(pair).collect::<RedisResult<Vec<_>>>()?)
        }
        Reply::Scored(pairs) => Value::Array(
            pairs
                .into_iter()
                .flat_map(|(member, score)| [member, write_float(score).into_bytes()])
                .map(Value::BulkString)
                .collect(),
        ),
    })
}
