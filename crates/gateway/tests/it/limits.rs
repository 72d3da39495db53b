//! G16 G17: limits in the documented keys, exact and leased limits, and limits while the store is unavailable.

use hob_web::Service as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hob_admission::Identity;
use hob_admission::{ActiveRule, Limiter, Policy};
use hob_fixtures::{Layout, TestContext, every_service};
use hob_gateway::Config;
use hob_gateway::keys::{Identifier, Keys};
use hob_store::{Clock, cmd};
use hob_testkit::{LIMIT, wait_for};
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

    /// G16: requests in the same millisecond count separately, and the TTL is the window.
    async fn public_fixed_log_is_in_the_documented_key(context: TestContext) {
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

    /// G17: never more than the limit in any window.
    async fn public_sliding_log_is_in_the_documented_key(context: TestContext) {
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

    /// All windows must allow a request, over two instances; refusals are counted apart from the upstream's errors.
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
        let rule = Policy::new(&toml::from_str(rules).unwrap()).unwrap().rule("api").unwrap().name().clone();
        let limit = wait_for("the rule's counts", LIMIT, async || {
            let limit = one.gateway.statistics().rule(&rule).await.unwrap();
            (limit.allowed + limit.refused == 12).then_some(limit)
        })
        .await;
        assert_eq!((limit.allowed, limit.refused, limit.top_refused), (8, 4, vec![(CLIENT.to_owned(), 4)]));
        two.stop().await;
    }

    /// A request that a later rule refuses counts against no rule.
    async fn refused_request_counts_against_no_rule(context: TestContext) {
        for how in [
            "algorithm = \"gcra\"",
            "algorithm = \"sliding_log\"",
            "algorithm = \"sliding_window\"",
            "algorithm = \"fixed_log\"",
            "algorithm = \"sliding_log\"\nexactness = \"leased\"\nlease = \"1m\"",
        ] {
            let name = how.split('"').filter(|word| word.contains('_') || *word == "gcra").collect::<String>();
            let leased = if how.contains("leased") { "-leased" } else { "" };
            let rules = format!(
                "[[rules]]\nname = \"all-{name}{leased}\"\nwindows = \"20/1h\"\n{how}\n\
                 [[rules]]\nname = \"login-{name}{leased}\"\nwindows = \"2/1h\"\nroute = \"/login\"\n"
            );
            let node = context.another_node().await;
            let instance = TestInstance::start(&node, &rules).await;
            let mut allowed = 0;
            for _ in 0..30 {
                allowed += u32::from(instance.request_from(CLIENT, Method::GET, "/login", 200).await);
            }
            assert_eq!(allowed, 2, "{how}");
            assert_eq!(passed(&instance, 30).await, 18, "{how}");
            instance.stop().await;
        }
    }

    /// Leased tokens never admit more than the limit in any window, over all instances.
    async fn leases_never_exceed_the_limit(context: TestContext) {
        // Closed: a store that answers later than the lease counts as unavailable.
        let rules = "[[rules]]\nname = \"api\"\nwindows = \"40/400ms\"\nalgorithm = \"sliding_log\"\n\
                     exactness = \"leased\"\nlease = \"100ms\"\non_store_failure = \"closed\"\n";
        let one = TestInstance::start(&context, rules).await;
        let other = context.another_node().await;
        let two = TestInstance::start(&other, rules).await;
        let started = Instant::now();
        let mut admitted = Vec::new();
        // Debits are spread over windows of 500 ms, so about 160 pass in two seconds; fewer on a busy machine, where
        // tokens expire.
        while started.elapsed() < Duration::from_secs(2) || admitted.len() < 20 {
            assert!(started.elapsed() < LIMIT, "only {} passed", admitted.len());
            for instance in [&one, &two] {
                let sent_at = started.elapsed();
                if instance.request_from(CLIENT, Method::GET, "/", 200).await {
                    admitted.push((sent_at, started.elapsed()));
                }
            }
            tokio::task::yield_now().await;
        }
        for (sent_at, _) in &admitted {
            // Requests that certainly happened within one window, by a clock that counts milliseconds.
            let end = *sent_at + Duration::from_millis(399);
            let within = admitted.iter().filter(|(from, to)| from >= sent_at && *to <= end);
            assert!(within.count() <= 40);
        }
        two.stop().await;
    }

    /// A shadow rule counts the requests that it would refuse, and refuses none. Lists apply before rules.
    async fn shadow_rules_refuse_nothing_and_lists_apply_first(context: TestContext) {
        let config = "allow = [\"198.51.100.0/24\"]\ndeny = [\"192.0.2.1\"]\n\
                      [[rules]]\nname = \"trial\"\nwindows = \"1/1h\"\nshadow = true\n\
                      [[rules]]\nname = \"real\"\nwindows = \"3/1h\"\n";
        let instance = TestInstance::start(&context, config).await;
        assert_eq!(passed(&instance, 5).await, 3);
        for _ in 0..10 {
            assert!(instance.request_from("198.51.100.9", Method::GET, "/", 200).await);
            assert!(!instance.request_from("192.0.2.1", Method::GET, "/", 200).await);
        }
        let policy = Policy::new(&toml::from_str(config).unwrap()).unwrap();
        let trial = policy.rule("trial").unwrap().name().clone();
        wait_for("the shadow rule's counts", LIMIT, async || {
            let limit = instance.gateway.statistics().rule(&trial).await.unwrap();
            if (limit.allowed, limit.shadowed, limit.refused) == (1, 4, 0) { Ok(()) } else { Err(limit) }
        })
        .await;
    }
}

/// A denied name is refused on every path, also where no rule applies.
#[test]
fn denied_names_are_refused_on_every_path() {
    hob_testkit::run(async {
        let context = TestContext::embedded(NEEDS, Layout::Plain).await;
        let config = "trusted_proxies = [\"10.0.0.0/8\"]\nallow = [\"198.51.100.0/24\"]\ndeny = [\"user:123\"]\n\
                      [[rules]]\nname = \"api\"\nwindows = \"100/1h\"\nroute = \"/api/*\"\nmethods = [\"POST\"]\n\
                      by = \"header:x-user as user\"\n";
        let instance = TestInstance::start(&context, config).await;
        let refusal = async |user: &str, client: &str, path: &str| {
            let mut headers = http::HeaderMap::new();
            headers.insert("x-user", user.parse().unwrap());
            headers.insert("x-forwarded-for", client.parse().unwrap());
            let proxy = std::net::SocketAddr::from(([10, 0, 0, 1], 1));
            instance.gateway.admission().admit(proxy, &Method::GET, path, &headers).await.refusal
        };
        for path in ["/api/a", "/", "/other", "*"] {
            for client in [CLIENT, "198.51.100.9"] {
                let denied = Some(hob_admission::Refusal::Denied);
                assert_eq!(refusal("123", client, path).await, denied, "{client} {path}");
                assert_eq!(refusal("124", client, path).await, None, "{client} {path}");
            }
        }
    });
}

/// A limiter without the tasks of a gateway: every command that the store runs is the limiter's.
fn limiter(context: &TestContext, rule: &str) -> (Limiter, Arc<ActiveRule>) {
    let config = format!("[[rules]]\nname = \"api\"\nexactness = \"leased\"\n{rule}");
    let policy = Policy::new(&toml::from_str(&config).unwrap()).unwrap();
    let limiter = Limiter::new(context.store.with_deadline(LIMIT), Keys::new(context.layout), &policy);
    let rule = limiter.rule("api").unwrap();
    (limiter, rule)
}

/// At most 0.02 commands per request on a hot key, whether it is allowed or refused.
#[test]
fn leased_limit_rarely_calls_the_store() {
    hob_testkit::run(async {
        let context = TestContext::embedded(NEEDS, Layout::Plain).await;
        for windows in ["100000/1s burst 200000", "1000/1s burst 2000"] {
            let (limiter, rule) = limiter(&context, &format!("windows = \"{windows}\"\n"));
            let caller = Identity::new(windows).unwrap();
            let before = context.store.health().operations.total;
            for _ in 0..20_000 {
                limiter.check(&rule, &caller, 1).await;
            }
            let commands = context.store.health().operations.total - before;
            assert!(commands <= 400, "{commands} commands for 20,000 requests, {windows}");
        }
    });
}

every_service! {
    NEEDS;

    /// When traffic stops, unused tokens are returned, and another instance can use them.
    async fn unused_tokens_are_returned(context: TestContext) {
        let rule = "windows = \"2000/1h\"\nalgorithm = \"sliding_log\"\nlease = \"5s\"\n";
        let (one, live) = limiter(&context, rule);
        let caller = Identity::new(CLIENT).unwrap();
        let mut passed = 0_u64;
        // Enough requests that batches grow. The traffic ends in the middle of a batch.
        while passed < 1050 {
            passed += u64::from(one.check(&live, &caller, 1).await.is_allowed());
            tokio::task::yield_now().await;
        }
        let name = hob_gateway::keys::Rule::new("api").unwrap();
        let key = Keys::new(context.layout).limit_log(&name, &Identifier::new(CLIENT).unwrap());
        let stored = async || context.store.run::<u64>(cmd("ZCARD").arg(key.as_bytes())).await.unwrap();
        wait_for("unused tokens to be returned", LIMIT, async || {
            let unused = stored().await - passed;
            if unused * 50 <= passed { Ok(()) } else { Err(unused) }
        })
        .await;
        // A clean stop returns tokens at once, also those that are being borrowed.
        one.return_tokens().await;
        // A long lease: a timer that returns tokens meanwhile would leave too few.
        let (two, live) = limiter(&context, &rule.replace("5s", "1m"));
        while two.check(&live, &caller, 1).await.is_allowed() {
            passed += 1;
        }
        assert!((1960..=2000).contains(&passed), "{passed}");
        two.return_tokens().await;
        wait_for("the last tokens to be returned", LIMIT, async || {
            let stored = stored().await;
            if stored == passed { Ok(()) } else { Err(stored) }
        })
        .await;
    }
}

/// The next tokens are borrowed before the last are spent.
#[test]
fn busy_caller_does_not_wait_for_the_store() {
    hob_testkit::run(async {
        let context = TestContext::redis(NEEDS).await;
        let (limiter, rule) = limiter(&context, "windows = \"100000/1s burst 200000\"\n");
        let caller = Identity::new(CLIENT).unwrap();
        // Batches grow at first, and again after the test was suspended. A batch lasts for 125 ms: if each were waited
        // for, there would be about eight waits.
        wait_for("1,000 requests of which at most four wait", 2 * LIMIT, async || {
            let mut waited = 0;
            for _ in 0..1000 {
                let mut check = Box::pin(limiter.check(&rule, &caller, 1));
                // A request that has to wait is not ready at the first poll.
                if futures_util::poll!(&mut check).is_pending() {
                    check.await;
                    waited += 1;
                }
                tokio::time::sleep(Duration::from_micros(500)).await;
            }
            if waited <= 4 { Ok(()) } else { Err(waited) }
        })
        .await;
    });
}

/// While the store is stalled, open and local rules decide at once and a closed one refuses; afterwards all use the
/// store again.
#[test]
fn requests_do_not_wait_for_an_unavailable_store() {
    hob_testkit::run(async {
        let context = TestContext::redis(NEEDS).await;
        let rule = |then: &str, limit: u32| {
            format!(
                "[[rules]]\nname = \"{then}\"\nroute = \"/{then}\"\nwindows = \"{limit}/1h\"\non_store_failure = \"{then}\"\n"
            )
        };
        // A request that is refused because the store is slow may be counted there all the same.
        let rules = [rule("open", 1000), rule("closed", 1000), rule("local", 5)].concat();
        let instance = TestInstance::start(&context, &format!("store_timeout = \"100ms\"\n{rules}")).await;
        let hob_fixtures::Server::Redis(server) = context.test_store().server() else { panic!("no redis") };
        assert!(instance.request_from(CLIENT, Method::GET, "/open", 200).await);
        server.freeze();
        // The first request finds the store unavailable.
        instance.request_from(CLIENT, Method::GET, "/open", 200).await;
        let started = Instant::now();
        let mut passed = [0; 3];
        for (count, path) in passed.iter_mut().zip(["/open", "/closed", "/local"]) {
            for _ in 0..200 {
                *count += u32::from(instance.request_from(CLIENT, Method::GET, path, 200).await);
            }
        }
        assert_eq!(passed, [200, 0, 5]);
        assert!(started.elapsed() < LIMIT / 3, "600 requests took {:?}", started.elapsed());
        server.unfreeze();
        wait_for("the store to be used again", LIMIT, async || {
            instance.request_from(CLIENT, Method::GET, "/closed", 200).await
        })
        .await;
    });
}

/// A call that takes too long fails its own request. Other requests still use the store.
#[test]
fn one_slow_call_does_not_make_the_store_unavailable() {
    hob_testkit::run(async {
        let context = TestContext::redis(NEEDS).await;
        let rules = "[[rules]]\nname = \"api\"\nwindows = \"5/1h\"\non_store_failure = \"closed\"\n";
        let instance = TestInstance::start(&context, &format!("store_timeout = \"2s\"\n{rules}")).await;
        let hob_fixtures::Server::Redis(server) = context.test_store().server() else { panic!("no redis") };
        let mut round = 0_u32;
        // If the machine stalls for two seconds, other calls are slow as well. Then another client is tried.
        wait_for("one slow call among others that use the store", 2 * LIMIT, async || {
            round += 1;
            let client = std::net::Ipv4Addr::from(0xC612_0000 + round).to_string();
            let ask = async || instance.request_from(&client, Method::GET, "/", 200).await;
            if !ask().await {
                return Err("the first request was refused".to_owned());
            }
            server.freeze();
            assert!(!ask().await, "the store cannot answer");
            server.unfreeze();
            let mut passed = 0;
            for _ in 0..10 {
                passed += u32::from(ask().await);
            }
            // Redis may have counted the slow request when it continued.
            if (3..=4).contains(&passed) { Ok(()) } else { Err(format!("{passed} requests passed")) }
        })
        .await;
    });
}

/// A store that is slow for a moment does not open the rules: requests without a reply use the last known quota.
#[test]
fn slow_store_does_not_open_a_rule() {
    hob_testkit::run(async {
        let context = TestContext::redis(NEEDS).await;
        let rules = "[[rules]]\nname = \"api\"\nwindows = \"5/1h\"\n";
        let instance = TestInstance::start(&context, &format!("store_timeout = \"300ms\"\n{rules}")).await;
        let hob_fixtures::Server::Redis(server) = context.test_store().server() else { panic!("no redis") };
        let mut round = 0_u32;
        // If the machine stalls for a second, the store is unavailable, and the rule is open. Then another client is tried.
        wait_for("a short stall of the store", 2 * LIMIT, async || {
            round += 1;
            let client = std::net::Ipv4Addr::from(0xC613_0000 + round).to_string();
            let ask = async |_| instance.request_from(&client, Method::GET, "/", 200).await;
            let passed = |answers: Vec<bool>| answers.into_iter().filter(|passed| *passed).count();
            let before = passed(futures_util::future::join_all((0..3).map(ask)).await);
            let started = Instant::now();
            server.freeze();
            let during = passed(futures_util::future::join_all((0..20).map(ask)).await);
            let stalled = started.elapsed();
            server.unfreeze();
            if before != 3 || stalled > Duration::from_millis(900) {
                return Err(format!("{before} of 3 passed, then {stalled:?}"));
            }
            assert_eq!(during, 2, "the rest of the limit");
            Ok(())
        })
        .await;
    });
}

mod slow {
    use super::*;

    /// With a store that is stalled for five seconds, requests under open and local rules take at most `store_timeout`,
    /// most of them no time, and none waits behind another. On a busy machine, a few are suspended for longer.
    #[test]
    fn requests_do_not_queue_behind_a_stalled_store() {
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
                TestInstance::start(&context, &format!("store_timeout = \"100ms\"\n{}", rules.concat()))
                    .await;
            let instance = Arc::new(instance);
            let hob_fixtures::Server::Redis(server) = context.test_store().server() else {
                panic!("no redis")
            };
            for path in ["/open", "/local", "/leased"] {
                assert!(instance.request_from(CLIENT, Method::GET, path, 200).await);
            }
            server.freeze();
            let started = Instant::now();
            let mut asking = Vec::new();
            // Requests arrive independently of responses, as with many clients.
            while started.elapsed() < Duration::from_secs(5) || asking.len() < 3000 {
                for path in ["/open", "/local", "/leased"] {
                    let instance = Arc::clone(&instance);
                    asking.push(tokio::spawn(async move {
                        let sent_at = Instant::now();
                        let passed = instance.request_from(CLIENT, Method::GET, path, 200).await;
                        (passed, sent_at.elapsed())
                    }));
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            let ended = started.elapsed();
            let mut took = Vec::new();
            for asking in asking {
                let (passed, elapsed) = asking.await.unwrap();
                assert!(passed);
                took.push(elapsed);
            }
            assert!(started.elapsed() < ended + LIMIT / 3, "requests had piled up");
            server.unfreeze();
            took.sort_unstable();
            let (median, slow) = (took[took.len() / 2], took[took.len() / 10 * 9]);
            assert!(median < Duration::from_millis(20), "the median is {median:?}");
            assert!(slow < Duration::from_secs(1), "a tenth of the requests took {slow:?} or longer");
        });
    }
}

/// New rules apply to the next request, and an invalid configuration changes nothing.
#[test]
fn rules_are_reloaded() {
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

/// The store's clock decides, and never runs backwards.
#[test]
fn clock_set_back_admits_no_further_requests() {
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
