//! Keys of the wrong type on every store.

use hob_fixtures::every_store;
use hob_store::cmd;
use hob_store::repair::{self, KeyType};

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
        assert_eq!(repair::repair(store, &keys).await.unwrap(), [] as [usize; 0]);

        test_store.as_outsider(cmd("RPUSH").arg(&marker).arg("x").take()).await;
        assert_eq!(repair::repair(store, &keys).await.unwrap(), [0]);
    }
}
