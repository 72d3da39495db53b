//! Keys are ours: what somebody else writes there is overwritten, changes no count, and makes nothing fail.

use hob_gateway::keys::{Hour, Identifier, InstanceId, Keys, StatusCode};
use hob_gateway::{Config, Policy};
use hob_schema::{Key, Shard};
use hob_store::{Cmd, cmd};
use hob_testkit::{LIMIT, TestContext, every_service, wait_for};
use http::Method;

use crate::kit::{CLIENT, Counting, NEEDS, endpoint};

/// What an outsider does to a key.
enum Act {
    /// Replaces it by this text.
    Text(&'static str),
    /// Replaces it by a list.
    List,
    /// Sets a field of the hash to this text, whatever the field was.
    Field(String, &'static str),
}

async fn spoil(context: &TestContext, key: &Key, act: &Act) {
    let command: Cmd = match act {
        Act::Text(text) => cmd("SET").arg(key.as_bytes()).arg(text).clone(),
        Act::Field(field, text) => cmd("HSET").arg(key.as_bytes()).arg(field).arg(text).clone(),
        // In one step, so that the gateway finds nothing in between.
        Act::List => {
            let replace = "redis.call('DEL', KEYS[1]) return redis.call('RPUSH', KEYS[1], 'abc')";
            cmd("EVAL").arg(replace).arg(1).arg(key.as_bytes()).clone()
        }
    };
    context.test_store().as_outsider(command).await;
}

/// A counter's value over all shards; `None` while somebody else's value stands there.
async fn total(counting: &Counting, key: impl Fn(&Keys, Shard) -> Key) -> Option<u64> {
    let mut sum = 0;
    for shard in counting.keys.space().shards() {
        let get = cmd("GET").arg(key(&counting.keys, shard).as_bytes()).clone();
        sum += counting.context.store.run::<Option<u64>>(get).await.ok()?.unwrap_or(0);
    }
    Some(sum)
}

/// The hour before this one, this one, and the next, in which a test may end.
fn hours() -> [Hour; 3] {
    let now_ms =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    let start = now_ms - now_ms % 3_600_000;
    [start - 3_600_000, start, start + 3_600_000].map(|start| Hour::new(start).unwrap())
}

/// Waits until every family says that there were so many requests, all of them refused by the upstream with a 404.
async fn expect_everywhere(counting: &Counting, count: u64, after: &str) {
    let (a, gateway, not_found) =
        (endpoint("GET /a"), InstanceId::new("gw").unwrap(), StatusCode::new("404").unwrap());
    wait_for(format!("{count} requests in every family after {after}"), LIMIT, async || {
        let mut hourly = Some(0);
        for hour in hours() {
            let counted = total(counting, |keys, shard| keys.requests_by_hour(&hour, shard)).await;
            hourly = hourly.zip(counted).map(|(sum, counted)| sum + counted);
        }
        let found = [
            hourly,
            total(counting, Keys::requests_total).await,
            total(counting, Keys::requests_accepted).await,
            total(counting, Keys::errors_total).await,
            total(counting, |keys, shard| keys.requests_by_endpoint(&a, shard)).await,
            total(counting, |keys, shard| keys.errors_by_endpoint(&a, shard)).await,
            total(counting, |keys, shard| keys.response_count(&a, shard)).await,
            total(counting, |keys, shard| keys.errors_by_status(&not_found, shard)).await,
            total(counting, |keys, shard| keys.requests_by_instance(&gateway, shard)).await,
        ];
        if found.iter().all(|found| *found == Some(count)) { Ok(()) } else { Err(found) }
    })
    .await;
}

/// The key of a family in the shard that the gateway writes to.
async fn shard_of(counting: &Counting) -> Shard {
    for shard in counting.keys.space().shards() {
        if counting.read::<bool>("EXISTS", &counting.keys.requests_total(shard)).await {
            return shard;
        }
    }
    panic!("nothing was counted");
}

/// All that the pages and the API show can be read.
async fn assert_readable(counting: &Counting, after: &str) {
    let picture = counting.gateway.picture();
    let rule =
        Policy::new(&toml::from_str::<Config>(RULE).unwrap()).unwrap().rule("api").unwrap().name().clone();
    picture.summary().await.unwrap_or_else(|error| panic!("summary after {after}: {error}"));
    picture.endpoints().await.unwrap_or_else(|error| panic!("endpoints after {after}: {error}"));
    picture.statuses().await.unwrap_or_else(|error| panic!("statuses after {after}: {error}"));
    picture.hours().await.unwrap_or_else(|error| panic!("hours after {after}: {error}"));
    picture.instances().await.unwrap_or_else(|error| panic!("instances after {after}: {error}"));
    picture.latency(None, 60).await.unwrap_or_else(|error| panic!("latency after {after}: {error}"));
    picture.limit(&rule).await.unwrap_or_else(|error| panic!("limit after {after}: {error}"));
}

const RULE: &str = "[[rules]]\nname = \"api\"\nwindows = \"1000000/1s\"\n";

every_service! {
    NEEDS;

    /// G3 G4 G7–G15: a value that is not a count makes no flush count twice, and the total comes back.
    async fn foreign_values_in_counters_are_overwritten_and_count_nothing_twice(context: TestContext) {
        let config = format!("instance = \"gw\"\ncheckpoint_every = \"300ms\"\n{RULE}");
        let counting = Counting::start(&context, &config).await;
        let mut sent = 0;
        for _ in 0..5 {
            counting.request(Method::GET, "/a", 404).await;
            sent += 1;
        }
        expect_everywhere(&counting, sent, "the first requests").await;
        let (keys, shard, a) = (&counting.keys, shard_of(&counting).await, endpoint("GET /a"));
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
            keys.response_sum(&a, shard),
            keys.response_count(&a, shard),
            keys.errors_by_status(&not_found, shard),
            keys.samples_sequence(shard),
        ];
        let mut acts: Vec<(Key, Act)> = Vec::new();
        for key in counters {
            acts.push((key.clone(), Act::Text("abc")));
            acts.push((key, Act::List));
        }
        for text in ["", "-1", "1.5", "007", " 7", "9223372036854775807", "18446744073709551615", "1e3", "\u{fc}"] {
            acts.push((keys.requests_total(shard), Act::Text(text)));
        }
        for text in ["nan", "inf", "-1", "1e3"] {
            acts.push((keys.response_sum(&a, shard), Act::Text(text)));
        }
        for key in [
            keys.marker(shard),
            keys.endpoints(shard),
            keys.response_times(&a, shard),
            keys.latency(&hour, &a, shard),
            keys.latency_all(&hour, shard),
        ] {
            acts.push((key.clone(), Act::Text("abc")));
            acts.push((key, Act::List));
        }
        for epoch in ["abc", "-1", "", "4294967296", "2097151"] {
            acts.push((keys.marker(shard), Act::Field("epoch".to_owned(), epoch)));
        }
        for (key, act) in acts {
            spoil(&context, &key, &act).await;
            let after = format!("an outsider's {} in {key}", match &act {
                Act::Text(text) => format!("{text:?}"),
                Act::List => "list".to_owned(),
                Act::Field(field, text) => format!("{field} = {text:?}"),
            });
            assert_readable(&counting, &after).await;
            counting.request(Method::GET, "/a", 404).await;
            sent += 1;
            expect_everywhere(&counting, sent, &after).await;
        }
        counting.stop().await;
        let saved = "SELECT CAST(COALESCE(sum(value), 0) AS BIGINT) FROM gateway_total WHERE kind = 'total'";
        let saved: (u64,) = hob_database::Read::one(&context.database, hob_database::sql(saved)).await.unwrap();
        assert_eq!(saved, (sent,));
    }

    /// The number of an instance's last flush is what keeps a flush from being counted twice.
    async fn a_foreign_flush_number_counts_nothing_twice(context: TestContext) {
        let counting = Counting::start(&context, "instance = \"gw\"").await;
        for sent in 1..=5 {
            counting.request(Method::GET, "/a", 404).await;
            expect_everywhere(&counting, sent, "a request").await;
            for master in context.store.masters().await.unwrap() {
                let pattern = "ha:gateway:flushed:*";
                let found: Vec<String> = master.run(cmd("KEYS").arg(pattern).clone()).await.unwrap();
                for key in found {
                    let text = if sent % 2 == 0 { "abc" } else { "-1" };
                    context.test_store().as_outsider(cmd("SET").arg(key).arg(text).clone()).await;
                }
            }
        }
        counting.stop().await;
    }

    /// A histogram with somebody else's fields can be read, and goes on.
    async fn foreign_fields_in_histograms_are_overwritten(context: TestContext) {
        let counting = Counting::start(&context, RULE).await;
        counting.request(Method::GET, "/a", 200).await;
        counting.expect(1, Keys::requests_total).await;
        let (a, shard) = (endpoint("GET /a"), shard_of(&counting).await);
        for hour in hours() {
            for key in [counting.keys.latency_all(&hour, shard), counting.keys.latency(&hour, &a, shard)] {
                let fields: Vec<String> = counting.read("HKEYS", &key).await;
                for field in fields.into_iter().chain(["abc".to_owned()]) {
                    spoil(&context, &key, &Act::Field(field, "abc")).await;
                }
            }
        }
        assert_readable(&counting, "foreign fields").await;
        for _ in 0..20 {
            counting.request(Method::GET, "/a", 200).await;
        }
        counting.expect(21, Keys::requests_total).await;
        let timed = async |endpoint| {
            let minutes = counting.gateway.picture().latency(endpoint, 60).await.unwrap();
            minutes.iter().map(|minute| minute.histogram.count()).sum::<u64>()
        };
        // What somebody else has overwritten is gone, and nothing else is.
        assert_eq!((timed(None).await, timed(Some(&a)).await), (20, 20));
    }

    /// G1 G2 G5 G6: gauges are written again.
    async fn foreign_values_in_gauges_are_overwritten(context: TestContext) {
        let counting = Counting::start(&context, &format!("instance = \"gw\"\n{RULE}")).await;
        let _open = counting.gateway.admission().meter().connected();
        let keys = &counting.keys;
        let shard = keys.space().shard(0).unwrap();
        counting.expect(1, Keys::connections_current).await;
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
        let field = |key: Key, field: &str, text| (key, Act::Field(field.to_owned(), text));
        let mut acts: Vec<(Key, Act)> = Vec::new();
        for key in gauges {
            acts.push((key.clone(), Act::Text("abc")));
            acts.push((key, Act::List));
        }
        acts.push(field(keys.instance_connections(shard), "gw", "abc"));
        acts.push(field(keys.instance_connections(shard), "ghost", "7"));
        acts.push(field(keys.instance_starts(shard), "gw", "abc"));
        acts.push(field(keys.seconds(shard), "abc", "7"));
        acts.push(field(keys.seconds(shard), "1763289000", "abc"));
        for (sent, (key, act)) in (1..).zip(acts) {
            spoil(&context, &key, &act).await;
            assert_readable(&counting, key.to_string().as_str()).await;
            counting.request(Method::GET, "/a", 404).await;
            counting.expect(sent, Keys::requests_total).await;
            wait_for(format!("the gauges after {key} was changed"), LIMIT, async || {
                let current = total(&counting, Keys::connections_current).await;
                let most = total(&counting, Keys::connections_max).await;
                let speed = total(&counting, Keys::requests_speed).await;
                let most_speed = total(&counting, Keys::requests_speed_max).await;
                let instances = counting.gateway.picture().instances().await.unwrap();
                let alive = matches!(&*instances, [gw] if gw.id == "gw" && gw.connections == 1 && gw.started_unix_ms > 0);
                let found = (current, most, speed.is_some(), most_speed.is_some(), alive);
                if found == (Some(1), Some(1), true, true, true) { Ok(()) } else { Err(found) }
            })
            .await;
        }
        counting.stop().await;
    }

    /// What a rule decided is counted again, and does not keep other counts from being saved.
    async fn foreign_values_in_the_counts_of_a_rule_are_overwritten(context: TestContext) {
        let rule = "checkpoint_every = \"100ms\"\n[[rules]]\nname = \"api\"\nwindows = \"1/1h\"\n";
        let counting = Counting::start(&context, rule).await;
        counting.request(Method::GET, "/a", 200).await;
        counting.expect(1, Keys::requests_total).await;
        let shard = shard_of(&counting).await;
        let name = Policy::new(&toml::from_str::<Config>(RULE).unwrap()).unwrap().rule("api").unwrap().name().clone();
        let key = hob_gateway::keys::Rule::new(name.as_str()).unwrap();
        let counts = [counting.keys.limit_counts(&key, shard), counting.keys.limit_hottest(&key, shard)];
        for (key, refused) in counts.iter().zip([1, 2]) {
            spoil(&context, key, &Act::List).await;
            assert_readable(&counting, key.to_string().as_str()).await;
            counting.request(Method::GET, "/a", 200).await;
            wait_for(format!("{key} to be ours again"), LIMIT, async || {
                let limit = counting.gateway.picture().limit(&name).await.unwrap();
                let ours = limit.refused == refused && limit.hottest == [(CLIENT.to_owned(), 1)];
                if ours { Ok(()) } else { Err(limit) }
            })
            .await;
        }
        spoil(&context, &counts[0], &Act::Field("refused".to_owned(), "abc")).await;
        counting.request(Method::GET, "/a", 200).await;
        wait_for("the field to be ours again", LIMIT, async || {
            let limit = counting.gateway.picture().limit(&name).await.unwrap();
            if limit.refused == 1 { Ok(()) } else { Err(limit) }
        })
        .await;
        counting.stop().await;
    }

    /// G16 G17: a limit's key of another type does not switch the limit off, nor lock anybody out.
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
            let counting = Counting::start(&context.another_node().await, &rule).await;
            let (caller, rule) = (Identifier::new(CLIENT).unwrap(), hob_gateway::keys::Rule::new(name).unwrap());
            let key = [
                counting.keys.rate_limit(&caller),
                counting.keys.sliding_limit(&caller),
                counting.keys.limit_log(&rule, &caller),
                counting.keys.limit_state(&rule, &caller),
            ][family].clone();
            // Tokens that are held are good without the store, so a leased rule can be surprised once only.
            let acts = if name == "leased" { vec![Act::List] } else { vec![Act::List, Act::Text("abc")] };
            for act in acts {
                spoil(&context, &key, &act).await;
                let mut passed = 0;
                for _ in 0..15 {
                    passed += u32::from(counting.request_from(CLIENT, Method::GET, "/", 200).await);
                }
                // A leased limit lets a little less pass.
                let least = if name == "leased" { 1 } else { 10 };
                assert!((least..=10).contains(&passed), "{passed} passed under {more}");
            }
            counting.stop().await;
        }
    }
}
