//! A Cluster: failed masters, failover, and migration of slots.

use std::time::{Duration, Instant};

use hob_store::{BusEvent, Call, ChannelFilter, Error, State, Store, cmd};
use hob_testkit::{LIMIT, RedisCluster, RedisOptions, RedisServer, run, wait_for};

use crate::failure::{COUNT, address, connect, count_while, wait_for_error};

#[test]
fn cluster_connections_authenticate() {
    run(async {
        let options = RedisOptions { password: Some("secret".into()), ..RedisOptions::default() };
        let cluster = RedisCluster::start_with(&options);
        let store = connect(&cluster.url()).await;
        let calls: Vec<Call> = (0..20).map(|at| COUNT.on(&[at.to_string()])).collect();
        assert!(store.batch(&calls).await.iter().all(Result::is_ok));
        let mut subscription = store.bus().subscribe(&[ChannelFilter::channel("c")]).await.unwrap();
        store.bus().publish("c", "x").await.unwrap();
        assert!(matches!(subscription.next().await, Some(BusEvent::Message { .. })));
        let wrong = address(&cluster.url().replace("secret", "wrong"));
        wait_for_error("authentication", async || Store::connect(&wrong).await).await;
    });
}

#[test]
fn restarted_cluster_master_is_reconnected_while_others_serve() {
    run(async {
        let cluster = RedisCluster::start();
        for master in cluster.masters() {
            master.command::<()>(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
        }
        let store = connect(&cluster.url()).await;
        let keys: Vec<String> = (0..60).map(|at| format!("key:{at}")).collect();
        let killed = cluster.master_of(&keys[0]);
        let (lost, kept): (Vec<_>, Vec<_>) =
            keys.iter().partition(|key| cluster.master_of(key).port() == killed.port());
        assert!(!lost.is_empty() && !kept.is_empty());
        killed.kill();
        let quick = store.with_deadline(Duration::from_secs(5));
        let calls: Vec<_> = keys.iter().map(|key| COUNT.on(&[key])).collect();
        let answers = quick.batch(&calls).await;
        for (key, answer) in keys.iter().zip(&answers) {
            assert_eq!(answer.is_err(), lost.contains(&key), "{key}: {answer:?}");
        }
        wait_for("the health to report the failed master", LIMIT, async || {
            store.health().state == State::Partial { up: 2, of: 3 }
        })
        .await;
        // The deadline of a call is LIMIT.
        let hasty = Store::open(&address(&cluster.url())).unwrap().with_deadline(LIMIT);
        let early = wait_for("the new handle to know the failed master", LIMIT, async || {
            let health = hasty.health();
            (health.connection.failures > 0 && health.state == State::Partial { up: 2, of: 3 })
                .then_some(Instant::now())
        })
        .await;
        for key in lost.iter().chain(&lost).take(20) {
            assert!(
                matches!(hasty.run::<i64>(COUNT.on(&[key])).await, Err(Error::Unavailable { .. })),
                "{key}"
            );
        }
        assert!(early.elapsed() < LIMIT, "calls to a failed master together took {:?}", early.elapsed());
        killed.restart();
        cluster.wait_until_whole().await;
        for key in lost {
            assert_eq!(store.run::<i64>(COUNT.on(&[key])).await.unwrap(), 1);
        }
        for key in kept {
            assert_eq!(store.run::<i64>(COUNT.on(&[key])).await.unwrap(), 2);
        }
    });
}

/// A manual failover: no increment is lost, and none is counted twice.
#[test]
fn cluster_failover_is_followed() {
    run(async {
        let cluster = RedisCluster::start();
        let store = connect(&cluster.url()).await;
        let old = cluster.master_of("k");
        let arguments = ["--cluster-enabled", "yes", "--repl-diskless-sync-delay", "0"].map(str::to_owned);
        let new =
            RedisServer::start_with(&RedisOptions { arguments: arguments.into(), ..RedisOptions::default() });
        old.command::<()>(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
        new.command::<()>(&["CLUSTER", "MEET", "127.0.0.1", &old.port().to_string()]);
        let id: String = old.command(&["CLUSTER", "MYID"]);
        wait_for("the node to know its master", LIMIT, async || {
            let nodes: String = new.command(&["CLUSTER", "NODES"]);
            nodes.lines().filter(|node| node.contains("connected")).count() == 4 && nodes.contains(&id)
        })
        .await;
        new.command::<()>(&["CLUSTER", "REPLICATE", &id]);
        let role = |name: &'static str, value: &'static str| {
            new.info("replication").get::<String>(name).is_some_and(|found| found == value)
        };
        wait_for("the replica to be in sync", LIMIT, async || role("master_link_status", "up")).await;

        let mut requested = None;
        let failover = wait_for("the replica to be promoted", LIMIT, async || {
            // The server refuses the command until the masters know the replica, and aborts a failover after 5 s.
            if requested.is_none_or(|requested: Instant| requested.elapsed() > Duration::from_secs(6)) {
                let accepted = cmd("CLUSTER").arg("FAILOVER").exec(&mut new.connect());
                requested = accepted.is_ok().then(Instant::now);
            }
            role("role", "master")
        });
        let (acknowledged, unknown) = count_while(&store, "k", failover).await;
        let stored = new.command::<i64>(&["GET", "k"]);
        assert!(
            (acknowledged..=acknowledged + unknown).contains(&stored),
            "{acknowledged} + {unknown}: {stored}"
        );
        old.kill();
        assert_eq!(store.run::<i64>(COUNT.on(&["k"])).await.unwrap(), stored + 1);
    });
}

#[test]
fn moved_slot_is_followed_without_repeating_calls() {
    run(async {
        let cluster = RedisCluster::start();
        let store = connect(&cluster.url()).await;
        let key = "moving";
        let from = cluster.master_of(key);
        let to = cluster.masters().iter().find(|master| master.port() != from.port()).unwrap();
        let slot = hob_store::key_slot(key.as_bytes()).to_string();
        let id = |server: &RedisServer| server.command::<String>(&["CLUSTER", "MYID"]);
        let (from_id, to_id) = (id(from), id(to));
        assert_eq!(store.run::<i64>(COUNT.on(&[key])).await.unwrap(), 1);

        to.command::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]);
        from.command::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]);
        assert_eq!(store.run::<i64>(COUNT.on(&[key])).await.unwrap(), 2, "before the migration");
        from.command::<()>(&["MIGRATE", "127.0.0.1", &to.port().to_string(), key, "0", "5000"]);
        assert_eq!(store.run::<i64>(COUNT.on(&[key])).await.unwrap(), 3, "after an ASK redirection");
        let calls = vec![COUNT.on(&[key]), COUNT.on(&["{moving}2"])];
        let answers = store.batch(&calls).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        for master in cluster.masters() {
            master.command::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]);
        }
        assert_eq!(store.run::<i64>(COUNT.on(&[key])).await.unwrap(), 5, "after a MOVED redirection");
        let others: Vec<_> =
            (0..50).map(|at| COUNT.on(&[format!("other:{at}")])).chain([COUNT.on(&[key])]).collect();
        let answers = store.batch(&others).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        assert_eq!(to.command::<i64>(&["GET", key]), 6);
    });
}

#[test]
fn cluster_subscription_moves_to_another_node() {
    run(async {
        let cluster = RedisCluster::start();
        let store = connect(&cluster.url()).await;
        let mut subscription = store.bus().subscribe(&[ChannelFilter::channel("c")]).await.unwrap();
        let subscribed =
            |master: &&RedisServer| !master.command::<Vec<String>>(&["PUBSUB", "CHANNELS"]).is_empty();
        let node = cluster.masters().iter().find(subscribed).unwrap();
        node.kill();
        assert_eq!(tokio::time::timeout(LIMIT, subscription.next()).await.unwrap(), Some(BusEvent::Missed));
        // Any other master accepts the messages of the channel.
        wait_for("a message from another master", LIMIT, async || {
            store.bus().publish("c", "x").await.unwrap();
            let next = tokio::time::timeout(Duration::from_millis(200), subscription.next()).await;
            matches!(next, Ok(Some(BusEvent::Message { .. })))
        })
        .await;
    });
}
