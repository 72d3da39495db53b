//! The embedded store as the handle sees it: the same calls, without a connection to lose.

use hob_engine::{Connection, Engine};
use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::task::AbortHandle;

use crate::error::{Error, Result};
use crate::script::{self, Call};

/// An engine in this process. Its answers are there when it returns: no deadline can pass meanwhile, and a
/// script that runs too long is ended by the engine's own limit.
pub(crate) struct Embedded {
    connection: Connection,
    sweeper: Option<AbortHandle>,
}

impl Embedded {
    /// An engine that somebody else looks after.
    pub(crate) fn over(engine: &Engine) -> Self {
        Self { connection: engine.connection(), sweeper: None }
    }

    /// An engine of our own: expired keys are swept for as long as the handle lives.
    pub(crate) fn owned(engine: Engine) -> Self {
        let connection = engine.connection();
        let sweeper = tokio::spawn(async move { engine.keep_swept().await }).abort_handle();
        Self { connection, sweeper: Some(sweeper) }
    }

    pub(crate) async fn call(&self, call: &Call) -> Result<Value> {
        match self.send(&call.command).await {
            Err(error) if error.is_noscript() && call.script().is_some() => {
                self.send(&call.with_source()).await
            }
            answer => answer,
        }
    }

    pub(crate) async fn call_all(&self, calls: &[Call]) -> Vec<Result<Value>> {
        let calls: Vec<&Call> = calls.iter().collect();
        let mut answers = match self.send_all(&script::pipeline(calls.iter().copied())).await {
            Ok(answers) => answers,
            Err(error) => return calls.iter().map(|_| Err(error.clone())).collect(),
        };
        if let Some((sources, places)) = script::unknown(&calls, &answers) {
            script::fill(&mut answers, places, self.send_all(&sources).await);
        }
        answers
    }

    async fn send(&self, command: &Cmd) -> Result<Value> {
        self.connection.clone().req_packed_command(command).await.map_err(refusal)
    }

    async fn send_all(&self, commands: &Pipeline) -> Result<Vec<Result<Value>>> {
        let count = commands.len();
        let values =
            self.connection.clone().req_packed_commands(commands, 0, count).await.map_err(refusal)?;
        Ok(values.into_iter().map(|value| value.extract_error().map_err(refusal)).collect())
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if let Some(sweeper) = &self.sweeper {
            sweeper.abort();
        }
    }
}

fn refusal(error: RedisError) -> Error {
    match redis::ServerError::try_from(error) {
        Ok(error) => Error::from_server(&error),
        Err(error) => Error::reply(error),
    }
}
