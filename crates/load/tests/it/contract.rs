//! The contracts L1 to L11, on every store.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use hob_database::{PageRequest, UnixMs, sql};
use hob_fixtures::{TestContext, every_service};
use hob_load::plan::{Format, PlanFiles, PlanSource};
use hob_load::{
    CurrentMetrics, EditOutcome, Keys, LogLevel, LogLine, LogStream, MetricType, Notification, PublicStatus,
    Registration, RunRequest, RunState, RunStatus, SessionId, TestId,
};
use hob_store::{BusEvent, ChannelFilter, cmd};
use hob_testkit::{HttpServer, LIMIT, Reply, wait_for};

use crate::kit::{NEEDS, add, plan, queue, queue_node, run, wait_for_state, worker_node};

fn keys(context: &TestContext) -> Keys {
    Keys::new(context.layout)
}

async fn get<T: serde::de::DeserializeOwned>(context: &TestContext, key: impl AsRef<[u8]>) -> Option<T> {
    let text: Option<String> = context.store.run(cmd("GET").arg(key.as_ref()).clone()).await.unwrap();
    text.map(|text| serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
}

async fn ttl(context: &TestContext, key: impl AsRef<[u8]>) -> Duration {
    let ms: i64 = context.store.run(cmd("PTTL").arg(key.as_ref()).clone()).await.unwrap();
    Duration::from_millis(u64::try_from(ms).unwrap_or_else(|_| panic!("no TTL: {ms}")))
}

async fn exists(context: &TestContext, key: impl AsRef<[u8]>) -> bool {
    context.store.run(cmd("EXISTS").arg(key.as_ref()).clone()).await.unwrap()
}

async fn list(context: &TestContext, key: impl AsRef<[u8]>) -> Vec<String> {
    context.store.run(cmd("LRANGE").arg(key.as_ref()).arg(0).arg(-1).clone()).await.unwrap()
}

async fn now(context: &TestContext) -> UnixMs {
    context.database.write(|tx| async move { Ok::<_, hob_database::Error>(tx.now()) }).await.unwrap()
}

/// Moves the end of a run into the past.
async fn end_earlier(context: &TestContext, id: &TestId, by: Duration) {
    let update = sql("UPDATE load_run SET ended_at = ended_at - $2 WHERE id = $1");
    let by = i64::try_from(by.as_millis()).unwrap();
    context.database.execute(update.bind(id).bind(by)).await.unwrap();
}

/// Waits until the server receives requests.
async fn wait_for_traffic(server: &HttpServer) {
    let before = server.requests();
    wait_for("requests", LIMIT, async || server.requests() > before + 30).await;
}

/// Waits for a second without requests; returns how long after `requested_at` the last one arrived.
async fn time_to_stop(server: &HttpServer, requested_at: Instant) -> Duration {
    let last = wait_for("a second without requests", LIMIT, async || {
        let last = server.last()?;
        (last.max(requested_at).elapsed() > Duration::from_secs(1)).then_some(last)
    })
    .await;
    last.saturating_duration_since(requested_at)
}

every_service! {
    NEEDS;

    /// L5 L7: shared keys that another client has replaced by another type are written again.
    async fn keys_of_the_wrong_type_do_not_stop_a_run(context: TestContext) {
        let load = worker_node(context.context()).await;
        let server = HttpServer::start(|_| Reply::After(Duration::from_millis(1)));
        let plan = add(&load, &server.url(""), 10, "1s").await;
        let keys = keys(&context);
        for shard in keys.space().shards() {
            context.test_store().as_outsider(cmd("SET").arg(keys.active(shard)).arg("x").clone()).await;
        }
        context.test_store().as_outsider(cmd("SET").arg(keys.pending()).arg("x").clone()).await;
        let first = queue(&load, plan, RunRequest::default()).await;
        context.test_store().as_outsider(cmd("SET").arg(keys.logs(&first)).arg("x").clone()).await;
        // Atomically, because the run writes the key every second.
        let corrupt = "redis.call('DEL', KEYS[1]) return redis.call('RPUSH', KEYS[1], 'x')";
        let corrupt = cmd("EVAL").arg(corrupt).arg(1).arg(keys.writer(&first)).clone();
        context.test_store().as_outsider(corrupt).await;
        assert_eq!(wait_for_state(&load, &first, RunState::Completed).await.state, RunState::Completed);
        wait_for("the status", LIMIT, async || {
            let status: Option<RunStatus> = get(&context, keys.status(&first)).await;
            status.filter(|status| status.status == PublicStatus::Completed)
        })
        .await;
        context.test_store().as_outsider(cmd("SET").arg(keys.pending()).arg("x").clone()).await;
        load.maintain_once(0).await.unwrap();
        assert!(!exists(&context, keys.pending()).await);
        for shard in keys.space().shards() {
            let kind: String = context.store.run(cmd("TYPE").arg(keys.active(shard)).clone()).await.unwrap();
            assert!(kind == "none" || kind == "set", "{kind}");
        }
    }

    /// L1 L2 L3 L5 L8 L9 L11
    async fn documented_keys_show_a_run_and_are_cleaned_up_after_it(context: TestContext) {
        let server = HttpServer::start(|n| if n.is_multiple_of(10) { Reply::Raw(b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n".to_vec()) } else { Reply::After(Duration::from_millis(5)) });
        let load = worker_node(context.context()).await;
        // The run must not end before its keys are read, even if the machine stalls.
        let plan = add(&load, &server.url(""), 50, "10s").await;
        let keys = keys(&context);
        let mut notifications = context.store.bus().subscribe(&[ChannelFilter::pattern("notifications:*")]).await.unwrap();
        let id = queue(&load, plan, RunRequest::default()).await;

        let current: CurrentMetrics = wait_for("live metrics", LIMIT, async || {
            let current: Option<CurrentMetrics> = get(&context, keys.current(&id)).await;
            // A tenth of the requests fails.
            let expected = |current: &CurrentMetrics| {
                current.progress >= 20.0 && current.tps > 20.0 && current.success_count > 50
                    && (5.0..20.0).contains(&current.error_rate)
            };
            current.clone().filter(expected).ok_or(current)
        }).await;
        assert_eq!(current.test_id, id.to_string());
        assert!(current.min_response_time > 0.0 && current.p50 >= current.min_response_time);
        assert!(current.avg_response_time >= 4.0 && current.p99 <= current.max_response_time);
        assert!(ttl(&context, keys.current(&id)).await <= Duration::from_secs(10));
        let status: RunStatus = get(&context, keys.status(&id)).await.unwrap();
        assert_eq!(status.status, PublicStatus::Running);
        assert!(ttl(&context, keys.status(&id)).await > Duration::from_secs(3000));
        assert_eq!(load.views().active().await.unwrap(), [id.to_string()]);
        assert!(!list(&context, keys.buffer(&id)).await.is_empty());
        assert!(ttl(&context, keys.buffer(&id)).await <= Duration::from_secs(300));

        let ended = wait_for_state(&load, &id, RunState::Completed).await;
        assert_eq!((ended.state, ended.message.as_str()), (RunState::Completed, "Completed"));
        wait_for("the final status", LIMIT, async || {
            get::<RunStatus>(&context, keys.status(&id)).await.is_some_and(|status| status.status == PublicStatus::Completed)
        }).await;
        let status: RunStatus = get(&context, keys.status(&id)).await.unwrap();
        assert_eq!((status.progress, status.current_users), (100.0, 0));
        wait_for("the keys of the running test to be deleted", LIMIT, async || {
            !exists(&context, keys.current(&id)).await && load.views().active().await.unwrap().is_empty()
        }).await;
        assert!(!exists(&context, keys.buffer(&id)).await);
        for metric in MetricType::ALL {
            let key = keys.timeline(&id, metric);
            let samples: Vec<(String, f64)> = context.store.run(cmd("ZRANGE").arg(&key).arg(0).arg(-1).arg("WITHSCORES").clone()).await.unwrap();
            assert!(samples.len() >= 4, "{metric}: {samples:?}");
            let start = ended.start_at.unwrap().0 as f64;
            assert!(samples.iter().all(|(_, at)| (*at - start) % 1000.0 == 0.0 && *at > start), "{samples:?}");
            assert!(samples.iter().all(|(value, _)| value.parse::<f64>().is_ok()), "{samples:?}");
            assert!(ttl(&context, &key).await > Duration::from_secs(80_000));
        }
        let mut types: Vec<String> = Vec::new();
        while types.last().is_none_or(|kind| kind != "TEST_COMPLETED") {
            let event = tokio::time::timeout(LIMIT, notifications.next()).await.expect("timeout waiting for a notification");
            if let Some(BusEvent::Message { payload, .. }) = event {
                let notification: Notification = serde_json::from_slice(&payload).unwrap();
                assert_eq!(notification.test_id, id.to_string());
                assert_eq!(notification.success, notification.r#type == "TEST_COMPLETED");
                // A node may claim the run before its first state is published: then a later one is repeated.
                if notification.r#type != "TEST_QUEUED" && !types.contains(&notification.r#type) {
                    types.push(notification.r#type);
                }
            }
        }
        assert_eq!(types, ["TEST_STARTING", "TEST_STARTED", "TEST_COMPLETED"]);

        let report = load.report(&run(&load, &id).await).await.unwrap().unwrap();
        assert_eq!((report.requests, server.requests()), (500, 500));
        assert_eq!((report.failed, report.faults[0].what.as_str()), (50, "status 500"));
    }

    /// L2 L8: a final state never changes.
    async fn finished_run_rejects_changes(context: TestContext) {
        let load = queue_node(context.context()).await;
        let plan = add(&load, "http://127.0.0.1:1", 1, "1s").await;
        let mut notifications = context.store.bus().subscribe(&[ChannelFilter::pattern("notifications:*")]).await.unwrap();
        let id = queue(&load, plan, RunRequest::default()).await;
        use hob_load::Transition;
        assert_eq!(load.pause(&id).await.unwrap(), Transition::Rejected(RunState::Pending));
        assert_eq!(load.cancel(&id).await.unwrap(), Transition::Applied(RunState::Cancelled));
        for changed in [load.cancel(&id).await, load.pause(&id).await, load.resume(&id).await] {
            assert_eq!(changed.unwrap(), Transition::Rejected(RunState::Cancelled));
        }
        assert_eq!(load.cancel(&TestId::new("unknown").unwrap()).await.unwrap(), Transition::Gone);
        let status: RunStatus = get(&context, keys(&context).status(&id)).await.unwrap();
        assert_eq!(status.status, PublicStatus::Cancelled);
        for expected in ["TEST_QUEUED", "TEST_CANCELLED"] {
            let event = tokio::time::timeout(LIMIT, notifications.next()).await.expect("timeout waiting for a notification");
            let Some(BusEvent::Message { payload, .. }) = event else { panic!("{event:?}") };
            assert_eq!(serde_json::from_slice::<Notification>(&payload).unwrap().r#type, expected);
        }
    }

    /// L4
    async fn other_lines_do_not_push_out_errors(context: TestContext) {
        let load = queue_node(context.context()).await;
        let id = TestId::new("T_1").unwrap();
        let error = LogLine { user_id: Some("user_001".into()), ..LogLine::new(1706430000000, LogLevel::Error, "broke") };
        load.logs().write(&id, &[error]).await.unwrap();
        let lines: Vec<LogLine> = (0..1500).map(|n| LogLine::new(1706430000000 + n, LogLevel::Info, format!("line {n}"))).collect();
        load.logs().write(&id, &lines).await.unwrap();
        let kept = list(&context, keys(&context).logs(&id)).await;
        assert_eq!(kept.len(), 1000);
        assert_eq!(kept[0], r#"{"timestamp":1706430001499,"level":"INFO","message":"line 1499"}"#, "newest first");
        let errors = load.logs().read(&id, LogStream::Errors, 0, 10).await.unwrap();
        assert_eq!(errors.entries, [br#"{"timestamp":1706430000000,"level":"ERROR","message":"broke","userId":"user_001"}"#.to_vec()]);
        let all = load.logs().read(&id, LogStream::All, 0, 2).await.unwrap();
        let rest = load.logs().read(&id, LogStream::All, all.newest - 1, 10).await.unwrap();
        assert_eq!((rest.entries.len(), rest.missed_after(all.newest - 1)), (1, false));
        assert!(ttl(&context, keys(&context).logs(&id)).await <= Duration::from_secs(3600));
    }

    /// L5
    async fn stale_active_runs_are_removed(context: TestContext) {
        let load = queue_node(context.context()).await;
        for n in 0..20 {
            load.views().activate(&TestId::new(format!("left_over_{n}")).unwrap()).await.unwrap();
        }
        assert_eq!(load.views().active().await.unwrap().len(), 20);
        load.maintain_once(0).await.unwrap();
        assert!(load.views().active().await.unwrap().is_empty());
    }

    /// L6
    async fn sessions_are_stored_until_they_end(context: TestContext) {
        let load = queue_node(context.context()).await;
        let plan = add(&load, "http://127.0.0.1:1", 1, "1s").await;
        let id = queue(&load, plan, RunRequest::default()).await;
        let session = SessionId::new("session_123").unwrap();
        let key = keys(&context).sessions(&id);
        let register = async || {
            let now = now(&context).await;
            load.views().add_session(&run(&load, &id).await, now, &session, "192.168.1.100", 1706430000000).await.unwrap()
        };
        assert_eq!(register().await, Registration::Added);
        let stored: String = context.store.run(cmd("HGET").arg(&key).arg("session_123").clone()).await.unwrap();
        assert_eq!(stored, r#"{"clientIp":"192.168.1.100","connectedAt":1706430000000}"#);
        let left = ttl(&context, &key).await;
        assert!(left <= Duration::from_secs(3600) && left > Duration::from_secs(600), "{left:?}");
        load.views().remove_session(&id, &session).await.unwrap();
        assert!(!exists(&context, &key).await);

        // Until ten minutes after the end, no matter when the client connects.
        load.cancel(&id).await.unwrap();
        end_earlier(&context, &id, Duration::from_secs(400)).await;
        assert_eq!(register().await, Registration::Added);
        assert!(ttl(&context, &key).await <= Duration::from_secs(200));
        end_earlier(&context, &id, Duration::from_secs(200)).await;
        assert_eq!(register().await, Registration::Over);
    }

    /// L2: the status of a run that has ended comes back after a loss of the store, for the rest of its hour.
    async fn final_status_is_restored_with_the_rest_of_its_time(context: TestContext) {
        let load = queue_node(context.context()).await;
        let plan = add(&load, "http://127.0.0.1:1", 1, "1s").await;
        let key = |id: &TestId| keys(&context).status(id);
        let mut statuses = Vec::new();
        for minutes in [10, 50, 61] {
            let id = queue(&load, plan, RunRequest::default()).await;
            load.cancel(&id).await.unwrap();
            let status: RunStatus = get(&context, key(&id)).await.unwrap();
            end_earlier(&context, &id, Duration::from_secs(minutes * 60)).await;
            statuses.push((id, status));
        }
        context.test_store().flush_all().await;
        load.maintain_once(0).await.unwrap();
        for ((id, status), minutes_left) in statuses.iter().zip([50, 10]) {
            assert_eq!(get::<RunStatus>(&context, key(id)).await.as_ref(), Some(status));
            let (left, expected) = (ttl(&context, key(id)).await, Duration::from_secs(minutes_left * 60));
            assert!(left <= expected && left + Duration::from_secs(300) > expected, "{left:?} of {expected:?}");
        }
        assert!(!exists(&context, key(&statuses[2].0)).await, "its hour is over");
        // What another client writes is overwritten, whatever its type.
        let overwrite = "redis.call('DEL', KEYS[1]) return redis.call('RPUSH', KEYS[1], 'x')";
        context.test_store().as_outsider(cmd("EVAL").arg(overwrite).arg(1).arg(key(&statuses[0].0)).clone()).await;
        load.maintain_once(0).await.unwrap();
        assert_eq!(get::<RunStatus>(&context, key(&statuses[0].0)).await.as_ref(), Some(&statuses[0].1));
    }

    /// L7
    async fn higher_priorities_start_first_but_waiting_counts(context: TestContext) {
        let load = queue_node(context.context()).await;
        let plan = add(&load, "http://127.0.0.1:1", 1, "1s").await;
        let mut ids = Vec::new();
        for priority in [0, 5, 1, 5] {
            ids.push(queue(&load, plan, RunRequest { priority, max_users: Some(100), ..RunRequest::default() }).await);
        }
        let order: Vec<TestId> = load.pending().await.unwrap().into_iter().map(|run| run.id).collect();
        assert_eq!(order, [ids[1].clone(), ids[3].clone(), ids[2].clone(), ids[0].clone()]);
        load.maintain_once(1).await.unwrap();
        let listed = list(&context, keys(&context).pending()).await;
        let first = format!(r#"{{"testId":"{}","planId":{plan},"maxUsers":100,"priority":5}}"#, ids[1]);
        assert_eq!((listed.len(), &listed[0]), (4, &first));
        // An hour of waiting equals sixty priority levels, at one minute each.
        let an_hour = i64::try_from(Duration::from_secs(3600).as_millis()).unwrap();
        let older = sql("UPDATE load_run SET rank = rank - $2 WHERE id = $1").bind(&ids[0]).bind(an_hour);
        context.database.execute(older).await.unwrap();
        assert_eq!(load.pending().await.unwrap()[0].id, ids[0]);
    }

    /// L7
    async fn pushed_entries_are_imported_or_dropped(context: TestContext) {
        let load = queue_node(context.context()).await;
        let plan = add(&load, "http://127.0.0.1:1", 1, "1s").await;
        let key = keys(&context).pending();
        let entry = format!(r#"{{ "testId": "TestWithGradle_1_20250828183842", "planId": {plan}, "maxUsers": 7, "priority": 1 }}"#);
        for pushed in [entry.as_str(), r#"{"testId":"x","planId":999,"maxUsers":1,"priority":1}"#, "rubbish"] {
            context.test_store().as_outsider(cmd("RPUSH").arg(&key).arg(pushed).clone()).await;
        }
        load.maintain_once(1).await.unwrap();
        let waiting = load.pending().await.unwrap();
        assert_eq!(waiting.len(), 1);
        assert_eq!((waiting[0].id.as_str(), waiting[0].max_users, waiting[0].priority),
            ("TestWithGradle_1_20250828183842", Some(7), 1));
        let listed = list(&context, &key).await;
        assert_eq!(listed, [format!(r#"{{"testId":"TestWithGradle_1_20250828183842","planId":{plan},"maxUsers":7,"priority":1}}"#)]);
        // Idempotent, also when the entry is pushed again.
        context.test_store().as_outsider(cmd("RPUSH").arg(&key).arg(&entry).clone()).await;
        load.maintain_once(1).await.unwrap();
        assert_eq!((load.pending().await.unwrap().len(), list(&context, &key).await), (1, listed));
    }

    /// L10
    async fn edit_invalidates_the_cache_and_a_run_keeps_its_version(context: TestContext) {
        let load = queue_node(context.context()).await;
        let id = add(&load, "http://127.0.0.1:1", 1, "1s").await;
        let keys = keys(&context);
        let (key_id, kind) = (hob_load::KeyPlanId::new(id.0).unwrap(), hob_load::RunTypeId::new("smoke").unwrap());
        assert_eq!(load.plan(id).await.unwrap().unwrap().version, 1);
        let groups = load.cache().groups(id, "smoke").await.unwrap();
        assert_eq!((groups[0].name.as_str(), groups[0].plan_version), ("read", 1));
        let users = load.cache().users(id, "smoke").await.unwrap();
        assert_eq!((users.len(), users[1]["login"].as_str()), (2, "bob"));
        for key in [keys.plan(&key_id), keys.groups(&key_id, &kind), keys.users(&key_id, &kind)] {
            assert!(ttl(&context, &key).await <= Duration::from_secs(300), "{key}");
        }
        let queued = queue(&load, id, RunRequest::default()).await;
        let edited = plan("http://127.0.0.1:2", 1, "1s").replace("\"read\"", "\"look\"");
        let edited = PlanSource::toml(edited);
        assert_eq!(load.edit_plan(id, Some(1), &edited).await.unwrap(), EditOutcome::Saved(2));
        assert!(!exists(&context, keys.plan(&key_id)).await && !exists(&context, keys.users(&key_id, &kind)).await);
        assert_eq!(load.edit_plan(id, Some(1), &edited).await.unwrap(), EditOutcome::Conflict(2));
        assert_eq!(load.plan(id).await.unwrap().unwrap().version, 2);
        assert_eq!(load.cache().groups(id, "smoke").await.unwrap()[0].name, "look");
        assert_eq!(run(&load, &queued).await.plan_version, 1);
        assert!(load.delete_plan(id).await.unwrap());
        assert!(load.plan(id).await.unwrap().is_none());
        assert!(load.plans(&PageRequest::default()).await.unwrap().rows.is_empty());
    }

    /// L10
    async fn node_waits_for_another_that_loads_the_plan_but_not_for_a_dead_one(context: TestContext) {
        let load = queue_node(context.context()).await;
        let id = add(&load, "http://127.0.0.1:1", 1, "1s").await;
        let key_id = hob_load::KeyPlanId::new(id.0).unwrap();
        let (loading, cached) = (keys(&context).loading(&key_id), keys(&context).plan(&key_id));
        context.test_store().as_outsider(cmd("SET").arg(&loading).arg("1").arg("PX").arg(60_000).clone()).await;
        let requested_at = Instant::now();
        assert_eq!(load.plan(id).await.unwrap().unwrap().version, 1, "no other node loaded it");
        assert!(requested_at.elapsed() >= Duration::from_millis(300), "this node waited first");
        context.test_store().as_outsider(cmd("DEL").arg(&cached).clone()).await;
        context.test_store().as_outsider(cmd("SET").arg(&loading).arg("1").arg("PX").arg(60_000).clone()).await;
        let theirs = r#"{"planId":1,"version":1,"name":"by another node","format":"toml","source":"","createdAt":0}"#;
        let (found, ()) = tokio::join!(load.plan(id), async {
            context.test_store().as_outsider(cmd("SET").arg(&cached).arg(theirs).arg("PX").arg(60_000).clone()).await;
        });
        assert_eq!(found.unwrap().unwrap().name, "by another node");
    }

    /// L10: each run type reads its users from a file of the plan.
    async fn users_of_a_run_type_come_from_a_file(context: TestContext) {
        let server = HttpServer::start(|_| Reply::After(Duration::ZERO));
        let load = worker_node(context.context()).await;
        let source = plan(&server.url(""), 4, "1s");
        let inline = "users = [{ login = \"ann\" }, { login = \"bob\" }]";
        let source = source.replace(inline, "csv_file = \"few.csv\"\n[run.full]\ncsv_file = \"many.csv\"");
        let mut files = PlanFiles::default();
        files.put("many.csv", "login\ncarl\ndora\n");
        let mut written = PlanSource { source, format: Format::Toml, files };
        let error = load.add_plan(&written).await.unwrap_err();
        assert!(error.to_string().contains("no file \"few.csv\""), "{error}");
        written.files.put("few.csv", "login\nann\n");
        let id = load.add_plan(&written).await.unwrap();
        for (kind, users) in [("smoke", vec!["ann"]), ("full", vec!["carl", "dora"])] {
            let cached = load.cache().users(id, kind).await.unwrap();
            assert_eq!(cached.iter().map(|user| user["login"].as_str()).collect::<Vec<_>>(), users);
        }
        // The run keeps the files of its version.
        let run = queue(&load, id, RunRequest { run_type: Some("full".into()), ..RunRequest::default() }).await;
        written.files.put("many.csv", "login\nzoe\n");
        assert_eq!(load.edit_plan(id, Some(1), &written).await.unwrap(), EditOutcome::Saved(2));
        assert_eq!(load.cache().users(id, "full").await.unwrap()[0]["login"], "zoe");
        let ended = wait_for_state(&load, &run, RunState::Completed).await;
        assert_eq!(ended.state, RunState::Completed, "{}", ended.message);
        let received = server.received();
        let who = |request: &String| request.split(' ').nth(1).unwrap().to_owned();
        let paths: BTreeSet<String> = received.iter().map(who).collect();
        assert_eq!(paths, ["/?who=carl", "/?who=dora"].map(str::to_owned).into());
    }

    /// L4: the documented example.
    async fn connected_users_are_logged(context: TestContext) {
        let server = HttpServer::start(|_| Reply::After(Duration::ZERO));
        let load = worker_node(context.context()).await;
        let plan = add(&load, &server.url(""), 5, "1s").await;
        let mut logs = Vec::new();
        // A store that does not answer in time loses the lines of a second, but not in every run.
        for _ in 0..5 {
            let id = queue(&load, plan, RunRequest::default()).await;
            wait_for_state(&load, &id, RunState::Completed).await;
            let lines = list(&context, keys(&context).logs(&id)).await;
            if let Some(line) = lines.iter().find(|line| line.contains("User 1 connected")) {
                let line = LogLine::parse(line.as_bytes()).unwrap();
                assert_eq!((line.level, line.message.as_str()), (LogLevel::Info, "User 1 connected successfully"));
                assert_eq!(line.user_id.as_deref(), Some("user_001"));
                return;
            }
            logs.push(lines);
        }
        panic!("{logs:?}");
    }

    /// L9: losing the data of the store during a run loses no measurement.
    async fn run_survives_the_loss_of_the_store(context: TestContext) {
        let server = HttpServer::start(|_| Reply::After(Duration::from_millis(1)));
        let load = worker_node(context.context()).await;
        let plan = add(&load, &server.url(""), 40, "3s").await;
        let id = queue(&load, plan, RunRequest::default()).await;
        wait_for("requests", LIMIT, async || server.requests() > 20).await;
        context.test_store().flush_all().await;
        let ended = wait_for_state(&load, &id, RunState::Completed).await;
        assert_eq!(ended.state, RunState::Completed, "{}", ended.message);
        let report = load.report(&ended).await.unwrap().unwrap();
        assert_eq!((report.requests, server.requests()), (120, 120));
        wait_for("the final status", LIMIT, async || {
            get::<RunStatus>(&context, keys(&context).status(&id)).await.is_some_and(|status| status.status == PublicStatus::Completed)
        }).await;
    }

    async fn runners_on_several_nodes_share_the_load_and_start_together(context: TestContext) {
        let server = HttpServer::start(|_| Reply::After(Duration::from_millis(1)));
        let load = worker_node(context.context()).await;
        let others = [context.another_node().await, context.another_node().await];
        let _others = [worker_node(&others[0]).await, worker_node(&others[1]).await];
        let plan = add(&load, &server.url(""), 60, "3s").await;
        let mut first_seconds: Vec<u64> = Vec::new();
        // A busy machine may delay a start, but not every one.
        while first_seconds.last().is_none_or(|requests| *requests <= 30) {
            assert!(first_seconds.len() < 5, "all runners work from the first second: {first_seconds:?}");
            let before = server.requests();
            let id = queue(&load, plan, RunRequest { runners: Some(3), ..RunRequest::default() }).await;
            let ended = wait_for_state(&load, &id, RunState::Completed).await;
            assert_eq!(ended.state, RunState::Completed, "{}", ended.message);
            let runners = load.runners(&ended).await.unwrap();
            assert_eq!(runners.iter().map(|runner| runner.number).collect::<BTreeSet<_>>(), [0, 1, 2].into());
            let report = load.report(&ended).await.unwrap().unwrap();
            assert_eq!((report.requests, server.requests() - before), (180, 180));
            let seconds = load.seconds(&ended, 0, usize::MAX).await.unwrap();
            first_seconds.push(seconds[0].requests());
        }
        others.iter().for_each(|context| context.tasks.stop_token().cancel());
    }

    /// The target receives its last request at most a second after a pause or a cancellation. A busy machine may take longer
    /// a few times, but not every time.
    async fn requests_stop_within_a_second(context: TestContext) {
        let server = HttpServer::start(|_| Reply::After(Duration::from_millis(1)));
        let load = worker_node(context.context()).await;
        let plan = add(&load, &server.url(""), 100, "10m").await;
        let mut stopped = Vec::new();
        for _ in 0..8 {
            let id = queue(&load, plan, RunRequest::default()).await;
            wait_for_traffic(&server).await;
            let requested_at = Instant::now();
            load.pause(&id).await.unwrap();
            let paused = time_to_stop(&server, requested_at).await;
            assert_eq!(run(&load, &id).await.state, RunState::Paused);
            load.resume(&id).await.unwrap();
            wait_for_traffic(&server).await;
            let requested_at = Instant::now();
            load.cancel(&id).await.unwrap();
            let cancelled = time_to_stop(&server, requested_at).await;
            assert_eq!(wait_for_state(&load, &id, RunState::Cancelled).await.state, RunState::Cancelled);
            stopped.push((paused, cancelled));
            if paused.max(cancelled) <= Duration::from_secs(1) {
                return;
            }
        }
        panic!("requests stopped too late after a pause or a cancellation in every round: {stopped:?}");
    }

    async fn forbidden_target_is_rejected(context: TestContext) {
        let load = queue_node(context.context()).await;
        let plan = add(&load, "http://example.com", 1, "1s").await;
        let error = load.queue_run(plan, &RunRequest::default()).await.unwrap_err();
        assert!(error.to_string().contains("example.com"), "{error}");
    }
}
