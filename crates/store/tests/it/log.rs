//! Capped logs on every store.

use std::time::Duration;

use hob_fixtures::every_store;
use hob_store::log::Log;
use hob_store::{Error, cmd};

every_store! {
    async fn reader_gets_newer_entries_and_detects_gaps(test_store: TestStore) {
        let (list, sequence) = (test_store.key("log", "1"), test_store.key("sequence", "1"));
        let log = Log { list: list.as_bytes(), sequence: sequence.as_bytes(), most: 3, keep: Duration::from_secs(60) };
        let store = test_store.store();
        assert_eq!(log.read(store, 0, 10).await.unwrap().newest, 0);
        let second = log.append(store, &["a", "b"]).await.unwrap();
        let all = log.read(store, 0, 10).await.unwrap();
        assert_eq!((all.newest, all.first), (second, second - 1));
        assert_eq!(all.entries, [b"a", b"b"]);
        assert_eq!(log.append(store, &["c", "d", "e"]).await.unwrap(), second + 3);
        assert_eq!(store.run::<Vec<String>>(cmd("LRANGE").arg(&list).arg(0).arg(-1)).await.unwrap(), ["e", "d", "c"]);
        let next = log.read(store, second, 2).await.unwrap();
        assert_eq!(next.entries, [b"c", b"d"], "oldest first, at most two");
        assert!(!next.missed_after(second));
        assert!(log.read(store, second - 1, 10).await.unwrap().missed_after(second - 1), "b was trimmed");
        let none = log.read(store, second + 3, 10).await.unwrap();
        assert!(none.entries.is_empty() && !none.missed_after(second + 3));
    }

    async fn entry_numbers_grow_after_the_log_was_lost(test_store: TestStore) {
        let (list, sequence) = (test_store.key("log", "1"), test_store.key("sequence", "1"));
        let log = Log { list: list.as_bytes(), sequence: sequence.as_bytes(), most: 100, keep: Duration::from_secs(60) };
        let before = log.append(test_store.store(), &["a", "b", "c"]).await.unwrap();
        test_store.flush_all().await;
        let after = log.append(test_store.store(), &["d"]).await.unwrap();
        assert!(after > before, "{after} {before}");
        let read = log.read(test_store.store(), before, 10).await.unwrap();
        assert!(read.missed_after(before));
        assert_eq!(read.entries, [b"d"]);
        for key in [&list, &sequence] {
            let left: i64 = test_store.store().run(cmd("PTTL").arg(key)).await.unwrap();
            assert!((1..=60_000).contains(&left), "{left}");
        }
    }

    async fn append_is_bounded(test_store: TestStore) {
        let (list, sequence) = (test_store.key("log", "1"), test_store.key("sequence", "1"));
        let log = Log { list: list.as_bytes(), sequence: sequence.as_bytes(), most: 10, keep: Duration::from_secs(60) };
        for entries in [vec![], vec!["x"; 1001]] {
            assert!(matches!(log.append(test_store.store(), &entries).await, Err(Error::Misuse(_))));
        }
        log.append(test_store.store(), &vec!["x"; 1000]).await.unwrap();
        assert_eq!(test_store.store().run::<i64>(cmd("LLEN").arg(&list)).await.unwrap(), 10);
    }
}
