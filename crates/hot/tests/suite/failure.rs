//! What callers see when servers are restarted, frozen, cut off, failed over or locked.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hob_hot::{Address, BusEvent, Call, Error, Hot, Script, State, Topic, cmd};
use hob_testkit::{Connections, LIMIT, RedisCluster, RedisOptions, RedisServer, SentinelSet, run, wait_for};

static COUNT: Script = Script::new("return redis.call('INCR', KEYS[1])");

fn address(url: &str) -> Address {
    url.parse().unwrap()
}

async fn connect(url: &str) -> Hot {
    let hot = Hot::open(&address(url)).unwrap().with_deadline(LIMIT);
    hot.ping().await.unwrap();
    hot
}

/// Increments for as long as `hurting` runs and a little longer; returns how many increments were answered
/// and how many may have happened besides.
async fn count_while(hot: &Hot, key: &str, hurting: impl Future<Output = ()>) -> (i64, i64) {
    let (mut answered, mut unknown, mut after) = (0, 0, 0);
    let done = AtomicBool::new(false);
    let hurting = async {
        hurting.await;
        done.store(true, Relaxed);
    };
    // Never dropped in mid-call, which would make one more unknown.
    let counting = async {
        while after < 20 {
            match hot.run::<i64>(COUNT.on(&[key])).await {
                Ok(_) => {
                    answered += 1;
                    after += i64::from(done.load(Relaxed));
                }
                Err(Error::Interrupted { .. }) => unknown += 1,
                Err(Error::Unavailable { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    tokio::join!(hurting, counting);
    (answered, unknown)
}

/// C15.
#[test]
fn a_cut_connection_comes_back_and_no_increment_is_lost_or_doubled() {
    run(async {
        let server = RedisServer::start();
        let hot = connect(&server.url()).await;
        let cut = async {
            for _ in 0..20 {
                wait_for("a connection to cut", LIMIT, async || server.cut(Connections::Normal) > 0).await;
                tokio::task::yield_now().await;
            }
        };
        let (answered, unknown) = count_while(&hot, "k", cut).await;
        let stored: i64 = hot.run(cmd("GET").arg("k")).await.unwrap();
        assert!((answered..=answered + unknown).contains(&stored), "{answered} + {unknown}: {stored}");
        let health = hot.health();
        assert!(health.connection.attempts > 1 && health.is_healthy(), "{health:?}");
    });
}

#[test]
fn a_restarted_server_is_found_again_by_waiting_calls() {
    run(async {
        let server = RedisServer::start();
        let hot = connect(&server.url()).await;
        server.kill();
        wait_for("the loss to be noticed", LIMIT, async || hot.health().state == State::Reconnecting).await;
        let waiting = tokio::spawn({
            let hot = hot.clone();
            async move { hot.run::<i64>(COUNT.on(&["k"])).await }
        });
        let quick = hot.with_deadline(Duration::from_millis(100)).run::<i64>(COUNT.on(&["k"])).await;
        assert!(matches!(quick, Err(Error::Unavailable { .. })), "{quick:?}");
        server.restart();
        assert_eq!(waiting.await.unwrap().unwrap(), 1, "scripts were lost with the server");
        let health = hot.health();
        assert!(health.connection.failures > 0 && health.connection.consecutive_failures == 0, "{health:?}");
        assert!(health.connection.success_rate < 1.0);
    });
}

#[test]
fn a_frozen_server_costs_a_deadline_and_not_a_hang() {
    run(async {
        let server = RedisServer::start();
        let hot = connect(&server.url()).await;
        let impatient = hot.with_deadline(Duration::from_millis(200));
        server.freeze();
        let asked = Instant::now();
        let answer = impatient.run::<i64>(COUNT.on(&["k"])).await;
        assert!(matches!(answer, Err(Error::Interrupted { .. })), "{answer:?}");
        let answers = impatient.batch(&[cmd("INCR").arg("k").into()]).await;
        assert!(matches!(answers[0], Err(Error::Interrupted { .. })), "{answers:?}");
        assert!(asked.elapsed() < LIMIT);
        // Silent for too long, its connection is given up; calls then know that nothing was sent.
        wait_for("the connection to be given up", LIMIT, async || {
            matches!(impatient.run::<i64>(COUNT.on(&["k"])).await, Err(Error::Unavailable { .. }))
        })
        .await;
        server.thaw();
        hot.run::<i64>(COUNT.on(&["k"])).await.unwrap();
        assert!(hot.health().operations.failed >= 3);
    });
}

#[test]
fn a_wrong_password_is_an_error_that_health_shows() {
    run(async {
        let options = RedisOptions { password: Some("secret".into()), ..RedisOptions::default() };
        let server = RedisServer::start_with(&options);
        for credentials in ["", ":wrong@"] {
            let url = format!("redis://{credentials}127.0.0.1:{}", server.port());
            let error = Hot::connect(&address(&url)).await.unwrap_err();
            assert!(matches!(error, Error::Unavailable { .. }), "{error}");
            let told = error.to_string();
            assert!(
                !told.contains("wrong@") && (told.contains("AUTH") || told.contains("uthentication")),
                "{told}"
            );
            let hot = Hot::open(&address(&url)).unwrap();
            let health = wait_for("failures to show", LIMIT, async || {
                let health = hot.health();
                (health.connection.consecutive_failures > 1).then_some(health)
            })
            .await;
            assert_eq!(health.state, State::Reconnecting);
            assert!(health.connection.last_error.is_some() && !health.is_healthy());
            let deaf = hot.bus().subscribe(&[Topic::channel("c")]).await.unwrap_err().to_string();
            assert!(deaf.contains("AUTH") || deaf.contains("uthentication"), "{deaf}");
        }
        connect(&server.url()).await.run::<()>(cmd("SET").arg("k").arg(1)).await.unwrap();
    });
}

#[test]
fn a_cluster_and_its_bus_ask_for_the_password() {
    run(async {
        let options = RedisOptions { password: Some("secret".into()), ..RedisOptions::default() };
        let cluster = RedisCluster::start_with(&options);
        let hot = connect(&cluster.url()).await;
        let calls: Vec<Call> = (0..20).map(|at| COUNT.on(&[at.to_string()])).collect();
        assert!(hot.batch(&calls).await.iter().all(Result::is_ok));
        let mut subscription = hot.bus().subscribe(&[Topic::channel("c")]).await.unwrap();
        hot.bus().publish("c", "x").await.unwrap();
        assert!(matches!(subscription.next().await, Some(BusEvent::Message { .. })));
        let locked = Hot::connect(&address(&cluster.url().replace("secret", "wrong"))).await.unwrap_err();
        assert!(locked.to_string().contains("uthentication"), "{locked}");
    });
}

/// C19.
#[test]
fn a_tls_server_is_verified_against_the_given_authority() {
    run(async {
        let options = RedisOptions { tls: true, password: Some("secret".into()), ..RedisOptions::default() };
        let server = RedisServer::start_with(&options);
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca.pem");
        std::fs::write(&ca, server.authority_pem()).unwrap();
        let url = format!("{}?ca={}", server.tls_url(), ca.display());
        let hot = connect(&url).await;
        assert_eq!(hot.run::<i64>(COUNT.on(&["k"])).await.unwrap(), 1);
        let mut subscription = hot.bus().subscribe(&[Topic::channel("c")]).await.unwrap();
        hot.bus().publish("c", "x").await.unwrap();
        assert!(matches!(subscription.next().await, Some(BusEvent::Message { .. })));

        let untrusted = Hot::connect(&address(&server.tls_url())).await.unwrap_err().to_string();
        assert!(untrusted.contains("certificate"), "{untrusted}");
        std::fs::write(&ca, "no certificate").unwrap();
        assert!(matches!(Hot::open(&address(&url)), Err(Error::Tls(_))));
    });
}

#[test]
fn a_sentinel_failover_is_followed() {
    run(async {
        let set = SentinelSet::start();
        let hot = connect(&set.url()).await;
        assert_eq!(hot.run::<i64>(COUNT.on(&["k"])).await.unwrap(), 1);
        let mut subscription = hot.bus().subscribe(&[Topic::channel("c")]).await.unwrap();
        let old = set.master();
        old.kill();
        set.wait_for_failover(old).await;
        hot.run::<i64>(COUNT.on(&["after"])).await.unwrap();
        assert_eq!(set.master().command::<i64>(&["GET", "after"]), 1, "written to the new master");
        assert_eq!(tokio::time::timeout(LIMIT, subscription.next()).await.unwrap(), Some(BusEvent::Missed));
        hot.bus().publish("c", "x").await.unwrap();
        assert!(matches!(subscription.next().await, Some(BusEvent::Message { .. })));
    });
}

/// The old master stays reachable as a replica and keeps its connections: only its refusal to write tells.
#[test]
fn a_demoted_master_is_left_for_the_new_one() {
    run(async {
        let set = SentinelSet::start();
        let hot = connect(&set.url()).await;
        hot.run::<i64>(COUNT.on(&["k"])).await.unwrap();
        let old = set.master();
        set.sentinel().command::<()>(&["SENTINEL", "FAILOVER", "mymaster"]);
        set.wait_for_failover(old).await;
        let new = set.master();
        old.command::<()>(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
        hot.run::<i64>(COUNT.on(&["after"])).await.unwrap();
        assert_eq!(new.command::<i64>(&["GET", "after"]), 1);
        let calls: Vec<Call> = (0..10).map(|at| COUNT.on(&[format!("batch:{at}")])).collect();
        assert!(hot.batch(&calls).await.iter().all(Result::is_ok));
        assert_eq!(new.command::<i64>(&["GET", "batch:9"]), 1);
    });
}

/// One sentinel's port is closed, another takes connections and never answers.
#[test]
fn a_silent_sentinel_does_not_hide_the_next() {
    run(async {
        let set = SentinelSet::start();
        let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mute = mute.local_addr().unwrap().port();
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let hosts = format!("//127.0.0.1:{closed},127.0.0.1:{mute},");
        let hot = connect(&set.url().replacen("//", &hosts, 1)).await;
        assert_eq!(hot.run::<i64>(COUNT.on(&["k"])).await.unwrap(), 1);
        let unknown = Hot::open(&address(&set.url().replace("mymaster", "nobody"))).unwrap();
        let error = unknown.with_deadline(Duration::from_secs(1)).ping().await.unwrap_err().to_string();
        assert!(error.contains("nobody"), "{error}");
    });
}

/// The sentinel of the other tests wants no password and gets none; this one does.
#[test]
fn a_sentinel_that_asks_for_the_password_gets_it() {
    run(async {
        let set = SentinelSet::start();
        let (master, replica) = (set.master(), set.replica());
        set.sentinel().command::<()>(&["SENTINEL", "SET", "mymaster", "auth-pass", "secret"]);
        for node in [replica, master] {
            node.command::<()>(&["CONFIG", "SET", "masterauth", "secret"]);
        }
        master.command::<()>(&["CONFIG", "SET", "requirepass", "secret"]);
        set.sentinel().command::<()>(&["ACL", "SETUSER", "default", "resetpass", ">secret"]);
        let url = set.url().replacen("//", "//:secret@", 1);
        let hot = connect(&url).await;
        assert_eq!(hot.run::<i64>(COUNT.on(&["k"])).await.unwrap(), 1);
        let locked = Hot::open(&address(&set.url())).unwrap().with_deadline(Duration::from_secs(1));
        let error = locked.ping().await.unwrap_err().to_string();
        assert!(error.contains("AUTH") || error.contains("uthentication"), "{error}");
    });
}

#[test]
fn a_frozen_master_is_left_after_its_failover() {
    run(async {
        let set = SentinelSet::start();
        let hot = connect(&set.url()).await;
        hot.run::<i64>(COUNT.on(&["k"])).await.unwrap();
        let old = set.master();
        old.freeze();
        let impatient = hot.with_deadline(Duration::from_millis(500));
        wait_for("the new master to answer", LIMIT, async || impatient.run::<i64>(COUNT.on(&["new"])).await)
            .await;
        old.thaw();
        assert_ne!(set.master().port(), old.port());
    });
}

#[test]
fn a_clusters_restarted_master_is_found_again_and_the_others_serve_meanwhile() {
    run(async {
        let cluster = RedisCluster::start();
        for master in cluster.masters() {
            master.command::<()>(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
        }
        let hot = connect(&cluster.url()).await;
        let keys: Vec<String> = (0..60).map(|at| format!("key:{at}")).collect();
        let hurt = cluster.master_of(&keys[0]);
        let (lost, kept): (Vec<_>, Vec<_>) =
            keys.iter().partition(|key| cluster.master_of(key).port() == hurt.port());
        assert!(!lost.is_empty() && !kept.is_empty());
        hurt.kill();
        let quick = hot.with_deadline(Duration::from_secs(5));
        let calls: Vec<_> = keys.iter().map(|key| COUNT.on(&[key])).collect();
        let answers = quick.batch(&calls).await;
        for (key, answer) in keys.iter().zip(&answers) {
            assert_eq!(answer.is_err(), lost.contains(&key), "{key}: {answer:?}");
        }
        wait_for("the loss to show", LIMIT, async || hot.health().state == State::Partial { up: 2, of: 3 })
            .await;
        hurt.restart();
        cluster.wait_until_whole().await;
        for key in lost {
            assert_eq!(hot.run::<i64>(COUNT.on(&[key])).await.unwrap(), 1);
        }
        for key in kept {
            assert_eq!(hot.run::<i64>(COUNT.on(&[key])).await.unwrap(), 2);
        }
    });
}

#[test]
fn a_slot_that_moves_is_followed_without_doubling_anything() {
    run(async {
        let cluster = RedisCluster::start();
        let hot = connect(&cluster.url()).await;
        let key = "moving";
        let from = cluster.master_of(key);
        let to = cluster.masters().iter().find(|master| master.port() != from.port()).unwrap();
        let slot = hob_hot::key_slot(key.as_bytes()).to_string();
        let id = |server: &RedisServer| server.command::<String>(&["CLUSTER", "MYID"]);
        let (from_id, to_id) = (id(from), id(to));
        assert_eq!(hot.run::<i64>(COUNT.on(&[key])).await.unwrap(), 1);

        to.command::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]);
        from.command::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]);
        assert_eq!(hot.run::<i64>(COUNT.on(&[key])).await.unwrap(), 2, "not moved yet");
        from.command::<()>(&["MIGRATE", "127.0.0.1", &to.port().to_string(), key, "0", "5000"]);
        assert_eq!(hot.run::<i64>(COUNT.on(&[key])).await.unwrap(), 3, "by ASK");
        let calls = vec![COUNT.on(&[key]), COUNT.on(&["{moving}2"])];
        let answers = hot.batch(&calls).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        for master in cluster.masters() {
            master.command::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]);
        }
        assert_eq!(hot.run::<i64>(COUNT.on(&[key])).await.unwrap(), 5, "by MOVED");
        let others: Vec<_> =
            (0..50).map(|at| COUNT.on(&[format!("other:{at}")])).chain([COUNT.on(&[key])]).collect();
        let answers = hot.batch(&others).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        assert_eq!(to.command::<i64>(&["GET", key]), 6);
    });
}

#[test]
fn a_cut_subscriber_is_told_that_it_missed_something_and_hears_on() {
    run(async {
        let server = RedisServer::start();
        let hot = connect(&server.url()).await;
        let topics = [Topic::channel("c"), Topic::pattern("p:*")];
        let mut subscription = hot.bus().subscribe(&topics).await.unwrap();
        assert_eq!(server.cut(Connections::PubSub), 1);
        assert_eq!(tokio::time::timeout(LIMIT, subscription.next()).await.unwrap(), Some(BusEvent::Missed));
        hot.bus().publish("c", "1").await.unwrap();
        hot.bus().publish("p:x", "2").await.unwrap();
        for expected in ["1", "2"] {
            match tokio::time::timeout(LIMIT, subscription.next()).await.unwrap() {
                Some(BusEvent::Message { payload, .. }) => assert_eq!(payload, expected),
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn a_clusters_subscriber_moves_on_when_its_node_dies() {
    run(async {
        let cluster = RedisCluster::start();
        let hot = connect(&cluster.url()).await;
        let mut subscription = hot.bus().subscribe(&[Topic::channel("c")]).await.unwrap();
        let subscribed =
            |master: &&RedisServer| !master.command::<Vec<String>>(&["PUBSUB", "CHANNELS"]).is_empty();
        let node = cluster.masters().iter().find(subscribed).unwrap();
        node.kill();
        assert_eq!(tokio::time::timeout(LIMIT, subscription.next()).await.unwrap(), Some(BusEvent::Missed));
        // Whatever channel's master is gone: others take its messages.
        wait_for("a message", LIMIT, async || {
            hot.bus().publish("c", "x").await.unwrap();
            let next = tokio::time::timeout(Duration::from_millis(200), subscription.next()).await;
            matches!(next, Ok(Some(BusEvent::Message { .. })))
        })
        .await;
    });
}

#[test]
fn a_store_that_was_never_there_is_waited_for() {
    run(async {
        let server = RedisServer::start();
        let url = server.url();
        server.stop();
        let hot = Hot::open(&address(&url)).unwrap();
        let early = hot.with_deadline(Duration::from_millis(50)).run::<String>(cmd("PING")).await;
        assert!(matches!(&early, Err(Error::Unavailable { reason, .. }) if !reason.is_empty()), "{early:?}");
        assert!(Hot::connect(&address(&url)).await.is_err());
        server.restart();
        assert_eq!(hot.with_deadline(LIMIT).run::<String>(cmd("PING")).await.unwrap(), "PONG");
    });
}
