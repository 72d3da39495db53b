//! Migrations.

use std::collections::BTreeSet;
use std::path::Path;

use hob_database::{
    Database, DatabaseId, Error, Migration, MigrationError, Migrations, PendingMigration, Query, Read, sql,
};
use hob_testkit::{TestDatabase, every_database};
use tokio::task::JoinSet;

use crate::notes;

const fn step(name: &'static str, text: &'static str) -> Migration {
    Migration { name, sqlite: text, postgres: text }
}

const FIRST: Migration = step("0001_first", "CREATE TABLE first (n BIGINT)");
const SECOND: Migration =
    step("0002_second", "CREATE TABLE second (n BIGINT); INSERT INTO second VALUES (2)");

const fn set(steps: &'static [Migration]) -> Migrations {
    Migrations { service: "tested", steps }
}

async fn open(test_database: &TestDatabase, sets: &[Migrations]) -> Result<Database, Error> {
    Database::open_with(&notes::address(test_database), sets, notes::patient_options()).await
}

async fn refused(test_database: &TestDatabase, sets: &[Migrations]) -> MigrationError {
    match open(test_database, sets).await {
        Err(Error::Migration(refused)) => refused,
        other => panic!("{other:?}"),
    }
}

async fn applied(database: &Database) -> Vec<(String, String)> {
    let applied: Query<(String, String)> =
        sql("SELECT service, name FROM hob_migrations WHERE service = 'tested' ORDER BY number");
    database.all(applied).await.unwrap()
}

/// The names of the files of a folder, without `.sql`.
fn files(folder: &Path) -> BTreeSet<String> {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

every_database! {
    async fn pending_migrations_are_listed_and_not_applied(test_database: TestDatabase) {
        let address = notes::address(&test_database);
        let pending = async |steps| Database::pending_migrations(&address, &[set(steps)]).await;
        assert!(matches!(pending(&[FIRST]).await, Err(Error::NoDatabase)), "there are no tables");
        open(&test_database, &[set(&[FIRST])]).await.unwrap().close().await;
        assert_eq!(pending(&[FIRST]).await.unwrap(), []);
        for _ in 0..2 {
            let second = PendingMigration { service: "tested", name: "0002_second" };
            assert_eq!(pending(&[FIRST, SECOND]).await.unwrap(), [second]);
        }
        open(&test_database, &[set(&[FIRST, SECOND])]).await.unwrap().close().await;
        let newer = pending(&[FIRST]).await;
        assert!(matches!(newer, Err(Error::Migration(MigrationError::Newer { .. }))), "{newer:?}");
    }

    async fn nodes_that_start_together_migrate_once(test_database: TestDatabase) {
        let mut starting = JoinSet::new();
        for _ in 0..8 {
            let address = notes::address(&test_database);
            starting.spawn(async move {
                let sets = [set(&[FIRST, SECOND])];
                Database::open_with(&address, &sets, notes::patient_options()).await.unwrap()
            });
        }
        let database = starting.join_all().await;
        let ids: Vec<DatabaseId> = database.iter().map(Database::id).collect();
        assert_eq!(ids, [ids[0]; 8]);
        let rows: Query<(i64,)> = sql("SELECT count(*) FROM second");
        assert_eq!(database[0].one(rows).await.unwrap(), (1,));
    }

    async fn pending_migrations_are_applied_at_the_next_start(test_database: TestDatabase) {
        let database = open(&test_database, &[set(&[FIRST])]).await.unwrap();
        assert_eq!(applied(&database).await.len(), 1);
        database.close().await;
        let database = open(&test_database, &[set(&[FIRST, SECOND])]).await.unwrap();
        let names: Vec<_> = applied(&database).await.into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["0001_first", "0002_second"]);
    }

    async fn database_of_an_earlier_version_keeps_its_migrations(test_database: TestDatabase) {
        let database = open(&test_database, &[]).await.unwrap();
        let id = database.id();
        database.execute(sql("UPDATE hob_migrations SET service = 'records'")).await.unwrap();
        database.close().await;
        let database = open(&test_database, &[]).await.unwrap();
        assert_eq!(database.id(), id);
        let names: Query<(String,)> = sql("SELECT DISTINCT service FROM hob_migrations");
        assert_eq!(database.all(names).await.unwrap(), [("database".to_owned(),)]);
    }

    async fn database_newer_than_the_program_is_refused(test_database: TestDatabase) {
        open(&test_database, &[set(&[FIRST, SECOND])]).await.unwrap();
        for sets in [&[set(&[FIRST])][..], &[]] {
            let refused = refused(&test_database, sets).await.to_string();
            assert!(refused.starts_with("the database is newer than this program"), "{refused}");
        }
    }

    async fn changed_migration_is_refused(test_database: TestDatabase) {
        open(&test_database, &[set(&[FIRST])]).await.unwrap();
        const OTHER_TEXT: Migration = step("0001_first", "CREATE TABLE first (n TEXT)");
        const OTHER_NAME: Migration = step("0001_other", "CREATE TABLE first (n BIGINT)");
        for sets in [set(&[OTHER_TEXT]), set(&[OTHER_NAME])] {
            assert!(matches!(refused(&test_database, &[sets]).await, MigrationError::Changed { .. }));
        }
    }

    async fn failed_migration_changes_nothing(test_database: TestDatabase) {
        const BROKEN: Migration = step("0002_broken", "CREATE TABLE half (n BIGINT); INSERT INTO nowhere VALUES (1)");
        let refused = refused(&test_database, &[set(&[FIRST, BROKEN])]).await;
        assert!(matches!(refused, MigrationError::Failed { .. }), "{refused:?}");
        let database = open(&test_database, &[set(&[FIRST, SECOND])]).await.unwrap();
        assert_eq!(applied(&database).await.len(), 2);
        let half: Query<(i64,)> = sql("SELECT count(*) FROM half");
        assert!(database.one(half).await.is_err());
    }

    async fn misnumbered_or_duplicate_sets_are_refused(test_database: TestDatabase) {
        const GAP: Migration = step("0003_third", "SELECT 1");
        let misnumbered = refused(&test_database, &[set(&[FIRST, GAP])]).await;
        assert!(matches!(misnumbered, MigrationError::OutOfOrder { .. }));
        let twice = refused(&test_database, &[set(&[FIRST]), set(&[FIRST])]).await;
        assert!(matches!(twice, MigrationError::DuplicateName { .. }));
    }

    async fn skipped_migration_is_refused(test_database: TestDatabase) {
        let database = open(&test_database, &[set(&[FIRST, SECOND])]).await.unwrap();
        database.execute(sql("DELETE FROM hob_migrations WHERE service = 'tested' AND number = 1")).await.unwrap();
        let refused = refused(&test_database, &[set(&[FIRST, SECOND])]).await;
        assert!(matches!(refused, MigrationError::Missing { .. }));
    }
}

/// The compiler checks the other direction: that every listed name has its files.
#[test]
fn every_migration_file_is_listed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let listed = notes::MIGRATIONS.steps.iter().map(|step| step.name.to_owned()).collect();
    let own = BTreeSet::from(["0001_meta", "0002_outbox"].map(str::to_owned));
    for (folder, listed) in [("tests/it/notes", listed), ("migrations", own)] {
        assert_eq!(files(&root.join(folder).join("sqlite")), listed);
        assert_eq!(files(&root.join(folder).join("postgres")), listed);
    }
}
