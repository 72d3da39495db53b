//! Both databases return the values that were stored, or refuse them.

use hob_database::{Database, Error, PerDialect, Query, Read, Transaction, UnixMs, sql};
use hob_testkit::every_database;

use crate::notes;

const TABLE: PerDialect = PerDialect {
    sqlite: "CREATE TABLE kinds (n INTEGER, x REAL, truth INTEGER, words TEXT, bytes BLOB) STRICT",
    postgres: "CREATE TABLE kinds (n BIGINT, x DOUBLE PRECISION, truth BOOLEAN, words TEXT, bytes BYTEA)",
};

type Kinds = (Option<i64>, Option<f64>, Option<bool>, Option<String>, Option<Vec<u8>>);

async fn create_table(database: &Database) {
    database.execute(sql(TABLE)).await.unwrap();
}

async fn insert(database: &Database, row: &Kinds) -> Result<u64, Error> {
    let work = |tx: Transaction| async move {
        let (n, x, truth, words, bytes) = row;
        let insert = sql("INSERT INTO kinds (n, x, truth, words, bytes) VALUES ($1, $2, $3, $4, $5)");
        tx.execute(insert.bind(n).bind(x).bind(truth).bind(words).bind(bytes)).await
    };
    database.write(work).await
}

every_database! {
    async fn every_kind_of_value_round_trips(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        create_table(&database).await;
        let rows: Vec<Kinds> = vec![
            (Some(i64::MIN), Some(f64::MIN_POSITIVE), Some(true), Some("naïve 🦀 \"'$1".into()), Some(vec![0, 255])),
            (Some(i64::MAX), Some(-0.1), Some(false), Some(String::new()), Some(vec![])),
            (Some(0), Some(f64::INFINITY), None, None, None),
            (None, Some(2.0), None, None, None),
            (None, None, None, None, None),
        ];
        for row in &rows {
            insert(&database, row).await.unwrap();
            let stored: Query<Kinds> = sql("SELECT n, x, truth, words, bytes FROM kinds");
            assert_eq!(database.one(stored).await.unwrap(), *row);
            database.execute(sql("DELETE FROM kinds")).await.unwrap();
        }
    }

    async fn null_is_not_read_as_a_value(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        create_table(&database).await;
        insert(&database, &(None, None, None, None, None)).await.unwrap();
        let n: Query<(i64,)> = sql("SELECT n FROM kinds");
        assert!(matches!(database.one(n).await, Err(Error::Column { .. })));
    }

    async fn integer_that_does_not_fit_is_reported(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        let n: Query<(u8,)> = sql("SELECT CAST(300 AS BIGINT) AS n");
        let error = database.one(n).await.unwrap_err();
        assert_eq!(error.to_string(), "cannot read column n as u8: found 300");
    }

    async fn shared_sql_works_on_both(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        create_table(&database).await;
        for n in 0..4 {
            insert(&database, &(Some(n), None, Some(n % 2 == 0), None, None)).await.unwrap();
        }
        let sum: Query<(i64, i64, bool)> = sql(
            "SELECT CAST(sum(n) AS BIGINT), count(*), EXISTS (SELECT 1 FROM kinds WHERE truth) FROM kinds WHERE truth = $1",
        );
        assert_eq!(database.one(sum.bind(true)).await.unwrap(), (2, 2, true));
        let pairs: Query<(i64,)> = sql("SELECT n FROM kinds WHERE (n, n) > ($1, $2) AND TRUE ORDER BY n DESC LIMIT $3");
        assert_eq!(database.all(pairs.bind(1).bind(0).bind(2)).await.unwrap(), [(3,), (2,)]);
    }

    async fn transaction_has_one_time_which_is_now(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        let here = || {
            let now = std::time::UNIX_EPOCH.elapsed().unwrap();
            UnixMs(now.as_millis().try_into().unwrap())
        };
        let before = here();
        let times = |tx: Transaction| async move { Ok::<_, Error>((tx.now(), tx.now())) };
        let (first, second) = database.write(times).await.unwrap();
        assert_eq!(first, second);
        // PostgreSQL rounds, and both run on this machine.
        assert!((before.0 - 1..=here().0 + 1).contains(&first.0), "{before:?} {first:?}");
    }

    async fn many_rows_are_inserted_in_batches(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        create_table(&database).await;
        let count = 20_000;
        let work = |tx: Transaction| async move {
            let rows = (0..count).map(|n| (n, n.to_string()));
            tx.insert_all("INSERT INTO kinds (n, words)", rows, "ON CONFLICT DO NOTHING").await
        };
        let inserted: u64 = database.write(work).await.unwrap();
        assert_eq!(inserted, 20_000);
        let stored: Query<(i64, i64)> = sql("SELECT count(*), CAST(sum(n) AS BIGINT) FROM kinds WHERE words = CAST(n AS TEXT)");
        assert_eq!(database.one(stored).await.unwrap(), (count, count * (count - 1) / 2));
        let everything: Query<(i64,)> = sql("SELECT n FROM kinds");
        assert!(matches!(database.all(everything).await, Err(Error::TooManyRows { .. })));
    }
}
