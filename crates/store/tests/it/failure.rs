//! Calls to a server that is restarted, frozen, disconnected or requires a password.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hob_store::{Address, BusEvent, ChannelFilter, Error, Result, Script, State, Store, cmd};
use hob_testkit::{Connections, LIMIT, RedisOptions, RedisServer, run, wait_for};

pub(crate) static COUNT: Script = Script::new("return redis.call('INCR', KEYS[1])");

pub(crate) fn address(url: &str) -> Address {
    url.parse().unwrap()
}

pub(crate) async fn connect(url: &str) -> Store {
    let store = Store::open(&address(url)).unwrap().with_deadline(LIMIT).with_patience();
    store.ping().await.unwrap();
    store
}

/// Repeats a call that fails until its error contains `word`, in upper or lower case: on a busy machine the deadline of
/// a call may pass before the server has told the reason.
pub(crate) async fn wait_for_error<T: Debug>(word: &str, call: impl AsyncFn() -> Result<T>) -> Error {
    wait_for(format!("an error with {word:?}"), LIMIT, async || {
        let error = call().await.unwrap_err();
        if error.to_string().to_lowercase().contains(word) { Ok(error) } else { Err(error) }
    })
    .await
}

/// Increments a key while `disruption` runs, and 20 times afterwards. Returns the number of acknowledged increments and
/// the number of increments with an unknown result.
pub(crate) async fn count_while(
    store: &Store,
    key: &str,
    disruption: impl Future<Output = ()>,
) -> (i64, i64) {
    let (mut acknowledged, mut unknown, mut after) = (0, 0, 0);
    let done = AtomicBool::new(false);
    let disruption = async {
        disruption.await;
        done.store(true, Relaxed);
    };
    // Not cancelled during a call, which would be another unknown result.
    let counting = async {
        while after < 20 {
            match store.run::<i64>(COUNT.on(&[key])).await {
                Ok(_) => {
                    acknowledged += 1;
                    after += i64::from(done.load(Relaxed));
                }
                Err(Error::Interrupted { .. }) => unknown += 1,
                Err(Error::Unavailable { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    tokio::join!(disruption, counting);
    (acknowledged, unknown)
}

/// C15
#[test]
fn reconnect_neither_loses_nor_repeats_an_increment() {
    run(async {
        let server = RedisServer::start();
        let store = connect(&server.url()).await;
        let disconnects = async {
            for _ in 0..20 {
                wait_for("a connection to close", LIMIT, async || {
                    server.disconnect_clients(Connections::Normal) > 0
                })
                .await;
                tokio::task::yield_now().await;
            }
        };
        let (acknowledged, unknown) = count_while(&store, "k", disconnects).await;
        let stored: i64 = store.run(cmd("GET").arg("k")).await.unwrap();
        assert!(
            (acknowledged..=acknowledged + unknown).contains(&stored),
            "{acknowledged} + {unknown}: {stored}"
        );
        let health = store.health();
        assert!(health.connection.attempts > 1 && health.is_healthy(), "{health:?}");
    });
}

#[test]
fn waiting_calls_succeed_after_a_server_restart() {
    run(async {
        let server = RedisServer::start();
        let store = connect(&server.url()).await;
        server.kill();
        wait_for("a failed attempt to reconnect", LIMIT, async || {
            let health = store.health();
            health.state == State::Reconnecting && health.connection.failures > 0
        })
        .await;
        let waiting = tokio::spawn({
            let store = store.clone();
            async move { store.run::<i64>(COUNT.on(&["k"])).await }
        });
        let quick = store.with_deadline(Duration::from_millis(100)).run::<i64>(COUNT.on(&["k"])).await;
        assert!(matches!(quick, Err(Error::Unavailable { .. })), "{quick:?}");
        server.restart();
        assert_eq!(waiting.await.unwrap().unwrap(), 1, "the script is loaded again");
        let health = store.health();
        assert!(health.connection.failures > 0 && health.connection.consecutive_failures == 0, "{health:?}");
        assert!(health.connection.success_rate < 1.0);
    });
}

/// Something that happens to a server.
type Change = fn(&RedisServer);

/// The first calls wait for the connection. Once the server is known to be away, a request with many calls does not take
/// many deadlines.
#[test]
fn calls_fail_soon_while_the_server_is_known_to_be_away() {
    run(async {
        let disruptions: [(Change, Change); 2] =
            [(RedisServer::kill, RedisServer::restart), (RedisServer::freeze, RedisServer::unfreeze)];
        for (take_away, bring_back) in disruptions {
            let server = RedisServer::start();
            let store = connect(&server.url()).await;
            let hasty = Store::open(&address(&server.url())).unwrap().with_deadline(LIMIT);
            hasty.ping().await.unwrap();
            take_away(&server);
            // A frozen server is noticed by a call without an answer.
            let _ = hasty.with_deadline(Duration::from_millis(100)).ping().await;
            wait_for("a failed attempt to reconnect", LIMIT, async || {
                let health = hasty.health();
                health.state == State::Reconnecting && health.connection.failures > 0
            })
            .await;
            let started = Instant::now();
            for _ in 0..10 {
                let answer = hasty.run::<i64>(COUNT.on(&["k"])).await;
                assert!(matches!(answer, Err(Error::Unavailable { .. })), "{answer:?}");
                let answers = hasty.batch(&[COUNT.on(&["k"])]).await;
                assert!(matches!(answers[0], Err(Error::Unavailable { .. })), "{answers:?}");
            }
            assert!(started.elapsed() < LIMIT, "20 calls together took {:?}", started.elapsed());
            bring_back(&server);
            store.ping().await.unwrap();
            wait_for("an answer", LIMIT, async || hasty.run::<i64>(COUNT.on(&["k"])).await).await;
        }
    });
}

#[test]
fn call_to_a_frozen_server_times_out() {
    run(async {
        let server = RedisServer::start();
        let store = connect(&server.url()).await;
        let short_deadline = store.with_deadline(Duration::from_millis(200));
        server.freeze();
        let started = Instant::now();
        let answer = short_deadline.run::<i64>(COUNT.on(&["k"])).await;
        assert!(matches!(answer, Err(Error::Interrupted { .. })), "{answer:?}");
        let answers = short_deadline.batch(&[cmd("INCR").arg("k").into()]).await;
        assert!(matches!(answers[0], Err(Error::Interrupted { .. })), "{answers:?}");
        assert!(started.elapsed() < LIMIT);
        // The store closes the unresponsive connection. Later calls fail before they are sent.
        wait_for("the connection to be closed", LIMIT, async || {
            matches!(short_deadline.run::<i64>(COUNT.on(&["k"])).await, Err(Error::Unavailable { .. }))
        })
        .await;
        server.unfreeze();
        store.run::<i64>(COUNT.on(&["k"])).await.unwrap();
        assert!(store.health().operations.failed >= 3);
    });
}

#[test]
fn wrong_password_is_shown_by_health() {
    run(async {
        let options = RedisOptions { password: Some("secret".into()), ..RedisOptions::default() };
        let server = RedisServer::start_with(&options);
        for credentials in ["", ":wrong@"] {
            let url = format!("redis://{credentials}127.0.0.1:{}", server.port());
            let error = wait_for_error("auth", async || Store::connect(&address(&url)).await).await;
            assert!(matches!(error, Error::Unavailable { .. }), "{error}");
            assert!(!error.to_string().contains("wrong@"), "{error}");
            let store = Store::open(&address(&url)).unwrap();
            let health = wait_for("the health to report failures", LIMIT, async || {
                let health = store.health();
                (health.connection.consecutive_failures > 1).then_some(health)
            })
            .await;
            assert_eq!(health.state, State::Reconnecting);
            assert!(health.connection.last_error.is_some() && !health.is_healthy());
            let channels = [ChannelFilter::channel("c")];
            wait_for_error("auth", async || store.bus().subscribe(&channels).await).await;
        }
        connect(&server.url()).await.run::<()>(cmd("SET").arg("k").arg(1)).await.unwrap();
    });
}

/// C19
#[test]
fn tls_server_is_verified_against_the_given_ca() {
    run(async {
        let options = RedisOptions { tls: true, password: Some("secret".into()), ..RedisOptions::default() };
        let server = RedisServer::start_with(&options);
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca.pem");
        std::fs::write(&ca, server.authority_pem()).unwrap();
        let url = format!("{}?ca={}", server.tls_url(), ca.display());
        let store = connect(&url).await;
        assert_eq!(store.run::<i64>(COUNT.on(&["k"])).await.unwrap(), 1);
        let mut subscription = store.bus().subscribe(&[ChannelFilter::channel("c")]).await.unwrap();
        store.bus().publish("c", "x").await.unwrap();
        assert!(matches!(subscription.next().await, Some(BusEvent::Message { .. })));

        let untrusted = address(&server.tls_url());
        wait_for_error("certificate", async || Store::connect(&untrusted).await).await;
        std::fs::write(&ca, "does not contain a certificate").unwrap();
        assert!(matches!(Store::open(&address(&url)), Err(Error::Tls(_))));
    });
}

#[test]
fn subscription_reports_missed_messages_after_a_reconnect() {
    run(async {
        let server = RedisServer::start();
        let store = connect(&server.url()).await;
        let channels = [ChannelFilter::channel("c"), ChannelFilter::pattern("p:*")];
        let mut subscription = store.bus().subscribe(&channels).await.unwrap();
        assert_eq!(server.disconnect_clients(Connections::PubSub), 1);
        assert_eq!(tokio::time::timeout(LIMIT, subscription.next()).await.unwrap(), Some(BusEvent::Missed));
        store.bus().publish("c", "1").await.unwrap();
        store.bus().publish("p:x", "2").await.unwrap();
        for expected in ["1", "2"] {
            match tokio::time::timeout(LIMIT, subscription.next()).await.unwrap() {
                Some(BusEvent::Message { payload, .. }) => assert_eq!(payload, expected),
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn calls_wait_for_a_store_that_starts_later() {
    run(async {
        let server = RedisServer::start();
        let url = server.url();
        server.stop();
        let store = Store::open(&address(&url)).unwrap();
        let early = store.with_deadline(Duration::from_millis(50)).run::<String>(cmd("PING")).await;
        assert!(matches!(&early, Err(Error::Unavailable { reason, .. }) if !reason.is_empty()), "{early:?}");
        assert!(Store::connect(&address(&url)).await.is_err());
        server.restart();
        assert_eq!(
            store.with_deadline(LIMIT).with_patience().run::<String>(cmd("PING")).await.unwrap(),
            "PONG"
        );
    });
}
