//! A connection to one server that reconnects by itself (C15).
//!
//! One task owns the connection: it connects, drives the I/O, detects the end and reconnects. Callers use a clone
//! of the live connection, or wait for one: until their deadline, or only shortly if an attempt to connect has failed
//! ([`deadline`](crate::connection::deadline)). They report faults with the number of the connection
//! that failed, so that a hundred failed calls cause one reconnect.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{RedisError, Value};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::address::Host;
use crate::connection::backoff::RECONNECT;
use crate::connection::deadline::{Deadline, Down};
use crate::connection::dial::{CONNECT_LIMIT, Dialer, Driver};
use crate::connection::history::{History, ServerInfo};
use crate::connection::logged::{Change, Logged};
use crate::connection::sentinel::Sentinels;
use crate::error::{Error, Result};
use crate::health::meter::Meter;
use crate::script::{self, Call};

/// How long a server whose call timed out may take to answer a PING before its connection is closed.
const PROBE_LIMIT: Duration = Duration::from_secs(2);

/// Which server to connect to.
#[derive(Clone)]
pub(crate) enum Target {
    /// Always this one.
    Host(Host),
    /// The master that the sentinels report, looked up for every connection.
    Master(Sentinels),
}

impl Target {
    /// The server to connect to now. Queries to sentinels have their own timeouts.
    pub(crate) async fn resolve(&self, dialer: &Dialer) -> Result<Host, String> {
        match self {
            Self::Host(host) => Ok(host.clone()),
            Self::Master(sentinels) => sentinels.master(dialer).await,
        }
    }

    /// Waits until there is another server to connect to, and returns why. A fixed server never changes.
    pub(crate) async fn moved(&self, dialer: &Dialer, current: &Host) -> String {
        match self {
            Self::Host(_) => std::future::pending().await,
            Self::Master(sentinels) => {
                let master = sentinels.other_master(dialer, current).await;
                format!("the sentinels report {master} as the master instead of {current}")
            }
        }
    }
}

/// A reconnecting connection to one server. Dropping it ends its task.
pub(crate) struct ServerConnection {
    state: watch::Receiver<State>,
    fault: mpsc::Sender<Fault>,
    follows_master: bool,
    task: AbortHandle,
}

#[derive(Clone)]
enum State {
    Down(Down),
    Up(Live),
}

/// A connection that was up when it was cloned.
#[derive(Clone)]
struct Live {
    number: u64,
    connection: MultiplexedConnection,
    /// Shared by the clones. It changes during a connection only if the server becomes a replica or a master.
    history: Arc<Mutex<History>>,
}

impl Live {
    fn new(number: u64, connection: MultiplexedConnection, history: History) -> Self {
        Self { number, connection, history: Arc::new(Mutex::new(history)) }
    }

    fn history(&self) -> History {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_history(&self, history: History) {
        *self.history.lock().unwrap_or_else(PoisonError::into_inner) = history;
    }

    /// Turns an error reply into an error. A server that refuses a write as a replica may have been a master before.
    fn refusal(&self, value: Value) -> Result<Value> {
        let Value::ServerError(error) = value else { return Ok(value) };
        let error = Error::from_server(&error);
        if error.is_readonly() {
            self.set_history(History::replica());
        }
        Err(error)
    }
}

enum Fault {
    /// The connection with this number is dead, or its server is no longer the master.
    Broken(u64),
    /// A call on this connection did not get an answer in time.
    Silent(u64),
}

impl ServerConnection {
    /// Starts connecting; must be called inside a tokio runtime.
    pub(crate) fn open(target: Target, dialer: Dialer, meter: Arc<Meter>) -> Self {
        let (state, watched) = watch::channel(State::Down(Down::Connecting("not connected yet".into())));
        // One pending report is enough: the task then checks the connection.
        let (fault, reports) = mpsc::channel(16);
        let follows_master = matches!(target, Target::Master(_));
        let counted = Counted::new(&meter);
        let keeper = ConnectionTask { target, dialer, meter, state, reports, _counted: counted };
        let task = tokio::spawn(keeper.run()).abort_handle();
        Self { state: watched, fault, follows_master, task }
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(*self.state.borrow(), State::Up(_))
    }

    /// Whether the last attempt to connect failed.
    pub(crate) fn is_away(&self) -> bool {
        matches!(*self.state.borrow(), State::Down(Down::Away(_)))
    }

    /// Waits for a connection.
    pub(crate) async fn ready(&self, deadline: Deadline) -> Result<()> {
        self.live(deadline).await.map(drop)
    }

    /// Runs one call as it is.
    pub(crate) async fn send(&self, call: &Call, deadline: Deadline) -> Result<Value> {
        let mut live = self.live(deadline).await?;
        let command = call.command_for(&live.history());
        let answer = timeout_at(deadline.at, live.connection.req_packed_command(&command)).await;
        self.classify(answer, live.number).and_then(|value| live.refusal(value))
    }

    /// Runs calls as one pipeline; each call has its own answer.
    pub(crate) async fn send_all(&self, calls: &[&Call], deadline: Deadline) -> Result<Vec<Result<Value>>> {
        let mut live = self.live(deadline).await?;
        let pipeline = script::pipeline(calls, &live.history());
        let answer =
            timeout_at(deadline.at, live.connection.req_packed_commands(&pipeline, 0, calls.len())).await;
        let values = self.classify(answer, live.number)?;
        Ok(values.into_iter().map(|value| live.refusal(value)).collect())
    }

    /// Runs one call. If the server does not know the script, sends the call again with the source.
    pub(crate) async fn call(&self, call: &Call, deadline: Deadline) -> Result<Value> {
        match self.send(call, deadline).await {
            Err(error) if error.is_noscript() && call.script().is_some() => {
                self.send(&call.with_source(), deadline).await
            }
            answer => answer,
        }
    }

    /// Runs calls in one round trip. Calls whose script the server does not know are sent again, with the source, in a
    /// second round trip.
    pub(crate) async fn call_all(&self, calls: &[&Call], deadline: Deadline) -> Result<Vec<Result<Value>>> {
        let mut answers = self.send_all(calls, deadline).await?;
        if let Some((sources, places)) = script::unknown(calls, &answers) {
            let sources: Vec<&Call> = sources.iter().collect();
            script::fill(&mut answers, places, self.send_all(&sources, deadline).await);
        }
        Ok(answers)
    }

    /// Reads the history of the server again.
    pub(crate) async fn read_history(&self, deadline: Deadline) -> Result<()> {
        let mut live = self.live(deadline).await?;
        let info = timeout_at(deadline.at, ServerInfo::read(&mut live.connection)).await;
        let info = self.classify(info, live.number)?;
        live.set_history(info.history);
        Ok(())
    }

    /// Whether a refusal to write means that the master has changed. If so, the task looks for the new one.
    pub(crate) fn moves_on(&self, error: &Error) -> bool {
        if !self.follows_master || !error.is_readonly() {
            return false;
        }
        if let State::Up(live) = &*self.state.borrow() {
            self.report(Fault::Broken(live.number));
        }
        true
    }

    async fn live(&self, deadline: Deadline) -> Result<Live> {
        if let State::Up(live) = &*self.state.borrow() {
            return Ok(live.clone());
        }
        let asked = Instant::now();
        let mut state = self.state.clone();
        loop {
            let down = match &*state.borrow_and_update() {
                State::Up(live) => return Ok(live.clone()),
                State::Down(down) => down.clone(),
            };
            // A state that changes while the call waits can shorten the wait.
            if !matches!(timeout_at(down.wait_until(deadline), state.changed()).await, Ok(Ok(()))) {
                return Err(Error::Unavailable { waited: asked.elapsed(), reason: down.reason().to_owned() });
            }
        }
    }

    fn classify<T>(
        &self,
        answer: Result<Result<T, RedisError>, tokio::time::error::Elapsed>,
        number: u64,
    ) -> Result<T> {
        match answer {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                self.report(Fault::Broken(number));
                Err(Error::interrupted(error))
            }
            Err(_) => {
                self.report(Fault::Silent(number));
                Err(Error::interrupted("no answer within the deadline"))
            }
        }
    }

    fn report(&self, fault: Fault) {
        // If the queue is full, the task has a pending report already.
        let _ = self.fault.try_send(fault);
    }
}

impl Drop for ServerConnection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A new connection to a server that can be used.
struct Dialled {
    host: Host,
    connection: MultiplexedConnection,
    driver: Driver,
    history: History,
}

/// The task behind a [`ServerConnection`].
struct ConnectionTask {
    target: Target,
    dialer: Dialer,
    meter: Arc<Meter>,
    state: watch::Sender<State>,
    reports: mpsc::Receiver<Fault>,
    _counted: Counted,
}

impl ConnectionTask {
    async fn run(mut self) {
        let mut backoff = RECONNECT.clone();
        let mut logged = Logged::Nothing;
        for number in 1.. {
            self.meter.connecting();
            let down = match self.dial().await {
                Ok(dialled) => {
                    backoff.reset();
                    if logged.connected() == Change::New {
                        tracing::info!(host = %dialled.host, "store connection restored");
                    }
                    Down::Connecting(self.serve(number, dialled).await.into())
                }
                Err(reason) => {
                    self.meter.connect_failed();
                    Down::Away(reason.into())
                }
            };
            let reason = down.reason();
            if logged.lost() == Change::New {
                tracing::warn!(reason, "store connection lost");
            }
            self.meter.last_error(reason);
            self.state.send_replace(State::Down(down));
            sleep(backoff.next()).await;
        }
    }

    /// Connects and checks that the server accepts the credentials, has loaded its data and, with sentinels, is
    /// the master.
    async fn dial(&self) -> Result<Dialled, String> {
        let host = self.target.resolve(&self.dialer).await?;
        let observed = |error: RedisError| format!("{host}: {error}");
        let dialling = async {
            let (connection, mut driver) = self.dialer.commands(&host).await.map_err(observed)?;
            let history = tokio::select! {
                checked = self.check(connection.clone()) => checked.map_err(observed)?,
                () = &mut driver => return Err(format!("{host}: closed the connection")),
            };
            Ok(Dialled { host: host.clone(), connection, driver, history })
        };
        let late = |_| Err(format!("{host}: no connection within {CONNECT_LIMIT:?}"));
        timeout(CONNECT_LIMIT, dialling).await.unwrap_or_else(late)
    }

    async fn check(&self, mut connection: MultiplexedConnection) -> Result<History, RedisError> {
        // A server whose ACL forbids PING can still be used.
        match connection.req_packed_command(&redis::cmd("PING")).await?.extract_error() {
            Err(error) if error.code() == Some("NOPERM") => {}
            pong => drop(pong?),
        }
        if matches!(self.target, Target::Master(_)) {
            let role: Vec<Value> = redis::cmd("ROLE").query_async(&mut connection).await?;
            let role: String = redis::from_redis_value(role.into_iter().next().unwrap_or_default())?;
            if role != "master" {
                return Err(std::io::Error::other(format!(
                    "the server that the sentinels reported as the master is a {role}"
                ))
                .into());
            }
        }
        let info = ServerInfo::read(&mut connection).await?;
        self.meter.server(&info.server);
        if let Some(policy) = &info.evicts
            && self.meter.evicts(policy) == Change::New
        {
            let remedy = "set maxmemory-policy noeviction";
            tracing::warn!(policy, remedy, "store deletes keys when its memory is full, state may be lost");
        }
        Ok(info.history)
    }

    /// Serves calls with a connection until it ends, and returns the reason.
    async fn serve(&mut self, number: u64, dialled: Dialled) -> String {
        let Dialled { host, connection, mut driver, history } = dialled;
        let _up = self.meter.connected();
        self.state.send_replace(State::Up(Live::new(number, connection.clone(), history)));
        let (target, dialer) = (self.target.clone(), self.dialer.clone());
        let mut moved = std::pin::pin!(target.moved(&dialer, &host));
        let mut probe = None;
        loop {
            tokio::select! {
                reason = &mut moved => return reason,
                () = &mut driver => return "connection closed".to_owned(),
                Some(fault) = self.reports.recv() => match fault {
                    Fault::Broken(broken) if broken == number => return "connection broken".to_owned(),
                    Fault::Silent(silent) if silent == number && probe.is_none() => {
                        probe = Some(Box::pin(ping(connection.clone())));
                    }
                    _ => {}
                },
                answered = async { probe.as_mut().expect("guarded").await }, if probe.is_some() => {
                    if !answered {
                        return format!("no answer to a PING within {PROBE_LIMIT:?}");
                    }
                    probe = None;
                }
            }
        }
    }
}

async fn ping(mut connection: MultiplexedConnection) -> bool {
    let ping = redis::cmd("PING");
    matches!(timeout(PROBE_LIMIT, connection.req_packed_command(&ping)).await, Ok(Ok(_)))
}

/// Counts a connection until its task ends.
struct Counted(Arc<Meter>);

impl Counted {
    fn new(meter: &Arc<Meter>) -> Self {
        meter.connection_opened();
        Self(meter.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connection_closed();
    }
}
