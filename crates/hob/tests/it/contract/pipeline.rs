//! P1–P12: the keys of pipelines, as `redis-cli` or a dashboard reads them.

use std::collections::BTreeMap;
use std::time::Duration;

use hob_pipeline::fake_api::{FakeApi, FakeApiConfig, Fault};
use hob_testkit::{LIMIT, wait_for};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::{Deployment, Store, digits, matches_form, on_every_store};

/// An id like those of Airflow, with colons.
const RUN: &str = "manual_2024-09-17T14:30:00+00:00";
const STATE_KEY: &str = "courtlistener:pipeline:manual_2024-09-17T14:30:00+00:00";
const STATE_TTL: u64 = 90_000;
const COUNTER_TTL: u64 = 7_200;

/// The increment script of the document, without a change.
const INCREMENT: &str = "local key = KEYS[1]
local increment = tonumber(ARGV[1])
local limit = tonumber(ARGV[2])
local ttl = tonumber(ARGV[3])

local current = redis.call('GET', key) or 0
current = tonumber(current)

if current + increment <= limit then
    local new_count = redis.call('INCRBY', key, increment)
    redis.call('EXPIRE', key, ttl)
    return {new_count, 1}
else
    return {current, 0}
end";

/// The state update script of the document, without a change.
const UPDATE: &str = "local state_key = KEYS[1]
local field = ARGV[1]
local value = ARGV[2]
local ttl = tonumber(ARGV[3])

redis.call('HSET', state_key, field, value)
redis.call('EXPIRE', state_key, ttl)
return redis.call('HGETALL', state_key)";

/// A fake API on a runtime.
struct Api {
    api: FakeApi,
    runtime: Runtime,
}

impl Api {
    /// Two dockets with one entry each, in one page.
    fn start(latency: Duration) -> Self {
        let runtime = Runtime::new().expect("cannot start a runtime");
        let limits = vec![(1000, Duration::from_secs(60))];
        let config = FakeApiConfig { dockets: 2, entries: 1, page: 20, limits, token: None, latency };
        let api = runtime.block_on(FakeApi::start(config)).expect("cannot start the fake API");
        Self { api, runtime }
    }

    /// A plan that fetches dockets and their entries. The second docket fails once and for good.
    fn plan(&self) -> String {
        self.api.fail("/dockets/2/", Fault::Status(500));
        format!(
            r#"name = "dockets"
quota = {{ name = "courtlistener", windows = "1000/1h" }}
[source]
step = "docket"
pages = {{ url = "{0}/dockets/", items = "$.results[*]", key = "$.id", next = "$.next" }}
[step.docket]
get = "{0}/dockets/${{key}}/"
follow = [{{ step = "entry", items = "$.docket_entries[*]", key = "$.id" }}]
[step.entry]
get = "{0}/docket-entries/${{key}}/"
[retry]
server = {{ attempts = 1 }}
"#,
            self.api.url()
        )
    }

    /// Starts a run of the plan on a server.
    fn start_run(&self, deployment: &Deployment) {
        let plan = json!({ "source": self.plan() }).to_string();
        let saved = deployment.server.post("/api/v1/pipelines", &plan);
        assert_eq!(saved.status, 201, "{}", saved.body);
        let body = json!({ "id": RUN }).to_string();
        let started = deployment.server.post("/api/v1/pipelines/dockets/runs", &body);
        assert_eq!(started.status, 201, "{}", started.body);
    }

    fn wait_for<T>(&self, what: &str, check: impl Fn() -> Option<T>) -> T {
        self.runtime.block_on(wait_for(what, LIMIT * 2, async || check()))
    }

    /// Waits until the public state of the run has this status, and returns it.
    fn wait_for_status(&self, deployment: &Deployment, status: &str) -> BTreeMap<String, String> {
        self.wait_for(&format!("the status {status}"), || {
            let state = deployment.hash(STATE_KEY);
            (state.get("status").map(String::as_str) == Some(status)).then_some(state)
        })
    }
}

/// The keys with a prefix.
fn keys(deployment: &Deployment, prefix: &str) -> Vec<String> {
    let mut keys: Vec<String> = deployment.run(&["KEYS", &format!("{prefix}*")]);
    keys.sort();
    keys
}

/// The value of the counters of a family; the hour may change during a test.
#[track_caller]
fn counted(deployment: &Deployment, family: &str) -> u64 {
    let keys = keys(deployment, family);
    let mut sum = 0;
    for key in &keys {
        let hour = key.strip_prefix(family).expect("the prefix of the family");
        assert!(is_hour(hour), "{key}");
        deployment.assert_type(key, "string");
        deployment.assert_ttl(key, COUNTER_TTL);
        sum += digits(deployment.run::<Vec<u8>>(&["GET", key]));
    }
    assert!(!keys.is_empty() && keys.len() <= 2, "{keys:?}");
    sum
}

/// `YYYY-MM-DD_HH`
fn is_hour(text: &str) -> bool {
    matches_form(text, "0000-00-00_00")
}

/// `YYYY-MM-DDTHH:MM:SS.ffffff`, without an offset.
fn is_time(text: &str) -> bool {
    matches_form(text, "0000-00-00T00:00:00.000000")
}

fn reserve(deployment: &Deployment, calls: u32) -> Value {
    let body = json!({ "calls": calls }).to_string();
    let response = deployment.server.post("/api/v1/quota/courtlistener/reserve", &body);
    assert_eq!(response.status, 200, "{}", response.body);
    serde_json::from_str(&response.body).expect("JSON")
}

fn used(deployment: &Deployment) -> u64 {
    let quota: Value =
        serde_json::from_str(&deployment.server.get("/api/v1/quota/courtlistener").body).expect("JSON");
    quota["usage"][0]["used"].as_u64().expect("a number of calls")
}

/// P12: without Redis, no calls are granted and none are made. Runs continue when Redis is back.
#[test]
fn quota_grants_nothing_without_redis() {
    let deployment = Deployment::start(Store::Redis, "pipeline");
    let redis = deployment.redis.as_ref().expect("Redis runs");
    assert_eq!(reserve(&deployment, 1)["granted"], true);
    redis.kill();
    let refused = deployment.server.post("/api/v1/quota/courtlistener/reserve", "{}");
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert!(refused.head.contains("retry-after: "), "{}", refused.head);
    let api = Api::start(Duration::ZERO);
    api.start_run(&deployment);
    let get = |path: &str| serde_json::from_str::<Value>(&deployment.server.get(path).body).expect("JSON");
    api.wait_for("the health without Redis", || {
        let health = get("/api/v1/pipelines/health");
        let failures = health["consecutive_failures"].as_u64().filter(|failures| *failures > 0)?;
        (health["is_connection_healthy"] == false).then_some(failures)
    });
    assert_eq!(api.api.served(), 0);
    redis.restart();
    deployment.reconnect();
    let state = api.wait_for_status(&deployment, "completed");
    assert_eq!(state["dockets_processed"], "[\"1\"]");
    // A page, two dockets and an entry; each was counted before it was made.
    assert_eq!(api.api.served(), 4);
    assert!(counted(&deployment, "courtlistener:counter:") >= 4);
    assert_eq!(reserve(&deployment, 1)["granted"], true);
    assert_eq!(get("/api/v1/pipelines/health")["is_connection_healthy"], true);
}

on_every_store! {
    "pipeline";

    /// P1, P2, P6, P8: both counters have the calls of the hour, reserved ones included and released ones not, and the
    /// quota has the documented limit minus the buffer.
    fn counters_have_the_calls_of_the_hour(deployment: Deployment) {
        let first = reserve(&deployment, 3);
        let second = reserve(&deployment, 2);
        assert_eq!((&first["granted"], &second["granted"]), (&json!(true), &json!(true)));
        for family in ["courtlistener:rate_limit:", "courtlistener:counter:"] {
            assert_eq!(counted(&deployment, family), 5, "{family}");
        }
        let release = json!({ "id": second["id"] }).to_string();
        assert_eq!(deployment.server.post("/api/v1/quota/courtlistener/release", &release).status, 204);
        for family in ["courtlistener:rate_limit:", "courtlistener:counter:"] {
            assert_eq!(counted(&deployment, family), 3, "{family}");
        }
        let quota: Value = serde_json::from_str(&deployment.server.get("/api/v1/quota/courtlistener").body).expect("JSON");
        assert_eq!((&quota["windows"], &quota["buffer"]), (&json!("5000/1h"), &json!(25)), "{quota}");
        assert_eq!(quota["usage"][0]["usable"], 4975, "{quota}");
        deployment.assert_audit_is_clean();
    }

    /// P2: the documented script counts a call of another worker, and that call uses the quota.
    fn documented_increment_uses_the_quota(deployment: Deployment) {
        reserve(&deployment, 4970);
        let keys = keys(&deployment, "courtlistener:counter:");
        let key = keys.last().expect("a counter");
        let reply: (u64, u64) = deployment.run(&["EVAL", INCREMENT, "1", key, "5", "4975", "7200"]);
        assert_eq!(reply, (4975, 1));
        let reply: (u64, u64) = deployment.run(&["EVAL", INCREMENT, "1", key, "1", "4975", "7200"]);
        assert_eq!(reply, (4975, 0));
        let refused = reserve(&deployment, 1);
        assert_eq!(refused["granted"], false, "{refused}");
        assert_eq!(used(&deployment), 4975);
        for family in ["courtlistener:rate_limit:", "courtlistener:counter:"] {
            assert_eq!(counted(&deployment, family), 4975, "{family}");
        }
        deployment.assert_audit_is_clean();
    }

    /// P3, P4, P5, P6, P9: the state of a run, the start of a task and the list of failures, byte by byte.
    fn run_has_the_documented_keys(deployment: Deployment) {
        // Slow enough that a machine that stalls sees the start of a task.
        let api = Api::start(Duration::from_secs(4));
        api.start_run(&deployment);
        let task = format!("courtlistener:task_start:{RUN}:docket_1");
        let started = api.wait_for("the start of a task", || deployment.run::<Option<String>>(&["GET", &task]));
        assert!(is_time(&started), "{started}");
        let state = deployment.hash(STATE_KEY);
        assert_eq!(state["status"], "running");
        deployment.assert_ttl(STATE_KEY, STATE_TTL);

        let state = api.wait_for_status(&deployment, "completed");
        deployment.assert_type(STATE_KEY, "hash");
        deployment.assert_ttl(STATE_KEY, STATE_TTL);
        let fields: Vec<&str> = state.keys().map(String::as_str).collect();
        let documented = ["api_calls_this_hour", "current_hour", "dag_run_id", "dockets_processed"];
        let ours = ["items_done", "redis_keys", "start_time", "status", "version"];
        assert_eq!(fields, [&documented[..], &ours].concat());
        assert_eq!(state["dag_run_id"], RUN);
        assert!(is_time(&state["start_time"]), "{state:?}");
        assert!(is_hour(&state["current_hour"]), "{state:?}");
        // A page, two dockets and an entry; fewer if the hour has changed.
        assert!((1..=4).contains(&digits(&state["api_calls_this_hour"])), "{state:?}");
        // Neither the page nor the entry is a docket.
        assert_eq!(deployment.field(STATE_KEY, "dockets_processed").as_deref(), Some(&b"[\"1\"]"[..]));
        assert_eq!(deployment.field(STATE_KEY, "items_done").as_deref(), Some(&b"1"[..]));
        let redis_keys: BTreeMap<String, String> = serde_json::from_str(&state["redis_keys"]).expect("JSON");
        let hour = &state["current_hour"];
        let expected = [
            ("counter_key", format!("courtlistener:counter:{hour}")),
            ("failed_key", format!("courtlistener:failed:{hour}")),
            ("state_key", STATE_KEY.to_owned()),
        ];
        assert_eq!(redis_keys, expected.map(|(name, key)| (name.to_owned(), key)).into());
        assert!(!deployment.exists(&task), "the attempt has ended");

        let lists = keys(&deployment, "courtlistener:failed:");
        let [list] = &lists[..] else { panic!("{lists:?}") };
        assert!(is_hour(&list["courtlistener:failed:".len()..]), "{list}");
        deployment.assert_type(list, "list");
        deployment.assert_ttl(list, COUNTER_TTL);
        assert_eq!(deployment.run::<Vec<String>>(&["LRANGE", list, "0", "-1"]), ["2"]);
        deployment.assert_audit_is_clean();
    }

    /// P4: the key of a task has a type and a TTL while the task runs.
    fn task_start_expires(deployment: Deployment) {
        let api = Api::start(Duration::from_secs(15));
        api.start_run(&deployment);
        let prefix = format!("courtlistener:task_start:{RUN}:");
        let key = api.wait_for("the start of a task", || keys(&deployment, &prefix).first().cloned());
        deployment.assert_type(&key, "string");
        deployment.assert_ttl(&key, STATE_TTL);
    }

    /// P7: what another client writes to the state of a run that has ended does not stay, and does not prolong its life.
    fn ended_run_is_not_revived(deployment: Deployment) {
        let api = Api::start(Duration::ZERO);
        api.start_run(&deployment);
        let state = api.wait_for_status(&deployment, "completed");
        let reply: BTreeMap<String, String> =
            deployment.run(&["EVAL", UPDATE, "1", STATE_KEY, "status", "processing", "900000"]);
        assert_eq!((&*reply["status"], &reply["dag_run_id"]), ("processing", &state["dag_run_id"]));
        let restored = api.wait_for_status(&deployment, "completed");
        assert_eq!(restored, state);
        deployment.assert_ttl(STATE_KEY, STATE_TTL);

        // Not even with a later version.
        deployment.run::<u8>(&["HSET", STATE_KEY, "version", "999999999", "status", "running", "dockets_processed", "[]"]);
        assert_eq!(api.wait_for_status(&deployment, "completed"), state);
        deployment.run::<u8>(&["DEL", STATE_KEY]);
        assert_eq!(api.wait_for_status(&deployment, "completed"), state);
        deployment.assert_audit_is_clean();
    }

    /// P10, P11: the health of the connection, with the documented names.
    fn health_has_the_documented_names(deployment: Deployment) {
        reserve(&deployment, 1);
        let health: Value = serde_json::from_str(&deployment.server.get("/api/v1/pipelines/health").body).expect("JSON");
        assert_eq!(health["is_connection_healthy"], true, "{health}");
        for name in ["connection_attempts", "connection_failures", "consecutive_failures"] {
            assert!(health[name].is_u64(), "{name} in {health}");
        }
        assert_eq!(health["success_rate"], 1.0, "{health}");
        let metrics = deployment.server.get("/metrics").body;
        for name in ["hob_store_connection_attempts_total", "hob_store_operation_seconds"] {
            assert!(metrics.contains(name), "{name}");
        }
    }
}
