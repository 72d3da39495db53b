//! Commands, scripts and batches on every store.

use hob_fixtures::{TestStore, every_store};
use hob_store::{Call, Error, Script, Value, cmd};

static ADD: Script = Script::new("return redis.call('INCRBY', KEYS[1], ARGV[1])");
static TWICE: Script = Script::new("return ARGV[1] * 2");

fn keys(test_store: &TestStore, count: usize) -> Vec<String> {
    (0..count).map(|at| test_store.key("batch", &at.to_string())).collect()
}

every_store! {
    /// Enough keys that every master of a Cluster has some.
    async fn replies_of_a_batch_are_in_order_across_masters(test_store: TestStore) {
        let keys = keys(&test_store, 100);
        let sets: Vec<Call> = keys.iter().enumerate().map(|(at, key)| cmd("SET").arg(key).arg(at).into()).collect();
        assert!(test_store.store().batch(&sets).await.iter().all(Result::is_ok));
        let gets: Vec<Call> = keys.iter().map(|key| cmd("GET").arg(key).into()).collect();
        for (at, answer) in test_store.store().batch(&gets).await.into_iter().enumerate() {
            assert_eq!(answer.unwrap(), Value::BulkString(at.to_string().into_bytes()));
        }
        assert!(test_store.store().batch(&[]).await.is_empty());
    }

    async fn each_call_of_a_batch_has_its_own_error(test_store: TestStore) {
        let keys = keys(&test_store, 3);
        test_store.as_outsider(cmd("LPUSH").arg(&keys[1]).arg("x").take()).await;
        let calls: Vec<Call> = keys.iter().map(|key| cmd("INCR").arg(key).into()).collect();
        let answers = test_store.store().batch(&calls).await;
        assert!(matches!(answers[0], Ok(Value::Int(1))), "{answers:?}");
        assert!(matches!(&answers[1], Err(Error::Refused { code, .. }) if code == "WRONGTYPE"), "{answers:?}");
        assert!(matches!(answers[2], Ok(Value::Int(1))), "{answers:?}");
    }

    async fn script_is_loaded_where_it_is_missing(test_store: TestStore) {
        let key = test_store.key("count", "1");
        for expected in [2, 4] {
            assert_eq!(test_store.store().run::<i64>(ADD.on(&[&key]).arg(2)).await.unwrap(), expected);
            test_store.flush_scripts().await;
        }
        assert_eq!(test_store.store().run::<i64>(TWICE.on::<&str>(&[]).arg(21)).await.unwrap(), 42);
    }

    /// Only the calls whose script was missing are repeated: no counter is incremented twice.
    async fn scripts_in_a_batch_are_loaded_where_they_are_missing(test_store: TestStore) {
        let keys = keys(&test_store, 30);
        // Loaded on some masters of a Cluster only.
        test_store.store().run::<i64>(ADD.on(&[&keys[0]]).arg(0)).await.unwrap();
        let calls: Vec<Call> = keys
            .iter()
            .flat_map(|key| [cmd("INCRBY").arg(key).arg(100).into(), ADD.on(&[key]).arg(1)])
            .collect();
        for round in 1..=2 {
            let answers = test_store.store().batch(&calls).await;
            assert!(answers.iter().all(Result::is_ok), "{answers:?}");
            for key in &keys {
                assert_eq!(test_store.store().run::<i64>(cmd("GET").arg(key)).await.unwrap(), 101 * round);
            }
            test_store.flush_scripts().await;
        }
    }

    async fn error_inside_a_script_is_an_error_reply(test_store: TestStore) {
        static FAIL: Script = Script::new("return redis.call('LPUSH', KEYS[1], 'x')");
        let key = test_store.key("text", "1");
        test_store.store().run::<()>(cmd("SET").arg(&key).arg("text")).await.unwrap();
        let error = test_store.store().run::<i64>(FAIL.on(&[&key])).await.unwrap_err();
        assert!(matches!(&error, Error::Refused { code, .. } if code == "WRONGTYPE"), "{error}");
        let shape = test_store.store().run::<i64>(cmd("GET").arg(&key)).await.unwrap_err();
        assert!(matches!(shape, Error::Reply(_)), "{shape}");
    }

    /// P10 P11
    async fn health_counts_calls_by_kind_and_names_the_server(test_store: TestStore) {
        let key = test_store.key("health", "1");
        test_store.store().run::<()>(cmd("SET").arg(&key).arg(1)).await.unwrap();
        test_store.store().run::<i64>(ADD.on(&[&key]).arg(1)).await.unwrap();
        test_store.store().batch(&[cmd("GET").arg(&key).into(), cmd("GET").arg(&key).into()]).await;
        test_store.store().bus().publish("channel", "x").await.unwrap();
        let health = test_store.store().health();
        assert!(health.is_healthy(), "{health:?}");
        let operations = &health.operations;
        assert_eq!((operations.script.count, operations.batch.count, operations.publish.count), (1, 1, 1));
        assert!(operations.command.count >= 1 && operations.failed == 0, "{operations:?}");
        assert!(operations.script.p50_us <= operations.script.max_us);
        assert!(health.server.is_some(), "{health:?}");
        let json = serde_json::to_value(&health).unwrap();
        assert_eq!(json["state"], "connected");
        assert_eq!(json["operations"]["batch"]["count"], 1);
        assert!(json["connection"]["success_rate"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn cluster_refuses_commands_for_every_master_and_keys_of_two_slots() {
    hob_testkit::run(async {
        let test_store = TestStore::cluster().await;
        let error = test_store.store().run::<i64>(cmd("DBSIZE")).await.unwrap_err();
        assert!(matches!(error, Error::Unroutable { .. }), "{error}");
        let error = test_store.store().run::<Value>(cmd("MGET").arg("a").arg("b")).await.unwrap_err();
        assert!(matches!(&error, Error::Refused { code, .. } if code == "CROSSSLOT"), "{error}");
        let answers =
            test_store.store().batch(&[cmd("KEYS").arg("*").into(), cmd("SET").arg("a").arg(1).into()]).await;
        assert!(answers[0].is_err() && answers[1].is_ok(), "{answers:?}");
        let mut sizes = Vec::new();
        for master in test_store.store().masters().await.unwrap() {
            sizes.push(master.run::<i64>(cmd("DBSIZE")).await.unwrap());
        }
        assert_eq!((sizes.len(), sizes.iter().sum::<i64>()), (3, 1));
    });
}
