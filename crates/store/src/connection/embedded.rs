//! The embedded engine, with the same interface as a server.

use std::ops::Range;

use hob_engine::{Connection, Engine, Event, Subscriber};
use redis::aio::ConnectionLike;
use redis::{RedisError, Value};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::bus::{BusEvent, ChannelFilter};
use crate::connection::history::History;
use crate::error::{Error, Result};
use crate::health::meter::Meter;
use crate::script::{self, Call};
use crate::store::Store;

impl Store {
    /// The store in an engine of this process. The caller runs the engine's expiry sweep.
    #[must_use]
    pub fn embedded(engine: &Engine) -> Self {
        let connection = engine.connection();
        let history = History::unknown();
        Self::on_engine(Embedded { engine: engine.clone(), connection, history, sweeper: None }, Meter::new())
    }
}

/// An engine in this process. A call returns its answer as soon as it has run, so the deadline limits only how long the
/// call waits for another client's script. A call that timed out was not executed.
pub(crate) struct Embedded {
    engine: Engine,
    connection: Connection,
    history: History,
    sweeper: Option<AbortHandle>,
}

impl Embedded {
    /// A new engine. This handle also removes its expired keys.
    pub(crate) fn open() -> Result<Self> {
        let engine = Engine::default();
        let swept = engine.clone();
        let sweeper = tokio::spawn(async move { swept.keep_swept().await }).abort_handle();
        Ok(Self {
            connection: engine.connection(),
            engine,
            history: History::unknown(),
            sweeper: Some(sweeper),
        })
    }

    /// Runs a call made at the start of `time`, waiting at most until its end.
    pub(crate) async fn call(&self, call: &Call, time: Range<Instant>) -> Result<Value> {
        match self.send(call, &time).await {
            Err(error) if error.is_noscript() && call.script().is_some() => {
                self.send(&call.with_source(), &time).await
            }
            answer => answer,
        }
    }

    pub(crate) async fn call_all(&self, calls: &[Call], time: Range<Instant>) -> Vec<Result<Value>> {
        let calls: Vec<&Call> = calls.iter().collect();
        let mut answers = match self.send_all(&calls, &time).await {
            Ok(answers) => answers,
            Err(error) => return calls.iter().map(|_| Err(error.clone())).collect(),
        };
        if let Some((sources, places)) = script::unknown(&calls, &answers) {
            let sources: Vec<&Call> = sources.iter().collect();
            script::fill(&mut answers, places, self.send_all(&sources, &time).await);
        }
        answers
    }

    pub(crate) fn subscribe(&self, channels: &[ChannelFilter]) -> EmbeddedReceiver {
        let mut subscriber = self.engine.subscriber();
        for filter in channels {
            match filter {
                ChannelFilter::Channel(name) => subscriber.subscribe(name),
                ChannelFilter::Pattern(pattern) => subscriber.psubscribe(pattern),
            }
        }
        EmbeddedReceiver(Box::new(subscriber))
    }

    async fn send(&self, call: &Call, time: &Range<Instant>) -> Result<Value> {
        let command = call.command_for(&self.history);
        let answer = self.connection.until(time.end).send(&command).await;
        answer.map_err(|error| refusal(error, time.start))
    }

    async fn send_all(&self, calls: &[&Call], time: &Range<Instant>) -> Result<Vec<Result<Value>>> {
        let refusal = |error| refusal(error, time.start);
        let pipeline = script::pipeline(calls, &self.history);
        let values = self.connection.until(time.end).req_packed_commands(&pipeline, 0, calls.len()).await;
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

/// Receives messages from the engine.
#[derive(Debug)]
pub(crate) struct EmbeddedReceiver(Box<Subscriber>);

impl EmbeddedReceiver {
    pub(crate) async fn next(&mut self) -> Option<BusEvent> {
        self.0.next().await.map(|event| match event {
            Event::Message { channel, pattern, payload } => BusEvent::Message { channel, pattern, payload },
            Event::Missed(_) => BusEvent::Missed,
        })
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
