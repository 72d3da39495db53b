//! Capped logs on every store.

use std::time::Duration;

use hob_hot::log::Log;
use hob_hot::{Error, cmd};
use hob_testkit::every_store;

every_store! {
    async fn a_reader_gets_what_follows_and_knows_what_it_missed(store: Store) {
        let (list, sequence) = (store.key("log", "1"), store.key("sequence", "1"));
        let log = Log { list: list.as_bytes(), sequence: sequence.as_bytes(), most: 3, keep: Duration::from_secs(60) };
        let hot = store.hot();
        assert_eq!(log.read(hot, 0, 10).await.unwrap().newest, 0);
        let second = log.append(hot, &["a", "b"]).await.unwrap();
        let all = log.read(hot, 0, 10).await.unwrap();
        assert_eq!((all.newest, all.first), (second, second - 1));
        assert_eq!(all.entries, [b"a", b"b"]);
        assert_eq!(log.append(hot, &["c", "d", "e"]).await.unwrap(), second + 3);
        assert_eq!(hot.run::<Vec<String>>(cmd("LRANGE").arg(&list).arg(0).arg(-1)).await.unwrap(), ["e", "d", "c"]);
        let next = log.read(hot, second, 2).await.unwrap();
        assert_eq!(next.entries, [b"c", b"d"], "oldest first, at most two");
        assert!(!next.missed_after(second));
        assert!(log.read(hot, second - 1, 10).await.unwrap().missed_after(second - 1), "b is gone");
        let none = log.read(hot, second + 3, 10).await.unwrap();
        assert!(none.entries.is_empty() && !none.missed_after(second + 3));
    }

    async fn numbers_grow_even_when_the_log_was_lost(store: Store) {
        let (list, sequence) = (store.key("log", "1"), store.key("sequence", "1"));
        let log = Log { list: list.as_bytes(), sequence: sequence.as_bytes(), most: 100, keep: Duration::from_secs(60) };
        let before = log.append(store.hot(), &["a", "b", "c"]).await.unwrap();
        store.flush_all().await;
        let after = log.append(store.hot(), &["d"]).await.unwrap();
        assert!(after > before, "{after} {before}");
        let read = log.read(store.hot(), before, 10).await.unwrap();
        assert!(read.missed_after(before));
        assert_eq!(read.entries, [b"d"]);
        for key in [&list, &sequence] {
            let left: i64 = store.hot().run(cmd("PTTL").arg(key)).await.unwrap();
            assert!((1..=60_000).contains(&left), "{left}");
        }
    }

    async fn an_append_is_bounded(store: Store) {
        let (list, sequence) = (store.key("log", "1"), store.key("sequence", "1"));
        let log = Log { list: list.as_bytes(), sequence: sequence.as_bytes(), most: 10, keep: Duration::from_secs(60) };
        for entries in [vec![], vec!["x"; 1001]] {
            assert!(matches!(log.append(store.hot(), &entries).await, Err(Error::Misuse(_))));
        }
        log.append(store.hot(), &vec!["x"; 1000]).await.unwrap();
        assert_eq!(store.hot().run::<i64>(cmd("LLEN").arg(&list)).await.unwrap(), 10);
    }
}
