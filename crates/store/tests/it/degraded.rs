//! Refusals that concern the whole server make the system degraded that called it.

use hob_fixtures::every_store;
use hob_store::{Error, Fault, Script, Store, cmd};
use hob_testkit::{LIMIT, RedisServer, run, wait_for};

use crate::failure::{COUNT, connect};

static READ: Script = Script::new("return redis.call('GET', KEYS[1])");

/// The degraded systems and their faults.
fn degraded(store: &Store) -> Vec<(&'static str, Fault)> {
    store.health().degraded.iter().map(|one| (one.system, one.fault)).collect()
}

async fn set_max_memory(store: &Store, bytes: u64) {
    for master in store.masters().await.unwrap() {
        let set = cmd("CONFIG").arg("SET").arg("maxmemory").arg(bytes).clone();
        master.run::<()>(set).await.unwrap();
    }
}

every_store! {
    async fn full_store_degrades_the_systems_that_write_until_it_has_memory(test_store: TestStore) {
        let (store, keys) = (test_store.store(), ["1", "2"].map(|id| test_store.key("count", id)));
        let [a, b] = &keys;
        let (garden, shed) = (store.for_system("garden"), store.for_system("shed"));
        let failed = store.health().operations.failed;
        // An empty engine takes no memory.
        store.run::<i64>(COUNT.on(&[test_store.key("count", "3")])).await.unwrap();
        set_max_memory(store, 1).await;
        let error = garden.run::<i64>(COUNT.on(&[a])).await.unwrap_err();
        assert!(error.is_reported() && error.did_not_happen(), "{error}");
        let answers = garden.batch(&[READ.on(&[a]), COUNT.on(&[b])]).await;
        assert!(answers[0].is_ok() && answers[1].as_ref().is_err_and(Error::is_reported), "{answers:?}");
        // A successful read does not mean that the store accepts writes again.
        garden.run::<Option<String>>(READ.on(&[a])).await.unwrap();
        shed.run::<Option<String>>(READ.on(&[a])).await.unwrap();
        let health = store.health();
        assert_eq!(degraded(store), [("garden", Fault::OutOfMemory)]);
        assert!(!health.is_healthy() && health.operations.failed == failed + 2, "{health:?}");
        set_max_memory(store, 1 << 30).await;
        wait_for("the system to recover", LIMIT, async || {
            let degraded = degraded(store);
            if degraded.is_empty() { Ok(()) } else { Err(degraded) }
        })
        .await;
        assert!(store.health().is_healthy());
        // The probe has not written anything.
        for key in &keys {
            assert!(!store.run::<bool>(cmd("EXISTS").arg(key).clone()).await.unwrap(), "{key}");
        }
    }

    async fn refusal_that_concerns_one_key_degrades_nothing(test_store: TestStore) {
        let (store, keys) = (test_store.store(), ["1", "2"].map(|id| test_store.key("count", id)));
        let [a, b] = &keys;
        test_store.as_outsider(cmd("LPUSH").arg(a).arg("x").take()).await;
        let error = store.run::<i64>(COUNT.on(&[a])).await.unwrap_err();
        assert!(error.is_wrong_type() && !error.is_reported(), "{error}");
        test_store.as_outsider(cmd("SET").arg(b).arg("x").take()).await;
        let error = store.run::<i64>(COUNT.on(&[b])).await.unwrap_err();
        assert!(!error.is_reported(), "{error}");
        let health = store.health();
        assert!(health.is_healthy() && health.operations.failed == 0, "{health:?}");
    }
}

#[test]
fn every_kind_of_refusal_is_recognised() {
    run(async {
        let redis = RedisServer::start();
        let store = connect(&redis.url()).await;
        for (refuse, accept, fault) in [
            (
                ["REPLICAOF", "127.0.0.1", "1"].as_slice(),
                ["REPLICAOF", "NO", "ONE"].as_slice(),
                Fault::ReadOnly,
            ),
            (
                &["CONFIG", "SET", "min-replicas-to-write", "1"],
                &["CONFIG", "SET", "min-replicas-to-write", "0"],
                Fault::TooFewReplicas,
            ),
            (
                &["ACL", "SETUSER", "default", "-incr"],
                &["ACL", "SETUSER", "default", "+incr"],
                Fault::NotPermitted,
            ),
        ] {
            redis.command::<()>(refuse);
            let system = store.for_system("garden");
            system.run::<i64>(cmd("INCR").arg("a").clone()).await.unwrap_err();
            assert_eq!(degraded(&store), [("garden", fault)]);
            system.run::<i64>(COUNT.on(&["a"])).await.unwrap_err();
            assert_eq!(degraded(&store), [("garden", fault)], "the error of a script");
            redis.command::<()>(accept);
            system.run::<i64>(COUNT.on(&["a"])).await.unwrap();
        }
    });
}
