//! Rate limits on every store: the documented keys, and the quota that is reported.

use std::time::Duration;

use hob_fixtures::{TestStore, every_store};
use hob_store::limit::{Algorithm, Decision, Quota, Rule};
use hob_store::{Clock, Error, Store, cmd};

const START: Duration = Duration::from_secs(1_800_000_000);

pub(crate) fn rule(algorithm: Algorithm, windows: &str) -> Rule {
    Rule::new(algorithm, windows.split(',').map(|window| window.trim().parse().unwrap()).collect()).unwrap()
}

pub(crate) fn keys(test_store: &TestStore, algorithm: Algorithm, identifier: &str) -> Vec<String> {
    let mut keys = vec![test_store.key(&format!("limit:{algorithm}"), identifier)];
    if algorithm == Algorithm::FixedCounter {
        keys.push(test_store.key("limit:ends", identifier));
    }
    keys
}

async fn take(store: &Store, rule: &Rule, keys: &[String], cost: u32) -> Decision {
    rule.take(store, keys, cost).await.unwrap()
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn allowed(limit: u32, remaining: u32, reset_after: Duration) -> Decision {
    Decision::Allowed(Quota { limit, remaining, reset_after })
}

every_store! {
    /// G16: a sorted set by milliseconds whose members are the timestamps; requests of one millisecond count
    /// each.
    async fn fixed_log_counts_requests_of_the_same_millisecond(test_store: TestStore) {
        let clock = Clock::driven(START);
        let store = &test_store.store().with_clock(clock.clone());
        let rule = rule(Algorithm::FixedLog, "3/60s");
        let keys = keys(&test_store, Algorithm::FixedLog, "192.168.1.100");
        for remaining in [2, 1, 0] {
            assert_eq!(take(store, &rule, &keys, 1).await, allowed(3, remaining, seconds(60)));
        }
        clock.advance(seconds(10));
        let denied = take(store, &rule, &keys, 1).await;
        let quota = Quota { limit: 3, remaining: 0, reset_after: seconds(50) };
        assert_eq!(denied, Decision::Denied { quota, retry_after: seconds(50) });
        let log: Vec<(String, f64)> =
            store.run(cmd("ZRANGE").arg(&keys[0]).arg(0).arg(-1).arg("WITHSCORES")).await.unwrap();
        assert_eq!(log.len(), 3);
        for (member, score) in &log {
            assert_eq!(*score, 1_800_000_000_000.0);
            assert_eq!(member.parse::<f64>().unwrap().floor(), *score, "the integer part of {member} is its score");
        }
        clock.advance(seconds(50));
        assert!(take(store, &rule, &keys, 3).await.is_allowed(), "a new window");
    }

    /// G17
    async fn sliding_log_frees_each_request_after_one_window(test_store: TestStore) {
        let clock = Clock::driven(START);
        let store = &test_store.store().with_clock(clock.clone());
        let rule = rule(Algorithm::SlidingLog, "2/60s");
        let keys = keys(&test_store, Algorithm::SlidingLog, "user:123");
        assert!(take(store, &rule, &keys, 1).await.is_allowed());
        clock.advance(seconds(20));
        assert!(take(store, &rule, &keys, 1).await.is_allowed());
        clock.advance(seconds(10));
        let quota = Quota { limit: 2, remaining: 0, reset_after: seconds(50) };
        assert_eq!(take(store, &rule, &keys, 1).await, Decision::Denied { quota, retry_after: seconds(30) });
        clock.advance(seconds(30));
        assert_eq!(take(store, &rule, &keys, 1).await, allowed(2, 0, seconds(60)));
    }

    /// G17: the log has whole milliseconds, and no window of that length has more requests than its limit.
    async fn sliding_log_counts_each_request_for_a_whole_window(test_store: TestStore) {
        let clock = Clock::driven(START + Duration::from_micros(900));
        let store = &test_store.store().with_clock(clock.clone());
        let (rule, keys) = (rule(Algorithm::SlidingLog, "1/60s"), keys(&test_store, Algorithm::SlidingLog, "u1"));
        assert_eq!(take(store, &rule, &keys, 1).await, allowed(1, 0, seconds(60)));
        let quota = Quota { limit: 1, remaining: 0, reset_after: seconds(60) };
        assert_eq!(take(store, &rule, &keys, 1).await, Decision::Denied { quota, retry_after: seconds(60) });
        clock.set(START + seconds(60) + Duration::from_micros(899));
        assert!(!take(store, &rule, &keys, 1).await.is_allowed(), "1 µs early");
        clock.set(START + seconds(60) + Duration::from_millis(1));
        assert!(take(store, &rule, &keys, 1).await.is_allowed());
    }

    /// C6: a plain counter that expires with its window, even when a crash left it without a TTL.
    async fn fixed_counter_uses_the_documented_string(test_store: TestStore) {
        let rule = rule(Algorithm::FixedCounter, "20/60s");
        let keys = keys(&test_store, Algorithm::FixedCounter, "u1");
        test_store.as_outsider(cmd("SET").arg(&keys[0]).arg(18).take()).await;
        assert_eq!(take(test_store.store(), &rule, &keys, 1).await.quota().remaining, 1);
        assert!(!take(test_store.store(), &rule, &keys, 2).await.is_allowed());
        assert!(take(test_store.store(), &rule, &keys, 1).await.is_allowed());
        assert_eq!(test_store.store().run::<String>(cmd("GET").arg(&keys[0])).await.unwrap(), "20");
        let left: i64 = test_store.store().run(cmd("PTTL").arg(&keys[0])).await.unwrap();
        assert!((1..=60_000).contains(&left), "{left}");
    }

    async fn request_is_counted_only_if_all_windows_allow_it(test_store: TestStore) {
        for algorithm in [Algorithm::SlidingLog, Algorithm::SlidingWindow, Algorithm::Gcra] {
            let clock = Clock::driven(START);
            let store = &test_store.store().with_clock(clock.clone());
            let rule = rule(algorithm, "2/1m, 3/1h");
            let keys = keys(&test_store, algorithm, "u1");
            for _ in 0..2 {
                assert!(take(store, &rule, &keys, 1).await.is_allowed(), "{algorithm}");
            }
            // Denied by the short window: the long one must not count these.
            for _ in 0..5 {
                let denied = take(store, &rule, &keys, 1).await;
                assert!(!denied.is_allowed() && denied.quota().limit == 2, "{algorithm}: {denied:?}");
            }
            clock.advance(seconds(120));
            assert!(take(store, &rule, &keys, 1).await.is_allowed(), "{algorithm}");
            let denied = take(store, &rule, &keys, 1).await;
            assert!(!denied.is_allowed() && denied.quota().limit == 3, "{algorithm}: {denied:?}");
        }
    }

    /// 7 per 60 s is one request per 8,571,428.57… µs, and the error must not accumulate.
    async fn gcra_never_rounds(test_store: TestStore) {
        let clock = Clock::driven(START);
        let store = &test_store.store().with_clock(clock.clone());
        let rule = rule(Algorithm::Gcra, "7/60s burst 1");
        let keys = keys(&test_store, Algorithm::Gcra, "u1");
        let mut passed = 0;
        while let Decision::Allowed(_) = take(store, &rule, &keys, 1).await {
            passed += 1;
            let Decision::Denied { retry_after, .. } = take(store, &rule, &keys, 1).await else { panic!() };
            clock.advance(retry_after - Duration::from_micros(1));
            assert!(!take(store, &rule, &keys, 1).await.is_allowed(), "1 µs early");
            clock.advance(Duration::from_micros(1));
            if passed == 70 {
                break;
            }
        }
        assert_eq!(passed, 70);
        // Each wait is rounded up by less than a microsecond.
        let took: u64 = clock.us().parse::<u64>().unwrap() - 1_800_000_000_000_000;
        assert!((600_000_000..=600_000_070).contains(&took), "{took}");
    }

    async fn zero_cost_reads_without_counting(test_store: TestStore) {
        let algorithms = [
            Algorithm::FixedCounter, Algorithm::FixedLog, Algorithm::SlidingLog, Algorithm::SlidingWindow,
            Algorithm::Gcra,
        ];
        for algorithm in algorithms {
            let (rule, keys) = (rule(algorithm, "2/60s"), keys(&test_store, algorithm, "u1"));
            for _ in 0..3 {
                assert_eq!(take(test_store.store(), &rule, &keys, 0).await, allowed(2, 2, Duration::ZERO), "{algorithm}");
            }
            assert!(take(test_store.store(), &rule, &keys, 2).await.is_allowed(), "{algorithm}");
            assert_eq!(take(test_store.store(), &rule, &keys, 0).await.quota().remaining, 0, "{algorithm}");
        }
    }

    async fn many_limits_fit_into_one_batch(test_store: TestStore) {
        let rule = rule(Algorithm::Gcra, "1/60s");
        let key_sets: Vec<Vec<String>> = ["a", "b", "a"].iter().map(|id| keys(&test_store, Algorithm::Gcra, id)).collect();
        let calls: Vec<_> = key_sets.iter().map(|keys| rule.call(test_store.store(), keys, 1).unwrap()).collect();
        let answers = test_store.store().batch(&calls).await;
        let passed: Vec<bool> =
            answers.into_iter().map(|answer| rule.read(answer.unwrap()).unwrap().is_allowed()).collect();
        assert_eq!(passed.iter().filter(|passed| **passed).count(), 2);
        assert!(passed[1], "the only request of b passes");
    }

    async fn cost_above_the_limit_is_refused(test_store: TestStore) {
        let rule = rule(Algorithm::Gcra, "10/1s burst 3");
        let keys = keys(&test_store, Algorithm::Gcra, "u1");
        assert!(matches!(rule.take(test_store.store(), &keys, 4).await, Err(Error::Misuse(_))));
        assert!(matches!(rule.take::<String>(test_store.store(), &[], 1).await, Err(Error::Misuse(_))));
    }
}
