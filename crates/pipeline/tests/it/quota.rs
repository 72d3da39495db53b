//! Quotas: grants, waiting times, and recovery after a loss of the store.

use std::time::Duration;

use hob_fixtures::every_service;
use hob_pipeline::Error;
use hob_pipeline::keys::Quota;
use hob_pipeline::quota::{Limits, NewReservation, QuotaFeedback};
use hob_store::cmd;

use crate::support::{NEEDS, TestEnv, api, new_reservation, reserve, wait_time};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

every_service! {
    NEEDS;

    /// P1 P2 P8: a key that another client has replaced counts as lost, and is rebuilt from the call log.
    async fn key_of_the_wrong_type_is_rebuilt_from_the_log(context: TestContext) {
        let env = TestEnv::new(context);
        let quotas = env.quotas_with("20/1h", 0).await;
        let (keys, name) = (env.keys(), Quota::new("api").unwrap());
        let quota_keys = [
            keys.quota_marker(&name),
            keys.quota_calls(&name),
            keys.quota_state(&name),
            keys.quota_turns(&name),
        ];
        for (count, key) in quota_keys.iter().chain(&env.counters()).enumerate() {
            let call = reserve(&quotas, &new_reservation(&format!("call-{count}"))).await;
            quotas.settle(&call, 1, QuotaFeedback::default()).await.unwrap();
            env.test_store().as_outsider(cmd("DEL").arg(key).clone()).await;
            env.test_store().as_outsider(cmd("RPUSH").arg(key).arg("x").clone()).await;
            assert_eq!(quotas.usage(&api()).await.unwrap().windows[0].used, count as u32 + 1, "{key}");
        }
    }

    /// P1, P8
    async fn call_must_fit_every_window_and_gets_a_waiting_time(context: TestContext) {
        let env = TestEnv::new(context);
        let quotas = env.quotas_with("2/1m, 3/1h", 0).await;
        for id in ["a", "b"] {
            let call = reserve(&quotas, &new_reservation(id)).await;
            env.advance(SECOND);
            quotas.settle(&call, 1, QuotaFeedback::default()).await.unwrap();
        }
        // "a" ended a second before "b", so it leaves the one-minute window first.
        assert_eq!(wait_time(&quotas, &new_reservation("c")).await, MINUTE - SECOND);
        env.advance(MINUTE - SECOND);
        let call = reserve(&quotas, &new_reservation("c")).await;
        quotas.settle(&call, 1, QuotaFeedback::default()).await.unwrap();
        // The one-hour window is full, too; "a" leaves it first.
        assert_eq!(wait_time(&quotas, &new_reservation("d")).await, HOUR - MINUTE);
        env.advance(HOUR - MINUTE - Duration::from_millis(1));
        assert_eq!(wait_time(&quotas, &new_reservation("d")).await, Duration::from_millis(1));
        env.advance(Duration::from_millis(1));
        reserve(&quotas, &new_reservation("d")).await;
    }

    /// P8
    async fn calls_in_flight_count_and_unused_calls_are_released(context: TestContext) {
        let env = TestEnv::new(context);
        let quotas = env.quotas_with("10/1h", 4).await;
        let all = reserve(&quotas, &NewReservation { calls: 6, ..new_reservation("all") }).await;
        let usage = quotas.usage(&api()).await.unwrap();
        assert_eq!((usage.in_flight, usage.windows[0].used, usage.windows[0].left()), (6, 6, 0));
        wait_time(&quotas, &new_reservation("more")).await;
        quotas.settle(&all, 2, QuotaFeedback::default()).await.unwrap();
        let usage = quotas.usage(&api()).await.unwrap();
        assert_eq!((usage.in_flight, usage.windows[0].used, usage.windows[0].left()), (0, 2, 4));
        reserve(&quotas, &NewReservation { calls: 4, ..new_reservation("more") }).await;
        // The public counters include reserved calls: 2 + 4.
        for key in env.counters() {
            assert_eq!(env.get(&key).await.as_deref(), Some("6"), "{key}");
        }
    }

    /// P1: the call may have reached the API at the last moment.
    async fn call_of_a_crashed_caller_occupies_its_windows_after_the_deadline(context: TestContext) {
        let env = TestEnv::new(context);
        let quotas = env.quotas_with("1/1m", 0).await;
        reserve(&quotas, &new_reservation("dead")).await;
        env.advance(MINUTE + 29 * SECOND);
        assert_eq!(wait_time(&quotas, &new_reservation("next")).await, SECOND);
        env.advance(SECOND);
        reserve(&quotas, &new_reservation("next")).await;
    }

    /// P8
    async fn same_id_returns_the_same_reservation(context: TestContext) {
        let env = TestEnv::new(context);
        let quotas = env.quotas_with("2/1m", 0).await;
        let first = reserve(&quotas, &new_reservation("same")).await;
        env.advance(SECOND);
        let again = reserve(&quotas, &new_reservation("same")).await;
        assert_eq!((&again.id, again.until), (&first.id, first.until));
        assert_eq!(quotas.usage(&api()).await.unwrap().windows[0].used, 1);
    }

    /// P8: granted calls are restored before new ones are granted.
    async fn quota_survives_the_loss_of_the_store(context: TestContext) {
        let env = TestEnv::new(context);
        let quotas = env.quotas_with("3/1h", 0).await;
        let done = reserve(&quotas, &new_reservation("done")).await;
        quotas.settle(&done, 1, QuotaFeedback::default()).await.unwrap();
        let in_flight = reserve(&quotas, &new_reservation("flying")).await;
        let unused = reserve(&quotas, &new_reservation("unused")).await;
        quotas.settle(&unused, 0, QuotaFeedback::default()).await.unwrap();
        env.test_store().flush_all().await;

        let usage = env.quotas().usage(&api()).await.unwrap();
        assert_eq!((usage.in_flight, usage.windows[0].used), (1, 2));
        for key in env.counters() {
            assert_eq!(env.get(&key).await.as_deref(), Some("2"), "{key}");
        }
        reserve(&quotas, &new_reservation("last")).await;
        env.advance(SECOND);
        quotas.settle(&in_flight, 1, QuotaFeedback::default()).await.unwrap();
        assert_eq!(wait_time(&quotas, &new_reservation("over")).await, HOUR - SECOND);
    }

    /// P8: the store loses the calls of a quota, or gets older ones back, and keeps the marker.
    async fn lost_calls_are_restored_although_the_marker_remains(context: TestContext) {
        let env = TestEnv::new(context);
        let quotas = env.quotas_with("5/1h", 0).await;
        let key = env.keys().quota_calls(&Quota::new("api").unwrap());
        for id in ["a", "b", "c"] {
            let call = reserve(&quotas, &new_reservation(id)).await;
            quotas.settle(&call, 1, QuotaFeedback::default()).await.unwrap();
        }
        env.test_store().as_outsider(cmd("DEL").arg(&key).clone()).await;
        assert_eq!(quotas.usage(&api()).await.unwrap().windows[0].used, 3);
        for id in ["d", "e"] {
            reserve(&quotas, &new_reservation(id)).await;
        }
        env.test_store().as_outsider(cmd("DEL").arg(&key).clone()).await;
        env.test_store().as_outsider(cmd("ZADD").arg(&key).arg(0).arg("sequence:0").clone()).await;
        wait_time(&quotas, &new_reservation("over")).await;
        assert_eq!(quotas.usage(&api()).await.unwrap().windows[0].used, 5);
    }

    /// P8: the store goes back to an older state, marker and all. The log has the numbers of the lost reservations.
    async fn repeated_number_of_a_reservation_rebuilds_the_quota(context: TestContext) {
        let env = TestEnv::new(context);
        let quotas = env.quotas_with("4/1h", 0).await;
        let (keys, name) = (env.keys(), Quota::new("api").unwrap());
        let (calls, marker) = (keys.quota_calls(&name), keys.quota_marker(&name));
        for id in ["a", "b", "c"] {
            reserve(&quotas, &new_reservation(id)).await;
        }
        for id in ["b:1", "c:1", "sequence:3"] {
            env.test_store().as_outsider(cmd("ZREM").arg(&calls).arg(id).clone()).await;
        }
        env.test_store().as_outsider(cmd("ZADD").arg(&calls).arg(0).arg("sequence:1").clone()).await;
        env.test_store().as_outsider(cmd("HSET").arg(&marker).arg("n").arg(1).clone()).await;
        assert_eq!(quotas.usage(&api()).await.unwrap().windows[0].used, 1, "the rewind is not visible in the store");
        reserve(&quotas, &new_reservation("d")).await;
        wait_time(&quotas, &new_reservation("over")).await;
        assert_eq!(quotas.usage(&api()).await.unwrap().windows[0].used, 4);
    }

    /// P2
    async fn calls_counted_with_the_documented_script_use_the_quota(context: TestContext) {
        let env = TestEnv::new(context);
        const DOCUMENTED: &str = "local current = tonumber(redis.call('GET', KEYS[1]) or 0)
            if current + tonumber(ARGV[1]) <= tonumber(ARGV[2]) then
                local new_count = redis.call('INCRBY', KEYS[1], ARGV[1])
                redis.call('EXPIRE', KEYS[1], tonumber(ARGV[3]))
                return {new_count, 1}
            else
                return {current, 0}
            end";
        let quotas = env.quotas_with("5/1h", 0).await;
        reserve(&quotas, &new_reservation("ours")).await;
        let [rate_limit, counter] = env.counters();
        let documented = || cmd("EVAL").arg(DOCUMENTED).arg(1).arg(counter.as_bytes()).arg(3).arg(5).arg(7200).clone();
        let result: (i64, i64) = env.test_store().store().run(documented()).await.unwrap();
        assert_eq!(result, (4, 1));
        reserve(&quotas, &new_reservation("fifth")).await;
        assert_eq!(wait_time(&quotas, &new_reservation("sixth")).await, HOUR);
        assert_eq!(env.get(&rate_limit).await.as_deref(), Some("5"));
        let result: (i64, i64) = env.test_store().store().run(documented()).await.unwrap();
        assert_eq!(result, (5, 0));
        // Calls of other clients are in the log, too.
        env.test_store().flush_all().await;
        assert_eq!(quotas.usage(&api()).await.unwrap().windows[0].used, 5);
    }

    /// P6: the clock of the store determines the hour, not the clock of the node.
    async fn counters_use_the_hour_of_the_store(context: TestContext) {
        let env = TestEnv::new(context);
        let quotas = env.quotas_with("50/1h", 0).await;
        reserve(&quotas, &new_reservation("first")).await;
        env.advance(50 * MINUTE);
        reserve(&quotas, &new_reservation("second")).await;
        env.advance(5 * HOUR);
        reserve(&quotas, &new_reservation("third")).await;
        let keys = env.keys();
        let shard = keys.space().shard_of("api");
        for hour in ["2026-11-15_08", "2026-11-15_09", "2026-11-15_14"] {
            let hour = hob_pipeline::keys::HourKey::new(hour).unwrap();
            assert_eq!(env.get(&keys.rate_limit(&hour, shard)).await.as_deref(), Some("1"), "{hour}");
        }
    }

    /// P1: rate limit headers include calls of other clients.
    async fn response_headers_update_the_quota(context: TestContext) {
        let env = TestEnv::new(context);
        let quotas = env.quotas_with("10/1m", 0).await;
        let call = reserve(&quotas, &new_reservation("one")).await;
        let counted = QuotaFeedback { counted: Some((7, MINUTE)), ..QuotaFeedback::default() };
        quotas.settle(&call, 1, counted).await.unwrap();
        assert_eq!(quotas.usage(&api()).await.unwrap().windows[0].used, 7);
        let call = reserve(&quotas, &new_reservation("two")).await;
        let refused = QuotaFeedback { blocked_for: Some(17 * SECOND), ..QuotaFeedback::default() };
        quotas.settle(&call, 1, refused).await.unwrap();
        assert_eq!(wait_time(&quotas, &new_reservation("three")).await, 17 * SECOND);
        // The block survives a loss of the store.
        env.test_store().flush_all().await;
        assert_eq!(wait_time(&quotas, &new_reservation("three")).await, 17 * SECOND);
        env.advance(17 * SECOND);
        reserve(&quotas, &new_reservation("three")).await;
    }

    /// P1: calls that the shorter window did not count any more count in the longer one.
    async fn longer_window_counts_the_calls_in_the_log(context: TestContext) {
        let env = TestEnv::new(context);
        let quotas = env.quotas_with("5/2s", 0).await;
        for number in 0..5 {
            let call = reserve(&quotas, &new_reservation(&format!("call-{number}"))).await;
            quotas.settle(&call, 1, QuotaFeedback::default()).await.unwrap();
        }
        env.advance(5 * SECOND);
        assert_eq!(quotas.usage(&api()).await.unwrap().windows[0].used, 0);
        quotas.define(&api(), &Limits::parse("5/1m", 0).unwrap()).await.unwrap();
        assert_eq!(wait_time(&quotas, &new_reservation("sixth")).await, MINUTE - 5 * SECOND);
        // A node that still has the old definition does not grant the call either.
        let other = env.quotas();
        other.definition(&api()).await.unwrap();
        quotas.define(&api(), &Limits::parse("5/2m", 0).unwrap()).await.unwrap();
        env.advance(MINUTE);
        assert_eq!(wait_time(&other, &new_reservation("seventh")).await, MINUTE - 5 * SECOND);
    }

    /// P8: limit and buffer of the configuration, unless others are defined.
    async fn public_quota_has_the_limits_of_the_configuration(context: TestContext) {
        let env = TestEnv::new(context);
        let quotas = env.quotas();
        let usage = quotas.usage(&api()).await.unwrap();
        assert_eq!((usage.windows[0].usable, usage.windows[0].period), (4975, HOUR));
        quotas.define(&api(), &Limits::parse("5/1m", 0).unwrap()).await.unwrap();
        assert_eq!(env.quotas().usage(&api()).await.unwrap().windows[0].usable, 5);
    }

    async fn lower_limit_applies_at_once_and_unknown_quota_is_rejected(context: TestContext) {
        let env = TestEnv::new(context);
        let quotas = env.quotas_with("10/1m", 0).await;
        reserve(&quotas, &NewReservation { calls: 5, ..new_reservation("five") }).await;
        quotas.define(&api(), &Limits::parse("5/1m", 0).unwrap()).await.unwrap();
        assert_eq!(wait_time(&quotas, &new_reservation("one")).await, MINUTE);
        let unknown = quotas.reserve(&"other".parse().unwrap(), &new_reservation("one")).await;
        assert!(matches!(unknown, Err(Error::NotFound { .. })), "{unknown:?}");
        let too_many = quotas.reserve(&api(), &NewReservation { calls: 6, ..new_reservation("six") }).await;
        assert!(matches!(too_many, Err(Error::Invalid { field: "calls", .. })), "{too_many:?}");
    }
}
