//! The outbox: events of committed changes only, each with one number, in causal order.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hob_database::outbox::{
    self, Backlog, Consumer, Event, Relay, RelayRound, Replay, Retention, RetentionLimit, Start, Topic,
};
use hob_database::{Database, Error, Isolation, Options, Query, Read, Transaction, sql};
use hob_testkit::{LIMIT, TestDatabase, budget, every_database, wait_for};
use tokio::sync::oneshot;

use crate::notes;

const TOPIC: Topic = Topic("test.counted");

/// Keeps all events.
const KEEP: Retention = limits(u64::MAX, u64::MAX);

const fn limits(read: u64, unread: u64) -> Retention {
    const AGE: Duration = Duration::from_hours(1);
    Retention {
        read: RetentionLimit { age: AGE, count: read },
        unread: RetentionLimit { age: AGE, count: unread },
    }
}

async fn emit(database: &Database, count: usize) {
    let emit = |tx: Transaction| async move {
        (0..count).try_for_each(|n| tx.emit(TOPIC, "key", n.to_string()))?;
        Ok::<_, Error>(())
    };
    database.write(emit).await.unwrap();
}

/// Relays until there is nothing left to do, and returns the published events.
async fn relay(database: &Database, retention: Retention) -> Vec<Event> {
    let mut relay = Relay::new(database, retention);
    let mut published = Vec::new();
    loop {
        let batch = Mutex::new(Vec::new());
        let round = relay.run_round(async |events| {
            batch.lock().unwrap().extend(events);
            Ok::<_, String>(())
        });
        let round = round.await.unwrap();
        published.extend(batch.into_inner().unwrap());
        match round {
            RelayRound::Worked { .. } => {}
            RelayRound::Idle => break,
            other => panic!("no other relay runs, but the result was {other:?}"),
        }
    }
    relay.release().await.unwrap();
    published
}

fn numbers(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.number).collect()
}

async fn after(database: &Database, number: u64, limit: u16) -> Vec<u64> {
    match outbox::after(database, TOPIC, number, limit).await.unwrap() {
        Replay::Events(events) => numbers(&events),
        missed @ Replay::Missed { .. } => panic!("{missed:?}"),
    }
}

/// Emits an event, increments a row, and stores which of the row's increments it was. The event is emitted before the
/// transaction waits for others that increment the same row.
async fn count_up(database: &Database, row: i64, token: i64, isolation: Isolation) -> Result<(), Error> {
    let work = |tx: Transaction| async move {
        tx.emit(TOPIC, row.to_string(), token.to_string())?;
        let count = sql("UPDATE counted SET n = n + 1 WHERE id = $1 RETURNING n");
        let (n,): (i64,) = tx.one(count.bind(row)).await?;
        let note = sql("INSERT INTO counts (id, n, token) VALUES ($1, $2, $3)");
        tx.execute(note.bind(row).bind(n).bind(token)).await?;
        if token % 5 == 0 {
            // Any error rolls back.
            return Err(Error::InvalidCursor);
        }
        Ok(())
    };
    match database.write_with(isolation, work).await {
        Err(Error::InvalidCursor) => Ok(()),
        outcome => outcome,
    }
}

async fn make_counted(database: &Database, rows: i64) {
    let tables = |tx: Transaction| async move {
        tx.execute(sql("CREATE TABLE counted (id BIGINT PRIMARY KEY, n BIGINT NOT NULL)")).await?;
        let counts = "CREATE TABLE counts (id BIGINT, n BIGINT, token BIGINT, PRIMARY KEY (id, n))";
        tx.execute(sql(counts)).await?;
        tx.insert_all("INSERT INTO counted (id, n)", (0..rows).map(|id| (id, 0)), "").await
    };
    database.write::<_, Error, _>(tables).await.unwrap();
}

/// Two relays that compete, as those of two nodes do. They stop when they are dropped.
fn contending_relays(database: &Database, published: &Arc<Mutex<Vec<Event>>>) -> tokio::task::JoinSet<()> {
    let mut relays = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let published = Arc::clone(published);
        let publish = move |events| {
            published.lock().unwrap().extend(events);
            std::future::ready(Ok::<_, String>(()))
        };
        let relay = Relay::new(database, KEEP).lease(Duration::from_millis(50));
        relays.spawn(relay.run(publish, std::future::pending()));
    }
    relays
}

every_database! {
    /// The events of each row come in the order in which the row was incremented.
    async fn concurrent_events_are_numbered_in_order_without_gaps(test_database: TestDatabase) {
        const ROWS: i64 = 3;
        let database = notes::open(&test_database).await;
        make_counted(&database, ROWS).await;
        let published = Arc::default();
        let relays = contending_relays(&database, &published);

        let (writers, each) = (8, budget(30, 300));
        let mut tasks = tokio::task::JoinSet::new();
        for writer in 0..writers {
            let database = database.clone();
            tasks.spawn(async move {
                for n in 0..each {
                    let how = if n % 4 == 0 { Isolation::Serializable } else { Isolation::ReadCommitted };
                    count_up(&database, (writer + n) % ROWS, writer * each + n, how).await?;
                }
                Ok::<_, Error>(())
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap().unwrap();
        }

        let counts: Query<(i64, i64)> = sql("SELECT id, token FROM counts ORDER BY id, n");
        let counts = database.all(counts).await.unwrap();
        let everything: BTreeSet<u64> = (1..).take(counts.len()).collect();
        wait_for("everything to be published", LIMIT, async || {
            let published = published.lock().unwrap();
            published.iter().map(|event: &Event| event.number).collect::<BTreeSet<_>>() == everything
        })
        .await;
        drop(relays);

        let Replay::Events(events) = outbox::after(&database, TOPIC, 0, u16::MAX).await.unwrap() else {
            panic!("events are missing");
        };
        assert_eq!(numbers(&events), everything.into_iter().collect::<Vec<_>>());
        for row in 0..ROWS {
            let published = events.iter().filter(|event| event.key == row.to_string());
            let published: Vec<i64> = published.map(|event| event.payload.parse().unwrap()).collect();
            let counted: Vec<i64> = counts.iter().filter(|(id, _)| *id == row).map(|(_, token)| *token).collect();
            assert_eq!(published, counted);
        }
    }

    async fn event_is_published_only_if_its_transaction_committed(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        let fails = |tx: Transaction| async move {
            tx.emit(TOPIC, "key", "never")?;
            Err::<(), _>(Error::InvalidCursor)
        };
        database.write(fails).await.unwrap_err();
        emit(&database, 2).await;
        let published = relay(&database, KEEP).await;
        let payloads: Vec<_> = published.iter().map(|event| event.payload.as_str()).collect();
        assert_eq!(payloads, ["0", "1"]);
    }

    async fn client_catches_up_from_the_last_number_it_has_seen(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        emit(&database, 5).await;
        relay(&database, KEEP).await;
        assert_eq!(after(&database, 0, 100).await, [1, 2, 3, 4, 5]);
        assert_eq!(after(&database, 2, 2).await, [3, 4]);
        assert_eq!(after(&database, 5, 100).await, [0; 0]);
        // A number that was never assigned.
        let missed = Replay::Missed { oldest: 1, newest: 5 };
        assert_eq!(outbox::after(&database, TOPIC, 6, 100).await.unwrap(), missed);
    }

    async fn failed_publish_is_retried(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        emit(&database, 3).await;
        let mut broken = Relay::new(&database, KEEP);
        let round = broken.run_round(async |_| Err("the bus is down")).await.unwrap();
        assert_eq!(round, RelayRound::Unpublished);
        // Unpublished events are numbered too, and can be read.
        assert_eq!(after(&database, 0, 100).await, [1, 2, 3]);
        broken.release().await.unwrap();
        assert_eq!(numbers(&relay(&database, KEEP).await), [1, 2, 3]);
        assert_eq!(relay(&database, KEEP).await, []);
    }

    async fn expired_relay_is_replaced_and_its_late_writes_are_refused(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        let publish = async |_| Ok::<_, String>(());
        let lease = Duration::from_millis(200);
        let (mut first, mut second) = (Relay::new(&database, KEEP).lease(lease), Relay::new(&database, KEEP));
        assert_eq!(first.run_round(publish).await.unwrap(), RelayRound::Idle);
        emit(&database, 1).await;
        wait_for("the lease to expire", LIMIT, async || {
            matches!(second.run_round(publish).await.unwrap(), RelayRound::Worked { numbered: 1, .. })
        })
        .await;
        emit(&database, 1).await;
        assert_eq!(first.run_round(publish).await.unwrap(), RelayRound::NotLeaseHolder);
        assert_eq!(after(&database, 0, 100).await, [1]);
    }

    /// A suspended process: by its own clock the lease has just been renewed.
    async fn relay_that_missed_the_end_of_its_lease_assigns_no_numbers(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        let publish = async |_| Ok::<_, String>(());
        let (mut suspended, mut second) = (Relay::new(&database, KEEP), Relay::new(&database, KEEP));
        assert_eq!(suspended.run_round(publish).await.unwrap(), RelayRound::Idle);
        database.execute(sql("UPDATE hob_outbox_lease SET held_until = 1")).await.unwrap();
        assert_eq!(second.run_round(publish).await.unwrap(), RelayRound::Idle);
        emit(&database, 1).await;
        assert_eq!(suspended.run_round(publish).await.unwrap(), RelayRound::NotLeaseHolder);
        assert_eq!(after(&database, 0, 100).await, [0; 0]);
        assert_eq!(second.run_round(publish).await.unwrap(), RelayRound::Worked { numbered: 1, published: 1 });
    }

    async fn stopped_relay_releases_its_lease(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        let publish = |_| std::future::ready(Ok::<_, String>(()));
        let long = Duration::from_hours(1);
        Relay::new(&database, KEEP).lease(long).run(publish, std::future::ready(())).await;
        assert_eq!(Relay::new(&database, KEEP).run_round(publish).await.unwrap(), RelayRound::Idle);
    }

    async fn backlog_is_counted(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        let backlog = async || outbox::backlog(&database).await.unwrap();
        assert_eq!(backlog().await, Backlog { unnumbered: 0, unpublished: 0 });
        emit(&database, 3).await;
        assert_eq!(backlog().await, Backlog { unnumbered: 3, unpublished: 0 });
        Relay::new(&database, KEEP).run_round(async |_| Err("the bus is down")).await.unwrap();
        assert_eq!(backlog().await, Backlog { unnumbered: 0, unpublished: 3 });
    }

    async fn events_of_this_node_are_published_at_once(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        let published = Arc::default();
        let _relays = contending_relays(&database, &published);
        for n in 1..=3 {
            emit(&database, 1).await;
            wait_for("the event to be published", LIMIT, async || numbers(&published.lock().unwrap()).contains(&n)).await;
        }
    }

    async fn consumer_gets_every_event_at_least_once(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        emit(&database, 2).await;
        relay(&database, KEEP).await;
        let consumer = Consumer::open(&database, "mail", TOPIC, Start::Oldest).await.unwrap();
        let late = Consumer::open(&database, "late", TOPIC, Start::Newest).await.unwrap();
        emit(&database, 2).await;
        // All other events expire at once; these two consumers have not read them yet.
        relay(&database, limits(0, 100)).await;

        let batch = |consumer: Consumer| async move {
            match consumer.next_batch(3).await.unwrap() {
                Replay::Events(events) => numbers(&events),
                missed @ Replay::Missed { .. } => panic!("{missed:?}"),
            }
        };
        assert_eq!(batch(consumer.clone()).await, [1, 2, 3]);
        assert_eq!(batch(consumer.clone()).await, [1, 2, 3]);
        consumer.ack(2).await.unwrap();
        // Opened again, it has its position.
        let consumer = Consumer::open(&database, "mail", TOPIC, Start::Newest).await.unwrap();
        assert_eq!(batch(consumer.clone()).await, [3, 4]);
        consumer.ack(4).await.unwrap();
        consumer.ack(1).await.unwrap();
        assert_eq!(batch(consumer).await, [0; 0]);
        assert_eq!(batch(late.clone()).await, [3, 4]);

        late.delete().await.unwrap();
        relay(&database, limits(0, 100)).await;
        let missed = Replay::Missed { oldest: 5, newest: 4 };
        assert_eq!(outbox::after(&database, TOPIC, 3, 10).await.unwrap(), missed);
    }

    async fn acknowledgement_is_rolled_back_with_its_transaction(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        emit(&database, 1).await;
        relay(&database, KEEP).await;
        let consumer = &Consumer::open(&database, "mail", TOPIC, Start::Oldest).await.unwrap();
        let fails = |tx: Transaction| async move {
            consumer.ack_in(&tx, 1).await?;
            Err::<(), _>(Error::InvalidCursor)
        };
        database.write(fails).await.unwrap_err();
        assert_eq!(consumer.position().await.unwrap(), 0);
    }

    async fn consumer_learns_which_events_it_missed(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        let consumer = Consumer::open(&database, "mail", TOPIC, Start::Oldest).await.unwrap();
        emit(&database, 10).await;
        relay(&database, limits(0, 4)).await;
        let missed = Replay::Missed { oldest: 7, newest: 10 };
        assert_eq!(consumer.next_batch(10).await.unwrap(), missed);
        consumer.ack(6).await.unwrap();
        let Replay::Events(events) = consumer.next_batch(10).await.unwrap() else {
            panic!("the missed events were acknowledged");
        };
        assert_eq!(numbers(&events), [7, 8, 9, 10]);
        // Numbers continue after events were deleted.
        emit(&database, 1).await;
        assert_eq!(numbers(&relay(&database, limits(0, 0)).await), [11]);
        assert_eq!(after(&database, 11, 10).await, [0; 0]);
    }

    /// The bus may be down for longer than the retention.
    async fn unpublished_events_are_bounded(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        emit(&database, 10).await;
        let mut relay = Relay::new(&database, limits(0, 4));
        let round = relay.run_round(async |_| Err("the bus is down")).await.unwrap();
        assert_eq!(round, RelayRound::Unpublished);
        assert_eq!(after(&database, 6, 100).await, [7, 8, 9, 10]);
        let stored: Query<(i64,)> = sql("SELECT count(*) FROM hob_outbox_event");
        assert_eq!(database.one(stored).await.unwrap(), (4,));
    }

    async fn too_large_event_fails_its_transaction(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        let emit = |tx: Transaction| async move { tx.emit(TOPIC, "key", "x".repeat(1 << 20)) };
        assert!(matches!(database.write(emit).await, Err(Error::InvalidValue { .. })));
    }
}

/// A transaction that took its id early and commits late does not leave a gap.
#[tokio::test]
async fn transaction_that_commits_late_gets_its_number_late() {
    let test_database = TestDatabase::postgres();
    let database = notes::open(&test_database).await;
    let (written, is_written) = oneshot::channel();
    let (resume, resumed) = oneshot::channel::<()>();
    let slow = tokio::spawn({
        let database = database.clone();
        let mut once = Some((written, resumed));
        async move {
            let work = |tx: Transaction| {
                let once = once.take();
                async move {
                    let early = sql("INSERT INTO hob_outbox_new (topic, key, payload, written_at)
                                     VALUES ($1, 'slow', '', 0)");
                    tx.execute(early.bind(TOPIC.0)).await?;
                    let (written, resumed) = once.expect("no conflict, so one attempt");
                    written.send(()).unwrap();
                    resumed.await.unwrap();
                    Ok::<_, Error>(())
                }
            };
            database.write_with(Isolation::ReadCommitted, work).await.unwrap();
        }
    });
    is_written.await.unwrap();
    emit(&database, 1).await;
    assert_eq!(numbers(&relay(&database, KEEP).await), [1]);
    resume.send(()).unwrap();
    slow.await.unwrap();
    let late = relay(&database, KEEP).await;
    assert_eq!((late[0].number, late[0].key.as_str()), (2, "slow"));
}

/// Longer than any test: what happens in a test is not found by polling.
const NEVER: Duration = Duration::from_hours(1);

/// A node that does not poll.
async fn node_without_polling(test_database: &TestDatabase) -> Database {
    let options = Options { safety_poll: NEVER, ..notes::patient_options() };
    Database::open_with(&notes::address(test_database), &[notes::MIGRATIONS], options).await.unwrap()
}

/// Runs a relay that sends the numbers of published events, until the sender is dropped or used.
fn run_relay(
    database: &Database,
) -> (tokio::sync::mpsc::UnboundedReceiver<u64>, oneshot::Sender<()>, tokio::task::JoinHandle<()>) {
    let (published, numbers) = tokio::sync::mpsc::unbounded_channel();
    let (stop, stopped) = oneshot::channel();
    let publish = move |events: Vec<Event>| {
        events.iter().for_each(|event| _ = published.send(event.number));
        std::future::ready(Ok::<_, Error>(()))
    };
    let relay = Relay::new(database, KEEP).lease(NEVER);
    let running = tokio::spawn(relay.run(publish, async { drop(stopped.await) }));
    (numbers, stop, running)
}

async fn next(numbers: &mut tokio::sync::mpsc::UnboundedReceiver<u64>) -> u64 {
    let next = tokio::time::timeout(LIMIT, numbers.recv()).await;
    next.expect("an event is published without polling").expect("the relay runs")
}

/// Events of another node wake the relay, also after its listening connection was closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_another_node_are_published_without_polling() {
    let test_database = TestDatabase::postgres();
    let TestDatabase::Postgres(postgres) = &test_database else { unreachable!("it is PostgreSQL") };
    let (relaying, other) =
        (node_without_polling(&test_database).await, node_without_polling(&test_database).await);
    let (mut numbers, _stop, _running) = run_relay(&relaying);
    for number in 1..=3 {
        emit(&other, 1).await;
        assert_eq!(next(&mut numbers).await, number);
    }
    let listening = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'";
    wait_for("a listening connection", LIMIT, async || postgres.psql(listening).trim() == "1").await;
    postgres.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'");
    for number in 4..=6 {
        emit(&other, 1).await;
        assert_eq!(next(&mut numbers).await, number);
    }
}

/// A relay that stops wakes the others, so that one of them takes over at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn released_lease_is_taken_over_without_polling() {
    let test_database = TestDatabase::postgres();
    let nodes = [node_without_polling(&test_database).await, node_without_polling(&test_database).await];
    let (mut first, stop, running) = run_relay(&nodes[0]);
    emit(&nodes[0], 1).await;
    assert_eq!(next(&mut first).await, 1);
    let (mut second, _stop, _running) = run_relay(&nodes[1]);
    emit(&nodes[1], 1).await;
    assert_eq!(next(&mut first).await, 2);
    stop.send(()).expect("the relay runs");
    running.await.expect("the relay has stopped");
    emit(&nodes[0], 1).await;
    assert_eq!(next(&mut second).await, 3);
}
