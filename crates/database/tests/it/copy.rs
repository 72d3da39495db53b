//! Backups and copies.

use std::path::PathBuf;

use hob_database::outbox::{self, Relay, Replay, Retention};
use hob_database::{Address, CopySummary, Database, Error, Query, Read, Transaction, sql};
use hob_testkit::{TestDatabase, every_database};
use tempfile::TempDir;

use crate::notes::{self, NoteId, PUBLISHED};

const NOTES: usize = 3_000;

fn id(n: usize) -> NoteId {
    NoteId(format!("n{n:05}"))
}

/// Fills every table.
async fn fill(database: &Database) {
    let rows = |tx: Transaction| async move {
        let notes = (0..NOTES).map(|n| (id(n), "ada", format!("note {n}"), "draft", n % 2 == 0, 1, tx.now()));
        let head = "INSERT INTO notes_note (id, author, title, state, pinned, version, created_at)";
        tx.insert_all(head, notes, "").await?;
        // Copied before the notes that they belong to, and large enough to need several statements.
        let attachments = (0..100).map(|n| (id(n), 1, vec![7_u8; 64 * 1024], (n % 3 > 0).then_some(0.5)));
        let head = "INSERT INTO notes_attachment (note, number, content, quality)";
        tx.insert_all(head, attachments, "").await
    };
    database.write::<_, Error, _>(rows).await.unwrap();
    database.raise_epoch(1, u32::MAX).await.unwrap();
    for n in 0..3 {
        notes::publish(database, &id(n), 1).await.unwrap();
    }
    let mut relay = Relay::new(database, Retention::default());
    relay.run_round(async |_| Ok::<_, String>(())).await.unwrap();
    relay.release().await.unwrap();
    // One more event, without a number.
    notes::publish(database, &id(3), 1).await.unwrap();
}

type Contents = (i64, i64, i64, i64, i64, Vec<(NoteId, bool, String)>);

async fn contents(database: &Database) -> Contents {
    let pinned: Query<(i64, i64)> =
        sql("SELECT count(*), count(CASE WHEN pinned THEN 1 END) FROM notes_note");
    let (notes, pinned) = database.one(pinned).await.unwrap();
    let attachments: Query<(i64, i64, i64)> = sql(
        "SELECT count(*), count(quality), CAST(coalesce(sum(length(content)), 0) AS BIGINT) FROM notes_attachment",
    );
    let (attachments, rated, bytes) = database.one(attachments).await.unwrap();
    let some: Query<(NoteId, bool, String)> =
        sql("SELECT id, pinned, title FROM notes_note ORDER BY id LIMIT 50");
    (notes, pinned, attachments, rated, bytes, database.all(some).await.unwrap())
}

/// The copy has the same contents and id, and continues the numbers of events.
async fn assert_copy(original: &Database, copied: &Database) {
    assert_eq!(copied.id(), original.id());
    assert_eq!(copied.epoch().await.unwrap(), 2);
    assert_eq!(contents(copied).await, contents(original).await);
    notes::publish(copied, &id(4), 1).await.unwrap();
    let mut relay = Relay::new(copied, Retention::default());
    relay.run_round(async |_| Ok::<_, String>(())).await.unwrap();
    let Replay::Events(events) = outbox::after(copied, PUBLISHED, 2, 10).await.unwrap() else {
        panic!("events are missing");
    };
    let numbered: Vec<_> = events.into_iter().map(|event| (event.number, NoteId(event.key))).collect();
    assert_eq!(numbered, [(3, id(2)), (4, id(3)), (5, id(4))]);
}

async fn assert_copies_to(original: &Database, target: &TestDatabase) {
    let copied = original.copy(&notes::address(target)).await.unwrap();
    assert_eq!(copied, CopySummary { tables: 8, rows: copied.rows });
    assert!(copied.rows > NOTES as u64 + 100, "{copied:?}");
    assert_copy(original, &notes::open(target).await).await;
}

every_database! {
    async fn database_can_be_copied_to_either_dialect(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        fill(&database).await;
        assert_copies_to(&database, &TestDatabase::sqlite()).await;
        assert_copies_to(&database, &TestDatabase::postgres()).await;
    }

    async fn copy_is_a_consistent_snapshot_during_writes(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        fill(&database).await;
        let writing = tokio::spawn({
            let database = database.clone();
            async move {
                for n in 0.. {
                    // Both rows in one transaction.
                    let work = |tx: Transaction| async move {
                        let both = "INSERT INTO notes_note (id, author, title, state, pinned, version, created_at)";
                        let rows = ["left", "right"].map(|author| {
                            (NoteId(format!("{author}{n}")), author, "a note", "draft", false, 1, tx.now())
                        });
                        tx.insert_all(both, rows, "").await
                    };
                    database.write::<_, Error, _>(work).await.unwrap();
                }
            }
        });
        let target = TestDatabase::sqlite();
        database.copy(&notes::address(&target)).await.unwrap();
        writing.abort();
        let copied = notes::open(&target).await;
        let sides: Query<(i64, i64)> = sql("SELECT count(CASE WHEN author = 'left' THEN 1 END),
                                                   count(CASE WHEN author = 'right' THEN 1 END) FROM notes_note");
        let (left, right) = copied.one(sides).await.unwrap();
        assert_eq!(left, right);
    }

    async fn copy_to_a_database_that_is_not_empty_is_refused(test_database: TestDatabase) {
        let source = TestDatabase::sqlite();
        let database = notes::open(&source).await;
        let target = notes::open(&test_database).await;
        notes::add(&target, &id(1), "ada", "keep me").await.unwrap();
        let refused = database.copy(&notes::address(&test_database)).await;
        assert!(matches!(refused, Err(Error::Copy { .. })), "{refused:?}");
        assert_eq!(target.one(notes::by_id(&id(1))).await.unwrap().title, "keep me");
        notes::add(&target, &id(2), "ada", "still at work").await.unwrap();
    }

    async fn failed_copy_leaves_the_target_empty(test_database: TestDatabase) {
        let source = TestDatabase::sqlite();
        let database = notes::open(&source).await;
        fill(&database).await;
        // The last table in order: all others have been copied when the copy fails.
        database.execute(sql("DROP TABLE notes_note")).await.unwrap();
        database.copy(&notes::address(&test_database)).await.unwrap_err();
        let empty = notes::open(&test_database).await;
        assert_eq!(contents(&empty).await.0, 0);
        assert_ne!(empty.id(), database.id());
    }
}

every_database! {
    async fn backup_is_a_complete_copy(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        fill(&database).await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("backup.db");
        // Left behind by a backup that was killed.
        std::fs::write(folder.path().join("backup.db.partial"), "half a backup").unwrap();
        database.backup(&file).await.unwrap();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "only the backup is left");
        let restored = Database::open(&Address::sqlite(&file), &[notes::MIGRATIONS]).await.unwrap();
        assert_copy(&database, &restored).await;
    }

    async fn restored_database_has_the_contents_and_a_new_id(test_database: TestDatabase) {
        let (_folder, file, (original, _test_database)) = backup().await;
        let before = std::fs::read(&file).unwrap();
        let to = notes::address(&test_database);
        Database::restore(&file, &to, &[notes::MIGRATIONS]).await.unwrap();
        assert!(std::fs::read(&file).unwrap() == before, "the backup was changed");
        let restored = notes::open(&test_database).await;
        assert_eq!(contents(&restored).await, contents(&original).await);
        assert_ne!(restored.id(), original.id(), "a store of the lost database must not be used");
        assert_eq!(restored.epoch().await.unwrap(), original.epoch().await.unwrap() + 1);
        restored.close().await;

        let error = Database::restore(&file, &to, &[notes::MIGRATIONS]).await.unwrap_err().to_string();
        assert!(error.contains("already exists") || error.contains("not empty"), "{error}");
    }

    async fn damaged_backup_is_refused_and_leaves_nothing(test_database: TestDatabase) {
        let (folder, file, _database) = backup().await;
        let whole = std::fs::read(&file).unwrap();
        let damaged = folder.path().join("damaged.db");
        let middle = whole.len() / 2;
        let overwritten = [&whole[..middle], &[0xa5; 8192], &whole[middle + 8192..]].concat();
        let cut = whole[..middle].to_vec();
        let to = notes::address(&test_database);
        for bytes in [overwritten, cut, b"not a database".repeat(1_000), Vec::new()] {
            std::fs::write(&damaged, bytes).unwrap();
            let refused = Database::restore(&damaged, &to, &[notes::MIGRATIONS]).await;
            assert!(refused.is_err(), "a damaged backup was restored");
        }
        let empty = notes::open(&test_database).await;
        assert_eq!(contents(&empty).await.0, 0, "a part of a damaged backup was restored");
    }
}

#[tokio::test]
async fn backup_never_replaces_a_file() {
    let test_database = TestDatabase::sqlite();
    let database = notes::open(&test_database).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("existing");
    std::fs::write(&file, "existing").unwrap();
    assert!(matches!(database.backup(&file).await, Err(Error::Copy { .. })));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "existing");
}

/// A backup with data, in a folder of the test.
async fn backup() -> (TempDir, PathBuf, (Database, TestDatabase)) {
    let test_database = TestDatabase::sqlite();
    let database = notes::open(&test_database).await;
    fill(&database).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("backup.db");
    database.backup(&file).await.unwrap();
    (folder, file, (database, test_database))
}

/// What SQLite leaves beside a database that was not closed would be applied to the restored file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restore_refuses_the_log_of_another_database() {
    let (folder, file, _database) = backup().await;
    let to = folder.path().join("hob.db");
    std::fs::write(folder.path().join("hob.db-wal"), "log").unwrap();
    let refused = Database::restore(&file, &Address::sqlite(&to), &[notes::MIGRATIONS]).await;
    assert!(refused.unwrap_err().to_string().contains("hob.db-wal already exists"));
    assert!(!to.exists());
}
