//! G16 G17: limits on the documented keys, exact and leased limits, and what happens while the store is away.

use hob_web::Service as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hob_gateway::identity::Identity;
use hob_gateway::keys::{Identifier, Keys};
use hob_gateway::{ActiveRule, Config, Limiter, Policy};
use hob_store::{Clock, cmd};
use hob_testkit::{LIMIT, Layout, TestContext, every_service, wait_for};
use http::Method;

use crate::kit::{CLIENT, NEEDS, TestInstance, endpoint, with_clock};

async fn passed(instance: &TestInstance, requests: u32) -> u32 {
    let mut passed = 0;
    for _ in 0..requests {
        passed += u32::from(instance.request_from(CLIENT, Method::GET, "/", 200).await);
    }
    passed
}

fn public(algorithm: &str) -> String {
    format!(
        "[[rules]]\nname = \"public\"\nwindows = \"10/15m\"\nalgorithm = \"{algorithm}\"\npublic = true\n"
    )
}

every_service! {
    NEEDS;

    /// G16: requests of one millisecond count one by one, and the TTL is the window.
    async fn the_public_fixed_log_stands_in_the_documented_key(context: TestContext) {
        let (driven, clock) = with_clock(&context);
        let instance = TestInstance::start(&driven, &public("fixed_log")).await;
        assert_eq!(passed(&instance, 15).await, 10);
        let key = instance.keys.rate_limit(&Identifier::new(CLIENT).unwrap());
        let members: Vec<(String, f64)> =
            driven.store.run(cmd("ZRANGE").arg(key.as_bytes()).arg(0).arg(-1).arg("WITHSCORES")).await.unwrap();
        assert_eq!(members.len(), 10);
        assert!(members.iter().all(|(member, score)| member.parse::<f64>().unwrap().floor() == *score));
        let ttl_s: u64 = instance.read("TTL", &key).await;
        assert!((890..=900).contains(&ttl_s), "{ttl_s}");
        clock.advance(Duration::from_secs(900));
        assert_eq!(passed(&instance, 15).await, 10);
    }

    /// G17: never more than the limit in any window, wherever it begins.
    async fn the_public_sliding_log_stands_in_the_documented_key(context: TestContext) {
        let (driven, clock) = with_clock(&context);
        let instance = TestInstance::start(&driven, &public("sliding_log")).await;
        assert_eq!(passed(&instance, 6).await, 6);
        clock.advance(Duration::from_secs(600));
        assert_eq!(passed(&instance, 6).await, 4);
        clock.advance(Duration::from_secs(300));
        assert_eq!(passed(&instance, 10).await, 6);
        let key = instance.keys.sliding_limit(&Identifier::new(CLIENT).unwrap());
        assert_eq!(instance.read::<u64>("ZCARD", &key).await, 10);
    }

    /// Several windows, all or nothing, over two instances; refusals are counted apart from the upstream's errors.
    async fn instances_share_one_exact_limit(context: TestContext) {
        let (driven, clock) = with_clock(&context);
        let rules = "[[rules]]\nname = \"api\"\nwindows = \"5/1s, 8/1m\"\n";
        let one = TestInstance::start(&driven, rules).await;
        let mut other = context.another_node().await;
        other.store = driven.store.clone();
        let two = TestInstance::start(&other, rules).await;
        assert_eq!(passed(&one, 3).await + passed(&two, 3).await, 5);
        clock.advance(Duration::from_secs(1));
        assert_eq!(passed(&one, 3).await + passed(&two, 3).await, 3);
        one.expect(12, Keys::requests_total).await;
        one.expect(8, Keys::requests_accepted).await;
        one.expect(4, Keys::requests_limited).await;
        one.expect(8, |keys, shard| keys.response_count(&endpoint("GET /"), shard)).await;
        let rule = Policy::new(&toml::from_str::<Config>(rules).unwrap()).unwrap().rule("api").unwrap().name().clone();
        let limit = wait_for("the rule's counts", LIMIT, async || {
            let limit = one.gateway.statistics().rule(&rule).await.unwrap();
            (limit.allowed + limit.refused == 12).then_some(limit)
        })
        .await;
        assert_eq!((limit.allowed, limit.refused, limit.top_refused), (8, 4, vec![(CLIENT.to_owned(), 4)]));
        two.stop().await;
    }

    /// Leased tokens never admit more than the limit in any window, however many instances hold some.
    async fn leases_never_overshoot(context: TestContext) {
        let rules = "[[rules]]\nname = \"api\"\nwindows = \"40/400ms\"\nalgorithm = \"sliding_log\"\n\
                     exactness = \"leased\"\nlease = \"100ms\"\n";
        let one = TestInstance::start(&context, rules).await;
        let other = context.another_node().await;
        let two = TestInstance::start(&other, rules).await;
        let begun = Instant::now();
        let mut admitted = Vec::new();
        while begun.elapsed() < Duration::from_secs(2) {
            for instance in [&one, &two] {
                let asked = begun.elapsed();
                if instance.request_from(CLIENT, Method::GET, "/", 200).await {
                    admitted.push((asked, begun.elapsed()));
                }
            }
            tokio::task::yield_now().await;
        }
        for (asked, _) in &admitted {
            // Those that certainly happened within one window, by a clock that counts milliseconds.
            let end = *asked + Duration::from_millis(399);
            let within = admitted.iter().filter(|(from, to)| from >= asked && *to <= end);
            assert!(within.count() <= 40);
        }
        // Debits are spread over windows of 500 ms, so about 160 pass in two seconds.
        assert!(admitted.len() >= 20, "{}", admitted.len());
        two.stop().await;
    }

    /// A shadow rule counts what it would refuse and refuses nothing; lists come before rules.
    async fn shadow_rules_and_lists_do_what_they_say(context: TestContext) {
        let config = "allow = [\"198.51.100.0/24\"]\ndeny = [\"192.0.2.1\"]\n\
                      [[rules]]\nname = \"trial\"\nwindows = \"1/1h\"\nshadow = true\n\
                      [[rules]]\nname = \"real\"\nwindows = \"3/1h\"\n";
        let instance = TestInstance::start(&context, config).await;
        assert_eq!(passed(&instance, 5).await, 3);
        for _ in 0..10 {
            assert!(instance.request_from("198.51.100.9", Method::GET, "/", 200).await);
            assert!(!instance.request_from("192.0.2.1", Method::GET, "/", 200).await);
        }
        let policy = Policy::new(&toml::from_str::<Config>(config).unwrap()).unwrap();
        let trial = policy.rule("trial").unwrap().name().clone();
        wait_for("the shadow rule's counts", LIMIT, async || {
            let limit = instance.gateway.statistics().rule(&trial).await.unwrap();
            if (limit.allowed, limit.shadowed, limit.refused) == (1, 4, 0) { Ok(()) } else { Err(limit) }
        })
        .await;
    }
}

/// A rule alone, without the tasks of a gateway: every command that the store sees is the limit's.
fn limiter(context: &TestContext, rule: &str) -> (Limiter, Arc<ActiveRule>) {
    let config = format!("[[rules]]\nname = \"api\"\nexactness = \"leased\"\n{rule}");
    let policy = Policy::new(&toml::from_str::<Config>(&config).unwrap()).unwrap();
    let limiter = Limiter::new(context.store.with_deadline(LIMIT), Keys::new(context.layout), &policy);
    let rule = limiter.rule("api").unwrap();
    (limiter, rule)
}

/// A flood on a hot key costs the store next to nothing: at most 0.02 commands per request, admitted or refused.
#[test]
fn a_leased_limit_asks_the_store_rarely() {
    hob_testkit::run(async {
        let context = TestContext::embedded(NEEDS, Layout::Plain).await;
        for windows in ["100000/1s burst 200000", "1000/1s burst 2000"] {
            let (limiter, rule) = limiter(&context, &format!("windows = \"{windows}\"\n"));
            let who = Identity::new(windows).unwrap();
            let before = context.store.health().operations.total;
            for _ in 0..20_000 {
                limiter.check(&rule, &who, 1).await;
            }
            let asked = context.store.health().operations.total - before;
            assert!(asked <= 400, "{asked} commands for 20,000 requests, {windows}");
        }
    });
}

every_service! {
    NEEDS;

    /// What is not spent comes back: when everybody has gone, the store holds what passed and hardly more, and another
    /// instance can have the rest.
    async fn unused_tokens_are_given_back(context: TestContext) {
        let rule = "windows = \"2000/1h\"\nalgorithm = \"sliding_log\"\nlease = \"2s\"\n";
        let (one, live) = limiter(&context, rule);
        let who = Identity::new(CLIENT).unwrap();
        let mut passed = 0_u64;
        // Enough that batches grow, and an end in the middle of one.
        while passed < 1050 {
            passed += u64::from(one.check(&live, &who, 1).await.is_allowed());
            tokio::task::yield_now().await;
        }
        let name = hob_gateway::keys::Rule::new("api").unwrap();
        let key = Keys::new(context.layout).limit_log(&name, &Identifier::new(CLIENT).unwrap());
        let held = async || context.store.run::<u64>(cmd("ZCARD").arg(key.as_bytes())).await.unwrap();
        wait_for("the unused to come back", LIMIT, async || {
            let stranded = held().await - passed;
            if stranded * 50 <= passed { Ok(()) } else { Err(stranded) }
        })
        .await;
        let (two, live) = limiter(&context, rule);
        while two.check(&live, &who, 1).await.is_allowed() {
            passed += 1;
        }
        assert!((1960..=2000).contains(&passed), "{passed}");
        // A clean stop does not wait for it.
        two.return_tokens().await;
        assert_eq!(held().await, passed);
    }
}

/// The next tokens are there before the last are spent: a busy caller does not wait for the store.
#[test]
fn a_busy_caller_never_waits_for_the_store() {
    hob_testkit::run(async {
        let context = TestContext::redis(NEEDS).await;
        let (limiter, rule) = limiter(&context, "windows = \"100000/1s burst 200000\"\n");
        let who = Identity::new(CLIENT).unwrap();
        let mut waited = 0;
        for number in 0..3000 {
            let mut asked = Box::pin(limiter.check(&rule, &who, 1));
            // Whoever has to wait is not ready at once.
            if futures_util::poll!(&mut asked).is_pending() {
                asked.await;
                waited += u32::from(number >= 1000);
            }
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
        assert!(waited <= 20, "{waited} of 2,000 requests waited");
    });
}

/// While the store is stalled, open and local rules answer at once, a closed one refuses, and all go back to it after.
#[test]
fn requests_do_not_wait_for_a_store_that_is_away() {
    hob_testkit::run(async {
        let context = TestContext::redis(NEEDS).await;
        let rule = |name: &str, then: &str| {
            format!(
                "[[rules]]\nname = \"{name}\"\nroute = \"/{name}\"\nwindows = \"5/1h\"\non_store_failure = \"{then}\"\n"
            )
        };
        let rules = [rule("open", "open"), rule("closed", "closed"), rule("local", "local")].concat();
        let instance = TestInstance::start(&context, &format!("store_within = \"100ms\"\n{rules}")).await;
        let hob_testkit::Server::Redis(server) = context.test_store().server() else { panic!("no redis") };
        assert!(instance.request_from(CLIENT, Method::GET, "/open", 200).await);
        server.freeze();
        // Whoever is first finds out.
        instance.request_from(CLIENT, Method::GET, "/open", 200).await;
        let begun = Instant::now();
        let mut passed = [0; 3];
        for (count, path) in passed.iter_mut().zip(["/open", "/closed", "/local"]) {
            for _ in 0..200 {
                *count += u32::from(instance.request_from(CLIENT, Method::GET, path, 200).await);
            }
        }
        assert_eq!(passed, [200, 0, 5]);
        assert!(begun.elapsed() < LIMIT / 3, "600 requests took {:?}", begun.elapsed());
        server.thaw();
        wait_for("the store to be asked again", LIMIT, async || {
            instance.request_from(CLIENT, Method::GET, "/closed", 200).await
        })
        .await;
    });
}

mod slow {
    use super::*;

    /// A store that stands still for five seconds: requests under open and local rules take no longer than they may wait
    /// for it, nearly all of them no time at all, and none waits behind another.
    #[test]
    fn a_stalled_store_makes_nothing_pile_up() {
        hob_testkit::run(async {
            let context = TestContext::redis(NEEDS).await;
            let rule = |name: &str, more: &str| {
                format!(
                    "[[rules]]\nname = \"{name}\"\nroute = \"/{name}\"\nwindows = \"100000/1s burst 200000\"\n{more}\n"
                )
            };
            let rules = [
                rule("open", "on_store_failure = \"open\""),
                rule("local", "on_store_failure = \"local\""),
                rule("leased", "exactness = \"leased\"\non_store_failure = \"local\""),
            ];
            let instance =
                TestInstance::start(&context, &format!("store_within = \"100ms\"\n{}", rules.concat())).await;
            let instance = Arc::new(instance);
            let hob_testkit::Server::Redis(server) = context.test_store().server() else {
                panic!("no redis")
            };
            for path in ["/open", "/local", "/leased"] {
                assert!(instance.request_from(CLIENT, Method::GET, path, 200).await);
            }
            server.freeze();
            let begun = Instant::now();
            let mut asking = Vec::new();
            // Arrivals do not wait for answers, as those of many clients do not.
            while begun.elapsed() < Duration::from_secs(5) {
                for path in ["/open", "/local", "/leased"] {
                    let instance = Arc::clone(&instance);
                    asking.push(tokio::spawn(async move {
                        let asked = Instant::now();
                        let passed = instance.request_from(CLIENT, Method::GET, path, 200).await;
                        (passed, asked.elapsed())
                    }));
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            let ended = begun.elapsed();
            let mut took = Vec::new();
            for asking in asking {
                let (passed, elapsed) = asking.await.unwrap();
                assert!(passed);
                took.push(elapsed);
            }
            assert!(begun.elapsed() < ended + Duration::from_secs(1), "requests had piled up");
            server.thaw();
            took.sort_unstable();
            let (median, worst) = (took[took.len() / 2], took[took.len() - 1]);
            assert!(median < Duration::from_millis(20), "half of them took {median:?}");
            assert!(worst < Duration::from_secs(1), "one took {worst:?}");
        });
    }
}

/// New rules are in force with the next request, and a bad configuration changes nothing.
#[test]
fn rules_are_reloaded_live() {
    hob_testkit::run(async {
        let context = TestContext::embedded(NEEDS, Layout::Plain).await;
        let read = |text: &str| toml::from_str::<Config>(text).unwrap();
        let (live, replace) = hob_service::Live::new(read("[[rules]]\nname = \"a\"\nwindows = \"1/1h\"\n"));
        let gateway = hob_gateway::Gateway::open(&context, live).await.unwrap();
        gateway.start(&hob_web::Changes::detached(&context));
        let names = || {
            gateway
                .admission()
                .limiter()
                .rules()
                .iter()
                .map(|live| live.rule().name().to_string())
                .collect::<Vec<_>>()
        };
        replace.replace(read("[[rules]]\nname = \"b\"\nwindows = \"1/1h\"\n"));
        wait_for("the new rule", LIMIT, async || names() == ["b"]).await;
        replace.replace(read("[[rules]]\nname = \"C\"\nwindows = \"nonsense\"\n"));
        replace.replace(read("[[rules]]\nname = \"d\"\nwindows = \"1/1h\"\n"));
        wait_for("the next good rule", LIMIT, async || names() == ["d"]).await;
    });
}

/// Whatever nodes think of the time, the store's clock decides: a driven one here, for both.
#[test]
fn a_clock_that_is_set_back_admits_nothing_more() {
    hob_testkit::run(async {
        let context = TestContext::embedded(NEEDS, Layout::Plain).await;
        let clock = Clock::driven(Duration::from_secs(1_763_289_000));
        let mut driven = context.context().clone();
        driven.store = driven.store.with_clock(clock.clone());
        let rules = "[[rules]]\nname = \"api\"\nwindows = \"5/1m\"\nalgorithm = \"sliding_log\"\n";
        let instance = TestInstance::start(&driven, rules).await;
        assert_eq!(passed(&instance, 5).await, 5);
        clock.set(Duration::from_secs(1_763_289_000 - 3600));
        assert_eq!(passed(&instance, 5).await, 0);
    });
}
