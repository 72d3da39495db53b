//! The contract L1–L11, on every store.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use hob_database::PageRequest;
use hob_load::plan::{Files, Format, Written};
use hob_load::{
    Current, EditOutcome, Keys, Level, Line, MetricType, Notification, Ring, SessionId, State, Status,
    TestId, Wish,
};
use hob_store::{BusEvent, ChannelFilter, cmd};
use hob_testkit::{LIMIT, TestContext, every_service, wait_for};

use crate::oracle::{Answer, Oracle};
use crate::site::{NEEDS, add, clerk, plan, queue, reach, run, worker};

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

/// Waits until requests come.
async fn goes_on(oracle: &Oracle) {
    let before = oracle.requests();
    wait_for("requests", LIMIT, async || oracle.requests() > before + 30).await;
}

/// Waits until none came for a second; answers how long after `asked` the last one did.
async fn stops_after(oracle: &Oracle, asked: Instant) -> Duration {
    let last = wait_for("quiet", LIMIT, async || {
        let last = oracle.last()?;
        (last.max(asked).elapsed() > Duration::from_secs(1)).then_some(last)
    })
    .await;
    last.saturating_duration_since(asked)
}

every_service! {
    NEEDS;

    /// L5 L7: shared keys that another client has replaced by another type are written again.
    async fn a_list_of_the_wrong_type_stops_no_run(context: TestContext) {
        let tests = worker(context.context()).await;
        let oracle = Oracle::start(|_| Answer::After(Duration::from_millis(1)));
        let plan = add(&tests, &oracle.url(""), 10, "1s").await;
        let keys = keys(&context);
        for shard in keys.space().shards() {
            context.test_store().as_outsider(cmd("SET").arg(keys.active(shard)).arg("x").clone()).await;
        }
        context.test_store().as_outsider(cmd("SET").arg(keys.pending()).arg("x").clone()).await;
        let first = queue(&tests, plan, Wish::default()).await;
        context.test_store().as_outsider(cmd("SET").arg(keys.logs(&first)).arg("x").clone()).await;
        // Both at once: the run writes it every second.
        let spoil = "redis.call('DEL', KEYS[1]) return redis.call('RPUSH', KEYS[1], 'x')";
        let spoil = cmd("EVAL").arg(spoil).arg(1).arg(keys.writer(&first)).clone();
        context.test_store().as_outsider(spoil).await;
        assert_eq!(reach(&tests, &first, State::Completed).await.state, State::Completed);
        wait_for("the status", LIMIT, async || {
            let status: Option<Status> = get(&context, keys.status(&first)).await;
            status.filter(|status| status.status == "COMPLETED")
        })
        .await;
        context.test_store().as_outsider(cmd("SET").arg(keys.pending()).arg("x").clone()).await;
        tests.keep_views_once(0).await.unwrap();
        assert!(!exists(&context, keys.pending()).await);
        for shard in keys.space().shards() {
            let kind: String = context.store.run(cmd("TYPE").arg(keys.active(shard)).clone()).await.unwrap();
            assert!(kind == "none" || kind == "set", "{kind}");
        }
    }

    /// L1 L2 L3 L5 L8 L9 L11
    async fn a_run_is_shown_in_the_documented_keys_while_it_runs_and_put_away_after(context: TestContext) {
        let oracle = Oracle::start(|n| if n.is_multiple_of(10) { Answer::Raw(b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n".to_vec()) } else { Answer::After(Duration::from_millis(5)) });
        let tests = worker(context.context()).await;
        let plan = add(&tests, &oracle.url(""), 50, "4s").await;
        let keys = keys(&context);
        let mut heard = context.store.bus().subscribe(&[ChannelFilter::pattern("notifications:*")]).await.unwrap();
        let id = queue(&tests, plan, Wish::default()).await;

        let current: Current = wait_for("live metrics", LIMIT, async || {
            let current: Option<Current> = get(&context, keys.current(&id)).await;
            current.filter(|current| current.progress >= 50.0)
        }).await;
        assert_eq!(current.test_id, id.to_string());
        assert!(current.tps > 20.0 && current.success_count > 50, "{current:?}");
        assert!((5.0..20.0).contains(&current.error_rate), "a tenth fails: {current:?}");
        assert!(current.min_response_time > 0.0 && current.p50 >= current.min_response_time);
        assert!(current.avg_response_time >= 4.0 && current.p99 <= current.max_response_time);
        assert!(ttl(&context, keys.current(&id)).await <= Duration::from_secs(10));
        let status: Status = get(&context, keys.status(&id)).await.unwrap();
        assert_eq!(status.status, "RUNNING");
        assert!(ttl(&context, keys.status(&id)).await > Duration::from_secs(3000));
        assert_eq!(tests.views().active().await.unwrap(), [id.to_string()]);
        assert!(!list(&context, keys.buffer(&id)).await.is_empty());
        assert!(ttl(&context, keys.buffer(&id)).await <= Duration::from_secs(300));

        let ended = reach(&tests, &id, State::Completed).await;
        assert_eq!((ended.state, ended.message.as_str()), (State::Completed, "Completed"));
        wait_for("the end to be shown", LIMIT, async || {
            get::<Status>(&context, keys.status(&id)).await.is_some_and(|status| status.status == "COMPLETED")
        }).await;
        let status: Status = get(&context, keys.status(&id)).await.unwrap();
        assert_eq!((status.progress, status.current_users), (100.0, 0));
        wait_for("what concerned the running to be put away", LIMIT, async || {
            !exists(&context, keys.current(&id)).await && tests.views().active().await.unwrap().is_empty()
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
        let mut types = Vec::new();
        while types.last().is_none_or(|kind| kind != "TEST_COMPLETED") {
            let event = tokio::time::timeout(LIMIT, heard.next()).await.expect("a notification in time");
            if let Some(BusEvent::Message { payload, .. }) = event {
                let notification: Notification = serde_json::from_slice(&payload).unwrap();
                assert_eq!(notification.test_id, id.to_string());
                assert_eq!(notification.success, notification.r#type == "TEST_COMPLETED");
                types.push(notification.r#type);
            }
        }
        assert_eq!(types, ["TEST_QUEUED", "TEST_STARTING", "TEST_STARTED", "TEST_COMPLETED"]);

        let report = tests.report(&run(&tests, &id).await).await.unwrap().unwrap();
        assert_eq!((report.requests, oracle.requests()), (200, 200));
        assert_eq!((report.failed, report.faults[0].what.as_str()), (20, "status 500"));
    }

    /// L2: what is over stays over.
    async fn a_finished_run_accepts_no_change(context: TestContext) {
        let tests = clerk(context.context()).await;
        let plan = add(&tests, "http://127.0.0.1:1", 1, "1s").await;
        let id = queue(&tests, plan, Wish::default()).await;
        use hob_load::Transition;
        assert_eq!(tests.pause(&id).await.unwrap(), Transition::Rejected(State::Pending));
        assert_eq!(tests.cancel(&id).await.unwrap(), Transition::Applied(State::Cancelled));
        for changed in [tests.cancel(&id).await, tests.pause(&id).await, tests.resume(&id).await] {
            assert_eq!(changed.unwrap(), Transition::Rejected(State::Cancelled));
        }
        assert_eq!(tests.cancel(&TestId::new("nobody").unwrap()).await.unwrap(), Transition::Gone);
        let status: Status = get(&context, keys(&context).status(&id)).await.unwrap();
        assert_eq!(status.status, "CANCELLED");
    }

    /// L4
    async fn errors_do_not_roll_away_with_the_other_lines(context: TestContext) {
        let tests = clerk(context.context()).await;
        let id = TestId::new("T_1").unwrap();
        let error = Line { user_id: Some("user_001".into()), ..Line::new(1706430000000, Level::Error, "broke") };
        tests.logs().write(&id, &[error]).await.unwrap();
        let lines: Vec<Line> = (0..1500).map(|n| Line::new(1706430000000 + n, Level::Info, format!("line {n}"))).collect();
        tests.logs().write(&id, &lines).await.unwrap();
        let kept = list(&context, keys(&context).logs(&id)).await;
        assert_eq!(kept.len(), 1000);
        assert_eq!(kept[0], r#"{"timestamp":1706430001499,"level":"INFO","message":"line 1499"}"#, "newest first");
        let errors = tests.logs().read(&id, Ring::Errors, 0, 10).await.unwrap();
        assert_eq!(errors.entries, [br#"{"timestamp":1706430000000,"level":"ERROR","message":"broke","userId":"user_001"}"#.to_vec()]);
        let all = tests.logs().read(&id, Ring::All, 0, 2).await.unwrap();
        let rest = tests.logs().read(&id, Ring::All, all.newest - 1, 10).await.unwrap();
        assert_eq!((rest.entries.len(), rest.missed_after(all.newest - 1)), (1, false));
        assert!(ttl(&context, keys(&context).logs(&id)).await <= Duration::from_secs(3600));
    }

    /// L5
    async fn the_list_of_active_tests_is_swept(context: TestContext) {
        let tests = clerk(context.context()).await;
        for n in 0..20 {
            tests.views().activate(&TestId::new(format!("left_over_{n}")).unwrap()).await.unwrap();
        }
        assert_eq!(tests.views().active().await.unwrap().len(), 20);
        tests.keep_views_once(0).await.unwrap();
        assert!(tests.views().active().await.unwrap().is_empty());
    }

    /// L6
    async fn watchers_are_noted_until_they_leave(context: TestContext) {
        let tests = clerk(context.context()).await;
        let (id, session) = (TestId::new("T_1").unwrap(), SessionId::new("session_123").unwrap());
        assert!(tests.views().watch(&id, &session, "192.168.1.100", 1706430000000).await.unwrap());
        let key = keys(&context).sessions(&id);
        let noted: String = context.store.run(cmd("HGET").arg(&key).arg("session_123").clone()).await.unwrap();
        assert_eq!(noted, r#"{"clientIp":"192.168.1.100","connectedAt":1706430000000}"#);
        assert!(ttl(&context, &key).await <= Duration::from_secs(3600));
        tests.views().unwatch(&id, &session).await.unwrap();
        assert!(!exists(&context, &key).await);
    }

    /// L7
    async fn higher_priorities_go_first_but_waiting_counts_too(context: TestContext) {
        let tests = clerk(context.context()).await;
        let plan = add(&tests, "http://127.0.0.1:1", 1, "1s").await;
        let mut ids = Vec::new();
        for priority in [0, 5, 1, 5] {
            ids.push(queue(&tests, plan, Wish { priority, max_users: Some(100), ..Wish::default() }).await);
        }
        let order: Vec<TestId> = tests.waiting().await.unwrap().into_iter().map(|run| run.id).collect();
        assert_eq!(order, [ids[1].clone(), ids[3].clone(), ids[2].clone(), ids[0].clone()]);
        tests.keep_views_once(1).await.unwrap();
        let listed = list(&context, keys(&context).pending()).await;
        let first = format!(r#"{{"testId":"{}","planId":{plan},"maxUsers":100,"priority":5}}"#, ids[1]);
        assert_eq!((listed.len(), &listed[0]), (4, &first));
        // An hour of waiting is worth sixty priorities at a minute each.
        let an_hour = i64::try_from(Duration::from_secs(3600).as_millis()).unwrap();
        let older = hob_database::sql("UPDATE load_run SET rank = rank - $2 WHERE id = $1").bind(&ids[0]).bind(an_hour);
        context.database.execute(older).await.unwrap();
        assert_eq!(tests.waiting().await.unwrap()[0].id, ids[0]);
    }

    /// L7
    async fn what_outsiders_push_is_taken_in_or_dropped(context: TestContext) {
        let tests = clerk(context.context()).await;
        let plan = add(&tests, "http://127.0.0.1:1", 1, "1s").await;
        let key = keys(&context).pending();
        let entry = format!(r#"{{ "testId": "TestWithGradle_1_20250828183842", "planId": {plan}, "maxUsers": 7, "priority": 1 }}"#);
        for pushed in [entry.as_str(), r#"{"testId":"x","planId":999,"maxUsers":1,"priority":1}"#, "rubbish"] {
            context.test_store().as_outsider(cmd("RPUSH").arg(&key).arg(pushed).clone()).await;
        }
        tests.keep_views_once(1).await.unwrap();
        let waiting = tests.waiting().await.unwrap();
        assert_eq!(waiting.len(), 1);
        assert_eq!((waiting[0].id.as_str(), waiting[0].max_users, waiting[0].priority),
            ("TestWithGradle_1_20250828183842", Some(7), 1));
        let listed = list(&context, &key).await;
        assert_eq!(listed, [format!(r#"{{"testId":"TestWithGradle_1_20250828183842","planId":{plan},"maxUsers":7,"priority":1}}"#)]);
        // A second look changes nothing, and neither does pushing it once more.
        context.test_store().as_outsider(cmd("RPUSH").arg(&key).arg(&entry).clone()).await;
        tests.keep_views_once(1).await.unwrap();
        assert_eq!((tests.waiting().await.unwrap().len(), list(&context, &key).await), (1, listed));
    }

    /// L10
    async fn an_edited_plan_is_not_served_stale_and_a_run_keeps_its_version(context: TestContext) {
        let tests = clerk(context.context()).await;
        let id = add(&tests, "http://127.0.0.1:1", 1, "1s").await;
        let keys = keys(&context);
        let (key_id, kind) = (hob_load::KeyPlanId::new(id.0).unwrap(), hob_load::RunTypeId::new("smoke").unwrap());
        assert_eq!(tests.plan(id).await.unwrap().unwrap().version, 1);
        let groups = tests.cache().groups(id, "smoke").await.unwrap();
        assert_eq!((groups[0].name.as_str(), groups[0].plan_version), ("read", 1));
        let users = tests.cache().users(id, "smoke").await.unwrap();
        assert_eq!((users.len(), users[1]["login"].as_str()), (2, "bob"));
        for key in [keys.plan(&key_id), keys.groups(&key_id, &kind), keys.users(&key_id, &kind)] {
            assert!(ttl(&context, &key).await <= Duration::from_secs(300), "{key}");
        }
        let queued = queue(&tests, id, Wish::default()).await;
        let edited = plan("http://127.0.0.1:2", 1, "1s").replace("\"read\"", "\"look\"");
        let edited = Written::toml(edited);
        assert_eq!(tests.edit_plan(id, Some(1), &edited).await.unwrap(), EditOutcome::Saved(2));
        assert!(!exists(&context, keys.plan(&key_id)).await && !exists(&context, keys.users(&key_id, &kind)).await);
        assert_eq!(tests.edit_plan(id, Some(1), &edited).await.unwrap(), EditOutcome::Conflict(2));
        assert_eq!(tests.plan(id).await.unwrap().unwrap().version, 2);
        assert_eq!(tests.cache().groups(id, "smoke").await.unwrap()[0].name, "look");
        assert_eq!(run(&tests, &queued).await.plan_version, 1);
        assert!(tests.delete_plan(id).await.unwrap());
        assert!(tests.plan(id).await.unwrap().is_none());
        assert!(tests.plans(&PageRequest::default()).await.unwrap().rows.is_empty());
    }

    /// L10
    async fn a_node_waits_for_another_that_loads_the_plan_but_not_for_one_that_died(context: TestContext) {
        let tests = clerk(context.context()).await;
        let id = add(&tests, "http://127.0.0.1:1", 1, "1s").await;
        let key_id = hob_load::KeyPlanId::new(id.0).unwrap();
        let (loading, cached) = (keys(&context).loading(&key_id), keys(&context).plan(&key_id));
        context.test_store().as_outsider(cmd("SET").arg(&loading).arg("1").arg("PX").arg(2000).clone()).await;
        let asked = Instant::now();
        assert_eq!(tests.plan(id).await.unwrap().unwrap().version, 1, "nobody loaded it, so this node did");
        assert!(asked.elapsed() >= Duration::from_millis(300), "but it waited first");
        context.test_store().as_outsider(cmd("DEL").arg(&cached).clone()).await;
        context.test_store().as_outsider(cmd("SET").arg(&loading).arg("1").arg("PX").arg(2000).clone()).await;
        let theirs = r#"{"planId":1,"version":1,"name":"by another node","format":"toml","source":"","createdAt":0}"#;
        let (found, ()) = tokio::join!(tests.plan(id), async {
            context.test_store().as_outsider(cmd("SET").arg(&cached).arg(theirs).arg("PX").arg(60_000).clone()).await;
        });
        assert_eq!(found.unwrap().unwrap().name, "by another node");
    }

    /// L10: users come from a file that was handed in with the plan, each kind of run from its own.
    async fn the_users_of_a_kind_of_run_come_from_a_file(context: TestContext) {
        let oracle = Oracle::start(|_| Answer::After(Duration::ZERO));
        let tests = worker(context.context()).await;
        let source = plan(&oracle.url(""), 4, "1s");
        let given = "users = [{ login = \"ann\" }, { login = \"bob\" }]";
        let source = source.replace(given, "csv_file = \"few.csv\"\n[run.full]\ncsv_file = \"many.csv\"");
        let mut files = Files::default();
        files.put("many.csv", "login\ncarl\ndora\n");
        let mut written = Written { source, format: Format::Toml, files };
        let refused = tests.add_plan(&written).await.unwrap_err();
        assert!(refused.to_string().contains("no file \"few.csv\""), "{refused}");
        written.files.put("few.csv", "login\nann\n");
        let id = tests.add_plan(&written).await.unwrap();
        for (kind, users) in [("smoke", vec!["ann"]), ("full", vec!["carl", "dora"])] {
            let cached = tests.cache().users(id, kind).await.unwrap();
            assert_eq!(cached.iter().map(|user| user["login"].as_str()).collect::<Vec<_>>(), users);
        }
        // The run keeps the files of its version.
        let run = queue(&tests, id, Wish { run_type: Some("full".into()), ..Wish::default() }).await;
        written.files.put("many.csv", "login\nzoe\n");
        assert_eq!(tests.edit_plan(id, Some(1), &written).await.unwrap(), EditOutcome::Saved(2));
        assert_eq!(tests.cache().users(id, "full").await.unwrap()[0]["login"], "zoe");
        let ended = reach(&tests, &run, State::Completed).await;
        assert_eq!(ended.state, State::Completed, "{}", ended.message);
        let received = oracle.received();
        let who = |request: &String| request.split(' ').nth(1).unwrap().to_owned();
        let asked: BTreeSet<String> = received.iter().map(who).collect();
        assert_eq!(asked, ["/?who=carl", "/?who=dora"].map(str::to_owned).into());
    }

    /// L4: as in the document's example.
    async fn users_that_connect_are_told_of(context: TestContext) {
        let oracle = Oracle::start(|_| Answer::After(Duration::ZERO));
        let tests = worker(context.context()).await;
        let plan = add(&tests, &oracle.url(""), 5, "1s").await;
        let id = queue(&tests, plan, Wish::default()).await;
        reach(&tests, &id, State::Completed).await;
        let lines = list(&context, keys(&context).logs(&id)).await;
        let line = lines.iter().find(|line| line.contains("connected")).unwrap_or_else(|| panic!("{lines:?}"));
        let line: Line = serde_json::from_str(line).unwrap();
        assert_eq!((line.level, line.message.as_str()), (Level::Info, "User 1 connected successfully"));
        assert_eq!(line.user_id.as_deref(), Some("user_001"));
    }

    /// L9: losing the store in the middle of a run loses nothing of it.
    async fn a_run_survives_the_loss_of_the_store(context: TestContext) {
        let oracle = Oracle::start(|_| Answer::After(Duration::from_millis(1)));
        let tests = worker(context.context()).await;
        let plan = add(&tests, &oracle.url(""), 40, "3s").await;
        let id = queue(&tests, plan, Wish::default()).await;
        wait_for("requests", LIMIT, async || oracle.requests() > 20).await;
        context.test_store().flush_all().await;
        let ended = reach(&tests, &id, State::Completed).await;
        assert_eq!(ended.state, State::Completed, "{}", ended.message);
        let report = tests.report(&ended).await.unwrap().unwrap();
        assert_eq!((report.requests, oracle.requests()), (120, 120));
        wait_for("the end to be shown", LIMIT, async || {
            get::<Status>(&context, keys(&context).status(&id)).await.is_some_and(|status| status.status == "COMPLETED")
        }).await;
    }

    async fn runners_on_several_nodes_share_the_work_and_start_together(context: TestContext) {
        let oracle = Oracle::start(|_| Answer::After(Duration::from_millis(1)));
        let tests = worker(context.context()).await;
        let others = [context.another_node().await, context.another_node().await];
        let _others = [worker(&others[0]).await, worker(&others[1]).await];
        let plan = add(&tests, &oracle.url(""), 60, "3s").await;
        let id = queue(&tests, plan, Wish { runners: Some(3), ..Wish::default() }).await;
        let ended = reach(&tests, &id, State::Completed).await;
        assert_eq!(ended.state, State::Completed, "{}", ended.message);
        let runners = tests.runners(&ended).await.unwrap();
        assert_eq!(runners.iter().map(|runner| runner.number).collect::<BTreeSet<_>>(), [0, 1, 2].into());
        let report = tests.report(&ended).await.unwrap().unwrap();
        assert_eq!((report.requests, oracle.requests()), (180, 180));
        let seconds = tests.seconds(&ended, 0, usize::MAX).await.unwrap();
        assert!(seconds[0].requests() > 30, "all of them work from the first second on: {}", seconds[0].requests());
        others.iter().for_each(|context| context.tasks.stop_token().cancel());
    }

    /// At the target, the last request comes at most a second after a run was paused or cancelled. A machine that is
    /// busy with other things may take longer once, not each time.
    async fn traffic_stops_within_a_second(context: TestContext) {
        let oracle = Oracle::start(|_| Answer::After(Duration::from_millis(1)));
        let tests = worker(context.context()).await;
        let plan = add(&tests, &oracle.url(""), 100, "10m").await;
        let mut stopped = Vec::new();
        for _ in 0..3 {
            let id = queue(&tests, plan, Wish::default()).await;
            goes_on(&oracle).await;
            let asked = Instant::now();
            tests.pause(&id).await.unwrap();
            let paused = stops_after(&oracle, asked).await;
            assert_eq!(run(&tests, &id).await.state, State::Paused);
            tests.resume(&id).await.unwrap();
            goes_on(&oracle).await;
            let asked = Instant::now();
            tests.cancel(&id).await.unwrap();
            let cancelled = stops_after(&oracle, asked).await;
            assert_eq!(reach(&tests, &id, State::Cancelled).await.state, State::Cancelled);
            stopped.push((paused, cancelled));
            if paused.max(cancelled) <= Duration::from_secs(1) {
                return;
            }
        }
        panic!("after a pause and after a cancellation, each time: {stopped:?}");
    }

    async fn a_target_that_may_not_be_tested_is_refused(context: TestContext) {
        let tests = clerk(context.context()).await;
        let plan = add(&tests, "http://example.com", 1, "1s").await;
        let refused = tests.queue_run(plan, &Wish::default()).await.unwrap_err();
        assert!(refused.to_string().contains("example.com"), "{refused}");
    }
}
