//! The database: opened once, shared by everybody, read and changed in bounded time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::address::{Address, Dialect};
use crate::connection::pools::Pools;
use crate::connection::{Connection, Isolation, Mode};
use crate::meta::DatabaseId;
use crate::migration::{self, Migrations};
use crate::outbox;
use crate::query::read::sealed::Source;
use crate::query::{Query, Statement, sql};
use crate::transaction::retry::Backoff;
use crate::transaction::{Doom, Snapshot, Transaction, Unit};
use crate::value::row::Row;
use crate::{Error, Read as _, UnixMs};

/// The database. Clones are handles to the same.
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
    /// Told when events were written.
    events: Notify,
}

/// How many connections there are, and how long anybody waits.
#[derive(Clone, Debug)]
pub struct Options {
    /// The most connections to PostgreSQL, or readers of the SQLite file beside its one writer.
    pub connections: u32,
    /// The longest wait for a connection to PostgreSQL.
    pub connect_within: Duration,
    /// The longest time that any read or write takes, its waiting and its attempts included.
    pub answer_within: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connections: 10,
            connect_within: Duration::from_secs(3),
            answer_within: Duration::from_secs(10),
        }
    }
}

/// A commit is given this long even if the work has used up all its time: nobody is helped by an answer that
/// says neither yes nor no.
const COMMIT_WITHIN: Duration = Duration::from_secs(1);

/// A rollback that does not come through soon is left to the server, which sees the connection close.
const ROLLBACK_WITHIN: Duration = Duration::from_secs(1);

impl Database {
    /// Opens the database, makes them if they are not there, and applies the migrations that they lack.
    pub async fn open(address: &Address, sets: &[Migrations]) -> Result<Self, Error> {
        Self::open_with(address, sets, Options::default()).await
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
                events: Notify::new(),
            }),
        })
    }

    /// Does `work` in a transaction, [`Isolation::Serializable`]. It commits when the work answers `Ok`, and
    /// changes nothing when it answers `Err`.
    ///
    /// When others are in the way the work is done again, so it does nothing that cannot be undone, and borrows
    /// what it needs (`let id = &id;` before `|tx| async move { … }`). On SQLite there is one writer at a time:
    /// the work waits for nothing but its own transaction, and least of all for another write.
    pub async fn write<T, E, F>(&self, work: impl FnMut(Transaction) -> F + Send) -> Result<T, E>
    where
        E: From<Error>,
        F: Future<Output = Result<T, E>> + Send,
    {
        self.write_with(Isolation::Serializable, work).await
    }

    /// [`Database::write`] with a choice of isolation. On SQLite both are the same.
    pub async fn write_with<T, E, F>(
        &self,
        isolation: Isolation,
        mut work: impl FnMut(Transaction) -> F + Send,
    ) -> Result<T, E>
    where
        E: From<Error>,
        F: Future<Output = Result<T, E>> + Send,
    {
        let mut backoff = Backoff::until(self.deadline());
        loop {
            let error = match self.attempt(isolation, backoff.deadline(), &mut work).await {
                Attempt::Done(outcome) => return outcome,
                Attempt::Again(error) => error,
            };
            if !backoff.pause().await {
                return Err(error.into());
            }
        }
    }

    /// Changes something with a single statement, and answers with how many rows it changed.
    pub async fn execute(&self, query: Query<()>) -> Result<u64, Error> {
        let statement = &query.statement(self.dialect())?;
        let work = |tx: Transaction| async move { tx.run(statement.clone()).await };
        self.write_with(Isolation::Committed, work).await
    }

    /// Does `work` with one unchanging view of the database.
    pub async fn read<T, E, F>(&self, work: impl FnOnce(Snapshot) -> F + Send) -> Result<T, E>
    where
        E: From<Error>,
        F: Future<Output = Result<T, E>> + Send,
    {
        let deadline = self.deadline();
        let unit = async {
            let (connection, now) = self.begin(Mode::Snapshot).await?;
            Ok::<_, Error>(Unit::new(connection, now))
        };
        let unit = in_time(deadline, unit).await?;
        let outcome = timeout_at(deadline, work(unit.snapshot())).await;
        let outcome = outcome.map_err(|_| Error::too_slow())?;
        let doom = unit.doom().await;
        rollback(unit).await;
        match doom {
            Some(Doom::Again(error)) => Err(error.into()),
            Some(Doom::Broken) | None => outcome,
        }
    }

    /// Asks the database for a sign of life.
    pub async fn ping(&self) -> Result<(), Error> {
        let sign: Query<(i64,)> = sql("SELECT CAST(1 AS BIGINT)");
        self.one(sign).await.map(drop)
    }

    /// What tells this database from all others. It was made with them, and copies keep it.
    pub fn id(&self) -> DatabaseId {
        self.inner.id
    }

    pub fn address(&self) -> &Address {
        &self.inner.address
    }

    /// Closes all connections once they are given back. What is asked afterwards is refused.
    pub async fn close(&self) {
        self.inner.pools.close().await;
    }

    pub(crate) fn sets(&self) -> &[Migrations] {
        &self.inner.sets
    }

    pub(crate) fn pools(&self) -> &Pools {
        &self.inner.pools
    }

    /// Waits until this process has written events.
    pub(crate) async fn events_written(&self) {
        self.inner.events.notified().await;
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.inner.options.answer_within
    }

    async fn attempt<T, E, F>(
        &self,
        isolation: Isolation,
        deadline: Instant,
        work: &mut (impl FnMut(Transaction) -> F + Send),
    ) -> Attempt<T, E>
    where
        E: From<Error>,
        F: Future<Output = Result<T, E>> + Send,
    {
        let begun = in_time(deadline, self.begin(Mode::Write(isolation))).await;
        let unit = match begun {
            Ok((connection, now)) => Unit::new(connection, now),
            Err(error) => return Attempt::Done(Err(error.into())),
        };
        let Ok(outcome) = timeout_at(deadline, work(unit.transaction())).await else {
            return Attempt::Done(Err(Error::too_slow().into()));
        };
        let outcome = match (unit.doom().await, outcome) {
            (Some(Doom::Again(error)), _) => {
                rollback(unit).await;
                return Attempt::Again(error);
            }
            (Some(Doom::Broken), Ok(_)) => Err(Error::Broken.into()),
            (_, outcome) => outcome,
        };
        match outcome {
            Ok(value) => self.commit(unit, deadline, value).await,
            Err(error) => {
                rollback(unit).await;
                Attempt::Done(Err(error))
            }
        }
    }

    async fn commit<T, E: From<Error>>(&self, unit: Unit, deadline: Instant, value: T) -> Attempt<T, E> {
        let events = unit.take_events();
        let wrote_events = !events.is_empty();
        // Last of all, so that the events' order is that in which the changes were made.
        let written = in_time(deadline, outbox::write(&unit.transaction(), events)).await;
        if let Err(error) = written {
            let doom = unit.doom().await;
            rollback(unit).await;
            return match doom {
                Some(Doom::Again(error)) => Attempt::Again(error),
                _ => Attempt::Done(Err(error.into())),
            };
        }
        let deadline = deadline.max(Instant::now() + COMMIT_WITHIN);
        match in_time(deadline, unit.end("COMMIT")).await {
            Ok(()) => {
                if wrote_events {
                    self.inner.events.notify_one();
                }
                Attempt::Done(Ok(value))
            }
            Err(error @ Error::Conflict { .. }) => Attempt::Again(error),
            Err(Error::Unavailable { source }) => Attempt::Done(Err(Error::Uncertain { source }.into())),
            Err(error) => Attempt::Done(Err(error.into())),
        }
    }

    /// Begins a transaction. A connection that was lost while it lay in the pool shows it here,
    /// where nothing has happened yet and the next one can be tried.
    async fn begin(&self, mode: Mode) -> Result<(Connection, UnixMs), Error> {
        let pools = &self.inner.pools;
        let mut stale = pools.most_stale();
        loop {
            let mut connection = pools.lend(mode).await?;
            match connection.begin(mode).await {
                Ok(now) => return Ok((connection, now)),
                Err(error) if error.is_unavailable() && stale > 0 => stale -= 1,
                Err(error) => return Err(error),
            }
        }
    }

    async fn fetch_once(&self, statement: Statement, most: usize) -> Result<Vec<Row>, Error> {
        let mut stale = self.inner.pools.most_stale();
        loop {
            let mut connection = self.inner.pools.lend(Mode::Snapshot).await?;
            match connection.fetch(statement.clone(), most).await {
                Err(error) if error.is_unavailable() && stale > 0 => stale -= 1,
                Err(error) if error.is_unavailable() => return Err(error),
                outcome => {
                    connection.release();
                    return outcome;
                }
            }
        }
    }
}

impl Source for Database {
    fn dialect(&self) -> Dialect {
        self.inner.pools.dialect()
    }

    async fn fetch(&self, statement: Statement, most: usize) -> Result<Vec<Row>, Error> {
        in_time(self.deadline(), self.fetch_once(statement, most)).await
    }
}

/// How one attempt at a transaction went.
enum Attempt<T, E> {
    Done(Result<T, E>),
    Again(Error),
}

async fn in_time<T>(deadline: Instant, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    timeout_at(deadline, work).await.unwrap_or_else(|_| Err(Error::too_slow()))
}

/// What cannot be rolled back in time is rolled back by the database when the connection closes.
async fn rollback(unit: Unit) {
    let _ = in_time(Instant::now() + ROLLBACK_WITHIN, unit.end("ROLLBACK")).await;
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Database").field(&self.inner.address).finish()
    }
}
