//! Snapshots and transactions, as the closures of [`Database`](crate::Database) get them.

pub(crate) mod retry;
pub(crate) mod work;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex as SyncMutex, PoisonError};

use futures_util::future::BoxFuture;
use tokio::sync::Mutex;

use crate::address::Dialect;
use crate::connection::Connection;
use crate::outbox::{NewEvent, Topic};
use crate::query::read::sealed::Source;
use crate::query::{Query, Statement};
use crate::signal::Signal;
use crate::value::row::Row;
use crate::{Error, UnixMs};

/// A read-only view of the database as it was at one moment.
#[derive(Debug)]
pub struct Snapshot {
    shared: Arc<Shared>,
}

/// A read-write transaction.
#[derive(Debug)]
pub struct Transaction {
    shared: Arc<Shared>,
}

/// Shared between the owner of a transaction and the closure that runs in it.
struct Shared {
    dialect: Dialect,
    now: UnixMs,
    state: Mutex<State>,
    events: SyncMutex<Vec<NewEvent>>,
    signals: SyncMutex<BTreeSet<Signal>>,
}

struct State {
    /// `None` after the transaction has ended.
    connection: Option<Connection>,
    abort_reason: Option<AbortReason>,
}

/// Why a transaction can no longer commit.
pub(crate) enum AbortReason {
    /// A conflict, or a lost connection: the closure should run again.
    Retry(Error),
    /// A SQLite transaction could not begin within the time limit, for example because another process holds the lock.
    NotBegun(Error),
    /// A statement failed. PostgreSQL would refuse to commit; SQLite would commit without this statement.
    Broken,
}

/// The result of a commit.
pub(crate) enum Commit {
    Done,
    /// The last statement failed, or the commit.
    RolledBack(Error),
}

/// The owner's side of a transaction, which commits it or rolls it back.
pub(crate) struct OpenTransaction {
    shared: Arc<Shared>,
}

impl Snapshot {
    /// When the snapshot was taken: see [`Transaction::now`].
    pub fn now(&self) -> UnixMs {
        self.shared.now
    }
}

impl Transaction {
    /// When the transaction began, by the database's clock: this machine's clock for SQLite, the server's clock for
    /// PostgreSQL, which is the same for all nodes. Clocks can be set back, so sort by numbers, not by times.
    pub fn now(&self) -> UnixMs {
        self.shared.now
    }

    /// Runs a statement and returns how many rows it changed.
    ///
    /// After a statement has failed, the transaction cannot commit, even if the closure returns `Ok`. Use `ON CONFLICT`
    /// for a row that may already exist.
    pub async fn execute(&self, query: Query<()>) -> Result<u64, Error> {
        self.run(query.statement(self.shared.dialect)?).await
    }

    /// Emits an event atomically with the change: it is written if and only if the transaction commits. See
    /// [`outbox`](crate::outbox).
    pub fn emit(
        &self,
        topic: Topic,
        key: impl Into<String>,
        payload: impl Into<String>,
    ) -> Result<(), Error> {
        let event = NewEvent::new(topic, key.into(), payload.into())?;
        self.shared.events().push(event);
        Ok(())
    }

    /// Wakes the tasks that wait for a signal, on all nodes, after the transaction has committed.
    pub fn signal(&self, signal: Signal) {
        self.shared.signals().insert(signal);
    }

    /// Boxed, like [`Shared::fetch`], so that the drivers are compiled in this crate only.
    pub(crate) fn run(&self, statement: Statement) -> BoxFuture<'_, Result<u64, Error>> {
        Box::pin(async move {
            let mut state = self.shared.state.lock().await;
            let connection = state.connection()?;
            let is_first = connection.is_unused();
            let result = connection.execute(statement).await;
            state.check(result, is_first)
        })
    }
}

impl Shared {
    fn fetch(&self, statement: Statement, max_rows: usize) -> BoxFuture<'_, Result<Vec<Row>, Error>> {
        Box::pin(async move {
            let mut state = self.state.lock().await;
            let connection = state.connection()?;
            let is_first = connection.is_unused();
            let result = connection.fetch(statement, max_rows).await;
            state.check(result, is_first)
        })
    }

    fn signals(&self) -> std::sync::MutexGuard<'_, BTreeSet<Signal>> {
        self.signals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn events(&self) -> std::sync::MutexGuard<'_, Vec<NewEvent>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for Snapshot {
    fn dialect(&self) -> Dialect {
        self.shared.dialect
    }

    fn fetch(&self, statement: Statement, max_rows: usize) -> BoxFuture<'_, Result<Vec<Row>, Error>> {
        self.shared.fetch(statement, max_rows)
    }
}

impl Source for Transaction {
    fn dialect(&self) -> Dialect {
        self.shared.dialect
    }

    fn fetch(&self, statement: Statement, max_rows: usize) -> BoxFuture<'_, Result<Vec<Row>, Error>> {
        self.shared.fetch(statement, max_rows)
    }
}

impl State {
    fn connection(&mut self) -> Result<&mut Connection, Error> {
        self.connection.as_mut().ok_or_else(already_ended)
    }

    /// Records why the transaction cannot commit, because the closure may ignore the error.
    fn check<T>(&mut self, result: Result<T, Error>, is_first: bool) -> Result<T, Error> {
        result.map_err(|error| {
            if is_first && error.is_unavailable() {
                self.abort_reason = Some(AbortReason::NotBegun(error));
                return Error::TransactionFailed;
            }
            if error.is_conflict() || error.is_unavailable() {
                self.abort_reason = Some(AbortReason::Retry(error));
                return Error::TransactionFailed;
            }
            self.abort_reason.get_or_insert(AbortReason::Broken);
            error
        })
    }
}

impl OpenTransaction {
    pub(crate) fn new(connection: Connection, now: UnixMs) -> Self {
        let shared = Shared {
            dialect: connection.dialect(),
            now,
            state: Mutex::new(State { connection: Some(connection), abort_reason: None }),
            events: SyncMutex::default(),
            signals: SyncMutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot { shared: Arc::clone(&self.shared) }
    }

    pub(crate) fn transaction(&self) -> Transaction {
        Transaction { shared: Arc::clone(&self.shared) }
    }

    pub(crate) fn take_events(&self) -> Vec<NewEvent> {
        std::mem::take(&mut *self.shared.events())
    }

    pub(crate) fn take_signals(&self) -> BTreeSet<Signal> {
        std::mem::take(&mut *self.shared.signals())
    }

    pub(crate) async fn abort_reason(&self) -> Option<AbortReason> {
        self.shared.state.lock().await.abort_reason.take()
    }

    /// Commits, after the last statement of a SQLite transaction.
    pub(crate) async fn commit(self, last: Option<Statement>) -> Result<Commit, Error> {
        let mut connection = self.take_connection().await?;
        let Some(last) = last else {
            let ended = match connection.is_unused() {
                true => Ok(()),
                false => connection.run_script("COMMIT").await.map_err(Error::from),
            };
            return release_if_ended(connection, ended).map(|()| Commit::Done);
        };
        // One call, because each call wakes SQLite's thread.
        let Err(error) = connection.execute(last.followed_by("COMMIT")).await else {
            connection.release();
            return Ok(Commit::Done);
        };
        // A transaction that can be rolled back was not committed.
        if connection.run_script("ROLLBACK").await.is_ok() {
            connection.release();
            return Ok(Commit::RolledBack(error));
        }
        Err(error)
    }

    pub(crate) async fn rollback(self) -> Result<(), Error> {
        let mut connection = self.take_connection().await?;
        let ended = match connection.is_unused() {
            true => Ok(()),
            false => connection.run_script("ROLLBACK").await.map_err(Error::from),
        };
        release_if_ended(connection, ended)
    }

    async fn take_connection(&self) -> Result<Connection, Error> {
        self.shared.state.lock().await.connection.take().ok_or_else(already_ended)
    }
}

/// A conflict during the commit ends the transaction too. After other errors, a SQLite transaction is still open.
fn release_if_ended(connection: Connection, ended: Result<(), Error>) -> Result<(), Error> {
    if ended.as_ref().err().is_none_or(Error::is_conflict) {
        connection.release();
    }
    ended
}

/// Happens only if a task outlives the transaction that it uses.
fn already_ended() -> Error {
    Error::misuse("the transaction has already ended")
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("dialect", &self.dialect).finish_non_exhaustive()
    }
}
