//! The keys of monitors (U1 to U9).

use hob_testkit::wait_until;
use serde_json::{Value, json};

use super::{Deployment, Target, Ttl, digits, on_every_store};

const SCHEDULE: &str = "monitor:schedule";
const HOUR_S: u64 = 3600;

/// The monitors of a deployment, through the API.
trait Monitors {
    /// Creates a monitor that is checked once an hour, with these fields besides.
    fn put(&self, id: &str, target: &Target, more: Value);
    /// Creates a monitor and waits for its first check.
    fn add(&self, id: &str, target: &Target, more: Value);
    /// Checks a monitor now and returns its new state.
    fn check(&self, id: &str) -> String;
    fn incidents(&self) -> Vec<Value>;
}

impl Monitors for Deployment {
    #[track_caller]
    fn put(&self, id: &str, target: &Target, more: Value) {
        let mut monitor = json!({"name": id, "kind": "http", "target": target.url, "interval_s": HOUR_S,
                                 "timeout_s": 10, "retries": 0, "remind_s": 0});
        monitor.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        let path = format!("/api/v1/uptime/monitors/{}", id.replace(':', "%3A"));
        let added = self.server.put(&path, &monitor.to_string());
        assert_eq!(added.status, 201, "{}", added.body);
    }

    #[track_caller]
    fn add(&self, id: &str, target: &Target, more: Value) {
        self.put(id, target, more);
        wait_until("the first check", || self.field(&status(id), "state").is_some());
    }

    #[track_caller]
    fn check(&self, id: &str) -> String {
        let checked = self.server.post(&format!("/api/v1/uptime/monitors/{id}/check"), "{}");
        assert_eq!(checked.status, 200, "{}", checked.body);
        let checked: Value = serde_json::from_str(&checked.body).unwrap();
        checked["state"].as_str().unwrap().to_owned()
    }

    fn incidents(&self) -> Vec<Value> {
        let list: Value = serde_json::from_str(&self.server.get("/api/v1/uptime/incidents").body).unwrap();
        list["items"].as_array().unwrap().clone()
    }
}

fn status(id: &str) -> String {
    ["monitor:status:", id].concat()
}

fn incident(id: &str) -> String {
    ["monitor:incident:", id].concat()
}

fn retry(id: &str) -> String {
    ["monitor:retry:", id].concat()
}

fn now_s() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

/// The unix seconds in a field of a hash.
#[track_caller]
fn time(deployment: &Deployment, key: &str, field: &str) -> u64 {
    digits(deployment.field(key, field).unwrap_or_else(|| panic!("{key} has no {field}")))
}

on_every_store! {
    "uptime";

    /// U1: the schedule is a sorted set of ids, with the time of the next check in unix seconds.
    fn schedule_has_each_monitor_with_its_next_check(deployment: Deployment) {
        let target = Target::start();
        deployment.add("monitor_123", &target, json!({}));
        deployment.assert_type(SCHEDULE, "zset");
        assert_eq!(deployment.ttl(SCHEDULE), Ttl::None);
        let entries = || deployment.run::<Vec<(Vec<u8>, Vec<u8>)>>(&["ZRANGE", SCHEDULE, "0", "-1", "WITHSCORES"]);
        // A monitor that is being checked is in the leases instead.
        let found = wait_until("the monitor in the schedule", || Some(entries()).filter(|found| !found.is_empty()));
        let [(member, score)] = &found[..] else { panic!("{found:?}") };
        assert_eq!(member, b"monitor_123");
        // Seconds, with milliseconds as the fraction, as exact as a double is.
        let score = std::str::from_utf8(score).unwrap();
        let (seconds, _) = score.split_once('.').unwrap_or((score, ""));
        assert!((now_s() - 300..=now_s() + HOUR_S).contains(&digits(seconds)), "{score}");
        let ms = score.parse::<f64>().unwrap() * 1000.0;
        assert!((ms - ms.round()).abs() < 0.01, "{score}");

        // Another program may make a monitor due. What it adds otherwise is dropped.
        let before = target.requests();
        deployment.run::<u64>(&["ZADD", SCHEDULE, "1705305600", "monitor_123", "1705305600", "monitor_999"]);
        wait_until("the requested check", || target.requests() > before);
        wait_until("only the monitor in the schedule, in the future", || {
            let found = deployment.run::<Vec<(String, f64)>>(&["ZRANGE", SCHEDULE, "0", "-1", "WITHSCORES"]);
            let as_expected = found.len() == 1 && found[0].0 == "monitor_123" && found[0].1 > 1_705_305_601.0;
            if as_expected { Ok(()) } else { Err(found) }
        });

        assert_eq!(deployment.server.post("/api/v1/uptime/monitors/monitor_123/pause", "{}").status, 200);
        assert_eq!(entries(), []);
        assert_eq!(deployment.server.post("/api/v1/uptime/monitors/monitor_123/resume", "{}").status, 200);
        wait_until("the monitor in the schedule again", || !entries().is_empty());
        assert_eq!(deployment.server.delete("/api/v1/uptime/monitors/monitor_123").status, 204);
        for key in [SCHEDULE.to_owned(), status("monitor_123"), incident("monitor_123"), retry("monitor_123")] {
            assert!(!deployment.exists(&key), "{key} is left");
        }
    }

    /// U1 U2: a plain id is in its keys as it was given. The separator of keys is percent-encoded in a key, and only there.
    fn ids_are_in_keys_as_documented(deployment: Deployment) {
        let target = Target::start();
        for (id, in_key) in [("monitor_123", "monitor_123"), ("Shop-1.eu", "Shop-1.eu"), ("eu:shop", "eu%3Ashop")] {
            deployment.put(id, &target, json!({}));
            wait_until("the first check", || deployment.exists(&status(in_key)));
            deployment.assert_type(&status(in_key), "hash");
            wait_until("the id in the schedule", || {
                deployment.run::<Vec<String>>(&["ZRANGE", SCHEDULE, "0", "-1"]).contains(&id.to_owned())
            });
        }
        deployment.assert_audit_is_clean();
    }

    /// U2: the status has the last success; a failure does not change it. Every write renews the TTL.
    fn status_has_the_last_success(deployment: Deployment) {
        let (target, id, key) = (Target::start(), "monitor_123", "monitor:status:monitor_123");
        let before = now_s();
        deployment.add(id, &target, json!({}));
        deployment.assert_type(key, "hash");
        assert_eq!(deployment.field(key, "status_code").as_deref(), Some(&b"200"[..]));
        assert!(digits(deployment.field(key, "latency_ms").unwrap()) < 10_000);
        assert!((before..=now_s()).contains(&time(&deployment, key, "checked_at")));
        assert_eq!(deployment.field(key, "state").as_deref(), Some(&b"UP"[..]));
        // Twice the interval, and the timeout.
        deployment.assert_ttl(key, 2 * HOUR_S + 10);

        let good = ["status_code", "latency_ms", "checked_at"].map(|field| deployment.field(key, field));
        target.respond_with(503);
        deployment.run::<u64>(&["EXPIRE", key, "400"]);
        assert_eq!(deployment.check(id), "down");
        assert_eq!(["status_code", "latency_ms", "checked_at"].map(|field| deployment.field(key, field)), good);
        assert_eq!(deployment.field(key, "state").as_deref(), Some(&b"DOWN"[..]));
        let error = String::from_utf8(deployment.field(key, "error").unwrap()).unwrap();
        assert!(error.contains("503"), "{error}");
        deployment.assert_ttl(key, 2 * HOUR_S + 10);

        // The documented 300 s are the least.
        deployment.add("often", &target, json!({"interval_s": 60}));
        deployment.assert_ttl(&status("often"), 300);
    }

    /// U2 U7: a monitor without a result has no status, and is not shown as up.
    fn monitor_without_a_result_has_no_status(deployment: Deployment) {
        let heartbeat = json!({"name": "Backup", "kind": "heartbeat", "interval_s": HOUR_S});
        let path = "/api/v1/uptime/monitors/backup";
        let added: Value = serde_json::from_str(&deployment.server.put(path, &heartbeat.to_string()).body).unwrap();
        assert_eq!(added["state"], "pending");
        assert!(!deployment.exists(&status("backup")));
        assert!(deployment.run::<Option<f64>>(&["ZSCORE", SCHEDULE, "backup"]).is_some());
        assert_eq!(deployment.server.get(added["heartbeat_path"].as_str().unwrap()).status, 200);
        // A job has no status code.
        assert_eq!(deployment.field(&status("backup"), "status_code").as_deref(), Some(&b"0"[..]));
        let shown: Value = serde_json::from_str(&deployment.server.get(path).body).unwrap();
        assert_eq!(shown["state"], "up");
    }

    /// U7: a monitor without a result in time is stale, and not up. The store keeps its last result.
    fn monitor_without_a_result_in_time_is_stale(deployment: Deployment) {
        let (target, id) = (Target::start(), "monitor_123");
        deployment.add(id, &target, json!({"interval_s": 1, "timeout_s": 1}));
        let state = || {
            let path = format!("/api/v1/uptime/monitors/{id}");
            let shown: Value = serde_json::from_str(&deployment.server.get(&path).body).unwrap();
            shown["state"].as_str().unwrap().to_owned()
        };
        let move_to = |time_s: u64| deployment.run::<u64>(&["ZADD", SCHEDULE, &time_s.to_string(), id]);
        wait_until("the stale state", || {
            // Again if a check was running, whose result has moved it back.
            move_to(now_s() + HOUR_S);
            let state = state();
            if state == "stale" { Ok(()) } else { Err(state) }
        });
        let summary: Value = serde_json::from_str(&deployment.server.get("/api/v1/uptime/summary").body).unwrap();
        assert_eq!((&summary["stale"], &summary["up"]), (&json!(1), &json!(0)), "{summary}");
        assert_eq!(deployment.field(&status(id), "state").as_deref(), Some(&b"UP"[..]));
        assert!(!deployment.exists(&incident(id)));
        move_to(now_s());
        wait_until("the next result", || state() == "up");
    }

    /// U3 U5 U6 U8: an incident exists exactly while the monitor is down. It starts with the first failed check.
    fn incident_exists_while_the_monitor_is_down(deployment: Deployment) {
        let (target, id, key) = (Target::start(), "monitor_123", "monitor:incident:monitor_123");
        deployment.add(id, &target, json!({"retries": 1, "retry_delay_s": HOUR_S, "recoveries": 2}));
        assert!(!deployment.exists(key));

        target.respond_with(500);
        let before = now_s();
        assert_eq!(deployment.check(id), "suspect");
        let after = now_s();
        assert!(!deployment.exists(key), "a suspect monitor has no incident");
        assert_eq!(deployment.check(id), "down");
        deployment.assert_type(key, "hash");
        assert_eq!(deployment.ttl(key), Ttl::None);
        let fields: Vec<String> = deployment.hash(key).into_keys().collect();
        assert_eq!(fields, ["alerted", "failure_count", "first_failure_at", "last_failure_at"]);
        assert_eq!(deployment.field(key, "failure_count").as_deref(), Some(&b"2"[..]));
        let first = time(&deployment, key, "first_failure_at");
        assert!((before..=after).contains(&first), "{before} {first} {after}");
        assert!((first..=now_s()).contains(&time(&deployment, key, "last_failure_at")));
        wait_until("the alert", || deployment.field(key, "alerted").as_deref() == Some(b"1"));

        assert_eq!(deployment.check(id), "down");
        let now = deployment.hash(key);
        assert_eq!((now["failure_count"].as_str(), now["alerted"].as_str()), ("3", "1"));
        assert_eq!(digits(&now["first_failure_at"]), first);
        wait_until("the incident in the database", || deployment.incidents().len() == 1);

        target.respond_with(200);
        assert_eq!(deployment.check(id), "recovering");
        assert!(deployment.exists(key), "a recovering monitor keeps its incident");
        assert_eq!(deployment.check(id), "up");
        assert!(!deployment.exists(key));
        wait_until("the resolved incident in the database", || {
            let incidents = deployment.incidents();
            if incidents.len() == 1 && incidents[0]["resolution"] == "recovered" { Ok(()) } else { Err(incidents) }
        });
        deployment.assert_audit_is_clean();
    }

    /// U4 U5: the retries are a string with a TTL that is longer than all of them.
    fn retries_are_counted_until_a_success(deployment: Deployment) {
        let (target, id, key) = (Target::start(), "monitor_123", "monitor:retry:monitor_123");
        deployment.add(id, &target, json!({"retries": 3, "retry_delay_s": HOUR_S}));
        assert!(!deployment.exists(key));
        target.respond_with(500);
        for count in ["1", "2"] {
            assert_eq!(deployment.check(id), "suspect");
            deployment.assert_type(key, "string");
            assert_eq!(deployment.run::<Vec<u8>>(&["GET", key]), count.as_bytes());
            // Three retries, each after a delay, with its timeout, and a margin.
            let Ttl::Seconds(left) = deployment.ttl(key) else { panic!("{key} has no TTL") };
            assert!(left > 3 * (HOUR_S + 10), "{left}");
        }
        // The next try is the delay away, and not the interval.
        let next: f64 = deployment.run(&["ZSCORE", SCHEDULE, id]);
        assert!(next > now_s() as f64 + HOUR_S as f64 - 300.0, "{next}");
        target.respond_with(200);
        assert_eq!(deployment.check(id), "up");
        assert_eq!(deployment.ttl(key), Ttl::NoKey);

        // The documented 300 s are the least.
        target.respond_with(500);
        deployment.add("often", &target, json!({"interval_s": 60, "timeout_s": 1, "retries": 1, "retry_delay_s": HOUR_S}));
        assert!(matches!(deployment.ttl(&retry("often")), Ttl::Seconds(300..)), "{:?}", deployment.ttl(&retry("often")));
    }

    /// U8 U9: the store may lose everything. The schedule and the open incident come from the database.
    fn lost_store_is_rebuilt_from_the_database(deployment: Deployment) {
        let target = Target::start();
        deployment.add("monitor_up", &target, json!({}));
        target.respond_with(500);
        deployment.add("monitor_down", &target, json!({}));
        let key = incident("monitor_down");
        wait_until("the alert", || deployment.field(&key, "alerted").as_deref() == Some(b"1"));
        wait_until("the incident in the database", || deployment.incidents().len() == 1);
        let before = deployment.hash(&key);

        deployment.run::<()>(&["FLUSHALL"]);
        wait_until("both monitors in the schedule", || {
            let mut found = deployment.run::<Vec<String>>(&["ZRANGE", SCHEDULE, "0", "-1"]);
            found.sort();
            if found == ["monitor_down", "monitor_up"] { Ok(()) } else { Err(found) }
        });
        // A check in the meantime may have counted another failure.
        let after = deployment.hash(&key);
        for field in ["first_failure_at", "alerted"] {
            assert_eq!(after[field], before[field], "{field}");
        }
        assert!(!deployment.exists(&incident("monitor_up")));
        assert_eq!(deployment.incidents().len(), 1);
        target.respond_with(200);
        assert_eq!(deployment.check("monitor_down"), "up");
        assert!(!deployment.exists(&key));
    }
}
