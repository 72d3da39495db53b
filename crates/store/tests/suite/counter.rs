//! Windowed counters on every store.

use std::time::Duration;

use hob_store::counter::{Bucketed, Buckets, Count, add, add_to_bucket};
use hob_store::{Clock, Error, cmd};
use hob_testkit::every_store;

const WINDOW: Duration = Duration::from_secs(60);
const HOUR_MS: u64 = 3_600_000;

every_store! {
    async fn a_window_starts_with_its_first_increment_and_ends_by_its_stored_time(test_store: TestStore) {
        let clock = Clock::driven(Duration::from_secs(1_800_000_000));
        let store = &test_store.store().with_clock(clock.clone());
        let (counter, ends) = (test_store.key("counter", "1"), test_store.key("ends", "1"));
        assert_eq!(add(store, &counter, &ends, 2, WINDOW).await.unwrap(), Count { count: 2, left: WINDOW });
        clock.advance(WINDOW / 2);
        assert_eq!(add(store, &counter, &ends, 3, WINDOW).await.unwrap(), Count { count: 5, left: WINDOW / 2 });
        assert_eq!(store.run::<String>(cmd("GET").arg(&counter)).await.unwrap(), "5", "a plain counter");
        assert!(store.run::<i64>(cmd("PTTL").arg(&counter)).await.unwrap() > 0);
        clock.advance(WINDOW / 2);
        assert_eq!(add(store, &counter, &ends, 1, WINDOW).await.unwrap(), Count { count: 1, left: WINDOW });
    }

    /// What INCR without its EXPIRE left behind does not stay for ever.
    async fn a_counter_that_another_left_without_ttl_gets_one(test_store: TestStore) {
        let (counter, ends) = (test_store.key("counter", "1"), test_store.key("ends", "1"));
        test_store.as_outsider(cmd("SET").arg(&counter).arg(7).take()).await;
        let count = add(test_store.store(), &counter, &ends, 1, WINDOW).await.unwrap();
        assert_eq!(count, Count { count: 8, left: WINDOW });
        let left: i64 = test_store.store().run(cmd("PTTL").arg(&counter)).await.unwrap();
        assert!((1..=60_000).contains(&left), "{left}");
    }

    async fn the_stores_clock_picks_the_bucket(test_store: TestStore) {
        let clock = Clock::driven(Duration::from_millis(500_000 * HOUR_MS + 10));
        let store = &test_store.store().with_clock(clock.clone());
        // Three hours of one entity, as a service names them.
        let keys = ["499999", "500000", "500001"].map(|hour| format!("{}:{hour}", test_store.key("hourly", "all")));
        let buckets = Buckets {
            keys: keys.each_ref().map(String::as_bytes),
            start_unix_ms: 500_000 * HOUR_MS,
            width: Duration::from_millis(HOUR_MS),
        };
        let keep = Duration::from_secs(86_400);
        for (at_ms, hour, count) in [(10, 500_000, 1), (HOUR_MS - 1, 500_000, 2), (HOUR_MS, 500_001, 1)] {
            clock.set(Duration::from_millis(500_000 * HOUR_MS + at_ms));
            let answer = add_to_bucket(store, buckets, 1, keep).await.unwrap();
            assert_eq!(answer, Bucketed::Counted { start_unix_ms: hour * HOUR_MS, count });
        }
        clock.set(Duration::from_millis(499_999 * HOUR_MS + 5));
        let answer = add_to_bucket(store, buckets, 4, keep).await.unwrap();
        assert_eq!(answer, Bucketed::Counted { start_unix_ms: 499_999 * HOUR_MS, count: 4 });
        assert_eq!(store.run::<i64>(cmd("GET").arg(&keys[0])).await.unwrap(), 4);
        let left: i64 = store.run(cmd("PTTL").arg(&keys[0])).await.unwrap();
        assert!((86_000_000..=86_400_000).contains(&left), "{left}");
        clock.set(Duration::from_millis(500_002 * HOUR_MS));
        let answer = add_to_bucket(store, buckets, 1, keep).await.unwrap();
        assert_eq!(answer, Bucketed::Stray { start_unix_ms: 500_002 * HOUR_MS });
        let crooked = Buckets { start_unix_ms: 1, ..buckets };
        assert!(matches!(add_to_bucket(store, crooked, 1, keep).await, Err(Error::Misuse(_))));
        let early = add_to_bucket(store, buckets, 1, Duration::from_secs(3599)).await;
        assert!(matches!(early, Err(Error::Misuse(_))), "it would go before its hour is over");
    }
}
