//! Quotas: what is granted, when, and what is known after a loss.

use std::time::Duration;

use hob_pipeline::Error;
use hob_pipeline::keys::Quota;
use hob_pipeline::quota::{Answer, Ask, Lesson, Limits};
use hob_store::cmd;

use crate::every_place;
use crate::support::{api, ask, granted, told_to_wait};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

every_place! {
    /// P1 P2 P8: what another client has put in the place of a key counts as lost, and comes back from the call log.
    async fn a_key_of_the_wrong_type_is_rebuilt_from_the_log(place: Place) {
        let quotas = place.quotas_of("20/1h", 0).await;
        let (keys, name) = (place.keys(), Quota::new("api").unwrap());
        let own = [
            keys.quota_marker(&name),
            keys.quota_calls(&name),
            keys.quota_state(&name),
            keys.quota_turns(&name),
        ];
        for (made, key) in own.iter().chain(&place.counters()).enumerate() {
            let call = granted(&quotas, &ask(&format!("call-{made}"))).await;
            quotas.settle(&call, 1, Lesson::default()).await.unwrap();
            place.test_store.as_outsider(cmd("DEL").arg(key).clone()).await;
            place.test_store.as_outsider(cmd("RPUSH").arg(key).arg("x").clone()).await;
            assert_eq!(quotas.look(&api()).await.unwrap().windows[0].used, made as u32 + 1, "{key}");
        }
    }

    /// P1, P8
    async fn a_call_must_fit_every_window_and_is_told_when_it_does(place: Place) {
        let quotas = place.quotas_of("2/1m, 3/1h", 0).await;
        for id in ["a", "b"] {
            let call = granted(&quotas, &ask(id)).await;
            place.advance(SECOND);
            quotas.settle(&call, 1, Lesson::default()).await.unwrap();
        }
        // "a" was answered a second before "b", and leaves the minute first.
        assert_eq!(told_to_wait(&quotas, &ask("c")).await, MINUTE - SECOND);
        place.advance(MINUTE - SECOND);
        let call = granted(&quotas, &ask("c")).await;
        quotas.settle(&call, 1, Lesson::default()).await.unwrap();
        // Now the hour is full, too; "a" leaves it first.
        assert_eq!(told_to_wait(&quotas, &ask("d")).await, HOUR - MINUTE);
        place.advance(HOUR - MINUTE - Duration::from_millis(1));
        assert_eq!(told_to_wait(&quotas, &ask("d")).await, Duration::from_millis(1));
        place.advance(Duration::from_millis(1));
        granted(&quotas, &ask("d")).await;
    }

    /// P8
    async fn calls_in_flight_count_and_what_is_not_used_is_given_back(place: Place) {
        let quotas = place.quotas_of("10/1h", 4).await;
        let all = granted(&quotas, &Ask { calls: 6, ..ask("all") }).await;
        let gauge = quotas.look(&api()).await.unwrap();
        assert_eq!((gauge.in_flight, gauge.windows[0].used, gauge.windows[0].left()), (6, 6, 0));
        told_to_wait(&quotas, &ask("more")).await;
        quotas.settle(&all, 2, Lesson::default()).await.unwrap();
        let gauge = quotas.look(&api()).await.unwrap();
        assert_eq!((gauge.in_flight, gauge.windows[0].used, gauge.windows[0].left()), (0, 2, 4));
        granted(&quotas, &Ask { calls: 4, ..ask("more") }).await;
        // The public counters show what was made or may be: 2 + 4.
        for key in place.counters() {
            assert_eq!(place.get(&key).await.as_deref(), Some("6"), "{key}");
        }
    }

    /// P1: an answer that never came may have come at the last moment.
    async fn a_call_whose_caller_died_occupies_its_windows_until_after_its_deadline(place: Place) {
        let quotas = place.quotas_of("1/1m", 0).await;
        granted(&quotas, &ask("dead")).await;
        place.advance(MINUTE + 29 * SECOND);
        assert_eq!(told_to_wait(&quotas, &ask("next")).await, SECOND);
        place.advance(SECOND);
        granted(&quotas, &ask("next")).await;
    }

    /// P8
    async fn asking_again_under_the_same_id_gives_the_same_calls(place: Place) {
        let quotas = place.quotas_of("2/1m", 0).await;
        let first = granted(&quotas, &ask("same")).await;
        place.advance(SECOND);
        let again = granted(&quotas, &ask("same")).await;
        assert_eq!((&again.id, again.until), (&first.id, first.until));
        assert_eq!(quotas.look(&api()).await.unwrap().windows[0].used, 1);
    }

    /// P8: nothing that was granted is forgotten, and nobody spends before it is known again.
    async fn a_quota_survives_the_loss_of_the_store(place: Place) {
        let quotas = place.quotas_of("3/1h", 0).await;
        let done = granted(&quotas, &ask("done")).await;
        quotas.settle(&done, 1, Lesson::default()).await.unwrap();
        let flying = granted(&quotas, &ask("flying")).await;
        let unused = granted(&quotas, &ask("unused")).await;
        quotas.settle(&unused, 0, Lesson::default()).await.unwrap();
        place.test_store.flush_all().await;

        let gauge = place.quotas().look(&api()).await.unwrap();
        assert_eq!((gauge.in_flight, gauge.windows[0].used), (1, 2));
        for key in place.counters() {
            assert_eq!(place.get(&key).await.as_deref(), Some("2"), "{key}");
        }
        granted(&quotas, &ask("last")).await;
        place.advance(SECOND);
        quotas.settle(&flying, 1, Lesson::default()).await.unwrap();
        assert_eq!(told_to_wait(&quotas, &ask("over")).await, HOUR - SECOND);
    }

    /// P2
    async fn what_others_count_with_the_documented_script_takes_from_the_quota(place: Place) {
        const DOCUMENTED: &str = "local current = tonumber(redis.call('GET', KEYS[1]) or 0)
            if current + tonumber(ARGV[1]) <= tonumber(ARGV[2]) then
                local new_count = redis.call('INCRBY', KEYS[1], ARGV[1])
                redis.call('EXPIRE', KEYS[1], tonumber(ARGV[3]))
                return {new_count, 1}
            else
                return {current, 0}
            end";
        let quotas = place.quotas_of("5/1h", 0).await;
        granted(&quotas, &ask("ours")).await;
        let [rate_limit, counter] = place.counters();
        let documented = || cmd("EVAL").arg(DOCUMENTED).arg(1).arg(counter.as_bytes()).arg(3).arg(5).arg(7200).clone();
        let answer: (i64, i64) = place.test_store.store().run(documented()).await.unwrap();
        assert_eq!(answer, (4, 1));
        granted(&quotas, &ask("fifth")).await;
        assert_eq!(told_to_wait(&quotas, &ask("sixth")).await, HOUR);
        assert_eq!(place.get(&rate_limit).await.as_deref(), Some("5"));
        let answer: (i64, i64) = place.test_store.store().run(documented()).await.unwrap();
        assert_eq!(answer, (5, 0));
        // Others' calls are in the log, too.
        place.test_store.flush_all().await;
        assert_eq!(quotas.look(&api()).await.unwrap().windows[0].used, 5);
    }

    /// P6: the store says which hour it is, not the node.
    async fn counters_carry_the_stores_hour(place: Place) {
        let quotas = place.quotas_of("50/1h", 0).await;
        granted(&quotas, &ask("first")).await;
        place.advance(50 * MINUTE);
        granted(&quotas, &ask("second")).await;
        place.advance(5 * HOUR);
        granted(&quotas, &ask("third")).await;
        let keys = place.keys();
        let shard = keys.space().shard_of("api");
        for hour in ["2026-11-15_08", "2026-11-15_09", "2026-11-15_14"] {
            let hour = hob_pipeline::keys::HourKey::new(hour).unwrap();
            assert_eq!(place.get(&keys.rate_limit(&hour, shard)).await.as_deref(), Some("1"), "{hour}");
        }
    }

    /// P1: calls made elsewhere with the same credential show in the API's answers.
    async fn an_answer_teaches_what_others_have_used(place: Place) {
        let quotas = place.quotas_of("10/1m", 0).await;
        let call = granted(&quotas, &ask("one")).await;
        let counted = Lesson { counted: Some((7, MINUTE)), ..Lesson::default() };
        quotas.settle(&call, 1, counted).await.unwrap();
        assert_eq!(quotas.look(&api()).await.unwrap().windows[0].used, 7);
        let call = granted(&quotas, &ask("two")).await;
        let refused = Lesson { blocked_for: Some(17 * SECOND), ..Lesson::default() };
        quotas.settle(&call, 1, refused).await.unwrap();
        assert_eq!(told_to_wait(&quotas, &ask("three")).await, 17 * SECOND);
        // The refusal is remembered, whatever happens to the store.
        place.test_store.flush_all().await;
        assert_eq!(told_to_wait(&quotas, &ask("three")).await, 17 * SECOND);
        place.advance(17 * SECOND);
        granted(&quotas, &ask("three")).await;
    }

    async fn runs_share_a_quota_by_their_weights(place: Place) {
        let quotas = place.quotas_of("12/10s", 0).await;
        let mut had = [0_u32; 2];
        let mut comes_at = [0_u64; 2];
        // The light run has many more workers than the heavy one. All come when they are told to.
        for now_ms in (0..200_000).step_by(50) {
            for (at, (run, weight, workers)) in [("light", 1, 60), ("heavy", 3, 12)].into_iter().enumerate() {
                for worker in 0..workers {
                    if now_ms < comes_at[at] {
                        break;
                    }
                    let ask = Ask { run: run.to_owned(), weight, ..ask(&format!("{run}-{now_ms}-{worker}")) };
                    match quotas.reserve(&api(), &ask).await.unwrap() {
                        Answer::Granted(call) => {
                            quotas.settle(&call, 1, Lesson::default()).await.unwrap();
                            had[at] += 1;
                        }
                        Answer::Wait { after, .. } => comes_at[at] = now_ms + after.as_millis() as u64,
                    }
                }
            }
            place.advance(Duration::from_millis(50));
        }
        let [light, heavy] = had;
        let share = f64::from(heavy) / f64::from(light + heavy);
        assert!((0.70..0.80).contains(&share), "{light} light, {heavy} heavy");
        assert!(light + heavy >= 228, "{light} light, {heavy} heavy of 240");
    }

    async fn a_lower_limit_holds_at_once_and_an_unknown_quota_is_refused(place: Place) {
        let quotas = place.quotas_of("10/1m", 0).await;
        granted(&quotas, &Ask { calls: 5, ..ask("five") }).await;
        quotas.define(&api(), &Limits::parse("5/1m", 0).unwrap()).await.unwrap();
        assert_eq!(told_to_wait(&quotas, &ask("one")).await, MINUTE);
        let unknown = quotas.reserve(&"other".parse().unwrap(), &ask("one")).await;
        assert!(matches!(unknown, Err(Error::Unknown { .. })), "{unknown:?}");
        let too_many = quotas.reserve(&api(), &Ask { calls: 6, ..ask("six") }).await;
        assert!(matches!(too_many, Err(Error::Unfit { field: "calls", .. })), "{too_many:?}");
    }
}
