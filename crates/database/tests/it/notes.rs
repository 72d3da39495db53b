//! A sample service, written like a real one: tables, values, queries, and changes with their events.

use std::fmt;

use hob_database::outbox::Topic;
use hob_database::{
    Address, Database, Error, Keyset, Migrations, Options, Page, PageRequest, Query, Read, UnixMs, ValueKind,
    column, from_row, migrations, sql,
};
use hob_testkit::{LIMIT, TestDatabase};

pub(crate) const MIGRATIONS: Migrations =
    migrations!("notes" in "tests/it/notes": "0001_notes", "0002_attachments");

pub(crate) const PUBLISHED: Topic = Topic("notes.note.published");

const NEWEST_FIRST: Keyset = Keyset::descending(&[("created_at", ValueKind::Int), ("id", ValueKind::Text)]);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoteId(pub(crate) String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Draft,
    Published,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Note {
    pub(crate) id: NoteId,
    pub(crate) author: String,
    pub(crate) title: String,
    pub(crate) state: State,
    pub(crate) pinned: bool,
    pub(crate) version: u32,
    pub(crate) created_at: UnixMs,
}

/// The result of a request to publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Publication {
    Published,
    /// The note has changed since the caller read it, or is not a draft.
    Outdated,
}

column!(NoteId(String));
column!(State as text);
from_row!(Note { id, author, title, state, pinned, version, created_at });

/// A note by its id. The query runs on the database, in a snapshot or in a transaction.
pub(crate) fn by_id(id: &NoteId) -> Query<Note> {
    sql("SELECT id, author, title, state, pinned, version, created_at FROM notes_note WHERE id = $1").bind(id)
}

pub(crate) async fn add(database: &Database, id: &NoteId, author: &str, title: &str) -> Result<(), Error> {
    database
        .write(|tx| async move {
            let insert = sql("INSERT INTO notes_note (id, author, title, state, pinned, version, created_at)
                              VALUES ($1, $2, $3, $4, $5, 1, $6)");
            let insert = insert.bind(id).bind(author).bind(title);
            tx.execute(insert.bind(State::Draft).bind(false).bind(tx.now())).await?;
            Ok(())
        })
        .await
}

pub(crate) async fn pin(database: &Database, id: &NoteId) -> Result<bool, Error> {
    let pin = sql("UPDATE notes_note SET pinned = $2 WHERE id = $1").bind(id).bind(true);
    Ok(database.execute(pin).await? == 1)
}

/// Publishes the version of the note that the caller has seen, and emits an event.
pub(crate) async fn publish(database: &Database, id: &NoteId, seen: u32) -> Result<Publication, Error> {
    database
        .write(|tx| async move {
            let change = sql("UPDATE notes_note SET state = $3, version = version + 1
                              WHERE id = $1 AND version = $2 AND state = $4");
            let change = change.bind(id).bind(seen).bind(State::Published).bind(State::Draft);
            if tx.execute(change).await? == 0 {
                return Ok(Publication::Outdated);
            }
            tx.emit(PUBLISHED, &id.0, format!(r#"{{"id":"{id}"}}"#))?;
            Ok(Publication::Published)
        })
        .await
}

pub(crate) async fn page(on: &impl Read, author: &str, request: &PageRequest) -> Result<Page<Note>, Error> {
    let list =
        sql("SELECT id, author, title, state, pinned, version, created_at FROM notes_note WHERE author = $1");
    on.page(list.bind(author), &NEWEST_FIRST, request).await
}

pub(crate) fn titles(ids: &[NoteId]) -> Query<(NoteId, String)> {
    sql("SELECT id, title FROM notes_note WHERE id IN ($1...) ORDER BY id").bind_list(ids)
}

impl fmt::Display for NoteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

hob_units::names!(State { Draft = "draft", Published = "published" });

pub(crate) fn address(test_database: &TestDatabase) -> Address {
    test_database.url().parse().unwrap()
}

/// Longer time limits than a service has, so that a test does not fail on a busy machine.
pub(crate) fn patient_options() -> Options {
    Options { connect_timeout: LIMIT, away_timeout: LIMIT, statement_timeout: LIMIT, ..Options::default() }
}

/// Opens the database with the tables of the notes.
pub(crate) async fn open(test_database: &TestDatabase) -> Database {
    Database::open_with(&address(test_database), &[MIGRATIONS], patient_options()).await.unwrap()
}
