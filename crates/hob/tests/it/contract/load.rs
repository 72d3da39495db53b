//! L1–L11: the keys of load runs, as `redis-cli`, a dashboard or another program that queues runs sees them.

mod lab;

use std::time::{SystemTime, UNIX_EPOCH};

use hob_testkit::{LIMIT, wait_until};
use serde_json::{Value, json};

use self::lab::{Lab, Watcher};
use super::{Ttl, connect, digits, on_every_store};

const QUEUE: &str = "queue:pending_tests";
const ACTIVE: &str = "tests:active";
const HOUR_S: u64 = 3600;
/// A run that does not end during a test.
const LONG: &str = "{ users = 5, for = \"10m\" }";
const SHORT: &str = "{ users = 5, for = \"2s\" }";
/// The example of the document.
const TEST: &str = "TestWithGradle_1_20250828183842";

#[track_caller]
fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Checks that a JSON object without spaces has exactly these fields, in this order, and returns it.
#[track_caller]
fn assert_fields(text: &str, fields: &[&str]) -> Value {
    let object = parse(text);
    let positions: Vec<usize> = fields
        .iter()
        .map(|field| text.find(&format!("\"{field}\":")).unwrap_or_else(|| panic!("no {field}: {text}")))
        .collect();
    assert!(positions.is_sorted(), "{text}");
    assert_eq!(object.as_object().unwrap().len(), fields.len(), "{text}");
    object
}

fn status_key(run: &str) -> String {
    ["test:status:", run].concat()
}

fn sessions_key(run: &str) -> String {
    ["websocket:sessions:", run].concat()
}

fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// An entry of the queue, byte by byte.
fn entry(run: &str, plan: u64, max_users: u32, priority: i32) -> String {
    format!(r#"{{"testId":"{run}","planId":{plan},"maxUsers":{max_users},"priority":{priority}}}"#)
}

on_every_store! {
    /// L2 L7: the queue is a list without a TTL, with the highest priority first and the users of each plan; the status of a
    /// pending run is a string with a TTL.
    fn pending_runs_are_in_the_queue(store: Store) {
        let lab = Lab::start_idle(store);
        let (users, rate) = (lab.plan(LONG), lab.plan("{ rate = 10, for = \"1m\", max_users = 40 }"));
        let before = now_ms();
        let first = lab.queue(users, &json!({}));
        let second = lab.queue(rate, &json!({ "priority": 1 }));
        let third = lab.queue(users, &json!({ "priority": 2, "max_users": 3 }));
        lab.wait_for_queue(&[entry(&third, users, 3, 2), entry(&second, rate, 40, 1), entry(&first, users, 5, 0)]);
        lab.deployment.assert_type(QUEUE, "list");
        assert_eq!(lab.deployment.ttl(QUEUE), Ttl::None);
        assert!(first.starts_with(&format!("TestWithGradle_{users}_20")), "{first}");

        let status = lab.wait_for_status(&first, "PENDING");
        let start = parse(&status)["startTime"].as_u64().unwrap();
        assert!((before - 1000..=now_ms() + 1000).contains(&start), "{status}");
        assert_eq!(status, format!(
            r#"{{"testId":"{first}","status":"PENDING","startTime":{start},"currentUsers":0,"targetUsers":5,"progress":0.0,"message":"In the queue"}}"#
        ));
        lab.deployment.assert_type(&status_key(&first), "string");
        lab.deployment.assert_ttl(&status_key(&first), HOUR_S);
        assert_eq!(parse(&lab.wait_for_status(&third, "PENDING"))["targetUsers"], 3);
        assert!(!lab.deployment.exists(ACTIVE), "a pending run is not active");

        lab.cancel(&third);
        lab.wait_for_queue(&[entry(&second, rate, 40, 1), entry(&first, users, 5, 0)]);
        let ended = parse(&lab.wait_for_status(&third, "CANCELLED"));
        assert_eq!((&ended["targetUsers"], &ended["currentUsers"]), (&json!(3), &json!(0)));
        lab.deployment.assert_ttl(&status_key(&third), HOUR_S);
        lab.deployment.assert_audit_is_clean();
    }

    /// L7: another program queues a run with the documented command. What cannot be queued is dropped with a log line.
    fn pushed_entries_are_imported_or_dropped_with_a_log_line(store: Store) {
        let lab = Lab::start_idle(store);
        let plan = lab.plan(LONG);
        let push = |entry: &str| lab.deployment.run::<u64>(&["RPUSH", QUEUE, entry]);
        let pushed = format!("{{\n    \"testId\": \"{TEST}\",\n    \"planId\": {plan},\n    \"maxUsers\": 4,\n    \"priority\": 1\n}}");
        push(&pushed);
        let listed = entry(TEST, plan, 4, 1);
        lab.wait_for_queue(std::slice::from_ref(&listed));
        lab.wait_for_status(TEST, "PENDING");
        let run = parse(&lab.deployment.server.get(&format!("/api/v1/load/runs/{TEST}")).body);
        assert_eq!((&run["state"], &run["plan_id"], &run["max_users"]), (&json!("pending"), &json!(plan), &json!(4)));

        push("rubbish");
        lab.wait_for_log("invalid entry dropped from the load queue", "rubbish");
        push(&entry("no_plan", 999, 1, 1));
        lab.wait_for_log("queued load run dropped, its plan does not exist", "no_plan");
        lab.wait_for_queue(std::slice::from_ref(&listed));

        // The id of a pending run, as it was pushed, as it is listed, and with another priority.
        let repeated = "queued load run dropped, its test id is already used";
        let count = |text: &str| lab.deployment.server.log().lines().filter(|line| line.contains(text)).count();
        for (number, repeat) in [&pushed, &listed, &entry(TEST, plan, 4, 9)].into_iter().enumerate() {
            push(repeat);
            wait_until("a log line for each repeated entry", || {
                let found = count(repeated);
                if found == number + 1 { Ok(()) } else { Err(found) }
            });
            lab.wait_for_queue(std::slice::from_ref(&listed));
        }
        // The id of a run that has ended. Its removal from the queue is not a repeated entry.
        lab.cancel(TEST);
        lab.wait_for_queue(&[]);
        assert_eq!(count(repeated), 3);
        push(&listed);
        wait_until("a log line for the id of an ended run", || count(repeated) == 4);
        lab.wait_for_queue(&[]);
        lab.wait_for_status(TEST, "CANCELLED");
    }

    /// L1 L2 L3 L5 L9: what a dashboard reads during a run, and what is left after it (L11).
    fn run_has_the_documented_keys(store: Store) {
        let lab = Lab::start(store);
        let plan = lab.plan(LONG);
        let before = now_ms();
        let run = lab.queue(plan, &json!({}));
        let [current, buffer] = ["metrics:current:", "buffer:metrics:"].map(|prefix| [prefix, &run].concat());
        let timelines = ["tps", "response_time", "active_users", "error_rate"].map(|kind| format!("timeline:{run}:{kind}"));
        let metrics = wait_until("metrics of the third second", || {
            lab.text(&current).filter(|_| lab.deployment.run::<u64>(&["ZCARD", &timelines[3]]) >= 3)
        });

        let metrics = assert_fields(&metrics, &[
            "testId", "timestamp", "activeUsers", "tps", "avgResponseTime", "minResponseTime", "maxResponseTime",
            "successCount", "errorCount", "errorRate", "progress", "p50", "p95", "p99",
        ]);
        assert_eq!((&metrics["testId"], &metrics["activeUsers"]), (&json!(run), &json!(5)));
        assert!((before..=now_ms() + 1000).contains(&metrics["timestamp"].as_u64().unwrap()), "{metrics}");
        let number = |field: &str| metrics[field].as_f64().unwrap_or_else(|| panic!("{field}: {metrics}"));
        assert!(number("tps") > 0.0 && number("successCount") > 0.0 && number("progress") < 100.0, "{metrics}");
        assert_eq!((number("errorCount"), number("errorRate")), (0.0, 0.0));
        assert!(number("minResponseTime") <= number("avgResponseTime"), "{metrics}");
        assert!(number("avgResponseTime") <= number("maxResponseTime"), "{metrics}");
        lab.deployment.assert_type(&current, "string");
        assert!(lab.seconds_left(&current) <= 10);

        let status = lab.wait_for_status(&run, "RUNNING");
        let status = assert_fields(&status, &["testId", "status", "startTime", "currentUsers", "targetUsers", "progress", "message"]);
        assert_eq!((&status["currentUsers"], &status["targetUsers"]), (&json!(5), &json!(5)), "{status}");
        assert!(status["progress"].as_f64().unwrap() > 0.0, "{status}");
        lab.deployment.assert_ttl(&status_key(&run), HOUR_S);

        // No request fails: equal samples of different seconds are different members.
        for key in &timelines {
            lab.deployment.assert_type(key, "zset");
            lab.deployment.assert_ttl(key, 24 * HOUR_S);
            let since = (now_ms() - 60_000).to_string();
            let samples: Vec<(String, f64)> = lab.deployment.run(&["ZRANGEBYSCORE", key, &since, &now_ms().to_string(), "WITHSCORES"]);
            assert!(samples.len() >= 2, "{key}: {samples:?}");
            assert!(samples.windows(2).all(|pair| (pair[1].1 - pair[0].1 - 1000.0).abs() < 0.5), "{key}: {samples:?}");
            assert!(samples.iter().all(|(value, _)| value.parse::<f64>().is_ok_and(|value| value >= 0.0)), "{key}: {samples:?}");
        }
        let users: Vec<String> = lab.deployment.run(&["ZRANGE", &timelines[2], "0", "-1"]);
        assert!(users.iter().all(|value| value.starts_with("5.000")), "{users:?}");

        lab.deployment.assert_type(ACTIVE, "set");
        assert_eq!(lab.deployment.run::<Vec<String>>(&["SMEMBERS", ACTIVE]), [run.as_str()]);
        assert_eq!(lab.deployment.ttl(ACTIVE), Ttl::None);
        lab.deployment.assert_type(&buffer, "list");
        assert!(lab.seconds_left(&buffer) <= 300);
        let buffered: Vec<String> = lab.deployment.run(&["LRANGE", &buffer, "0", "-1"]);
        assert!(buffered.iter().all(|entry| parse(entry)["requests"].is_u64()), "{buffered:?}");
        lab.deployment.assert_audit_is_clean();

        lab.cancel(&run);
        let ended = parse(&lab.wait_for_status(&run, "CANCELLED"));
        assert_eq!((&ended["currentUsers"], &ended["targetUsers"]), (&json!(0), &json!(5)), "{ended}");
        assert!(ended["progress"].as_f64().unwrap() < 100.0, "{ended}");
        lab.deployment.assert_ttl(&status_key(&run), HOUR_S);
        for key in [current.as_str(), buffer.as_str(), ACTIVE] {
            wait_until(format!("{key} to be deleted"), || !lab.deployment.exists(key));
        }
        lab.deployment.assert_ttl(&timelines[0], 24 * HOUR_S);
        lab.deployment.assert_audit_is_clean();
    }

    /// L4: the log is a list of JSON, newest first, at most 1000 lines, for an hour. Errors are also in a separate list.
    fn log_has_the_documented_lines(store: Store) {
        let lab = Lab::start(store);
        let plan = lab.plan(LONG);
        let run = lab.queue(plan, &json!({}));
        let key = ["logs:", &run].concat();
        let lines = || lab.deployment.run::<Vec<String>>(&["LRANGE", &key, "0", "-1"]);
        let line = wait_until("the line of a user", || lines().into_iter().find(|line| line.contains("connected")));
        let line = assert_fields(&line, &["timestamp", "level", "message", "userId"]);
        let user = line["userId"].as_str().unwrap();
        let number = digits(user.strip_prefix("user_").unwrap());
        assert_eq!((&line["level"], &line["message"]), (&json!("INFO"), &json!(format!("User {number} connected successfully"))));
        assert!(line["timestamp"].as_u64().unwrap() <= now_ms());
        lab.deployment.assert_type(&key, "list");
        lab.deployment.assert_ttl(&key, HOUR_S);

        lab.target.respond_with(500);
        let error = wait_until("the line of an error", || lines().into_iter().find(|line| line.contains("ERROR")));
        let error = assert_fields(&error, &["timestamp", "level", "message", "userId"]);
        assert_eq!((&error["level"], &error["message"]), (&json!("ERROR"), &json!("home: status 500")));
        let times: Vec<u64> = lines().iter().map(|line| parse(line)["timestamp"].as_u64().unwrap()).collect();
        // The coordinator and the runner write at the same time, so that a line may be a moment older than the one before it.
        let newest_first = times.is_sorted_by(|newer, older| *older <= newer + 1000);
        assert!(times.len() <= 1000 && newest_first, "{times:?}");
        let shown = parse(&lab.deployment.server.get(&format!("/api/v1/load/runs/{run}/logs?level=error")).body);
        assert_eq!((&shown["lines"][0]["level"], &shown["lines"][0]["message"]), (&json!("error"), &error["message"]));
        assert!(shown["lines"][0]["user_id"].as_str().unwrap().starts_with("user_"), "{shown}");
    }

    /// L6 L8: the live clients of a run are in a hash until ten minutes after its end, and their frames say what the keys say.
    fn watchers_are_listed_until_ten_minutes_after_the_end(store: Store) {
        let lab = Lab::start(store);
        let plan = lab.plan(LONG);
        let before = now_ms();
        let run = lab.queue(plan, &json!({}));
        lab.wait_for_status(&run, "RUNNING");
        let (mut stays, mut leaves) = (Watcher::connect(&lab, &run), Watcher::connect(&lab, &run));
        let key = sessions_key(&run);
        let sessions = lab.deployment.hash(&key);
        assert_eq!(sessions.len(), 2, "{sessions:?}");
        for (session, client) in &sessions {
            assert!(session.starts_with("session_"), "{session}");
            let connected = parse(client)["connectedAt"].as_u64().unwrap();
            assert!((before..=now_ms() + 1000).contains(&connected), "{client}");
            assert_eq!(client, &format!(r#"{{"clientIp":"127.0.0.1","connectedAt":{connected}}}"#));
        }
        lab.deployment.assert_type(&key, "hash");
        lab.deployment.assert_ttl(&key, HOUR_S);
        let shown = stays.wait_for_state("running");
        let status = parse(&lab.wait_for_status(&run, "RUNNING"));
        assert_eq!((&shown["target_users"], &status["targetUsers"]), (&json!(5), &json!(5)));
        leaves.wait_for_state("running");
        drop(leaves);
        let left = wait_until("the client that left to be removed", || {
            let left = lab.deployment.hash(&key);
            if left.len() == 1 { Ok(left) } else { Err(left) }
        });

        // A connected client is listed again after the store has lost everything.
        lab.deployment.run::<()>(&["FLUSHALL"]);
        wait_until("the client in the hash again", || {
            let found = lab.deployment.hash(&key);
            if found == left { Ok(()) } else { Err(found) }
        });

        lab.cancel(&run);
        let shown = stays.wait_for_state("cancelled");
        assert_eq!((&shown["target_users"], &shown["current_users"]), (&json!(5), &json!(0)));
        lab.wait_for_status(&run, "CANCELLED");
        wait_until("the TTL after the end", || {
            let left = lab.deployment.ttl(&key);
            if matches!(left, Ttl::Seconds(1..=600)) { Ok(()) } else { Err(left) }
        });
        lab.deployment.assert_ttl(&key, 600);
        assert_eq!(lab.deployment.hash(&key), left, "the client is still connected");
        // A client that connects now does not prolong the life of the hash.
        let late = Watcher::connect(&lab, &run).wait_for_state("cancelled");
        assert_eq!(late["target_users"], 5, "{late}");
        assert!(lab.seconds_left(&key) <= 600);
        lab.deployment.assert_audit_is_clean();
    }

    /// L8: changes of the state are published as documented.
    fn notifications_are_published(store: Store) {
        let lab = Lab::start(store);
        let plan = lab.plan(SHORT);
        let mut client = connect(lab.deployment.port);
        client.set_read_timeout(Some(LIMIT)).unwrap();
        let mut notifications = client.as_pubsub();
        notifications.psubscribe("notifications:*").unwrap();
        let run = lab.queue(plan, &json!({}));
        let mut kinds: Vec<String> = Vec::new();
        while kinds.last().is_none_or(|kind| kind != "TEST_COMPLETED") {
            let message = notifications.get_message().unwrap();
            assert_eq!(message.get_channel_name(), format!("notifications:{run}"));
            let payload = message.get_payload::<String>().unwrap();
            let kind = parse(&payload)["type"].as_str().unwrap().to_owned();
            if kind == "TEST_COMPLETED" {
                assert_eq!(payload, format!(r#"{{"type":"TEST_COMPLETED","testId":"{run}","success":true,"message":"Completed"}}"#));
            } else {
                let notification = assert_fields(&payload, &["type", "testId", "success", "message"]);
                assert_eq!(notification["success"], false);
            }
            // The run may be claimed before its first state is published: then a later one is repeated.
            if kind != "TEST_QUEUED" && !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        assert_eq!(kinds, ["TEST_STARTING", "TEST_STARTED", "TEST_COMPLETED"]);
        assert_eq!(parse(&lab.wait_for_status(&run, "COMPLETED"))["progress"], 100.0);
    }

    /// L10: the plan of a run, its groups and its users are cached for five minutes, and dropped when the plan is edited.
    fn plan_is_cached_until_it_is_edited(store: Store) {
        let lab = Lab::start(store);
        let plan = lab.plan(SHORT);
        let keys = [format!("cache:plan:{plan}"), format!("cache:groups:{plan}:smoke"), format!("cache:users:{plan}:smoke")];
        let run = lab.queue(plan, &json!({}));
        lab.wait_for_status(&run, "COMPLETED");
        for key in &keys {
            lab.deployment.assert_type(key, "string");
            assert!(lab.seconds_left(key) <= 300, "{key}");
        }
        let [cached, groups, users] = keys.each_ref().map(|key| parse(&lab.text(key).unwrap()));
        assert_eq!((&cached["planId"], &cached["version"], &cached["name"]), (&json!(plan), &json!(1), &json!("TestWithGradle")));
        assert_eq!((&groups[0]["name"], &groups[0]["steps"], &groups[0]["planVersion"]), (&json!("read"), &json!(["home"]), &json!(1)));
        assert_eq!((&users[0]["login"], &users[1]["login"]), (&json!("ann"), &json!("bob")));

        let edited = lab.deployment.server.put(&format!("/api/v1/load/plans/{plan}"), &lab.body(LONG).to_string());
        assert_eq!(edited.status, 200, "{}", edited.body);
        assert!(!lab.deployment.exists(&keys[2]), "the users of the earlier version are left");
        // The answer to the edit has the plan and its groups, of the new version.
        assert_eq!(parse(&lab.text(&keys[0]).unwrap())["version"], 2);
        assert_eq!(parse(&lab.text(&keys[1]).unwrap())[0]["planVersion"], 2);
        lab.deployment.assert_audit_is_clean();
    }

    /// L2 L5 L7: the store may lose everything. The queue, the active run and the status of each run come from the database,
    /// with the rest of their time.
    fn lost_store_is_rebuilt_from_the_database(store: Store) {
        let lab = Lab::start(store);
        let (short, long) = (lab.plan(SHORT), lab.plan(LONG));
        let ended = lab.queue(short, &json!({}));
        let final_status = lab.wait_for_status(&ended, "COMPLETED");
        let running = lab.queue(long, &json!({}));
        lab.wait_for_status(&running, "RUNNING");
        let pending = lab.queue(long, &json!({}));
        let listed = [entry(&pending, long, 5, 0)];
        lab.wait_for_queue(&listed);
        // A TTL that starts again would be longer.
        let key = status_key(&ended);
        let left = wait_until("some time to pass", || Some(lab.seconds_left(&key)).filter(|left| *left < HOUR_S - 3));

        lab.deployment.run::<()>(&["FLUSHALL"]);
        assert_eq!(lab.wait_for_status(&ended, "COMPLETED"), final_status);
        assert!(lab.seconds_left(&key) <= left);
        assert_eq!(parse(&lab.wait_for_status(&running, "RUNNING"))["targetUsers"], 5);
        assert_eq!(parse(&lab.wait_for_status(&pending, "PENDING"))["targetUsers"], 5);
        lab.wait_for_queue(&listed);
        wait_until("the active run", || lab.deployment.run::<Vec<String>>(&["SMEMBERS", ACTIVE]) == [running.as_str()]);

        // What another program writes is overwritten.
        lab.deployment.run::<()>(&["SET", &key, "rubbish"]);
        wait_until("the status again", || lab.text(&key).as_ref() == Some(&final_status));
        assert!(lab.seconds_left(&key) <= left);
        lab.deployment.run::<u64>(&["SADD", ACTIVE, "left_over"]);
        wait_until("the active run alone", || lab.deployment.run::<Vec<String>>(&["SMEMBERS", ACTIVE]) == [running.as_str()]);
        lab.deployment.assert_audit_is_clean();
    }

    /// L2 L5 L11: after a restart, the status of an ended run is there for the rest of its hour, and no run is left over.
    fn status_of_an_ended_run_survives_a_restart(store: Store) {
        let mut lab = Lab::start(store);
        let plan = lab.plan("{ rate = 20, for = \"2s\" }");
        let run = lab.queue(plan, &json!({}));
        let status = lab.wait_for_status(&run, "COMPLETED");
        let target = &parse(&status)["targetUsers"];
        assert!(target.as_u64().unwrap() <= 40, "the most users at a time: {status}");
        let left = wait_until("some time to pass", || Some(lab.seconds_left(&status_key(&run))).filter(|left| *left < HOUR_S - 3));
        lab.deployment.restart();
        assert_eq!(lab.wait_for_status(&run, "COMPLETED"), status);
        assert!(lab.seconds_left(&status_key(&run)) <= left);
        assert!(!lab.deployment.exists(ACTIVE));
        assert_eq!(lab.queued(), [] as [String; 0]);
        lab.deployment.assert_audit_is_clean();
    }
}
