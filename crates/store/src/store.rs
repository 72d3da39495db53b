//! The handle that everything else in Hob holds: one connection to the store, wherever that is.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use hob_engine::Engine;
use redis::{FromRedisValue, Value};
use tokio::time::{Instant, sleep};

use crate::address::{Address, Host};
use crate::bus::{Bus, Lines};
use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::dial::Dialer;
use crate::embedded::Embedded;
use crate::error::{Error, Result};
use crate::health::Health;
use crate::link::{Link, Target};
use crate::meter::{Kind, Meter};
use crate::script::Call;
use crate::sentinel::Sentinels;

/// How long a call may take unless its handle says otherwise.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(2);
/// The most commands of one round trip; a longer batch takes several.
const CHUNK: usize = 1000;
/// Between two tries of a command that the server refused for a moment, doing nothing.
const PAUSE: Duration = Duration::from_millis(50);

/// The store: the embedded store, a Redis or Valkey server, a Sentinel set or a Cluster behind one cheap
/// clone.
///
/// Every call has a deadline. While there is no connection, or another client's script holds the embedded store, calls
/// wait within it and then give [`Error::Unavailable`]. A call is never repeated once it may have been carried out: it gives
/// [`Error::Interrupted`] instead.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
    deadline: Duration,
    clock: Clock,
}

struct Shared {
    backend: Backend,
    name: String,
    meter: Arc<Meter>,
    lines: Lines,
}

enum Backend {
    Embedded(Embedded),
    Single(Arc<Link>),
    Cluster(Arc<Cluster>),
}

impl Store {
    /// Opens the store at an address and returns at once; connecting goes on in the background, for ever.
    /// Must be called inside a tokio runtime.
    pub fn open(address: &Address) -> Result<Self> {
        let meter = Meter::new();
        let (backend, lines) = match address {
            Address::Embedded => {
                let engine = Engine::default();
                meter.embedded();
                (Backend::Embedded(Embedded::owned(engine.clone())), Lines::on_engine(engine))
            }
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
                (Backend::Cluster(cluster.clone()), Lines::on_cluster(&cluster, dialer))
            }
        };
        let name = address.to_string();
        Ok(Self::over(Shared { backend, name, meter, lines }))
    }

    /// Opens the store at an address and waits until it answers, within the default deadline.
    pub async fn connect(address: &Address) -> Result<Self> {
        let store = Self::open(address)?;
        store.ping().await?;
        Ok(store)
    }

    /// The store in an engine of this process, which the caller keeps swept.
    #[must_use]
    pub fn embedded(engine: &Engine) -> Self {
        let meter = Meter::new();
        meter.embedded();
        let backend = Backend::Embedded(Embedded::over(engine));
        let lines = Lines::on_engine(engine.clone());
        Self::over(Shared { backend, name: Address::Embedded.to_string(), meter, lines })
    }

    fn over(shared: Shared) -> Self {
        Self { shared: Arc::new(shared), deadline: DEFAULT_DEADLINE, clock: Clock::store() }
    }

    /// The same store with another deadline per call.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { deadline, ..self.clone() }
    }

    /// How long a call may take.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// The same store with another source of time for scripts; for tests.
    #[must_use]
    pub fn with_clock(&self, clock: Clock) -> Self {
        Self { clock, ..self.clone() }
    }

    /// Where scripts called through this handle take the time from.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Runs one command or script.
    pub async fn run<T: FromRedisValue>(&self, call: impl Into<Call>) -> Result<T> {
        let call = call.into();
        let kind = if call.script().is_some() { Kind::Script } else { Kind::Command };
        let value = self.shared.meter.time(kind, self.answer(&call)).await?;
        T::from_redis_value(value).map_err(Error::reply)
    }

    /// Runs many calls in as few round trips as the store allows: one, or one per master of a Cluster, all
    /// at once. Answers stand in the order of the calls, each with its own error.
    ///
    /// The calls are not atomic together and promise no order among each other: a master that is slow, a
    /// slot that moved or a script that had to be loaded delays its own calls only.
    pub async fn batch(&self, calls: &[Call]) -> Vec<Result<Value>> {
        let started = Instant::now();
        let mut answers = Vec::with_capacity(calls.len());
        for chunk in calls.chunks(CHUNK) {
            answers.extend(self.answer_all(chunk, started..started + self.deadline).await);
        }
        let failed = answers.iter().find_map(|answer| match answer {
            Err(error @ (Error::Unavailable { .. } | Error::Interrupted { .. })) => Some(error),
            _ => None,
        });
        self.shared.meter.record(Kind::Batch, started.elapsed(), failed);
        answers
    }

    /// Asks every server that serves a part of the store whether it does.
    pub async fn ping(&self) -> Result<()> {
        for master in self.masters().await? {
            master.run::<String>(redis::cmd("PING")).await?;
        }
        Ok(())
    }

    /// One handle for each master of a Cluster, for what concerns every one of them (SCAN, DBSIZE, INFO);
    /// otherwise just this handle.
    pub async fn masters(&self) -> Result<Vec<Self>> {
        let Backend::Cluster(cluster) = &self.shared.backend else {
            return Ok(vec![self.clone()]);
        };
        let masters = cluster.masters(self.until()).await?;
        let handle = |(host, link): (Host, Arc<Link>)| Self {
            shared: Arc::new(Shared {
                backend: Backend::Single(link),
                name: host.to_string(),
                meter: self.shared.meter.clone(),
                lines: self.shared.lines.clone(),
            }),
            ..self.clone()
        };
        Ok(masters.into_iter().map(handle).collect())
    }

    /// Messages between nodes.
    #[must_use]
    pub fn bus(&self) -> Bus {
        Bus::of(self)
    }

    /// The store's address or, of a handle from [`masters`](Self::masters), the master's.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// How the connection is doing.
    #[must_use]
    pub fn health(&self) -> Health {
        Health::from_reading(self.shared.name.clone(), self.shared.meter.reading(), self.is_embedded())
    }

    pub(crate) async fn publish(&self, channel: &[u8], payload: &[u8]) -> Result<u64> {
        let mut command = redis::cmd("PUBLISH");
        command.arg(channel).arg(payload);
        let call = Call::from(command);
        let value = self.shared.meter.time(Kind::Publish, self.answer(&call)).await?;
        u64::from_redis_value(value).map_err(Error::reply)
    }

    pub(crate) fn lines(&self) -> &Lines {
        &self.shared.lines
    }

    fn is_embedded(&self) -> bool {
        matches!(self.shared.backend, Backend::Embedded(_))
    }

    pub(crate) fn until(&self) -> Instant {
        Instant::now() + self.deadline
    }

    async fn answer(&self, call: &Call) -> Result<Value> {
        let asked = Instant::now();
        let deadline = asked + self.deadline;
        match &self.shared.backend {
            Backend::Embedded(engine) => engine.call(call, asked..deadline).await,
            Backend::Single(link) => loop {
                match link.call(call, deadline).await {
                    Err(error) if refused_for_now(link, &error, deadline) => sleep(PAUSE).await,
                    answer => return answer,
                }
            },
            Backend::Cluster(cluster) => cluster.call(call, deadline).await,
        }
    }

    async fn answer_all(&self, calls: &[Call], time: Range<Instant>) -> Vec<Result<Value>> {
        match &self.shared.backend {
            Backend::Embedded(engine) => engine.call_all(calls, time).await,
            Backend::Single(link) => call_all_on(link, calls, time.end).await,
            Backend::Cluster(cluster) => cluster.call_all(calls, time.end).await,
        }
    }
}

/// One connection for commands and one, when it is wanted, for the bus.
fn one_server(target: Target, dialer: Dialer, meter: &Arc<Meter>) -> (Backend, Lines) {
    let link = Link::open(target.clone(), dialer.clone(), meter.clone());
    (Backend::Single(Arc::new(link)), Lines::on_server(target, dialer))
}

/// Runs calls on one server, and again those that it refused for a moment without doing anything.
async fn call_all_on(link: &Link, calls: &[Call], deadline: Instant) -> Vec<Result<Value>> {
    let mut answers: Vec<Option<Result<Value>>> = calls.iter().map(|_| None).collect();
    let mut waiting: Vec<usize> = (0..calls.len()).collect();
    while !waiting.is_empty() {
        let sent = std::mem::take(&mut waiting);
        let together: Vec<&Call> = sent.iter().map(|at| &calls[*at]).collect();
        match link.call_all(&together, deadline).await {
            Ok(replies) => {
                for (at, reply) in sent.into_iter().zip(replies) {
                    match &reply {
                        Err(error) if refused_for_now(link, error, deadline) => waiting.push(at),
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

/// Whether the server did nothing, may do it soon, and there is time to see.
fn refused_for_now(link: &Link, error: &Error, deadline: Instant) -> bool {
    (error.is_passing() || link.moves_on(error)) && Instant::now() + PAUSE < deadline
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("store", &self.shared.name)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
