//! The handle to the store that all of Hob uses.

use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{FromRedisValue, Value};
use tokio::time::{Instant, sleep};

use crate::address::{Address, Host};
use crate::bus::{Bus, PubSub};
use crate::clock::Clock;
use crate::connection::cluster::Cluster;
use crate::connection::deadline::{AWAY_LIMIT, Deadline};
use crate::connection::dial::Dialer;
use crate::connection::embedded::Embedded;
use crate::connection::route::first_key;
use crate::connection::sentinel::Sentinels;
use crate::connection::server::{ServerConnection, Target};
use crate::error::{Error, Result};
use crate::health::degraded::{Refusal, System};
use crate::health::meter::{Meter, OperationKind, is_failure};
use crate::health::{Fault, Health};
use crate::script::Call;

/// How long a call may take unless its handle has another deadline.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(2);
/// The maximum number of commands in one round trip; a longer batch takes several.
const CHUNK: usize = 1000;
/// The pause before a command is retried after the server refused it without running it.
const PAUSE: Duration = Duration::from_millis(50);
/// The pause between probes of a server that refuses calls.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// The system of a handle without another name.
const OWN_SYSTEM: &str = "hob";

/// A handle to the store: the embedded engine, a Redis or Valkey server, a Sentinel set or a Cluster. Cheap to clone.
///
/// Every call has a deadline. While there is no connection, or while another client's script occupies the embedded
/// engine, calls wait until their deadline and then return [`Error::Unavailable`]. Once an attempt to reconnect has failed,
/// they wait for at most 250 ms. A call that may have been executed is
/// never repeated: it returns [`Error::Interrupted`].
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
    deadline: Duration,
    away_limit: Duration,
    clock: Clock,
    system: Arc<System>,
}

struct Shared {
    backend: Backend,
    name: String,
    meter: Arc<Meter>,
    pubsub: PubSub,
    /// The store itself, also in a handle to one master.
    root: Weak<Shared>,
}

enum Backend {
    Embedded(Arc<Embedded>),
    Single(Arc<ServerConnection>),
    Cluster(Arc<Cluster>),
}

impl Store {
    /// Opens the store at an address and returns immediately; a background task connects and reconnects.
    /// Must be called inside a tokio runtime.
    pub fn open(address: &Address) -> Result<Self> {
        let meter = Meter::new();
        let (backend, pubsub) = match address {
            Address::Embedded => return Ok(Self::on_engine(Embedded::open()?, meter)),
            Address::Server { host, db, access } => {
                one_server(Target::Host(host.clone()), Dialer::new(access, *db)?, &meter)
            }
            Address::Sentinel { sentinels, master, db, access } => {
                let sentinels = Sentinels::new(sentinels.clone(), master.clone());
                one_server(Target::Master(sentinels), Dialer::new(access, *db)?, &meter)
            }
            Address::Cluster { seeds, access } => {
                let dialer = Dialer::new(access, 0)?;
                let cluster = Arc::new(Cluster::open(seeds.clone(), dialer.clone(), meter.clone()));
                (Backend::Cluster(cluster.clone()), PubSub::on_cluster(&cluster, dialer))
            }
        };
        Ok(Self::over(backend, address.to_string(), meter, pubsub))
    }

    /// Opens the store at an address and waits until it answers, within the default deadline.
    pub async fn connect(address: &Address) -> Result<Self> {
        let store = Self::open(address)?;
        store.ping().await?;
        Ok(store)
    }

    pub(crate) fn on_engine(engine: Embedded, meter: Arc<Meter>) -> Self {
        meter.embedded();
        let engine = Arc::new(engine);
        let (backend, pubsub) = (Backend::Embedded(engine.clone()), PubSub::Embedded(engine));
        Self::over(backend, Address::Embedded.to_string(), meter, pubsub)
    }

    fn over(backend: Backend, name: String, meter: Arc<Meter>, pubsub: PubSub) -> Self {
        let system = meter.system(OWN_SYSTEM);
        let shared = |root: &Weak<Shared>| Shared { backend, name, meter, pubsub, root: root.clone() };
        let shared = Arc::new_cyclic(shared);
        Self { shared, deadline: DEFAULT_DEADLINE, away_limit: AWAY_LIMIT, clock: Clock::store(), system }
    }

    /// A handle to the same store for one system of the program. [`Health::degraded`] names the systems whose calls the
    /// store refuses.
    #[must_use]
    pub fn for_system(&self, name: &'static str) -> Self {
        Self { system: self.shared.meter.system(name), ..self.clone() }
    }

    /// A handle to the same store with another deadline per call.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { deadline, ..self.clone() }
    }

    /// A handle to the same store whose calls wait until their deadline even if the server is known to be away. For a task
    /// that has nothing else to do, and for tests that restart a server.
    #[must_use]
    pub fn with_patience(&self) -> Self {
        Self { away_limit: Duration::MAX, ..self.clone() }
    }

    /// How long a call may take.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// A handle to the same store with another clock for scripts; for tests.
    #[must_use]
    pub fn with_clock(&self, clock: Clock) -> Self {
        Self { clock, ..self.clone() }
    }

    /// The clock of scripts called through this handle.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Runs one command or script.
    pub async fn run<T: FromRedisValue>(&self, call: impl Into<Call>) -> Result<T> {
        self.run_call(&call.into()).await
    }

    /// Runs a call that the caller may run again.
    pub(crate) async fn run_call<T: FromRedisValue>(&self, call: &Call) -> Result<T> {
        let kind = if call.script().is_some() { OperationKind::Script } else { OperationKind::Command };
        let value = self.timed(kind, call).await?;
        T::from_redis_value(value).map_err(Error::reply)
    }

    /// Runs many calls in as few round trips as the store allows: one, or one per master of a Cluster, all
    /// at once. Answers are in the order of the calls, each with its own error.
    ///
    /// The calls are not one atomic operation, and they may run in any order: a slow master, a moved slot or a script
    /// that must be loaded delays only its own calls.
    pub async fn batch(&self, calls: &[Call]) -> Vec<Result<Value>> {
        let started = Instant::now();
        let mut answers = Vec::with_capacity(calls.len());
        for chunk in calls.chunks(CHUNK) {
            answers.extend(self.answer_all(chunk, started).await);
        }
        let failed = |(call, answer): (_, &Result<Value>)| {
            answer.as_ref().err().filter(|error| is_failure(error)).map(|error| (call, error.clone()))
        };
        let failed = calls.iter().zip(&answers).find_map(failed);
        self.shared.meter.record(
            OperationKind::Batch,
            started.elapsed(),
            failed.as_ref().map(|(_, error)| error),
        );
        if let Some((call, error)) = &failed {
            self.record_refusal(call, error);
        }
        answers
    }

    /// Pings every server of the store.
    pub async fn ping(&self) -> Result<()> {
        for master in self.masters().await? {
            master.run::<String>(redis::cmd("PING")).await?;
        }
        Ok(())
    }

    /// One handle for each master of a Cluster, for commands that run on every master (SCAN, DBSIZE, INFO);
    /// otherwise only this handle.
    pub async fn masters(&self) -> Result<Vec<Self>> {
        let Backend::Cluster(cluster) = &self.shared.backend else {
            return Ok(vec![self.clone()]);
        };
        let masters = cluster.masters(self.limits(Instant::now())).await?;
        let handle = |(host, connection): (Host, Arc<ServerConnection>)| Self {
            shared: Arc::new(Shared {
                backend: Backend::Single(connection),
                name: host.to_string(),
                meter: self.shared.meter.clone(),
                pubsub: self.shared.pubsub.clone(),
                root: self.shared.root.clone(),
            }),
            ..self.clone()
        };
        Ok(masters.into_iter().map(handle).collect())
    }

    /// Publish and subscribe.
    #[must_use]
    pub fn bus(&self) -> Bus {
        Bus::of(self)
    }

    /// The address of the store, or of the master for a handle from [`masters`](Self::masters).
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The name of the system that this handle is for.
    pub(crate) fn system_name(&self) -> &'static str {
        self.system.name()
    }

    /// The health of the connection.
    #[must_use]
    pub fn health(&self) -> Health {
        Health::from_reading(self.shared.name.clone(), self.shared.meter.reading(), self.is_embedded())
    }

    pub(crate) async fn publish(&self, channel: &[u8], payload: &[u8]) -> Result<u64> {
        let mut command = redis::cmd("PUBLISH");
        command.arg(channel).arg(payload);
        let call = Call::from(command);
        let value = self.timed(OperationKind::Publish, &call).await?;
        u64::from_redis_value(value).map_err(Error::reply)
    }

    /// Reads the history of the server that has a key again. It is read for every connection, but the server may become
    /// a replica or a master during a connection.
    pub(crate) async fn read_history(&self, key: &[u8]) -> Result<()> {
        match &self.shared.backend {
            Backend::Embedded(_) => Ok(()),
            Backend::Single(connection) => connection.read_history(self.limits(Instant::now())).await,
            Backend::Cluster(cluster) => cluster.read_history(key, self.limits(Instant::now())).await,
        }
    }

    pub(crate) fn pubsub(&self) -> &PubSub {
        &self.shared.pubsub
    }

    /// Whether the store is the engine in this process.
    #[must_use]
    pub fn is_embedded(&self) -> bool {
        matches!(self.shared.backend, Backend::Embedded(_))
    }

    /// The end of a call that begins now.
    pub(crate) fn until(&self) -> Instant {
        Instant::now() + self.deadline
    }

    /// The time limits of a call that began at `started`.
    fn limits(&self, started: Instant) -> Deadline {
        let at = started + self.deadline;
        let away_at = started + self.deadline.min(self.away_limit);
        let retry_at = if self.system.degradation().is_some() { away_at } else { at };
        Deadline { at, away_at, retry_at }
    }

    async fn timed(&self, kind: OperationKind, call: &Call) -> Result<Value> {
        let started = Instant::now();
        let answer = self.answer(call, started).await;
        self.shared.meter.record(kind, started.elapsed(), answer.as_ref().err());
        answer.inspect_err(|error| self.record_refusal(call, error))
    }

    /// Records a refusal that concerns the whole server, and starts to probe the server after the first one.
    fn record_refusal(&self, call: &Call, error: &Error) {
        let Some(fault) = Fault::of(error) else { return };
        if self.system.refused(fault, error, first_key(&call.command)) == Refusal::First {
            tokio::spawn(probe_until_recovered(self.shared.root.clone(), Arc::clone(&self.system)));
        }
    }

    /// Whether the server accepts a write of this key: one without an effect, which it checks like any other. Without a
    /// key, whether it answers.
    async fn accepts_write(&self, key: Option<&[u8]>) -> bool {
        let call = match key {
            // With XX and a member that does not exist, ZADD changes nothing.
            Some(key) => redis::cmd("ZADD").arg(key).arg("XX").arg(0).arg("hob:probe").clone(),
            None => redis::cmd("PING"),
        };
        match self.answer(&call.into(), Instant::now()).await {
            Ok(_) => true,
            // The user may not run the probe. Then only the time without refusals counts.
            Err(error) => match Fault::of(&error) {
                Some(fault) => fault == Fault::NotPermitted,
                // A key of another type: the checks of the server came before.
                None => matches!(error, Error::Refused { .. }),
            },
        }
    }

    async fn answer(&self, call: &Call, started: Instant) -> Result<Value> {
        let deadline = self.limits(started);
        match &self.shared.backend {
            Backend::Embedded(engine) => engine.call(call, started..deadline.at).await,
            Backend::Single(connection) => loop {
                match connection.call(call, deadline).await {
                    Err(error) if refused_for_now(connection, &error, deadline) => sleep(PAUSE).await,
                    answer => return answer,
                }
            },
            Backend::Cluster(cluster) => cluster.call(call, deadline).await,
        }
    }

    async fn answer_all(&self, calls: &[Call], started: Instant) -> Vec<Result<Value>> {
        let deadline = self.limits(started);
        match &self.shared.backend {
            Backend::Embedded(engine) => engine.call_all(calls, started..deadline.at).await,
            Backend::Single(connection) => call_all_on(connection, calls, deadline).await,
            Backend::Cluster(cluster) => cluster.call_all(calls, deadline).await,
        }
    }
}

/// Probes a server until a system has recovered from its refusals, or until the store is closed.
async fn probe_until_recovered(store: Weak<Shared>, system: Arc<System>) {
    loop {
        sleep(PROBE_INTERVAL).await;
        let Some(shared) = store.upgrade() else { return };
        let (began, key) = (Instant::now(), system.refused_key());
        let store = Store {
            shared,
            deadline: DEFAULT_DEADLINE,
            away_limit: AWAY_LIMIT,
            clock: Clock::store(),
            system: Arc::clone(&system),
        };
        if store.accepts_write(key.as_deref()).await && system.probe_passed(began) {
            return;
        }
    }
}

/// One connection for commands, and one for subscriptions once there are any.
fn one_server(target: Target, dialer: Dialer, meter: &Arc<Meter>) -> (Backend, PubSub) {
    let connection = ServerConnection::open(target.clone(), dialer.clone(), meter.clone());
    (Backend::Single(Arc::new(connection)), PubSub::on_server(target, dialer))
}

/// Runs calls on one server, and retries those that it refused temporarily without running them.
async fn call_all_on(
    connection: &ServerConnection,
    calls: &[Call],
    deadline: Deadline,
) -> Vec<Result<Value>> {
    let mut answers: Vec<Option<Result<Value>>> = calls.iter().map(|_| None).collect();
    let mut waiting: Vec<usize> = (0..calls.len()).collect();
    while !waiting.is_empty() {
        let sent = std::mem::take(&mut waiting);
        let together: Vec<&Call> = sent.iter().map(|at| &calls[*at]).collect();
        match connection.call_all(&together, deadline).await {
            Ok(replies) => {
                for (at, reply) in sent.into_iter().zip(replies) {
                    match &reply {
                        Err(error) if refused_for_now(connection, error, deadline) => waiting.push(at),
                        _ => answers[at] = Some(reply),
                    }
                }
            }
            Err(error) => sent.into_iter().for_each(|at| answers[at] = Some(Err(error.clone()))),
        }
        if !waiting.is_empty() {
            sleep(PAUSE).await;
        }
    }
    answers.into_iter().flatten().collect()
}

/// Whether the server temporarily refused the call without running it, and there is time for a retry.
fn refused_for_now(connection: &ServerConnection, error: &Error, deadline: Deadline) -> bool {
    (error.is_transient() || connection.moves_on(error)) && Instant::now() + PAUSE < deadline.retry_at
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("store", &self.shared.name)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
