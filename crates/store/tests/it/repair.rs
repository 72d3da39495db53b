//! Keys that another client has changed, on every store.

use hob_fixtures::every_store;
use hob_store::repair::{self, KeyType, STORED};
use hob_store::{Script, cmd};

static READ_NUMBER: Script =
    Script::with(&[STORED], "return stored(redis.call('HGET', KEYS[1], 'n'), 7, KEYS[1])");

every_store! {
    async fn key_of_the_wrong_type_is_deleted_and_the_call_retried(test_store: TestStore) {
        let store = test_store.store();
        let (marker, lease) = (test_store.key("marker", "1"), test_store.key("lease", "1"));
        test_store.as_outsider(cmd("SET").arg(&marker).arg("x").take()).await;
        test_store.as_outsider(cmd("HSET").arg(&lease).arg("owner").arg("a").take()).await;
        let read = || cmd("HGET").arg(&marker).arg("epoch").take();
        assert!(store.run::<Option<String>>(read()).await.unwrap_err().is_wrong_type());
        let keys = [(&marker, KeyType::Hash), (&lease, KeyType::Hash)];
        assert_eq!(repair::run::<Option<String>, _>(store, read(), &keys).await.unwrap(), None);
        assert_eq!(store.run::<String>(cmd("TYPE").arg(&marker)).await.unwrap(), "none");
        assert_eq!(store.run::<String>(cmd("HGET").arg(&lease).arg("owner")).await.unwrap(), "a", "a key of the right type is kept");

        // A value that is not a number says nothing about the key that has it, so all keys of the call are deleted.
        test_store.as_outsider(cmd("HSET").arg(&marker).arg("n").arg("x").take()).await;
        let count = || cmd("HINCRBY").arg(&marker).arg("n").arg(1).take();
        assert!(store.run::<u64>(count()).await.unwrap_err().is_foreign_value());
        assert_eq!(repair::run::<u64, _>(store, count(), &keys).await.unwrap(), 1);
        assert_eq!(store.run::<String>(cmd("TYPE").arg(&lease)).await.unwrap(), "none");
    }

    async fn key_with_a_number_of_another_client_is_deleted_alone(test_store: TestStore) {
        let store = test_store.store();
        let (marker, lease) = (test_store.key("marker", "1"), test_store.key("lease", "1"));
        let keys = [(&marker, KeyType::Hash), (&lease, KeyType::Hash)];
        test_store.as_outsider(cmd("HSET").arg(&lease).arg("owner").arg("a").take()).await;
        for foreign in ["x", "", "-1", "1.5", "1e300", "inf", "nan", "0x10", "12345678901234567"] {
            test_store.as_outsider(cmd("HSET").arg(&marker).arg("n").arg(foreign).take()).await;
            let read = || READ_NUMBER.on(&[&marker, &lease]);
            let error = store.run::<u64>(read()).await.unwrap_err();
            assert!(error.is_foreign_value() && !error.is_wrong_type(), "{foreign}: {error}");
            assert_eq!(repair::run::<u64, _>(store, read(), &keys).await.unwrap(), 7, "{foreign}");
            assert_eq!(store.run::<String>(cmd("TYPE").arg(&marker)).await.unwrap(), "none", "{foreign}");
            assert_eq!(store.run::<String>(cmd("TYPE").arg(&lease)).await.unwrap(), "hash", "{foreign}");
        }
        test_store.as_outsider(cmd("HSET").arg(&marker).arg("n").arg("1763289000000000").take()).await;
        assert_eq!(store.run::<u64>(READ_NUMBER.on(&[&marker, &lease])).await.unwrap(), 1_763_289_000_000_000);
    }
}
