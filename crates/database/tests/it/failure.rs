//! A database that is down, frozen or busy: calls fail in bounded time, change nothing, and work again afterwards.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use hob_database::outbox::{Event, Relay, Retention, Topic};
use hob_database::{Database, Error, Options, Query, Read, Transaction, sql};
use hob_testkit::{LIMIT, Postgres, TestDatabase, wait_for};
use tokio::sync::Notify;

use crate::notes::{self, NoteId};

/// Short enough to wait for in a test.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

fn server(test_database: &TestDatabase) -> &Postgres {
    match test_database {
        TestDatabase::Postgres(server) => server,
        TestDatabase::Sqlite(_) => panic!("SQLite has no server"),
    }
}

/// A database with short time limits.
async fn open_impatient(test_database: &TestDatabase) -> Database {
    open_with_limit(test_database, ANSWER_WITHIN).await
}

async fn open_with_limit(test_database: &TestDatabase, limit: Duration) -> Database {
    notes::open(test_database).await.close().await;
    let address = notes::address(test_database);
    // Repeated, because on a busy machine it may take longer than the limit.
    wait_for("the database to be opened", LIMIT, async || {
        let options = Options {
            connections: 4,
            connect_timeout: limit,
            statement_timeout: limit,
            ..Options::default()
        };
        Database::open_with(&address, &[notes::MIGRATIONS], options).await
    })
    .await
}

async fn add(database: &Database, id: &str) -> Result<(), Error> {
    notes::add(database, &NoteId(id.to_owned()), "ada", "a note").await
}

async fn count(database: &Database) -> Result<i64, Error> {
    let count: Query<(i64,)> = sql("SELECT count(*) FROM notes_note");
    Ok(database.one(count).await?.0)
}

/// The call fails in time, with an error that allows a retry.
async fn assert_unavailable<T: std::fmt::Debug>(call: impl Future<Output = Result<T, Error>>) {
    let started = Instant::now();
    let outcome = call.await;
    assert!(matches!(outcome, Err(Error::Unavailable { .. })), "{outcome:?}");
    assert!(outcome.unwrap_err().retry_after().is_some());
    assert!(started.elapsed() < LIMIT, "the call took {:?}", started.elapsed());
}

async fn assert_recovers(database: &Database) {
    wait_for("a successful write", LIMIT, async || match add(database, "recovered").await {
        // An earlier attempt has succeeded, although its response came too late.
        Err(error) if error.is_unique_violation() => Ok(()),
        outcome => outcome,
    })
    .await;
    wait_for("a successful read", LIMIT, async || count(database).await).await;
    wait_for("a successful ping", LIMIT, async || database.ping().await).await;
}

/// Reads concurrently, so that the pool opens all its connections.
async fn use_all_connections(database: &Database) {
    let reads = async || try_join_all((0..8).map(|_| count(database))).await;
    wait_for("eight concurrent reads", LIMIT, reads).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn database_recovers_after_a_server_restart() {
    let test_database = TestDatabase::postgres();
    let database = open_impatient(&test_database).await;
    for shut_down in [Postgres::stop, Postgres::kill] {
        use_all_connections(&database).await;
        shut_down(server(&test_database));
        assert_unavailable(count(&database)).await;
        assert_unavailable(add(&database, "unavailable")).await;
        assert_unavailable(database.ping()).await;
        server(&test_database).restart();
        assert_recovers(&database).await;
        let delete = async || database.execute(sql("DELETE FROM notes_note")).await;
        wait_for("a successful delete", LIMIT, delete).await;
    }
}

/// Something that happens to a server.
type Change = fn(&Postgres);

/// The first calls wait for a connection. Once the server is known to be away, a request with many calls does not take
/// many deadlines.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_fail_soon_while_the_server_is_known_to_be_away() {
    let disruptions: [(Change, Change); 2] =
        [(Postgres::kill, Postgres::restart), (Postgres::freeze, Postgres::unfreeze)];
    for (take_away, bring_back) in disruptions {
        let test_database = TestDatabase::postgres();
        let database = open_with_limit(&test_database, LIMIT / 6).await;
        use_all_connections(&database).await;
        take_away(server(&test_database));
        wait_for("a call to fail soon", LIMIT * 2, async || {
            let started = Instant::now();
            assert_unavailable(count(&database)).await;
            started.elapsed() < LIMIT / 12
        })
        .await;
        let started = Instant::now();
        for n in 0..10 {
            assert_unavailable(count(&database)).await;
            assert_unavailable(add(&database, &n.to_string())).await;
        }
        assert!(started.elapsed() < LIMIT, "20 calls together took {:?}", started.elapsed());
        bring_back(server(&test_database));
        assert_recovers(&database).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_idle_connections_are_replaced_without_an_error() {
    let test_database = TestDatabase::postgres();
    let database = notes::open(&test_database).await;
    for n in 0..3 {
        use_all_connections(&database).await;
        assert!(server(&test_database).disconnect_clients() > 0);
        add(&database, &n.to_string()).await.unwrap();
        assert!(server(&test_database).disconnect_clients() > 0);
        assert_eq!(count(&database).await.unwrap(), n + 1);
    }
}

/// The closure runs again on another connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_is_retried_after_its_connection_was_closed() {
    let test_database = TestDatabase::postgres();
    let database = notes::open(&test_database).await;
    let mut attempts = 0;
    let work = |tx: Transaction| {
        attempts += 1;
        let cuts = attempts == 1;
        let server = server(&test_database);
        async move {
            let (before,): (i64,) = tx.one(sql("SELECT count(*) FROM notes_note")).await?;
            if cuts {
                server.disconnect_clients();
            }
            let insert = sql("INSERT INTO notes_note (id, author, title, state, pinned, version, created_at)
                              VALUES ('n', 'ada', '', 'draft', FALSE, 1, 0)");
            tx.execute(insert).await?;
            Ok::<_, Error>(before)
        }
    };
    assert_eq!(database.write(work).await.unwrap(), 0);
    assert_eq!(attempts, 2);
    assert_eq!(count(&database).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_to_a_frozen_server_times_out() {
    let test_database = TestDatabase::postgres();
    let database = open_impatient(&test_database).await;
    use_all_connections(&database).await;
    server(&test_database).freeze();
    // More calls than connections: those that time out must not keep a place in the pool.
    for _ in 0..3 {
        tokio::join!(
            assert_unavailable(count(&database)),
            assert_unavailable(add(&database, "frozen")),
            assert_unavailable(database.ping()),
        );
    }
    server(&test_database).unfreeze();
    assert_recovers(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relay_continues_after_a_server_crash() {
    let test_database = TestDatabase::postgres();
    let database = open_impatient(&test_database).await;
    let (published, mut published_events) = tokio::sync::mpsc::unbounded_channel();
    let publish = move |events: Vec<Event>| {
        events.into_iter().for_each(|event| published.send(event.number).unwrap());
        std::future::ready(Ok::<_, Error>(()))
    };
    let relay = Relay::new(&database, Retention::default());
    let relay = tokio::spawn(relay.run(publish, std::future::pending()));
    for number in 1..=3 {
        let emit =
            async || database.write(|tx| async move { tx.emit(Topic("test"), "key", "payload") }).await;
        wait_for("a successful write", LIMIT, emit).await;
        // An event that could not be marked as published is published again.
        let received = async { while published_events.recv().await != Some(number) {} };
        tokio::time::timeout(LIMIT, received).await.unwrap();
        server(&test_database).kill();
        server(&test_database).restart();
    }
    relay.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_without_a_response_is_uncertain() {
    let test_database = TestDatabase::postgres();
    // The update before the commit must not time out, even if the machine stalls.
    let database = open_with_limit(&test_database, ANSWER_WITHIN * 4).await;
    let work = |tx: Transaction| {
        let server = server(&test_database);
        async move {
            tx.execute(sql("UPDATE hob_meta SET epoch = epoch + 1")).await?;
            server.freeze();
            Ok::<_, Error>(())
        }
    };
    let outcome = database.write(work).await;
    server(&test_database).unfreeze();
    assert!(matches!(outcome, Err(Error::Uncertain { .. })), "{outcome:?}");
}

#[tokio::test]
async fn opening_an_unreachable_database_fails() {
    let test_database = TestDatabase::postgres();
    server(&test_database).stop();
    let options = Options { connect_timeout: Duration::from_millis(200), ..Options::default() };
    assert_unavailable(Database::open_with(&notes::address(&test_database), &[], options)).await;
}

#[tokio::test]
async fn server_is_reached_over_tls_if_its_certificate_is_trusted() {
    let server = Postgres::start_with_tls();
    let address = server.tls_url().parse().unwrap();
    let database = Database::open_with(&address, &[], notes::patient_options()).await.unwrap();
    let encrypted: Query<(bool,)> = sql("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()");
    assert_eq!(database.one(encrypted).await.unwrap(), (true,));
    let untrusted = format!("{}?sslmode=verify-full", server.url()).parse().unwrap();
    assert_unavailable(Database::open_with(&untrusted, &[], notes::patient_options())).await;
}

/// Another process that holds the write lock of the SQLite file.
struct Locker(Child);

impl Locker {
    fn lock(test_database: &TestDatabase) -> Self {
        const LOCK: &str = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); \
                            c.execute('BEGIN IMMEDIATE'); print('locked', flush=True); sys.stdin.read()";
        let mut child = Command::new("python3")
            .args(["-c", LOCK, test_database.url().strip_prefix("sqlite:").unwrap()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 can be started");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "locked\n");
        Self(child)
    }

    /// Ends the process, and with it the lock.
    fn unlock(mut self) {
        self.0.stdin.take().unwrap().flush().unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Locker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locked_file_can_be_read_and_a_write_times_out() {
    let test_database = TestDatabase::sqlite();
    let database = open_impatient(&test_database).await;
    let locker = Locker::lock(&test_database);
    assert_unavailable(add(&database, "locked")).await;
    let found = wait_for("a successful read", LIMIT, async || count(&database).await).await;
    assert_eq!(found, 0);
    locker.unlock();
    assert_recovers(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn write_waits_for_a_lock_of_another_process() {
    let test_database = TestDatabase::sqlite();
    let database = notes::open(&test_database).await;
    let locker = Locker::lock(&test_database);
    let waiting = tokio::spawn({
        let database = database.clone();
        async move { add(&database, "waited").await }
    });
    assert_eq!(count(&database).await.unwrap(), 0);
    locker.unlock();
    waiting.await.unwrap().unwrap();
    assert_eq!(count(&database).await.unwrap(), 1);
}

/// A node that freezes inside a write transaction, as with SIGSTOP, holds its locks for two seconds at most.
#[tokio::test]
async fn frozen_transaction_does_not_stall_other_nodes() {
    let test_database = TestDatabase::postgres();
    // The other node does not wait as long as the server would with the general limit.
    let other = open_with_limit(&test_database, LIMIT / 2).await;
    let frozen = notes::open(&test_database).await;
    let id = NoteId("n1".to_owned());
    notes::add(&frozen, &id, "ada", "a note").await.unwrap();
    for ends_with in [EndsWith::Statement, EndsWith::Commit] {
        let before = version(&other, &id).await;
        let (locked, other_done) = (&Notify::new(), &Notify::new());
        let attempts = &AtomicU32::new(0);
        let id = &id;
        let work = |tx: Transaction| async move {
            add_one(&tx, id).await?;
            if attempts.fetch_add(1, Ordering::SeqCst) == 0 {
                locked.notify_one();
                other_done.notified().await;
                if ends_with == EndsWith::Statement {
                    add_one(&tx, id).await?;
                }
            }
            Ok::<_, Error>(())
        };
        let changed_elsewhere = async {
            locked.notified().await;
            let changed = other.write(|tx: Transaction| async move { add_one(&tx, id).await }).await;
            other_done.notify_one();
            changed
        };
        let (thawed, changed) = tokio::join!(frozen.write(work), changed_elsewhere);
        changed.expect("the other node does not wait for the frozen one");
        thawed.expect("the transaction is retried");
        assert_eq!(attempts.load(Ordering::SeqCst), 2, "{ends_with:?}");
        assert_eq!(version(&other, id).await, before + 2, "each change is applied once");
    }
}

/// What a transaction does after it was frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndsWith {
    Statement,
    Commit,
}

async fn add_one(tx: &Transaction, id: &NoteId) -> Result<(), Error> {
    tx.execute(sql("UPDATE notes_note SET version = version + 1 WHERE id = $1").bind(id)).await.map(drop)
}

async fn version(database: &Database, id: &NoteId) -> u32 {
    database.one(notes::by_id(id)).await.unwrap().version
}
