//! What a piece of work does with the database while it has them: look, in a snapshot; change, in a transaction.

pub(crate) mod retry;

use std::fmt;
use std::sync::{Arc, Mutex as Plain, PoisonError};

use tokio::sync::Mutex;

use crate::address::Dialect;
use crate::connection::Connection;
use crate::outbox::{NewEvent, Topic};
use crate::query::read::sealed::Source;
use crate::query::{Query, Statement};
use crate::value::row::Row;
use crate::{Error, UnixMs};

/// The database as they were at one moment.
#[derive(Debug)]
pub struct Snapshot {
    shared: Arc<Shared>,
}

/// A change of the database: all of it happens, or nothing.
#[derive(Debug)]
pub struct Transaction {
    shared: Arc<Shared>,
}

/// What the owner of a transaction shares with the work that is done in it.
struct Shared {
    dialect: Dialect,
    now: UnixMs,
    state: Mutex<State>,
    events: Plain<Vec<NewEvent>>,
}

struct State {
    /// `None` once the transaction is over.
    connection: Option<Connection>,
    doom: Option<Doom>,
}

/// Why a transaction cannot be committed any more.
pub(crate) enum Doom {
    /// Others were in the way, or the connection was lost: the work should be done once more.
    Again(Error),
    /// A statement failed. SQLite would commit the others, PostgreSQL none.
    Broken,
}

/// The owner's side of a transaction, which ends it when the work is done.
pub(crate) struct Unit {
    shared: Arc<Shared>,
}

impl Snapshot {
    /// When the snapshot was taken: see [`Transaction::now`].
    pub fn now(&self) -> UnixMs {
        self.shared.now
    }
}

impl Transaction {
    /// When the transaction began, by the database's clock: that of the machine for SQLite, that of the
    /// server for PostgreSQL, on which all nodes agree. Clocks can be set back: order by numbers, not times.
    pub fn now(&self) -> UnixMs {
        self.shared.now
    }

    /// Runs a statement that changes something, and answers with how many rows it changed.
    ///
    /// After a statement that failed there is no commit, whatever the work answers. What may well be there
    /// already is written with `ON CONFLICT`.
    pub async fn execute(&self, query: Query<()>) -> Result<u64, Error> {
        self.run(query.statement(self.shared.dialect)?).await
    }

    /// Says that something happened, in the same breath as the change: the event is written when the
    /// transaction commits, or not at all. See [`outbox`](crate::outbox).
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

    pub(crate) async fn run(&self, statement: Statement) -> Result<u64, Error> {
        let mut state = self.shared.state.lock().await;
        let outcome = state.connection()?.execute(statement).await;
        state.note(outcome)
    }
}

impl Shared {
    async fn fetch(&self, statement: Statement, most: usize) -> Result<Vec<Row>, Error> {
        let mut state = self.state.lock().await;
        let outcome = state.connection()?.fetch(statement, most).await;
        state.note(outcome)
    }

    fn events(&self) -> std::sync::MutexGuard<'_, Vec<NewEvent>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for Snapshot {
    fn dialect(&self) -> Dialect {
        self.shared.dialect
    }

    async fn fetch(&self, statement: Statement, most: usize) -> Result<Vec<Row>, Error> {
        self.shared.fetch(statement, most).await
    }
}

impl Source for Transaction {
    fn dialect(&self) -> Dialect {
        self.shared.dialect
    }

    async fn fetch(&self, statement: Statement, most: usize) -> Result<Vec<Row>, Error> {
        self.shared.fetch(statement, most).await
    }
}

impl State {
    fn connection(&mut self) -> Result<&mut Connection, Error> {
        self.connection.as_mut().ok_or_else(over)
    }

    /// Remembers what dooms the transaction, whatever the work makes of the error.
    fn note<T>(&mut self, outcome: Result<T, Error>) -> Result<T, Error> {
        outcome.map_err(|error| {
            if error.is_conflict() || error.is_unavailable() {
                self.doom = Some(Doom::Again(error));
                return Error::Broken;
            }
            self.doom.get_or_insert(Doom::Broken);
            error
        })
    }
}

impl Unit {
    pub(crate) fn new(connection: Connection, now: UnixMs) -> Self {
        let shared = Shared {
            dialect: connection.dialect(),
            now,
            state: Mutex::new(State { connection: Some(connection), doom: None }),
            events: Plain::default(),
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

    pub(crate) async fn doom(&self) -> Option<Doom> {
        self.shared.state.lock().await.doom.take()
    }

    /// Ends the transaction with `COMMIT` or `ROLLBACK`.
    pub(crate) async fn end(self, how: &'static str) -> Result<(), Error> {
        let connection = self.shared.state.lock().await.connection.take();
        let mut connection = connection.ok_or_else(over)?;
        let ended = connection.run_script(how).await.map_err(Error::from);
        // A conflict that shows in the commit ends the transaction too; after other errors SQLite's goes on.
        if ended.as_ref().err().is_none_or(Error::is_conflict) {
            connection.release();
        }
        ended
    }
}

/// Only a task that outlives the transaction in which it was started comes too late.
fn over() -> Error {
    Error::misuse("the transaction is over")
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("dialect", &self.dialect).finish_non_exhaustive()
    }
}
