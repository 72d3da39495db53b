//! G1–G19: the keys of the gateway, as `redis-cli` or a dashboard reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpStream;
use std::process::Command;

use hob_testkit::{Postgres, wait_until};
use serde_json::{Value, json};

use super::{Deployment, Settings, Store, Target, Ttl, digits, on_every_store};
use crate::program::{Response, Server, send};

/// The client of all requests, as a proxy in front of the gateway reports it.
const CLIENT: &str = "192.168.1.100";
const DAY_S: u64 = 86_400;
const HOUR_MS: u64 = 3_600_000;

/// A gateway in front of a target.
struct Gateway {
    deployment: Deployment,
    target: Target,
}

/// The gateway as instance `0` in a cluster of PM2, behind a proxy on this host, with these settings besides.
fn settings(target: &Target, more: &str) -> Settings {
    let upstream = target.url.trim_end_matches('/');
    let config = format!(
        "[gateway]\nupstream = [\"{upstream}\"]\ntrusted_proxies = [\"127.0.0.1\"]\ncount_loopback = false\n\
         header_timeout = \"10m\"\n{more}"
    );
    Settings::new("gateway").config(&config).lasting_database().variable("pm_id", "0")
}

/// Sends a request such as `GET /api/users` through the gateway of a server, with these headers.
#[track_caller]
fn request(server: &Server, line: &str, headers: &str) -> Response {
    let address = server.gateway.expect("the gateway does not listen");
    let head = format!("{line} HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\nContent-Length: 0\r\n");
    send(address, &format!("{head}{headers}\r\n")).expect("no response from the gateway")
}

/// The number of requests that a SQLite file has, in total and by hour.
fn saved_requests(file: &str) -> String {
    const READ: &str = "import sqlite3, sys; c = sqlite3.connect(f'file:{sys.argv[1]}?mode=ro', uri=True); \
                        print(*c.execute(\"SELECT (SELECT sum(value) FROM gateway_total WHERE kind = 'total'), (SELECT sum(requests) FROM gateway_hour)\").fetchone())";
    let output = Command::new("python3").args(["-c", READ, file]).output().expect("python3 can be started");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

impl Gateway {
    fn start(store: Store, more: &str) -> Self {
        let target = Target::start();
        Self { deployment: Deployment::start_with(store, settings(&target, more)), target }
    }

    /// Sends a request of [`CLIENT`], which the target answers with a status.
    #[track_caller]
    fn request(&self, line: &str, status: u16) -> Response {
        self.target.respond_with(status);
        request(&self.deployment.server, line, &format!("X-Forwarded-For: {CLIENT}\r\n"))
    }

    /// The bytes of a counter, which is a string without a TTL.
    #[track_caller]
    fn counter(&self, key: &str) -> String {
        self.deployment.assert_type(key, "string");
        assert_eq!(self.deployment.ttl(key), Ttl::None, "{key}");
        self.deployment.run(&["GET", key])
    }

    fn read(&self, key: &str) -> u64 {
        self.deployment.run::<Option<Vec<u8>>>(&["GET", key]).map_or(0, digits)
    }

    /// Waits until a number has reached this value.
    #[track_caller]
    fn wait_for(&self, key: &str, value: u64) {
        wait_until(format!("{key} to be {value}"), || {
            let found = self.read(key);
            if found == value { Ok(()) } else { Err(found) }
        });
    }

    fn keys(&self, pattern: &str) -> BTreeSet<String> {
        self.deployment.run(&["KEYS", pattern])
    }

    /// The sum of the counters of hours. The hour may change during a test.
    #[track_caller]
    fn hourly(&self) -> u64 {
        let prefix = "ha:requests:hourly:";
        let keys = self.keys(&format!("{prefix}*"));
        assert!((1..=2).contains(&keys.len()), "{keys:?}");
        let count = |key: &String| {
            assert_eq!(digits(&key[prefix.len()..]) % HOUR_MS, 0, "{key}");
            assert!(now_ms() - digits(&key[prefix.len()..]) < 2 * HOUR_MS, "{key}");
            self.deployment.assert_type(key, "string");
            self.deployment.assert_ttl(key, DAY_S);
            self.read(key)
        };
        keys.iter().map(count).sum()
    }

    /// The members of a sorted set with their scores, as bytes.
    #[track_caller]
    fn entries(&self, key: &str) -> Vec<(String, String)> {
        self.deployment.assert_type(key, "zset");
        self.deployment.run(&["ZRANGE", key, "0", "-1", "WITHSCORES"])
    }
}

fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}

fn api(server: &Server, path: &str) -> Value {
    serde_json::from_str(&server.get(path).body).unwrap()
}

/// A decimal number without an exponent.
fn is_decimal(text: &str) -> bool {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    are_digits(whole) && are_digits(fraction)
}

/// A public rule of this algorithm, which counts users by name and others by address.
fn public_rule(algorithm: &str) -> String {
    format!(
        "store_timeout = \"30s\"\n[[gateway.rules]]\nname = \"public\"\nwindows = \"3/15m\"\nalgorithm = \"{algorithm}\"\npublic = true\n\
         by = \"header:x-user-id as user\"\n"
    )
}

on_every_store! {
    /// G3 G4 G7–G12 G14 G15 G18: every family counts the same requests, those of this host excluded. All
    /// other keys are below `ha:gateway:`, except the number of refused requests.
    fn request_is_counted_in_every_family(store: Store) {
        let gateway = Gateway::start(store, "");
        assert_eq!(request(&gateway.deployment.server, "GET /api/users", "").status, 200);
        for status in [200, 200, 200, 404] {
            assert_eq!(gateway.request("GET /api/users", status).status, status);
        }
        assert_eq!(gateway.request("PUT /api/forum/questions/123", 500).status, 500);
        gateway.wait_for("ha:requests:total", 5);
        let counters = [
            ("ha:requests:total", "5"),
            ("ha:requests:accepted", "5"),
            ("ha:requests:endpoint:GET /api/users", "4"),
            ("ha:requests:endpoint:PUT /api/forum/questions/123", "1"),
            ("ha:errors:total", "2"),
            ("ha:errors:endpoint:GET /api/users", "1"),
            ("ha:errors:endpoint:PUT /api/forum/questions/123", "1"),
            ("ha:errors:status:404", "1"),
            ("ha:errors:status:500", "1"),
            ("ha:response_count:GET_/api/users", "4"),
            ("ha:response_count:PUT_/api/forum/questions/123", "1"),
        ];
        for (key, value) in counters {
            assert_eq!(gateway.counter(key), value, "{key}");
        }
        for key in ["ha:avg_response:GET_/api/users", "ha:avg_response:PUT_/api/forum/questions/123"] {
            assert!(is_decimal(&gateway.counter(key)), "{key} is {}", gateway.counter(key));
        }
        assert_eq!(gateway.read("ha:requests:instance:0"), 5);
        gateway.deployment.assert_type("ha:requests:instance:0", "string");
        gateway.deployment.assert_ttl("ha:requests:instance:0", DAY_S);
        assert_eq!(gateway.hourly(), 5);

        let others = [
            "ha:avg_response:GET_/api/users",
            "ha:avg_response:PUT_/api/forum/questions/123",
            "ha:response_times:GET_/api/users",
            "ha:response_times:PUT_/api/forum/questions/123",
            "ha:requests:instance:0",
            "ha:connections:http:current",
            "ha:connections:http:max_since_startup",
            "ha:requests:speed_per_second",
            "ha:requests:max_speed_per_second",
        ];
        let expected: BTreeSet<String> =
            counters.iter().map(|(key, _)| *key).chain(others).map(str::to_owned).collect();
        let ours = |key: &String| {
            key.starts_with("ha:gateway:") || key.starts_with("ha:requests:hourly:") || key == "ha:requests:limited"
        };
        let found: BTreeSet<String> = gateway.keys("ha:*").into_iter().filter(|key| !ours(key)).collect();
        assert_eq!(found, expected);
        gateway.deployment.assert_audit_is_clean();
    }

    /// G1 G2: the number goes up with each connection and down when it is closed; the maximum stays.
    fn open_connections_are_counted(store: Store) {
        let gateway = Gateway::start(store, "");
        let (current, maximum) = ("ha:connections:http:current", "ha:connections:http:max_since_startup");
        gateway.wait_for(current, 0);
        let address = gateway.deployment.server.gateway.unwrap();
        let mut open: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
        gateway.wait_for(current, 3);
        gateway.wait_for(maximum, 3);
        open.truncate(1);
        gateway.wait_for(current, 1);
        assert_eq!((gateway.counter(current), gateway.counter(maximum)), ("1".to_owned(), "3".to_owned()));
        gateway.deployment.assert_audit_is_clean();
    }

    /// G5 G6: the requests of the last second, and the maximum.
    fn requests_per_second_are_written(store: Store) {
        let gateway = Gateway::start(store, "");
        let (speed, maximum) = ("ha:requests:speed_per_second", "ha:requests:max_speed_per_second");
        let seen = wait_until("requests per second", || {
            gateway.request("GET /", 200);
            Some(gateway.read(speed)).filter(|seen| *seen > 0)
        });
        wait_until("the maximum", || gateway.read(maximum) >= seen);
        gateway.wait_for(speed, 0);
        assert_eq!(gateway.counter(speed), "0");
        assert!(digits(gateway.counter(maximum)) >= seen);
    }

    /// G7 G18: a route template is one endpoint. The number of endpoints is bounded, and no request is lost from the sum.
    fn endpoints_are_bounded(store: Store) {
        let gateway = Gateway::start(store, "routes = [\"/api/users/:id\"]\n");
        for number in 0..3 {
            gateway.request(&format!("GET /api/users/{number}"), 200);
        }
        gateway.wait_for("ha:requests:endpoint:GET /api/users/:id", 3);
        assert_eq!(gateway.counter("ha:response_count:GET_/api/users/:id"), "3");
        for number in 0..1010 {
            gateway.request(&format!("GET /made/up/{number}"), 200);
        }
        gateway.wait_for("ha:requests:total", 1013);
        let keys = gateway.keys("ha:requests:endpoint:*");
        assert!(keys.len() <= 1001, "{}", keys.len());
        assert_eq!(keys.iter().map(|key| gateway.read(key)).sum::<u64>(), 1013);
        assert!(gateway.read("ha:requests:endpoint:other") >= 11);
        assert_eq!(gateway.read("ha:requests:endpoint:GET /api/users/:id"), 3);
    }

    /// G13 G14 G15: the newest 1,000 response times, each a separate plain number, with their sum and count.
    fn response_times_are_plain_numbers(store: Store) {
        let gateway = Gateway::start(store, "");
        let before = now_ms();
        for _ in 0..1020 {
            gateway.request("GET /api/users", 200);
        }
        gateway.wait_for("ha:response_count:GET_/api/users", 1020);
        let key = "ha:response_times:GET_/api/users";
        let entries = gateway.entries(key);
        assert_eq!(gateway.deployment.ttl(key), Ttl::None);
        assert_eq!(entries.len(), 1000);
        let mut sum = 0.0;
        for (member, score) in &entries {
            let (_, fraction) = member.split_once('.').unwrap_or_else(|| panic!("{member}"));
            assert!(is_decimal(member) && fraction.len() == 9, "{member}");
            // The server rounds to milliseconds, and its clock may be read a little earlier than ours.
            assert!((before - 1000..=now_ms() + 1000).contains(&digits(score)), "{score}");
            sum += member.parse::<f64>().unwrap();
        }
        let total = gateway.counter("ha:avg_response:GET_/api/users");
        assert!(is_decimal(&total) && total.parse::<f64>().unwrap() >= sum - 1.0, "{total} of {sum}");
        gateway.deployment.assert_audit_is_clean();
    }

    /// G16: the requests of the window. Those that are refused are neither in the log nor accepted.
    fn fixed_window_is_a_log_of_requests(store: Store) {
        let gateway = Gateway::start(store, &public_rule("fixed_log"));
        let key = format!("ha:rate_limit:{CLIENT}");
        let before = now_ms();
        let statuses: Vec<u16> = (0..5).map(|_| gateway.request("GET /", 200).status).collect();
        assert_eq!(statuses, [200, 200, 200, 429, 429]);
        let entries = gateway.entries(&key);
        assert_eq!(entries.len(), 3);
        for (member, score) in &entries {
            assert!((before - 1000..=now_ms() + 1000).contains(&digits(score)), "{score}");
            // The time, with a sequence number if it is not the first of its millisecond.
            assert!(member == score || member.starts_with(&format!("{score}.")) && is_decimal(member), "{member}");
        }
        gateway.deployment.assert_ttl(&key, 900);
        gateway.wait_for("ha:requests:total", 5);
        assert_eq!(gateway.counter("ha:requests:accepted"), "3");
        assert_eq!(gateway.counter("ha:requests:limited"), "2");
        assert_eq!(gateway.counter("ha:errors:status:429"), "2");

        let user = format!("X-Forwarded-For: {CLIENT}\r\nX-User-Id: 123\r\n");
        assert_eq!(request(&gateway.deployment.server, "GET /", &user).status, 200);
        assert_eq!(gateway.entries("ha:rate_limit:user:123").len(), 1);
        // An address with the separator of keys, from the API.
        let check = json!({ "rule": "public", "key": "::1", "cost": 2 }).to_string();
        assert_eq!(gateway.deployment.server.post("/api/v1/limits/check", &check).status, 200);
        assert_eq!(gateway.entries("ha:rate_limit:::1").len(), 2);
        gateway.deployment.assert_audit_is_clean();
    }

    /// G17: the requests of the window that ends now, with a unique member each. A refused one does not extend it.
    fn sliding_window_is_a_log_of_requests(store: Store) {
        let gateway = Gateway::start(store, &public_rule("sliding_log"));
        let key = format!("ha:sliding_limit:{CLIENT}");
        for _ in 0..3 {
            assert_eq!(gateway.request("GET /", 200).status, 200);
        }
        let entries = gateway.entries(&key);
        gateway.deployment.assert_ttl(&key, 900);
        for (member, score) in &entries {
            let (time, unique) = member.split_once('-').unwrap_or_else(|| panic!("{member}"));
            assert!(time == score && !unique.is_empty(), "{member} at {score}");
        }
        gateway.deployment.run::<u8>(&["EXPIRE", &key, "800"]);
        let refused = gateway.request("GET /", 200);
        assert_eq!(refused.status, 429);
        assert!(refused.head.contains("retry-after: "), "{}", refused.head);
        assert_eq!(gateway.entries(&key), entries);
        gateway.deployment.assert_ttl(&key, 800);
        assert!(!gateway.deployment.exists(&format!("ha:rate_limit:{CLIENT}")));
        gateway.deployment.assert_audit_is_clean();
    }

    /// G3 G4 G7–G15: the totals survive the loss of all keys, and count on.
    fn totals_survive_a_lost_store(store: Store) {
        let gateway = Gateway::start(store, "");
        for status in [200, 404, 500] {
            gateway.request("GET /api/users", status);
        }
        let families = [
            ("ha:requests:total", 3),
            ("ha:requests:accepted", 3),
            ("ha:requests:endpoint:GET /api/users", 3),
            ("ha:requests:instance:0", 3),
            ("ha:errors:total", 2),
            ("ha:errors:endpoint:GET /api/users", 2),
            ("ha:errors:status:404", 1),
            ("ha:errors:status:500", 1),
            ("ha:response_count:GET_/api/users", 3),
        ];
        gateway.wait_for("ha:requests:total", 3);
        let sum = || gateway.counter("ha:avg_response:GET_/api/users").parse::<f64>().unwrap();
        let sum_before = sum();
        gateway.deployment.run::<()>(&["FLUSHALL"]);
        for (key, value) in families {
            gateway.wait_for(key, value);
        }
        assert_eq!(gateway.hourly(), 3);
        assert!((sum() - sum_before).abs() < 1e-6, "{sum_before} ms, then {} ms", sum());
        let response_times = "ha:response_times:GET_/api/users";
        wait_until("the response times", || gateway.deployment.run::<u64>(&["ZCARD", response_times]) == 3);
        gateway.request("GET /api/users", 404);
        for (key, value) in families {
            gateway.wait_for(key, if key == "ha:errors:status:500" { 1 } else { value + 1 });
        }
        gateway.deployment.assert_audit_is_clean();
    }

    /// G3 G4 G7 G12: a clean stop loses nothing, also if the store starts empty.
    fn totals_survive_a_restart(store: Store) {
        let mut gateway = Gateway::start(store, "");
        for _ in 0..30 {
            gateway.request("GET /api/users", 404);
        }
        gateway.deployment.restart();
        for key in ["ha:requests:total", "ha:requests:endpoint:GET /api/users", "ha:errors:status:404"] {
            gateway.wait_for(key, 30);
        }
        gateway.request("GET /api/users", 404);
        gateway.wait_for("ha:requests:total", 31);
    }

    /// G13: response times survive two clean stops, with their values and their times.
    fn response_times_survive_a_restart(store: Store) {
        let mut gateway = Gateway::start(store, "");
        for _ in 0..30 {
            gateway.request("GET /api/users", 200);
        }
        gateway.wait_for("ha:response_count:GET_/api/users", 30);
        let key = "ha:response_times:GET_/api/users";
        // Without the sequence in the last six digits.
        let time = |(member, score): &(String, String)| (member[..member.len() - 6].to_owned(), digits(score));
        let times = |gateway: &Gateway| {
            let mut times: Vec<_> = gateway.entries(key).iter().map(time).collect();
            times.sort();
            times
        };
        let before = times(&gateway);
        for _ in 0..2 {
            gateway.deployment.restart();
            wait_until("the response times", || gateway.deployment.run::<u64>(&["ZCARD", key]) == 30);
            for ((took, at), (took_after, at_after)) in before.iter().zip(&times(&gateway)) {
                // The time is saved in milliseconds of another clock.
                assert!(took == took_after && at.abs_diff(*at_after) <= 1000, "{at} and {at_after}");
            }
        }
        assert_eq!(gateway.counter("ha:response_count:GET_/api/users"), "30");
        gateway.deployment.assert_audit_is_clean();
    }

    /// G3 G4 G7 G12: a killed instance loses only what it has not saved: on the embedded engine the counts of the last
    /// second.
    fn saved_totals_survive_a_kill(store: Store) {
        let mut gateway = Gateway::start(store, "");
        for _ in 0..30 {
            gateway.request("GET /api/users", 404);
        }
        match store {
            Store::Redis => gateway.wait_for("ha:requests:total", 30),
            // The default of `checkpoint_interval` is ten seconds, but the embedded engine is saved every second.
            Store::Embedded => wait_until("the totals to be in the database", || {
                let saved = saved_requests(gateway.deployment.database_file());
                if saved == "30 30" { Ok(()) } else { Err(saved) }
            }),
        }
        gateway.deployment.kill_and_restart();
        for key in ["ha:requests:total", "ha:requests:endpoint:GET /api/users", "ha:errors:status:404"] {
            gateway.wait_for(key, 30);
        }
        assert!(store == Store::Redis || saved_requests(gateway.deployment.database_file()) == "30 30");
    }

    /// G1 G8 G19: every instance counts for itself and shows the counts of all. The connections of a killed one are gone
    /// from the sum, and its requests are not.
    fn instances_are_counted_together(store: Store) {
        let (postgres, target) = (Postgres::start(), Target::start());
        let node = |id: &str| settings(&target, "").variable("DATABASE_URL", &postgres.url()).variable("pm_id", id);
        let gateway = Gateway { deployment: Deployment::start_with(store, node("0")), target: target.clone() };
        let mut second = gateway.deployment.another_node(&node("1"));
        for _ in 0..4 {
            gateway.request("GET /api/users", 200);
        }
        for _ in 0..3 {
            assert_eq!(request(&second, "GET /api/users", &format!("X-Forwarded-For: {CLIENT}\r\n")).status, 200);
        }
        gateway.wait_for("ha:requests:total", 7);
        gateway.wait_for("ha:requests:endpoint:GET /api/users", 7);
        gateway.wait_for("ha:requests:instance:0", 4);
        gateway.wait_for("ha:requests:instance:1", 3);
        for server in [&gateway.deployment.server, &second] {
            let summary = api(server, "/api/v1/gateway/summary");
            assert_eq!((&summary["total"], &summary["accepted"]), (&json!(7), &json!(7)), "{summary}");
            let endpoints = api(server, "/api/v1/gateway/endpoints");
            assert_eq!((&endpoints[0]["endpoint"], &endpoints[0]["requests"]), (&json!("GET /api/users"), &json!(7)));
            let instances = api(server, "/api/v1/gateway/instances");
            let requests: BTreeMap<&str, u64> = instances
                .as_array()
                .unwrap()
                .iter()
                .map(|instance| (instance["id"].as_str().unwrap(), instance["requests"].as_u64().unwrap()))
                .collect();
            assert_eq!(requests, [("0", 4), ("1", 3)].into());
        }

        let open: Vec<TcpStream> =
            (0..2).map(|_| TcpStream::connect(second.gateway.unwrap()).unwrap()).collect();
        gateway.wait_for("ha:connections:http:current", 2);
        second.kill();
        gateway.wait_for("ha:connections:http:current", 0);
        drop(open);
        assert!(digits(gateway.counter("ha:connections:http:max_since_startup")) >= 2);
        assert_eq!(gateway.counter("ha:requests:total"), "7");
        gateway.deployment.assert_ttl("ha:requests:instance:1", DAY_S);
    }
}

/// P12: without Redis, a rule does what it is configured to do. The requests are counted when Redis is back.
#[test]
fn requests_are_counted_after_an_outage_of_redis() {
    let rule = |name: &str, failure: &str| {
        format!(
            "[[gateway.rules]]\nname = \"{name}\"\nroute = \"/{name}\"\nwindows = \"100/1h\"\n\
             on_store_failure = \"{failure}\"\n"
        )
    };
    let gateway = Gateway::start(Store::Redis, &(rule("shop", "open") + &rule("login", "closed")));
    let redis = gateway.deployment.redis.as_ref().expect("Redis runs");
    assert_eq!(gateway.request("GET /shop", 200).status, 200);
    gateway.wait_for("ha:requests:total", 1);
    redis.kill();
    assert_eq!(gateway.request("GET /shop", 200).status, 200);
    assert_eq!(gateway.request("GET /login", 200).status, 503);
    redis.restart();
    gateway.deployment.reconnect();
    gateway.wait_for("ha:requests:total", 3);
    gateway.wait_for("ha:requests:endpoint:GET /shop", 2);
    gateway.wait_for("ha:errors:status:503", 1);
    wait_until("the rule to allow requests again", || gateway.request("GET /login", 200).status == 200);
}

/// G1 G5: the last instance that stops leaves no gauges behind.
#[test]
fn stopped_gateway_leaves_no_gauges() {
    let mut gateway = Gateway::start(Store::Redis, "");
    let _open = TcpStream::connect(gateway.deployment.server.gateway.unwrap()).unwrap();
    gateway.wait_for("ha:connections:http:current", 1);
    wait_until("requests per second", || {
        gateway.request("GET /", 200);
        gateway.read("ha:requests:speed_per_second") > 0
    });
    assert_eq!(gateway.deployment.server.terminate().code(), Some(0));
    for key in ["ha:connections:http:current", "ha:requests:speed_per_second"] {
        assert_eq!(gateway.counter(key), "0", "{key}");
    }
}
