//! The handle to the database. Reads and writes end in bounded time, and soon if the server is known to be away.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, timeout_at};

use crate::address::{Address, Dialect, Location};
use crate::connection::pools::Pools;
use crate::connection::{Connection, Isolation, Mode};
use crate::meta::DatabaseId;
use crate::migration::{self, Migrations, PendingMigration};
use crate::outbox;
use crate::query::read::sealed::Source;
use crate::query::{Query, Statement, sql};
use crate::signal::{Exchange, Signal, Signals, Wakeups};
use crate::transaction::retry::Retries;
use crate::transaction::work::{Closure, Work};
use crate::transaction::{AbortReason, Commit, OpenTransaction, Snapshot, Transaction};
use crate::value::row::Row;
use crate::{Error, Read as _, UnixMs};

/// A handle to the database. Clones share its connections.
#[derive(Clone)]
pub struct Database {
    inner: Arc<Inner>,
}

struct Inner {
    address: Address,
    pools: Pools,
    options: Options,
    sets: Vec<Migrations>,
    id: DatabaseId,
    signals: Arc<Signals>,
    /// Started for the first task that waits for a signal.
    exchange: OnceLock<Exchange>,
}

/// Connection and time limits.
#[derive(Clone, Debug)]
pub struct Options {
    /// Maximum number of PostgreSQL connections, or of SQLite readers in addition to the one writer.
    pub connections: u32,
    /// Maximum wait for a PostgreSQL connection.
    pub connect_timeout: Duration,
    /// Maximum wait for a PostgreSQL connection while the server is known to be away.
    pub away_timeout: Duration,
    /// Maximum duration of a read or write, including waits and retries.
    pub statement_timeout: Duration,
    /// How often tasks that wait for a [`Signal`] look at a PostgreSQL database without one.
    pub safety_poll: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connections: 10,
            connect_timeout: Duration::from_secs(3),
            away_timeout: Duration::from_millis(250),
            statement_timeout: Duration::from_secs(10),
            safety_poll: Duration::from_secs(60),
        }
    }
}

/// A commit gets at least this much time, even after the deadline of its transaction, because a commit that is
/// interrupted returns [`Error::Uncertain`].
const COMMIT_WITHIN: Duration = Duration::from_secs(1);

/// If a rollback takes longer than this, the connection is closed, which makes the server roll back.
const ROLLBACK_WITHIN: Duration = Duration::from_secs(1);

impl Database {
    /// Opens the database, creates it if it does not exist, and applies pending migrations.
    pub async fn open(address: &Address, sets: &[Migrations]) -> Result<Self, Error> {
        Self::open_with(address, sets, Options::default()).await
    }

    /// Opens a database that exists, and applies pending migrations. Commands beside the server must not create one in the
    /// wrong place.
    pub async fn open_existing(address: &Address, sets: &[Migrations]) -> Result<Self, Error> {
        Self::open_existing_with(address, sets, Options::default()).await
    }

    pub(crate) async fn open_existing_with(
        address: &Address,
        sets: &[Migrations],
        options: Options,
    ) -> Result<Self, Error> {
        existing(address, &options).await?;
        Self::open_with(address, sets, options).await
    }

    /// The migrations that opening this database would apply, in order. Changes nothing.
    pub async fn pending_migrations(
        address: &Address,
        sets: &[Migrations],
    ) -> Result<Vec<PendingMigration>, Error> {
        let pools = existing(address, &Options::default()).await?;
        let pending = migration::pending_in(&pools, sets).await;
        pools.close().await;
        pending
    }

    pub async fn open_with(address: &Address, sets: &[Migrations], options: Options) -> Result<Self, Error> {
        let pools = Pools::new(address, &options)?;
        let id = migration::apply(&pools, sets).await?;
        Ok(Self {
            inner: Arc::new(Inner {
                address: address.clone(),
                pools,
                options,
                sets: sets.to_vec(),
                id,
                signals: Signals::new(),
                exchange: OnceLock::new(),
            }),
        })
    }

    /// Runs `work` in a transaction with [`Isolation::Serializable`]. `Ok` commits it, `Err` rolls it back.
    ///
    /// After a conflict `work` runs again, so it must not have other side effects, and must borrow the values that it
    /// uses (`let id = &id;` before `|tx| async move { … }`). SQLite has one writer at a time, so `work` must not wait
    /// for anything except its own transaction, and in particular not for another write.
    pub async fn write<T, E, F>(&self, work: impl FnMut(Transaction) -> F + Send) -> Result<T, E>
    where
        T: Send,
        E: From<Error> + Send,
        F: Future<Output = Result<T, E>> + Send,
    {
        self.write_with(Isolation::Serializable, work).await
    }

    /// [`Database::write`] with a given isolation. On SQLite, both kinds of isolation are the same.
    pub async fn write_with<T, E, F>(
        &self,
        isolation: Isolation,
        mut work: impl FnMut(Transaction) -> F + Send,
    ) -> Result<T, E>
    where
        T: Send,
        E: From<Error> + Send,
        F: Future<Output = Result<T, E>> + Send,
    {
        let mut work = Closure::new(|opened: &OpenTransaction| work(opened.transaction()));
        self.run_write(isolation, &mut work).await?;
        work.into_result()
    }

    /// Runs a single statement in its own transaction and returns how many rows it changed.
    pub async fn execute(&self, query: Query<()>) -> Result<u64, Error> {
        let statement = &query.statement(self.dialect())?;
        let work = |tx: Transaction| async move { tx.run(statement.clone()).await };
        self.write_with(Isolation::ReadCommitted, work).await
    }

    /// Runs `work` on one consistent snapshot of the database.
    pub async fn read<T, E, F>(&self, work: impl FnOnce(Snapshot) -> F + Send) -> Result<T, E>
    where
        T: Send,
        E: From<Error> + Send,
        F: Future<Output = Result<T, E>> + Send,
    {
        let mut once = Some(work);
        let mut work = Closure::new(|opened: &OpenTransaction| {
            let work = once.take().expect("a read runs once");
            work(opened.snapshot())
        });
        self.run_read(&mut work).await?;
        work.into_result()
    }

    /// Checks that the database responds.
    pub async fn ping(&self) -> Result<(), Error> {
        let ping: Query<(i64,)> = sql("SELECT CAST(1 AS BIGINT)");
        self.one(ping).await.map(drop)
    }

    /// The id of the database. It is random, is created with the database, and stays the same in copies.
    pub fn id(&self) -> DatabaseId {
        self.inner.id
    }

    pub fn address(&self) -> &Address {
        &self.inner.address
    }

    /// Waits until all connections are returned, and closes them. Later calls fail.
    pub async fn close(&self) {
        if let (Some(exchange), Pools::Postgres { pool, .. }) = (self.inner.exchange.get(), &self.inner.pools)
        {
            exchange.stop();
            self.inner.signals.send_enqueued(pool).await;
        }
        self.inner.pools.close().await;
    }

    pub(crate) fn sets(&self) -> &[Migrations] {
        &self.inner.sets
    }

    pub(crate) fn pools(&self) -> &Pools {
        &self.inner.pools
    }

    /// Waits for a signal of any node: see [`Signal`].
    pub fn wakeups(&self, signal: Signal) -> Wakeups {
        self.wakeups_named(signal.0)
    }

    pub(crate) fn wakeups_named(&self, name: &str) -> Wakeups {
        let safety_poll = match &self.inner.pools {
            Pools::Sqlite { .. } => None,
            Pools::Postgres { pool, .. } => {
                self.inner.exchange.get_or_init(|| Exchange::start(pool, &self.inner.signals));
                Some(self.inner.options.safety_poll)
            }
        };
        self.inner.signals.wakeups(name, safety_poll)
    }

    /// Wakes the tasks of this process.
    pub(crate) fn wake(&self, name: &str) {
        self.inner.signals.wake(name);
    }

    async fn send_signals(&self, signals: BTreeSet<Signal>) {
        let Inner { signals: exchanged, exchange, pools, .. } = &*self.inner;
        for signal in &signals {
            exchanged.wake(signal.0);
        }
        match pools {
            Pools::Postgres { .. } if signals.is_empty() => {}
            Pools::Postgres { .. } if exchange.get().is_some() => exchanged.enqueue(&signals),
            // A short-lived process could end before a task sends it.
            Pools::Postgres { pool, .. } => exchanged.send(pool, &signals).await,
            Pools::Sqlite { .. } => {}
        }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.inner.options.statement_timeout
    }

    /// Runs the work until it commits or fails. `Ok` means that `work` has stored the committed result.
    ///
    /// Neither this function nor the functions that it calls depend on the types of the work. So the drivers and the
    /// retries are compiled once, in this crate, and not once per transaction.
    fn run_write<'a>(
        &'a self,
        isolation: Isolation,
        work: &'a mut dyn Work,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let mut retries = Retries::until(self.deadline());
            loop {
                let error = match self.attempt(isolation, retries.deadline(), work).await {
                    Attempt::Finished(result) => return self.observe(result),
                    Attempt::Retry(error) => error,
                };
                if !retries.wait().await {
                    return self.observe(Err(error));
                }
            }
        })
    }

    /// [`Database::run_write`] for a snapshot.
    fn run_read<'a>(&'a self, work: &'a mut dyn Work) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let deadline = self.deadline();
            let begun = with_deadline(deadline, self.begin(Mode::Snapshot)).await;
            let (connection, now) = self.observe(begun)?;
            let opened = OpenTransaction::new(connection, now);
            let in_time = timeout_at(deadline, work.run(&opened)).await;
            self.observe(in_time.map_err(|_| Error::timed_out()))?;
            let reason = opened.abort_reason().await;
            rollback(opened).await;
            match reason {
                Some(AbortReason::Retry(error) | AbortReason::NotBegun(error)) => Err(error),
                Some(AbortReason::Broken) | None => Ok(()),
            }
        })
    }

    /// Takes note of a result that suggests that the database is away.
    fn observe<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        if matches!(result, Err(Error::Unavailable { .. } | Error::Uncertain { .. })) {
            self.inner.pools.suspect();
        }
        result
    }

    async fn attempt(&self, isolation: Isolation, deadline: Instant, work: &mut dyn Work) -> Attempt {
        let begun = with_deadline(deadline, self.begin(Mode::Write(isolation))).await;
        let opened = match begun {
            Ok((connection, now)) => OpenTransaction::new(connection, now),
            Err(error) => return Attempt::Finished(Err(error)),
        };
        let Ok(succeeded) = timeout_at(deadline, work.run(&opened)).await else {
            return Attempt::Finished(Err(Error::timed_out()));
        };
        match (opened.abort_reason().await, succeeded) {
            (Some(AbortReason::Retry(error)), _) => {
                rollback(opened).await;
                Attempt::Retry(error)
            }
            (Some(AbortReason::NotBegun(error)), _) => Attempt::Finished(Err(error)),
            (None, true) => self.commit(opened, deadline).await,
            (reason, _) => {
                rollback(opened).await;
                let broken = reason.is_some() && succeeded;
                Attempt::Finished(if broken { Err(Error::TransactionFailed) } else { Ok(()) })
            }
        }
    }

    async fn commit(&self, opened: OpenTransaction, deadline: Instant) -> Attempt {
        let (events, mut signals) = (opened.take_events(), opened.take_signals());
        if !events.is_empty() {
            signals.insert(outbox::EMITTED);
        }
        // Events are written last, so that their ids follow the order of the changes: see `outbox`.
        let written = with_deadline(deadline, outbox::write(&opened.transaction(), events)).await;
        let last = match written {
            Ok(last) => last,
            Err(error) => {
                let reason = opened.abort_reason().await;
                rollback(opened).await;
                return match reason {
                    Some(AbortReason::Retry(error)) => Attempt::Retry(error),
                    _ => Attempt::Finished(Err(error)),
                };
            }
        };
        let deadline = deadline.max(Instant::now() + COMMIT_WITHIN);
        let committed = with_deadline(deadline, opened.commit(last)).await;
        match committed {
            Ok(Commit::Done) => {
                self.send_signals(signals).await;
                Attempt::Finished(Ok(()))
            }
            Ok(Commit::RolledBack(error)) if error.is_unavailable() => Attempt::Retry(error),
            Ok(Commit::RolledBack(error)) => Attempt::Finished(Err(error)),
            Err(error @ Error::Conflict { .. }) => Attempt::Retry(error),
            Err(Error::Unavailable { source }) => Attempt::Finished(Err(Error::Uncertain { source })),
            Err(error) => Attempt::Finished(Err(error)),
        }
    }

    /// Begins a transaction. A pooled connection that was lost fails here, before anything was done, so the next one
    /// can be tried.
    async fn begin(&self, mode: Mode) -> Result<(Connection, UnixMs), Error> {
        let pools = &self.inner.pools;
        let mut stale = pools.max_stale();
        loop {
            let mut connection = pools.acquire(mode).await?;
            match connection.begin(mode).await {
                Ok(now) => return Ok((connection, now)),
                Err(error) if error.is_unavailable() && stale > 0 => {
                    pools.suspect();
                    stale -= 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn fetch_once(&self, statement: Statement, max_rows: usize) -> Result<Vec<Row>, Error> {
        let mut stale = self.inner.pools.max_stale();
        loop {
            let mut connection = self.inner.pools.acquire(Mode::Snapshot).await?;
            match connection.fetch(statement.clone(), max_rows).await {
                Err(error) if error.is_unavailable() && stale > 0 => {
                    self.inner.pools.suspect();
                    stale -= 1;
                }
                Err(error) if error.is_unavailable() => return Err(error),
                result => {
                    connection.release();
                    return result;
                }
            }
        }
    }
}

impl Source for Database {
    fn dialect(&self) -> Dialect {
        self.inner.pools.dialect()
    }

    fn fetch(&self, statement: Statement, max_rows: usize) -> BoxFuture<'_, Result<Vec<Row>, Error>> {
        Box::pin(async move {
            self.observe(with_deadline(self.deadline(), self.fetch_once(statement, max_rows)).await)
        })
    }
}

/// The result of one attempt to run a transaction.
enum Attempt {
    /// See [`Database::run_write`].
    Finished(Result<(), Error>),
    Retry(Error),
}

/// Connections to a database that has Hob's tables.
async fn existing(address: &Address, options: &Options) -> Result<Pools, Error> {
    if matches!(address.location(), Location::File(path) if !path.is_file()) {
        return Err(Error::NoDatabase);
    }
    let pools = Pools::new(address, options)?;
    if migration::is_initialized(&pools).await? { Ok(pools) } else { Err(Error::NoDatabase) }
}

async fn with_deadline<T>(
    deadline: Instant,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    timeout_at(deadline, work).await.unwrap_or_else(|_| Err(Error::timed_out()))
}

/// If the rollback takes too long, the connection is closed, which also rolls back.
async fn rollback(opened: OpenTransaction) {
    let _ = with_deadline(Instant::now() + ROLLBACK_WITHIN, opened.rollback()).await;
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Database").field(&self.inner.address).finish()
    }
}
