//! The embedded store, and the metrics of a store handle.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hob_engine::{Config, Engine, Listener, Reply};
use hob_store::{Address, Error, Script, Store, cmd};
use hob_testkit::{LIMIT, run, wait_for};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

static ONE: Script = Script::new("return 1");

#[test]
fn owned_engine_removes_expired_keys() {
    run(async {
        let store = Store::connect(&Address::Embedded).await.unwrap();
        let calls: Vec<_> = (0..100).map(|at| cmd("SET").arg(at).arg("x").arg("PX").arg(1).into()).collect();
        assert!(store.batch(&calls).await.iter().all(Result::is_ok));
        wait_for("the keys to be swept", LIMIT, async || store.run::<i64>(cmd("DBSIZE")).await.unwrap() == 0)
            .await;
        let health = store.health();
        assert!(health.is_healthy());
        assert_eq!(health.server.unwrap().kind, "embedded");
    });
}

#[test]
fn handles_to_one_engine_share_keys_and_messages() {
    run(async {
        let engine = Engine::default();
        let (one, other) = (Store::embedded(&engine), Store::embedded(&engine));
        one.run::<()>(cmd("SET").arg("k").arg("v")).await.unwrap();
        assert_eq!(other.run::<String>(cmd("GET").arg("k")).await.unwrap(), "v");
        let mut subscription =
            other.bus().subscribe(&[hob_store::ChannelFilter::channel("c")]).await.unwrap();
        assert_eq!(one.bus().publish("c", "x").await.unwrap(), 1);
        assert!(subscription.next().await.is_some());
    });
}

/// Calls to the embedded engine have a deadline too: a script of another client must not block Hob's tasks.
#[test]
fn call_times_out_while_a_script_occupies_the_engine() {
    let engine = Engine::new(Config {
        max_script_instructions: u64::MAX,
        // The deadlines of the calls end first.
        busy_after: LIMIT,
        max_script_duration: 4 * LIMIT,
        ..Config::default()
    });
    let script = std::thread::spawn({
        let engine = engine.clone();
        move || engine.execute(&[b"EVAL", b"while true do redis.call('GET', 'x') end", b"0"])
    });
    run(async {
        let store = Store::embedded(&engine).with_deadline(Duration::from_millis(50));
        let failed = wait_for("the script to run", LIMIT, async || {
            store.run::<Option<i64>>(cmd("GET").arg("n")).await.err()
        });
        let failed = failed.await;
        assert!(
            matches!(&failed, Error::Unavailable { waited, .. } if *waited >= store.deadline()),
            "{failed:?}"
        );
        assert!(failed.did_not_happen());
        let mut calls: Vec<_> = (0..3).map(|_| cmd("INCR").arg("n").into()).collect();
        calls.push(ONE.on::<&str>(&[]));
        for answer in store.batch(&calls).await {
            assert!(matches!(answer, Err(Error::Unavailable { .. })), "{answer:?}");
        }
        // The only command that does not need the engine for itself.
        store.run::<()>(cmd("SCRIPT").arg("KILL")).await.unwrap();
    });
    assert!(matches!(script.join().unwrap(), Reply::Error(_)));
    assert_eq!(engine.execute(&[b"GET", b"n"]), Reply::Null, "none of the calls was executed");
}

/// The listener, Hob's calls and its timers share one worker thread, which a script of a client must not occupy.
#[test]
fn client_script_blocks_neither_calls_nor_timers() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let engine = Engine::new(Config {
        max_script_instructions: u64::MAX,
        busy_after: LIMIT,
        max_script_duration: 4 * LIMIT,
        ..Config::default()
    });
    runtime.block_on(async {
        let listener = Listener::bind(engine.clone(), ([127, 0, 0, 1], 0).into()).await.unwrap();
        let mut client = TcpStream::connect(listener.address().unwrap()).await.unwrap();
        tokio::spawn(listener.serve(std::future::pending()));
        client.write_all(b"EVAL \"while true do redis.call('GET', 'x') end\" 0\r\n").await.unwrap();
        let ticks = Arc::new(AtomicU64::new(0));
        tokio::spawn({
            let ticks = ticks.clone();
            async move {
                loop {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    ticks.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let store = Store::embedded(&engine).with_deadline(Duration::from_millis(50));
        let get = async || store.run::<Option<i64>>(cmd("GET").arg("n")).await;
        wait_for("the script to run", LIMIT, async || get().await.is_err()).await;
        let before = ticks.load(Ordering::Relaxed);
        // Spawned, so that they run on the worker and not on the test's own thread.
        let calls: Vec<_> = (0..50)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move { store.run::<i64>(cmd("INCR").arg("n")).await })
            })
            .collect();
        for call in calls {
            let answer = call.await.unwrap();
            let timed_out = |error: &Error| matches!(error, Error::Unavailable { waited, .. } if *waited >= store.deadline());
            assert!(answer.as_ref().is_err_and(timed_out), "{answer:?}");
        }
        let fired = async || ticks.load(Ordering::Relaxed) > before + 5;
        wait_for("timers to fire while the script runs", LIMIT, fired).await;
        assert!(get().await.is_err(), "the script still runs");
        store.run::<()>(cmd("SCRIPT").arg("KILL")).await.unwrap();
        let mut reply = [0; 18];
        client.read_exact(&mut reply).await.unwrap();
        assert_eq!(&reply, b"-ERR Script killed");
        wait_for("calls to be answered again", LIMIT, async || matches!(get().await, Ok(None))).await;
    });
}

/// P10: the metric names are part of the interface, and the number of label values is fixed.
#[test]
fn operations_are_reported_to_the_metrics_facade() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let store = metrics::with_local_recorder(&recorder, || Store::embedded(&Engine::default()));
    run(async {
        store.run::<()>(cmd("SET").arg("k").arg("v")).await.unwrap();
        store.run::<i64>(ONE.on::<&str>(&[])).await.unwrap();
        store.batch(&[cmd("GET").arg("k").into()]).await;
    });
    let text = handle.render();
    for kind in ["command", "script", "batch"] {
        let line = format!("hob_store_operation_seconds_count{{kind=\"{kind}\"}} 1");
        assert!(text.contains(&line), "{text}");
    }
    let names: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(names.iter().all(|name| name.starts_with("hob_store_")), "{names:?}");
}
