//! The embedded engine behind the same calls as a server.

use std::ops::Range;

use hob_engine::{Connection, Engine};
use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::script::{self, Call};

/// An engine in this process. A call is answered as soon as it runs, so the deadline only limits how long it waits for
/// another client's script. A call that timed out was not executed.
pub(crate) struct Embedded {
    connection: Connection,
    sweeper: Option<AbortHandle>,
}

impl Embedded {
    /// An engine whose expiry sweep the caller runs.
    pub(crate) fn over(engine: &Engine) -> Self {
        Self { connection: engine.connection(), sweeper: None }
    }

    /// An engine owned by this handle, which also removes expired keys.
    pub(crate) fn owned(engine: Engine) -> Self {
        let connection = engine.connection();
        let sweeper = tokio::spawn(async move { engine.keep_swept().await }).abort_handle();
        Self { connection, sweeper: Some(sweeper) }
    }

    /// Runs a call made at the start of `time`, waiting at most until its end.
    pub(crate) async fn call(&self, call: &Call, time: Range<Instant>) -> Result<Value> {
        match self.send(&call.command, &time).await {
            Err(error) if error.is_noscript() && call.script().is_some() => {
                self.send(&call.with_source(), &time).await
            }
            answer => answer,
        }
    }

    pub(crate) async fn call_all(&self, calls: &[Call], time: Range<Instant>) -> Vec<Result<Value>> {
        let calls: Vec<&Call> = calls.iter().collect();
        let mut answers = match self.send_all(&script::pipeline(calls.iter().copied()), &time).await {
            Ok(answers) => answers,
            Err(error) => return calls.iter().map(|_| Err(error.clone())).collect(),
        };
        if let Some((sources, places)) = script::unknown(&calls, &answers) {
            script::fill(&mut answers, places, self.send_all(&sources, &time).await);
        }
        answers
    }

    async fn send(&self, command: &Cmd, time: &Range<Instant>) -> Result<Value> {
        let answer = self.connection.until(time.end).req_packed_command(command).await;
        answer.map_err(|error| refusal(error, time.start))
    }

    async fn send_all(&self, commands: &Pipeline, time: &Range<Instant>) -> Result<Vec<Result<Value>>> {
        let refusal = |error| refusal(error, time.start);
        let count = commands.len();
        let values = self.connection.until(time.end).req_packed_commands(commands, 0, count).await;
        Ok(values.map_err(refusal)?.into_iter().map(|value| value.extract_error().map_err(refusal)).collect())
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if let Some(sweeper) = &self.sweeper {
            sweeper.abort();
        }
    }
}

fn refusal(error: RedisError, asked: Instant) -> Error {
    match redis::ServerError::try_from(error) {
        Ok(error) if error.code() == "BUSY" => {
            let reason = "a script of another client is running".to_owned();
            Error::Unavailable { waited: asked.elapsed(), reason }
        }
        Ok(error) => Error::from_server(&error),
        Err(error) => Error::reply(error),
    }
}
