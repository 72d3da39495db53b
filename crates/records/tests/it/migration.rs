//! Migrations: applied once, by whoever comes first, or not at all.

use std::collections::BTreeSet;
use std::path::Path;

use hob_records::{Error, Migration, MigrationRefused, Migrations, Query, Read, Records, RecordsId, sql};
use hob_testkit::{Database, every_database};
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

async fn open(database: &Database, sets: &[Migrations]) -> Result<Records, Error> {
    Records::open_with(&notes::address(database), sets, notes::patient()).await
}

async fn refused(database: &Database, sets: &[Migrations]) -> MigrationRefused {
    match open(database, sets).await {
        Err(Error::Migration(refused)) => refused,
        other => panic!("{other:?}"),
    }
}

async fn applied(records: &Records) -> Vec<(String, String)> {
    let applied: Query<(String, String)> =
        sql("SELECT service, name FROM hob_migrations WHERE service = 'tested' ORDER BY number");
    records.all(applied).await.unwrap()
}

/// The names of the files of a folder, without `.sql`.
fn files(folder: &Path) -> BTreeSet<String> {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

every_database! {
    async fn nodes_that_start_at_once_share_one_set_of_tables(database: Database) {
        let mut starting = JoinSet::new();
        for _ in 0..8 {
            let address = notes::address(&database);
            starting.spawn(async move {
                let sets = [set(&[FIRST, SECOND])];
                Records::open_with(&address, &sets, notes::patient()).await.unwrap()
            });
        }
        let records = starting.join_all().await;
        let ids: Vec<RecordsId> = records.iter().map(Records::id).collect();
        assert_eq!(ids, [ids[0]; 8]);
        let rows: Query<(i64,)> = sql("SELECT count(*) FROM second");
        assert_eq!(records[0].one(rows).await.unwrap(), (1,));
    }

    async fn what_is_missing_is_applied_at_the_next_start(database: Database) {
        let records = open(&database, &[set(&[FIRST])]).await.unwrap();
        assert_eq!(applied(&records).await.len(), 1);
        records.close().await;
        let records = open(&database, &[set(&[FIRST, SECOND])]).await.unwrap();
        let names: Vec<_> = applied(&records).await.into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["0001_first", "0002_second"]);
    }

    async fn records_that_are_newer_than_the_program_are_refused(database: Database) {
        open(&database, &[set(&[FIRST, SECOND])]).await.unwrap();
        for sets in [&[set(&[FIRST])][..], &[]] {
            let refused = refused(&database, sets).await.to_string();
            assert!(refused.starts_with("the records are newer than this program"), "{refused}");
        }
    }

    async fn a_migration_that_was_changed_is_refused(database: Database) {
        open(&database, &[set(&[FIRST])]).await.unwrap();
        const OTHER_TEXT: Migration = step("0001_first", "CREATE TABLE first (n TEXT)");
        const OTHER_NAME: Migration = step("0001_other", "CREATE TABLE first (n BIGINT)");
        for sets in [set(&[OTHER_TEXT]), set(&[OTHER_NAME])] {
            assert!(matches!(refused(&database, &[sets]).await, MigrationRefused::Changed { .. }));
        }
    }

    async fn a_migration_that_fails_leaves_nothing(database: Database) {
        const BROKEN: Migration = step("0002_broken", "CREATE TABLE half (n BIGINT); INSERT INTO nowhere VALUES (1)");
        let refused = refused(&database, &[set(&[FIRST, BROKEN])]).await;
        assert!(matches!(refused, MigrationRefused::Failed { .. }), "{refused:?}");
        let records = open(&database, &[set(&[FIRST, SECOND])]).await.unwrap();
        assert_eq!(applied(&records).await.len(), 2);
        let half: Query<(i64,)> = sql("SELECT count(*) FROM half");
        assert!(records.one(half).await.is_err());
    }

    async fn sets_that_are_not_in_order_are_refused(database: Database) {
        const GAP: Migration = step("0003_third", "SELECT 1");
        let misnumbered = refused(&database, &[set(&[FIRST, GAP])]).await;
        assert!(matches!(misnumbered, MigrationRefused::Misnumbered { .. }));
        let twice = refused(&database, &[set(&[FIRST]), set(&[FIRST])]).await;
        assert!(matches!(twice, MigrationRefused::Twice { .. }));
    }

    async fn a_migration_that_was_left_out_is_told(database: Database) {
        let records = open(&database, &[set(&[FIRST, SECOND])]).await.unwrap();
        records.execute(sql("DELETE FROM hob_migrations WHERE service = 'tested' AND number = 1")).await.unwrap();
        let refused = refused(&database, &[set(&[FIRST, SECOND])]).await;
        assert!(matches!(refused, MigrationRefused::LeftOut { .. }));
    }
}

/// That both databases have a file for every name is checked when the sets are compiled.
#[test]
fn no_file_of_a_migration_is_forgotten() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let listed = notes::MIGRATIONS.steps.iter().map(|step| step.name.to_owned()).collect();
    let own = BTreeSet::from(["0001_meta", "0002_outbox"].map(str::to_owned));
    for (folder, listed) in [("tests/it/notes", listed), ("migrations", own)] {
        assert_eq!(files(&root.join(folder).join("sqlite")), listed);
        assert_eq!(files(&root.join(folder).join("postgres")), listed);
    }
}
