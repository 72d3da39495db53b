//! Values that another client writes into the gateway's keys are overwritten, change no count and cause no failure.

use std::sync::atomic::{AtomicU64, Ordering};

use hob_admission::Policy;
use hob_fixtures::{ForeignClient, Layout, TestContext, every_service};
use hob_gateway::keys::{Hour, Identifier, InstanceId, Keys, StatusCode};
use hob_schema::Shard;
use hob_store::{Cmd, Key, cmd};
use hob_testkit::{LIMIT, wait_for};
use http::Method;

use crate::kit::{CLIENT, NEEDS, TestInstance, endpoint};

/// A change of a key by another client.
enum Overwrite {
    /// Replaces it by this text.
    Text(&'static str),
    /// Replaces it by a list.
    List,
    /// Sets a field of the hash to this text.
    Field(String, &'static str),
}

async fn overwrite(context: &TestContext, key: &Key, change: &Overwrite) {
    let command: Cmd = match change {
        Overwrite::Text(text) => cmd("SET").arg(key.as_bytes()).arg(text).clone(),
        Overwrite::Field(field, text) => cmd("HSET").arg(key.as_bytes()).arg(field).arg(text).clone(),
        // Atomically, so that the gateway never finds the key missing.
        Overwrite::List => {
            let replace = "redis.call('DEL', KEYS[1]) return redis.call('RPUSH', KEYS[1], 'abc')";
            cmd("EVAL").arg(replace).arg(1).arg(key.as_bytes()).clone()
        }
    };
    context.test_store().as_outsider(command).await;
}

/// A counter's value over all shards; `None` while it holds a foreign value.
async fn total(instance: &TestInstance, key: impl Fn(&Keys, Shard) -> Key) -> Option<u64> {
    let mut sum = 0;
    for shard in instance.keys.space().shards() {
        let get = cmd("GET").arg(key(&instance.keys, shard).as_bytes()).clone();
        sum += instance.context.store.run::<Option<u64>>(get).await.ok()?.unwrap_or(0);
    }
    Some(sum)
}

/// The previous, the current and the next hour, in which a test may end.
fn hours() -> [Hour; 3] {
    let now_ms =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    let start = now_ms - now_ms % 3_600_000;
    [start - 3_600_000, start, start + 3_600_000].map(|start| Hour::new(start).unwrap())
}

/// Waits until every family has counted this many requests, all with a 404 from the upstream.
async fn expect_everywhere(instance: &TestInstance, count: u64, after: &str) {
    let (a, gateway, not_found) =
        (endpoint("GET /a"), InstanceId::new("gw").unwrap(), StatusCode::new("404").unwrap());
    wait_for(format!("{count} requests in every family after {after}"), LIMIT, async || {
        let mut hourly = Some(0);
        for hour in hours() {
            let counted = total(instance, |keys, shard| keys.requests_by_hour(&hour, shard)).await;
            hourly = hourly.zip(counted).map(|(sum, counted)| sum + counted);
        }
        let found = [
            hourly,
            total(instance, Keys::requests_total).await,
            total(instance, Keys::requests_accepted).await,
            total(instance, Keys::errors_total).await,
            total(instance, |keys, shard| keys.requests_by_endpoint(&a, shard)).await,
            total(instance, |keys, shard| keys.errors_by_endpoint(&a, shard)).await,
            total(instance, |keys, shard| keys.response_count(&a, shard)).await,
            total(instance, |keys, shard| keys.errors_by_status(&not_found, shard)).await,
            total(instance, |keys, shard| keys.requests_by_instance(&gateway, shard)).await,
        ];
        if found.iter().all(|found| *found == Some(count)) { Ok(()) } else { Err(found) }
    })
    .await;
}

/// The shard that the gateway writes to.
async fn shard_of(instance: &TestInstance) -> Shard {
    for shard in instance.keys.space().shards() {
        if instance.read::<bool>("EXISTS", &instance.keys.requests_total(shard)).await {
            return shard;
        }
    }
    panic!("nothing was counted");
}

/// Everything that the pages and the API show can be read.
async fn assert_readable(instance: &TestInstance, after: &str) {
    let statistics = instance.gateway.statistics();
    let rule = Policy::new(&toml::from_str(RULE).unwrap()).unwrap().rule("api").unwrap().name().clone();
    statistics.summary().await.unwrap_or_else(|error| panic!("summary after {after}: {error}"));
    statistics.endpoints().await.unwrap_or_else(|error| panic!("endpoints after {after}: {error}"));
    statistics.statuses().await.unwrap_or_else(|error| panic!("statuses after {after}: {error}"));
    statistics.hours().await.unwrap_or_else(|error| panic!("hours after {after}: {error}"));
    statistics.instances().await.unwrap_or_else(|error| panic!("instances after {after}: {error}"));
    statistics.latency(None, 60).await.unwrap_or_else(|error| panic!("latency after {after}: {error}"));
    statistics.rule(&rule).await.unwrap_or_else(|error| panic!("limit after {after}: {error}"));
}

const RULE: &str = "[[rules]]\nname = \"api\"\nwindows = \"1000000/1s\"\nalgorithm = \"gcra\"\n";

/// Three instances, because only one public rule is allowed for each. They share their counters.
const INSTANCES: [&str; 3] = [
    "[[rules]]\nname = \"fixed\"\npublic = true\nwindows = \"9000/1h\"\nalgorithm = \"fixed_log\"\n\
     [[rules]]\nname = \"log\"\nwindows = \"9000/1h\"\nalgorithm = \"sliding_log\"\n",
    "[[rules]]\nname = \"sliding\"\npublic = true\nwindows = \"9000/1h\"\nalgorithm = \"sliding_log\"\n\
     [[rules]]\nname = \"gcra\"\nwindows = \"9000/1h\"\nalgorithm = \"gcra\"\n",
    "[[rules]]\nname = \"tight\"\nwindows = \"1/1h\"\nalgorithm = \"sliding_window\"\n",
];

async fn no_count_is_lost_and_no_caller_refused(context: TestContext) {
    let (victim, other) = ("203.0.113.1", "203.0.113.9");
    let mut instances = Vec::new();
    for (number, rules) in INSTANCES.iter().enumerate() {
        let config = format!("instance = \"gw-{number}\"\ncheckpoint_interval = \"300ms\"\n{rules}");
        instances.push(TestInstance::start(&context.another_node().await, &config).await);
    }
    let sent = AtomicU64::new(0);
    let work = async |what: &str| {
        for (number, instance) in instances.iter().enumerate() {
            for status in [404, 500] {
                instance.request_from(victim, Method::GET, "/victim", status).await;
            }
            let passed = instance.request_from(other, Method::GET, "/other", 200).await;
            assert!(passed || number == 2, "a request was refused after {what}");
            sent.fetch_add(3, Ordering::Relaxed);
            assert_readable(instance, what).await;
        }
    };
    ForeignClient::new(&context, "victim", []).overwrite_each_family(work).await;
    instances[0].expect(sent.load(Ordering::Relaxed), Keys::requests_total).await;
    for instance in &instances {
        instance.stop().await;
    }
}

/// G1–G19
#[tokio::test(flavor = "multi_thread")]
async fn no_count_is_lost_by_foreign_values_on_the_embedded_engine() {
    no_count_is_lost_and_no_caller_refused(TestContext::embedded(NEEDS, Layout::Plain).await).await;
}

/// G1–G19
#[tokio::test(flavor = "multi_thread")]
async fn no_count_is_lost_by_foreign_values_on_redis() {
    no_count_is_lost_and_no_caller_refused(TestContext::redis(NEEDS).await).await;
}

every_service! {
    NEEDS;

    /// G3 G4 G7–G15: a foreign value makes no flush count twice, and the total is restored.
    async fn foreign_values_in_counters_are_overwritten(context: TestContext) {
        let config = format!("instance = \"gw\"\ncheckpoint_interval = \"300ms\"\n{RULE}");
        let instance = TestInstance::start(&context, &config).await;
        let mut sent = 0;
        for _ in 0..5 {
            instance.request(Method::GET, "/a", 404).await;
            sent += 1;
        }
        expect_everywhere(&instance, sent, "the first requests").await;
        let (keys, shard, a) = (&instance.keys, shard_of(&instance).await, endpoint("GET /a"));
        let (gateway, not_found) = (InstanceId::new("gw").unwrap(), StatusCode::new("404").unwrap());
        let [_, hour, next_hour] = hours();
        let counters = [
            keys.requests_accepted(shard),
            keys.requests_total(shard),
            keys.requests_limited(shard),
            keys.errors_total(shard),
            keys.requests_by_instance(&gateway, shard),
            keys.requests_by_hour(&hour, shard),
            keys.requests_by_hour(&next_hour, shard),
            keys.requests_by_endpoint(&a, shard),
            keys.errors_by_endpoint(&a, shard),
            keys.server_errors(shard),
            keys.server_errors_by_endpoint(&a, shard),
            keys.limited_by_endpoint(&a, shard),
            keys.response_sum(&a, shard),
            keys.response_count(&a, shard),
            keys.errors_by_status(&not_found, shard),
            keys.samples_sequence(shard),
        ];
        let mut overwrites: Vec<(Key, Overwrite)> = Vec::new();
        for key in counters {
            overwrites.push((key.clone(), Overwrite::Text("abc")));
            overwrites.push((key, Overwrite::List));
        }
        for text in ["", "-1", "1.5", "007", " 7", "9223372036854775807", "18446744073709551615", "1e3", "\u{fc}"] {
            overwrites.push((keys.requests_total(shard), Overwrite::Text(text)));
        }
        for text in ["nan", "inf", "-1", "1e3"] {
            overwrites.push((keys.response_sum(&a, shard), Overwrite::Text(text)));
        }
        for key in [
            keys.marker(shard),
            keys.endpoints(shard),
            keys.response_times(&a, shard),
            keys.latency(&hour, &a, shard),
            keys.latency_all(&hour, shard),
        ] {
            overwrites.push((key.clone(), Overwrite::Text("abc")));
            overwrites.push((key, Overwrite::List));
        }
        for epoch in ["abc", "-1", "", "4294967296", "2097151"] {
            overwrites.push((keys.marker(shard), Overwrite::Field("epoch".to_owned(), epoch)));
        }
        for (key, change) in overwrites {
            overwrite(&context, &key, &change).await;
            let after = format!("{} in {key}", match &change {
                Overwrite::Text(text) => format!("{text:?}"),
                Overwrite::List => "list".to_owned(),
                Overwrite::Field(field, text) => format!("{field} = {text:?}"),
            });
            assert_readable(&instance, &after).await;
            instance.request(Method::GET, "/a", 404).await;
            sent += 1;
            expect_everywhere(&instance, sent, &after).await;
        }
        instance.stop().await;
        let saved = "SELECT CAST(COALESCE(sum(value), 0) AS BIGINT) FROM gateway_total WHERE kind = 'total'";
        let saved: (u64,) = hob_database::Read::one(&context.database, hob_database::sql(saved)).await.unwrap();
        assert_eq!(saved, (sent,));
    }

    /// The number of an instance's last flush prevents a flush from being counted twice.
    async fn foreign_flush_number_counts_nothing_twice(context: TestContext) {
        let instance = TestInstance::start(&context, "instance = \"gw\"").await;
        for sent in 1..=5 {
            instance.request(Method::GET, "/a", 404).await;
            expect_everywhere(&instance, sent, "a request").await;
            for master in context.store.masters().await.unwrap() {
                let pattern = "ha:gateway:flushed:*";
                let found: Vec<String> = master.run(cmd("KEYS").arg(pattern).clone()).await.unwrap();
                for key in found {
                    let text = if sent % 2 == 0 { "abc" } else { "-1" };
                    context.test_store().as_outsider(cmd("SET").arg(key).arg(text).clone()).await;
                }
            }
        }
        instance.stop().await;
    }

    /// A histogram with foreign fields can be read and continues to count.
    async fn foreign_fields_in_histograms_are_overwritten(context: TestContext) {
        let instance = TestInstance::start(&context, RULE).await;
        instance.request(Method::GET, "/a", 200).await;
        instance.expect(1, Keys::requests_total).await;
        let (a, shard) = (endpoint("GET /a"), shard_of(&instance).await);
        for hour in hours() {
            for key in [instance.keys.latency_all(&hour, shard), instance.keys.latency(&hour, &a, shard)] {
                let fields: Vec<String> = instance.read("HKEYS", &key).await;
                for field in &fields {
                    // A bucket and a minute that no histogram has.
                    let minute = field.split(':').next().unwrap();
                    for foreign in [format!("{minute}:65535"), format!("{}:1", u64::MAX)] {
                        overwrite(&context, &key, &Overwrite::Field(foreign, "7")).await;
                    }
                }
                for field in fields.into_iter().chain(["abc".to_owned()]) {
                    overwrite(&context, &key, &Overwrite::Field(field, "abc")).await;
                }
            }
        }
        assert_readable(&instance, "foreign fields").await;
        for _ in 0..20 {
            instance.request(Method::GET, "/a", 200).await;
        }
        instance.expect(21, Keys::requests_total).await;
        let timed = async |endpoint| {
            let minutes = instance.gateway.statistics().latency(endpoint, 60).await.unwrap();
            minutes.iter().map(|minute| minute.histogram.count()).sum::<u64>()
        };
        // Only the overwritten counts are lost.
        assert_eq!((timed(None).await, timed(Some(&a)).await), (20, 20));
    }

    /// G1 G2 G5 G6: gauges are written again.
    async fn foreign_values_in_gauges_are_overwritten(context: TestContext) {
        let instance = TestInstance::start(&context, &format!("instance = \"gw\"\n{RULE}")).await;
        let _open = instance.gateway.meter().connected();
        let keys = &instance.keys;
        let shard = keys.space().shard(0).unwrap();
        instance.expect(1, Keys::connections_current).await;
        let gauges = [
            keys.connections_current(shard),
            keys.connections_max(shard),
            keys.requests_speed(shard),
            keys.requests_speed_max(shard),
            keys.instances(shard),
            keys.instance_connections(shard),
            keys.instance_starts(shard),
            keys.seconds(shard),
        ];
        let field = |key: Key, field: &str, text| (key, Overwrite::Field(field.to_owned(), text));
        let mut overwrites: Vec<(Key, Overwrite)> = Vec::new();
        for key in gauges {
            overwrites.push((key.clone(), Overwrite::Text("abc")));
            overwrites.push((key, Overwrite::List));
        }
        overwrites.push(field(keys.instance_connections(shard), "gw", "abc"));
        overwrites.push(field(keys.instance_connections(shard), "ghost", "7"));
        overwrites.push(field(keys.instance_starts(shard), "gw", "abc"));
        overwrites.push(field(keys.seconds(shard), "abc", "7"));
        overwrites.push(field(keys.seconds(shard), "1763289000", "abc"));
        for (sent, (key, change)) in (1..).zip(overwrites) {
            overwrite(&context, &key, &change).await;
            assert_readable(&instance, key.to_string().as_str()).await;
            instance.request(Method::GET, "/a", 404).await;
            instance.expect(sent, Keys::requests_total).await;
            wait_for(format!("the gauges after {key} was changed"), LIMIT, async || {
                let current = total(&instance, Keys::connections_current).await;
                let max = total(&instance, Keys::connections_max).await;
                let speed = total(&instance, Keys::requests_speed).await;
                let max_speed = total(&instance, Keys::requests_speed_max).await;
                let instances = instance.gateway.statistics().instances().await.unwrap();
                let alive = matches!(&*instances, [gw] if gw.id == "gw" && gw.connections == 1 && gw.started_unix_ms > 0);
                let found = (current, max, speed.is_some(), max_speed.is_some(), alive);
                if found == (Some(1), Some(1), true, true, true) { Ok(()) } else { Err(found) }
            })
            .await;
        }
        instance.stop().await;
    }

    /// A rule's counts start again, and other counts are still saved.
    async fn foreign_values_in_rule_counts_are_overwritten(context: TestContext) {
        let rule = "checkpoint_interval = \"100ms\"\n[[rules]]\nname = \"api\"\nwindows = \"1/1h\"\n";
        let instance = TestInstance::start(&context, rule).await;
        instance.request(Method::GET, "/a", 200).await;
        instance.expect(1, Keys::requests_total).await;
        let shard = shard_of(&instance).await;
        let name = Policy::new(&toml::from_str(RULE).unwrap()).unwrap().rule("api").unwrap().name().clone();
        let key = hob_gateway::keys::Rule::new(name.as_str()).unwrap();
        let counts = [instance.keys.limit_counts(&key, shard), instance.keys.limit_hottest(&key, shard)];
        for (key, refused) in counts.iter().zip([1, 2]) {
            overwrite(&context, key, &Overwrite::List).await;
            assert_readable(&instance, key.to_string().as_str()).await;
            instance.request(Method::GET, "/a", 200).await;
            wait_for(format!("{key} to be overwritten"), LIMIT, async || {
                let limit = instance.gateway.statistics().rule(&name).await.unwrap();
                let ours = limit.refused == refused && limit.top_refused == [(CLIENT.to_owned(), 1)];
                if ours { Ok(()) } else { Err(limit) }
            })
            .await;
        }
        overwrite(&context, &counts[0], &Overwrite::Field("refused".to_owned(), "abc")).await;
        instance.request(Method::GET, "/a", 200).await;
        wait_for("the field to be overwritten", LIMIT, async || {
            let limit = instance.gateway.statistics().rule(&name).await.unwrap();
            if limit.refused == 1 { Ok(()) } else { Err(limit) }
        })
        .await;
        instance.stop().await;
    }

    /// G16 G17: a foreign value in a limit's key neither disables the limit nor refuses every request.
    async fn foreign_values_in_limits_are_overwritten(context: TestContext) {
        for (name, more, family) in [
            ("public", "public = true\nalgorithm = \"fixed_log\"", 0),
            ("public", "public = true\nalgorithm = \"sliding_log\"", 1),
            ("log", "algorithm = \"sliding_log\"", 2),
            ("gcra", "algorithm = \"gcra\"", 3),
            ("window", "algorithm = \"sliding_window\"", 3),
            ("leased", "exactness = \"leased\"\nlease = \"10s\"", 3),
        ] {
            let rule = format!("[[rules]]\nname = \"{name}\"\nwindows = \"10/1h\"\non_store_failure = \"closed\"\n{more}\n");
            let instance = TestInstance::start(&context.another_node().await, &rule).await;
            let (caller, rule) = (Identifier::new(CLIENT).unwrap(), hob_gateway::keys::Rule::new(name).unwrap());
            let key = [
                instance.keys.rate_limit(&caller),
                instance.keys.sliding_limit(&caller),
                instance.keys.limit_log(&rule, &caller),
                instance.keys.limit_state(&rule, &caller),
            ][family].clone();
            // Held tokens are valid without the store, so a leased rule reads the foreign value only once.
            let overwrites = if name == "leased" { vec![Overwrite::List] } else { vec![Overwrite::List, Overwrite::Text("abc")] };
            for change in overwrites {
                overwrite(&context, &key, &change).await;
                let mut passed = 0;
                for _ in 0..15 {
                    passed += u32::from(instance.request_from(CLIENT, Method::GET, "/", 200).await);
                }
                // A leased limit may admit slightly less.
                let min = if name == "leased" { 1 } else { 10 };
                assert!((min..=10).contains(&passed), "{passed} passed under {more}");
            }
            instance.stop().await;
        }
    }
}
