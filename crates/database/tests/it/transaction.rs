//! Transactions: atomic, isolated, and the same on both databases.

use hob_database::{Constraint, Database, Error, PerDialect, Query, Read, Snapshot, Sql, Transaction, sql};
use hob_testkit::{LIMIT, budget, every_database, wait_for};
use tokio::task::JoinSet;

use crate::notes::{self, NoteId};

fn note(id: &str) -> NoteId {
    NoteId(id.to_owned())
}

async fn insert(tx: &Transaction, id: &str) -> Result<u64, Error> {
    let insert = sql("INSERT INTO notes_note (id, author, title, state, pinned, version, created_at)
                      VALUES ($1, 'ada', 'a note', 'draft', FALSE, 1, $2)");
    tx.execute(insert.bind(id).bind(tx.now())).await
}

async fn count(on: &impl Read) -> i64 {
    let count: Query<(i64,)> = sql("SELECT count(*) FROM notes_note");
    on.one(count).await.unwrap().0
}

/// Adds one to a note's version, by reading it and then writing it.
async fn read_and_add(database: &Database, id: &NoteId) -> Result<(), Error> {
    let work = |tx: Transaction| async move {
        let note = tx.one(notes::by_id(id)).await?;
        let next = note.version + 1;
        tx.execute(sql("UPDATE notes_note SET version = $2 WHERE id = $1").bind(id).bind(next)).await
    };
    database.write(work).await.map(drop)
}

every_database! {
    async fn failed_write_changes_nothing(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        let work = |tx: Transaction| async move {
            insert(&tx, "first").await?;
            Err::<(), _>(Error::InvalidCursor)
        };
        assert!(matches!(database.write(work).await, Err(Error::InvalidCursor)));
        assert_eq!(count(&database).await, 0);
    }

    /// PostgreSQL could not commit the rest; SQLite could, and must not.
    async fn transaction_does_not_commit_after_a_failed_statement(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        let work = |tx: Transaction| async move {
            insert(&tx, "first").await?;
            let again = insert(&tx, "first").await;
            assert!(again.is_err_and(|error| error.is_unique_violation()));
            Ok::<_, Error>(())
        };
        assert!(matches!(database.write(work).await, Err(Error::TransactionFailed)));
        assert_eq!(count(&database).await, 0);
    }

    async fn constraint_violations_are_classified(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        let broken = |statement: Sql| {
            let database = database.clone();
            async move {
                let work = |tx: Transaction| {
                    let statement = sql(statement.clone());
                    async move { tx.execute(statement).await }
                };
                match database.write(work).await {
                    Err(Error::Violation { constraint, .. }) => constraint,
                    other => panic!("{other:?}"),
                }
            }
        };
        let orphan = PerDialect {
            sqlite: "INSERT INTO notes_attachment (note, number, content) VALUES ('none', 1, x'00')",
            postgres: "INSERT INTO notes_attachment (note, number, content) VALUES ('none', 1, '\\x00')",
        };
        assert_eq!(broken(orphan.into()).await, Constraint::ForeignKey);
        assert_eq!(broken("UPDATE hob_meta SET epoch = NULL".into()).await, Constraint::NotNull);
        assert_eq!(broken("UPDATE hob_meta SET one = 2".into()).await, Constraint::Check);
    }

    /// Two nodes read, then write: no update is lost, and no "database is locked" reaches the caller.
    async fn concurrent_writers_lose_no_update(test_database: TestDatabase) {
        let nodes = [notes::open(&test_database).await, notes::open(&test_database).await];
        let id = note("contended");
        notes::add(&nodes[0], &id, "ada", "a note").await.unwrap();
        let (writers, each) = (4_u32, budget(15_u32, 100));
        let mut tasks = JoinSet::new();
        for node in &nodes {
            for _ in 0..writers {
                let (database, id) = (node.clone(), id.clone());
                tasks.spawn(async move {
                    for _ in 0..each {
                        read_and_add(&database, &id).await?;
                    }
                    Ok::<_, Error>(())
                });
            }
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap().unwrap();
        }
        let note = nodes[0].one(notes::by_id(&id)).await.unwrap();
        assert_eq!(note.version, 1 + 2 * writers * each);
    }

    async fn snapshot_does_not_change(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        let outside = &database;
        let read = |snapshot: Snapshot| async move {
            let before = count(&snapshot).await;
            notes::add(outside, &note("meanwhile"), "ada", "a note").await?;
            Ok::<_, Error>((before, count(&snapshot).await, count(outside).await))
        };
        assert_eq!(database.read(read).await.unwrap(), (0, 0, 1));
    }

    async fn only_a_transaction_can_write(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        let write = || -> Query<(i64,)> { sql("UPDATE hob_meta SET epoch = 9 RETURNING epoch") };
        assert!(matches!(database.optional(write()).await, Err(Error::Database { .. })));
        let read = |snapshot: Snapshot| async move { snapshot.optional(write()).await };
        assert!(matches!(database.read(read).await, Err(Error::Database { .. })));
        assert_eq!(database.epoch().await.unwrap(), 1);
    }

    /// A client that disconnects drops the future of its handler at any point.
    async fn cancelled_write_changes_nothing_and_blocks_no_other(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        let (inserted, is_inserted) = tokio::sync::oneshot::channel();
        let mut inserted = Some(inserted);
        let task = tokio::spawn({
            let database = database.clone();
            async move {
                let work = |tx: Transaction| {
                    let inserted = inserted.take();
                    async move {
                        insert(&tx, "never").await?;
                        inserted.map(|inserted| inserted.send(()));
                        std::future::pending::<Result<(), Error>>().await
                    }
                };
                database.write(work).await
            }
        });
        is_inserted.await.unwrap();
        task.abort();
        wait_for("the next write to succeed", LIMIT, async || notes::add(&database, &note("next"), "ada", "a note").await).await;
        assert_eq!(count(&database).await, 1);
    }

    /// Nodes that report the same loss get different epochs: an epoch is begun once.
    async fn raised_epoch_is_never_given_out_twice(test_database: TestDatabase) {
        const MAX: u32 = 50;
        let database = notes::open(&test_database).await;
        let lost = database.epoch().await.unwrap();
        let mut tasks = JoinSet::new();
        for _ in 0..8 {
            let database = database.clone();
            tasks.spawn(async move { database.raise_epoch(lost, MAX).await.unwrap() });
        }
        let mut raised = tasks.join_all().await;
        raised.sort_unstable();
        assert_eq!(raised, (lost + 1..=lost + 8).collect::<Vec<_>>());
        assert_eq!(database.epoch().await.unwrap(), lost + 8);
        // The database was restored from a backup and has an older epoch: fences of the store must not repeat.
        assert_eq!(database.raise_epoch(40, MAX).await.unwrap(), 41);
        assert_eq!(database.raise_epoch(MAX - 1, MAX).await.unwrap(), MAX);
        assert!(database.raise_epoch(MAX, MAX).await.is_err());
    }
}
