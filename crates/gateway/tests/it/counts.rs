//! G1–G15, G18, G19: counted requests, and equal statistics on every instance.

use std::collections::BTreeSet;
use std::time::Duration;

use hob_fixtures::{Layout, every_service};
use hob_gateway::keys::{Hour, InstanceId, Keys, StatusCode};
use hob_store::cmd;
use hob_testkit::{KillableNode, LIMIT, wait_for};
use http::Method;

use crate::kit::{NEEDS, TestInstance, endpoint, with_clock};

every_service! {
    NEEDS;

    /// G3 G4 G7 G10 G11 G12: the same requests are counted in every family.
    async fn request_is_counted_in_every_family(context: TestContext) {
        let instance = TestInstance::start(&context, "").await;
        for _ in 0..3 {
            instance.request(Method::GET, "/api/users", 200).await;
        }
        instance.request(Method::GET, "/api/users", 404).await;
        instance.request(Method::PUT, "/api/forum/questions/123", 500).await;
        // Requests from this host are not counted.
        instance.request_from("127.0.0.1", Method::GET, "/api/users", 200).await;
        instance.request_from("::1", Method::GET, "/api/users", 500).await;
        let (users, questions) = (endpoint("GET /api/users"), endpoint("PUT /api/forum/questions/123"));
        instance.expect(5, Keys::requests_total).await;
        instance.expect(5, Keys::requests_accepted).await;
        instance.expect(0, Keys::requests_limited).await;
        instance.expect(4, |keys, shard| keys.requests_by_endpoint(&users, shard)).await;
        instance.expect(1, |keys, shard| keys.requests_by_endpoint(&questions, shard)).await;
        instance.expect(2, Keys::errors_total).await;
        instance.expect(1, |keys, shard| keys.errors_by_endpoint(&users, shard)).await;
        for (code, count) in [("404", 1), ("500", 1), ("400", 0)] {
            let code = StatusCode::new(code).unwrap();
            instance.expect(count, |keys, shard| keys.errors_by_status(&code, shard)).await;
        }
    }

    /// G7 G18: escapes in a path are written once.
    async fn escaped_path_is_counted_as_it_is_written(context: TestContext) {
        let instance = TestInstance::start(&context, "").await;
        for path in ["/a%20b", "/a%2520b", "/%7Bx%7D"] {
            instance.request(Method::GET, path, 200).await;
            let endpoint = endpoint(&format!("GET {path}"));
            instance.expect(1, |keys, shard| keys.requests_by_endpoint(&endpoint, shard)).await;
            let key = instance.find(|keys, shard| keys.requests_by_endpoint(&endpoint, shard)).await;
            assert!(key.to_string().ends_with(&format!(":GET {path}")), "{key}");
        }
    }

    /// G5: the last instance to stop leaves no requests per second behind.
    async fn stopped_gateway_has_no_requests_per_second(context: TestContext) {
        let instance = TestInstance::start(&context, "").await;
        wait_for("requests per second", LIMIT, async || {
            instance.request(Method::GET, "/", 200).await;
            instance.count(Keys::requests_speed).await > 0
        })
        .await;
        instance.stop().await;
        assert_eq!(instance.count(Keys::requests_speed).await, 0);
    }

    /// G8 G9: counters of an hour and of an instance have a TTL from the first count on.
    async fn hour_and_instance_counters_have_a_ttl(context: TestContext) {
        let (driven, clock) = with_clock(&context);
        let instance = TestInstance::start(&driven, "instance = \"gw-1\"").await;
        instance.request(Method::GET, "/", 200).await;
        let (gateway, hour) = (InstanceId::new("gw-1").unwrap(), Hour::new(1_763_287_200_000_u64).unwrap());
        instance.expect(1, |keys, shard| keys.requests_by_instance(&gateway, shard)).await;
        instance.expect(1, |keys, shard| keys.requests_by_hour(&hour, shard)).await;
        clock.advance(Duration::from_secs(3600));
        let next = Hour::new(1_763_290_800_000_u64).unwrap();
        instance.request(Method::GET, "/", 200).await;
        instance.expect(1, |keys, shard| keys.requests_by_hour(&next, shard)).await;
        instance.expect(1, |keys, shard| keys.requests_by_hour(&hour, shard)).await;
        for key in [
            instance.find(|keys, shard| keys.requests_by_hour(&hour, shard)).await,
            instance.find(|keys, shard| keys.requests_by_instance(&gateway, shard)).await,
        ] {
            let ttl_s: i64 = instance.read("TTL", &key).await;
            assert!((86_000..=86_400).contains(&ttl_s), "{key} lives {ttl_s} s");
        }
    }

    /// G13 G14 G15: equal response times stay separate, the newest 1,000 are kept, and sum and count agree.
    async fn equal_response_times_stay_separate(context: TestContext) {
        let instance = TestInstance::start(&context, "").await;
        let users = endpoint("GET /api/users");
        // Most of them are in one flush.
        for _ in 0..1200 {
            instance.request(Method::GET, "/api/users", 200).await;
        }
        instance.expect(1200, |keys, shard| keys.response_count(&users, shard)).await;
        let times = instance.find(|keys, shard| keys.response_times(&users, shard)).await;
        let members: Vec<(String, f64)> = instance
            .context.store.run(cmd("ZRANGE").arg(times.as_bytes()).arg(0).arg(-1).arg("WITHSCORES")).await.unwrap();
        assert_eq!(members.len(), 1000);
        let now_ms = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as f64;
        for (member, score) in &members {
            assert!(member.parse::<f64>().is_ok_and(|ms| (0.0..60_000.0).contains(&ms)), "{member}");
            assert_eq!(member.split_once('.').map(|(_, digits)| digits.len()), Some(9), "{member}");
            assert!((now_ms - score).abs() < 600_000.0, "{score}");
        }
        let sum = instance.find(|keys, shard| keys.response_sum(&users, shard)).await;
        let sum: f64 = instance.read("GET", &sum).await;
        assert!(sum > 0.0 && sum < 1200.0 * 60_000.0, "{sum}");
    }

    /// G1 G2: the connections of a dead instance are removed from the sum; the maximum stays.
    async fn connections_of_a_dead_instance_are_removed(context: TestContext) {
        let (driven, clock) = with_clock(&context);
        let instance = TestInstance::start(&driven, "instance = \"survivor\"").await;
        let survivors: Vec<_> = (0..2).map(|_| instance.gateway.meter().connected()).collect();
        instance.expect(2, Keys::connections_current).await;
        let mut other = context.another_node().await;
        other.store = driven.store.clone();
        let victim = async move { TestInstance::start(&other, "instance = \"victim\"").await };
        let victim = KillableNode::start(victim).await;
        let _open: Vec<_> = (0..5).map(|_| victim.gateway.meter().connected()).collect();
        instance.expect(7, Keys::connections_current).await;
        victim.kill();
        instance.expect(7, Keys::connections_max).await;
        clock.advance(Duration::from_secs(6));
        instance.expect(2, Keys::connections_current).await;
        instance.expect(7, Keys::connections_max).await;
        drop(survivors);
        instance.expect(0, Keys::connections_current).await;
        let instances = instance.gateway.statistics().instances().await.unwrap();
        assert_eq!(instances.iter().map(|instance| instance.id.as_str()).collect::<Vec<_>>(), ["survivor"]);
    }

    /// G2 G6: startup is when the first live instance started.
    async fn maxima_restart_with_the_first_instance(context: TestContext) {
        let (driven, clock) = with_clock(&context);
        let instance = TestInstance::start(&driven, "").await;
        let open = instance.gateway.meter().connected();
        instance.request(Method::GET, "/", 200).await;
        instance.expect(1, Keys::connections_max).await;
        instance.expect(1, Keys::requests_total).await;
        clock.advance(Duration::from_secs(1));
        instance.expect(1, Keys::requests_speed_max).await;
        drop(open);
        instance.stop().await;
        instance.expect(0, Keys::connections_current).await;
        let mut next = context.another_node().await;
        next.store = driven.store.clone();
        clock.advance(Duration::from_secs(200));
        let next = TestInstance::start(&next, "").await;
        next.expect(0, Keys::connections_max).await;
        next.expect(0, Keys::requests_speed_max).await;
        next.expect(1, Keys::requests_total).await;
        next.stop().await;
    }

    /// G5 G6: requests per second over all instances.
    async fn requests_per_second_cover_all_instances(context: TestContext) {
        let (driven, clock) = with_clock(&context);
        let one = TestInstance::start(&driven, "").await;
        let mut other = context.another_node().await;
        other.store = driven.store.clone();
        let two = TestInstance::start(&other, "").await;
        for instance in [&one, &two] {
            for _ in 0..20 {
                instance.request(Method::GET, "/", 200).await;
            }
        }
        one.expect(40, Keys::requests_total).await;
        clock.advance(Duration::from_secs(1));
        one.expect(40, Keys::requests_speed).await;
        one.expect(40, Keys::requests_speed_max).await;
        clock.advance(Duration::from_secs(1));
        one.expect(0, Keys::requests_speed).await;
        one.expect(40, Keys::requests_speed_max).await;
        two.stop().await;
    }

    /// G7: over all instances of a shard, endpoints beyond the maximum count as `other`.
    async fn endpoints_are_bounded_over_all_instances(context: TestContext) {
        let one = TestInstance::start(&context, "instance = \"a\"").await;
        let same_shard = (0..).map(|number| format!("b{number}")).find(|name| {
            let space = one.keys.space();
            space.shard_of(name) == space.shard_of("a")
        });
        let two = context.another_node().await;
        let two = TestInstance::start(&two, &format!("instance = {:?}", same_shard.unwrap())).await;
        for number in 0..600 {
            one.request(Method::GET, &format!("/one/{number}"), 200).await;
            two.request(Method::GET, &format!("/two/{number}"), 200).await;
        }
        one.expect(1200, Keys::requests_total).await;
        let index = one.find(Keys::endpoints).await;
        assert_eq!(one.read::<u64>("SCARD", &index).await, 1000);
        one.expect(200, |keys, shard| keys.requests_by_endpoint(&endpoint("other"), shard)).await;
        // Now both instances count them as `other` themselves. The endpoints with a name come first: every few seconds, an
        // endpoint that is counted as `other` replaces one with fewer requests.
        let named: BTreeSet<String> = one.read("SMEMBERS", &index).await;
        for (is_named, total) in [(true, 2200), (false, 2400)] {
            for (instance, of) in [(&one, "one"), (&two, "two")] {
                let paths = (0..600).map(|number| format!("/{of}/{number}"));
                for path in paths.filter(|path| named.contains(&format!("GET {path}")) == is_named) {
                    instance.request(Method::GET, &path, 200).await;
                }
            }
            one.expect(total, Keys::requests_total).await;
        }
        assert_eq!(one.read::<BTreeSet<String>>("SMEMBERS", &index).await, named);
        one.expect(400, |keys, shard| keys.requests_by_endpoint(&endpoint("other"), shard)).await;
        two.stop().await;
    }

    /// G19: any instance reads the statistics of all.
    async fn any_instance_reads_the_statistics_of_all(context: TestContext) {
        let one = TestInstance::start(&context, "instance = \"one\"\nroutes = [\"/users/:id\"]").await;
        let two = context.another_node().await;
        let two = TestInstance::start(&two, "instance = \"two\"\nroutes = [\"/users/:id\"]").await;
        for number in 0..10 {
            one.request(Method::GET, &format!("/users/{number}"), 200).await;
            two.request(Method::GET, &format!("/users/{number}"), 503).await;
        }
        for instance in [&one, &two] {
            let statistics = instance.gateway.statistics();
            let summary = wait_for("both instances to be counted", LIMIT, async || {
                let summary = statistics.summary().await.unwrap();
                (summary.total == 20).then_some(summary)
            })
            .await;
            assert_eq!((summary.accepted, summary.limited, summary.errors), (20, 0, 10));
            assert_eq!((summary.server_errors, summary.client_errors()), (10, 0));
            let endpoints = statistics.endpoints().await.unwrap();
            assert_eq!(endpoints.len(), 1);
            assert_eq!(endpoints[0].name, "GET /users/:id");
            assert_eq!((endpoints[0].requests, endpoints[0].errors, endpoints[0].timed), (20, 10, 20));
            assert_eq!((endpoints[0].server_errors, endpoints[0].limited), (10, 0));
            assert!(endpoints[0].average_ms().is_some_and(|ms| ms > 0.0));
            assert_eq!(statistics.statuses().await.unwrap(), [(503, 10)].into());
            assert_eq!(statistics.hours().await.unwrap().iter().map(|hour| hour.requests).sum::<u64>(), 20);
            let instances = statistics.instances().await.unwrap();
            let seen: BTreeSet<_> = instances.iter().map(|it| (it.id.as_str(), it.requests)).collect();
            assert_eq!(seen, [("one", 10), ("two", 10)].into());
            for minutes in [
                statistics.latency(None, 60).await.unwrap(),
                statistics.latency(Some(&endpoint("GET /users/:id")), 60).await.unwrap(),
            ] {
                assert_eq!(minutes.len(), 60);
                assert_eq!(minutes.iter().map(|minute| minute.histogram.count()).sum::<u64>(), 20);
            }
        }
        two.stop().await;
    }
}

/// G1–G16, G18: the documented keys, byte for byte as `redis-cli` shows them.
#[test]
fn documented_keys_match_byte_for_byte() {
    hob_testkit::run(async {
        let context = hob_fixtures::TestContext::embedded(NEEDS, Layout::Plain).await;
        let instance = TestInstance::start(&context, "instance = \"0\"").await;
        instance.request(Method::GET, "/api/users", 404).await;
        instance.expect(1, Keys::requests_total).await;
        let store = &instance.context.store;
        let kind = async |key: &str| store.run::<String>(cmd("TYPE").arg(key)).await.unwrap();
        for key in [
            "ha:connections:http:current",
            "ha:connections:http:max_since_startup",
            "ha:requests:accepted",
            "ha:requests:total",
            "ha:requests:speed_per_second",
            "ha:requests:max_speed_per_second",
            "ha:requests:endpoint:GET /api/users",
            "ha:requests:instance:0",
            "ha:errors:total",
            "ha:errors:endpoint:GET /api/users",
            "ha:errors:status:404",
            "ha:avg_response:GET_/api/users",
            "ha:response_count:GET_/api/users",
        ] {
            assert_eq!(kind(key).await, "string", "{key}");
        }
        assert_eq!(kind("ha:response_times:GET_/api/users").await, "zset");
        let hours: Vec<String> = store.run(cmd("KEYS").arg("ha:requests:hourly:*")).await.unwrap();
        let start: u64 = hours[0].rsplit(':').next().unwrap().parse().unwrap();
        assert_eq!((hours.len(), start % 3_600_000), (1, 0));
        assert_eq!(Keys::RESPONSE_TIMES_MAX_LEN, 1000);
    });
}
