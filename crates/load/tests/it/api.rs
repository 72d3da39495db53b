//! The API and the console pages over HTTP.

use hob_web::Service as _;
use std::time::Duration;

use futures_util::StreamExt;
use hob_database::sql;
use hob_fixtures::{TestApp, TestContext};
use hob_load::{Config, Keys, Load, LogLevel, LogLine, RunState};
use hob_service::{Live, Period};
use hob_store::cmd;
use hob_testkit::{HttpServer, LIMIT, Reply, wait_for};
use http::StatusCode;
use serde_json::{Value, json};
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use crate::kit::{NEEDS, plan, queue_node, worker_config};

pub(crate) struct Site {
    pub(crate) app: TestApp,
    load: Load,
    pub(crate) server: HttpServer,
    context: TestContext,
}

impl Site {
    pub(crate) async fn open() -> Self {
        Self::with(worker_config()).await
    }

    async fn with(config: Config) -> Self {
        let context = TestContext::embedded(NEEDS, hob_fixtures::Layout::Plain).await;
        let load = Load::open(context.context(), Live::fixed(config)).await.unwrap();
        let app = TestApp::start(context.context(), load.routes()).await;
        load.start(app.web().changes());
        let server = HttpServer::start(|n| {
            if n % 10 == 3 {
                Reply::Raw(b"HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n".to_vec())
            } else {
                Reply::After(Duration::from_millis(2))
            }
        });
        Self { app, load, server, context }
    }

    async fn add(&self, rate: u32, duration: &str) -> i64 {
        let source = plan(&self.server.url(""), rate, duration);
        let response = self.app.post("/api/v1/load/plans", &json!({ "source": source })).await;
        assert_eq!(response.status, StatusCode::CREATED, "{}", response.text());
        response.json::<Value>()["id"].as_i64().unwrap()
    }

    async fn run(&self, plan: i64) -> String {
        let response = self.app.post(&format!("/api/v1/load/plans/{plan}/runs"), &json!({})).await;
        assert_eq!(response.status, StatusCode::ACCEPTED, "{}", response.text());
        response.json::<Value>()["id"].as_str().unwrap().to_owned()
    }

    async fn state(&self, id: &str) -> String {
        let run: Value = self.app.get(&format!("/api/v1/load/runs/{id}")).await.json();
        run["state"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn wait_for(&self, id: &str, state: RunState) {
        wait_for(format!("{id} to be {state}"), LIMIT, async || {
            let found = self.state(id).await;
            if found == state.to_string() { Ok(()) } else { Err(found) }
        })
        .await;
    }
}

#[tokio::test]
async fn run_to_a_denied_address_is_refused() {
    let context = TestContext::embedded(NEEDS, hob_fixtures::Layout::Plain).await;
    let config = Config { hosts: vec!["169.254.169.254".to_owned()], ..Config::default() };
    let load = Load::open(context.context(), Live::fixed(config)).await.unwrap();
    let app = TestApp::start(context.context(), load.routes()).await;
    let source = plan("http://169.254.169.254", 30, "2s");
    let added: Value = app.post("/api/v1/load/plans", &json!({ "source": source })).await.json();
    let response = app.post(&format!("/api/v1/load/plans/{}/runs", added["id"]), &json!({})).await;
    assert_eq!(response.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", response.text());
    assert!(response.text().contains("link-local addresses are not allowed"), "{}", response.text());
}

#[tokio::test]
async fn plan_is_added_edited_run_and_reported() {
    let site = Site::open().await;
    let id = site.add(30, "2s").await;
    let path = format!("/api/v1/load/plans/{id}");
    let shown: Value = site.app.get(&path).await.json();
    assert_eq!((&shown["name"], &shown["version"]), (&json!("Site check"), &json!(1)));
    assert_eq!(shown["run_types"][0]["groups"][0]["steps"], json!(["home"]));
    let edited = plan(&site.server.url(""), 40, "2s");
    let response = site.app.put(&path, &json!({ "source": edited, "version": 1 })).await;
    assert_eq!((response.status, &response.json::<Value>()["version"]), (StatusCode::OK, &json!(2)));
    let response = site.app.put(&path, &json!({ "source": edited, "version": 1 })).await;
    assert_eq!(response.status, StatusCode::CONFLICT);

    let run = site.run(id).await;
    site.wait_for(&run, RunState::Completed).await;
    let report: Value = site.app.get(&format!("/api/v1/load/runs/{run}/report")).await.json();
    assert_eq!((&report["requests"], &report["failed"]), (&json!(80), &json!(8)));
    let timeline: Vec<Value> = site.app.get(&format!("/api/v1/load/runs/{run}/timeline?from=1")).await.json();
    assert_eq!(timeline[0]["second"], json!(1));
    let logs: Value = site.app.get(&format!("/api/v1/load/runs/{run}/logs?level=error")).await.json();
    assert_eq!(logs["lines"][0]["message"], json!("home: status 404"));
    let runs: Value = site.app.get(&format!("/api/v1/load/runs?plan={id}")).await.json();
    let listed = &runs["items"][0];
    assert_eq!((&listed["id"], &listed["plan_name"]), (&json!(run), &json!("Site check")));
    assert_eq!((&listed["figures"]["requests"], &listed["figures"]["failed"]), (&json!(80), &json!(8)));
    assert_eq!(
        (&listed["figures"]["rate"], &listed["figures"]["p95"]),
        (&report["rate"], &report["latency"]["p95"])
    );

    assert_eq!(site.app.delete(&path).await.status, StatusCode::NO_CONTENT);
    assert_eq!(site.app.get(&path).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn invalid_input_is_rejected_with_its_field() {
    let site = Site::open().await;
    let wrong = plan(&site.server.url(""), 30, "2s").replace("GET /", "FETCH /");
    let response = site.app.post("/api/v1/load/plans", &json!({ "source": wrong })).await;
    assert_eq!(response.status, StatusCode::UNPROCESSABLE_ENTITY);
    let field = response.json::<Value>()["errors"][0]["field"].as_str().unwrap().to_owned();
    assert_eq!(field, "source:13:1:scenario[0].step[0].request");
    let broken = json!({ "source": r#"{"a":[{"b":1,,}]}"#, "format": "json" });
    let response = site.app.post("/api/v1/load/plans", &broken).await;
    assert_eq!(response.status, StatusCode::UNPROCESSABLE_ENTITY);
    let error = response.json::<Value>()["errors"][0].clone();
    assert_eq!(error["field"], json!("source:1:14:a[0]"), "{error}");
    let forbidden = plan("http://example.com", 1, "1s");
    let response = site.app.post("/api/v1/load/plans", &json!({ "source": forbidden })).await;
    let id = response.json::<Value>()["id"].as_i64().unwrap();
    let response = site.app.post(&format!("/api/v1/load/plans/{id}/runs"), &json!({})).await;
    assert_eq!(response.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(response.text().contains("example.com"), "{}", response.text());
    let id = site.add(1, "1s").await;
    for body in [json!({ "run_type": "none" }), json!({ "runners": 65 }), json!({ "priority": 1001 })] {
        let response = site.app.post(&format!("/api/v1/load/plans/{id}/runs"), &body).await;
        assert_eq!(response.status, StatusCode::UNPROCESSABLE_ENTITY, "{body}");
    }
    for path in ["/api/v1/load/plans/99", "/api/v1/load/runs/none", "/api/v1/load/runs/none/report"] {
        assert_eq!(site.app.get(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn run_with_fewer_runners_than_requested_says_so() {
    let site = Site::with(Config { gather_timeout: Period::from_secs(1), ..worker_config() }).await;
    let plan = site.add(20, "1s").await;
    let queued = site.app.post(&format!("/api/v1/load/plans/{plan}/runs"), &json!({ "runners": 5 })).await;
    let run = queued.json::<Value>()["id"].as_str().unwrap().to_owned();
    site.wait_for(&run, RunState::Completed).await;
    let shown: Value = site.app.get(&format!("/api/v1/load/runs/{run}")).await.json();
    assert_eq!((&shown["runners"], &shown["runners_joined"]), (&json!(5), &json!(1)));
    let report: Value = site.app.get(&format!("/api/v1/load/runs/{run}/report")).await.json();
    assert_eq!(report["runners"], json!({ "requested": 5, "joined": 1 }));
    let logs = site.app.get(&format!("/api/v1/load/runs/{run}/logs")).await.text();
    let page = site.app.get(&format!("/load/runs/{run}")).await.text();
    let words = "Only 1 of the 5 requested runners joined in time";
    assert!(logs.contains(words) && page.contains(words) && page.contains("1 of 5"), "{logs}\n{page}");
}

#[tokio::test]
async fn links_to_runs_of_other_clients_are_encoded() {
    let context = TestContext::embedded(NEEDS, hob_fixtures::Layout::Plain).await;
    let load = queue_node(context.context()).await;
    let app = TestApp::start(context.context(), load.routes()).await;
    let source = plan("http://127.0.0.1:1", 1, "1s");
    let added: Value = app.post("/api/v1/load/plans", &json!({ "source": source })).await.json();
    let entry = json!({ "testId": "a/b#c&d", "planId": added["id"], "maxUsers": 1, "priority": 0 });
    let key = Keys::new(context.layout).pending();
    let push = cmd("RPUSH").arg(&key).arg(entry.to_string()).clone();
    context.test_store().as_outsider(push).await;
    load.maintain_once(1).await.unwrap();
    let path = "/load/runs/a%2Fb%23c%26d";
    let page = app.get("/load").await.text();
    assert_eq!(page.matches(&format!("href=\"{path}\"")).count(), 2, "in the queue and in the list: {page}");
    let page = app.get(path).await;
    assert!(
        page.status == StatusCode::OK && page.text().contains(&format!("{path}/cancel")),
        "{}",
        page.text()
    );
    let cancelled = app.submit(&format!("{path}/cancel"), &[]).await;
    assert_eq!(cancelled.header("location"), path, "{}", cancelled.text());
}

#[tokio::test]
async fn run_is_paused_resumed_and_cancelled() {
    let site = Site::open().await;
    let run = site.run(site.add(50, "10m").await).await;
    site.wait_for(&run, RunState::Running).await;
    let act = async |action: &str| {
        site.app.post(&format!("/api/v1/load/runs/{run}/{action}"), &json!({})).await.status
    };
    assert_eq!(act("pause").await, StatusCode::OK);
    assert_eq!(act("pause").await, StatusCode::CONFLICT);
    assert_eq!(act("resume").await, StatusCode::OK);
    assert_eq!(act("cancel").await, StatusCode::OK);
    site.wait_for(&run, RunState::Cancelled).await;
    assert_eq!(act("cancel").await, StatusCode::CONFLICT);
}

/// L6 L8
#[tokio::test]
async fn reconnected_client_catches_up_by_number() {
    let site = Site::open().await;
    let run = site.run(site.add(30, "4s").await).await;
    let url = |after: u64| format!("ws://{}/api/v1/load/runs/{run}/live?after={after}", site.app.address());
    let (mut socket, _) = connect_async(url(0)).await.unwrap();
    let next = async |socket: &mut tokio_tungstenite::WebSocketStream<_>| -> Option<Value> {
        loop {
            match tokio::time::timeout(LIMIT, socket.next()).await.expect("timeout waiting for a frame") {
                Some(Ok(Message::Text(text))) => return serde_json::from_str(&text).ok(),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                _ => return None,
            }
        }
    };
    let first = loop {
        let frame = next(&mut socket).await.unwrap();
        if frame["kind"] == "second" {
            break frame;
        }
    };
    assert_eq!(first["data"]["second"], json!(0));
    drop(socket);
    site.wait_for(&run, RunState::Completed).await;
    let (mut socket, _) = connect_async(url(first["seq"].as_u64().unwrap())).await.unwrap();
    let mut seconds = Vec::new();
    let status = loop {
        let mut frame = next(&mut socket).await.unwrap();
        match frame["kind"].as_str().unwrap() {
            "second" => seconds.push(frame["data"]["second"].as_u64().unwrap()),
            "status" => break frame["data"].take(),
            other => panic!("{other}: {frame}"),
        }
    };
    assert!(seconds.len() >= 3 && seconds[0] == 1, "{seconds:?}");
    assert!(seconds.windows(2).all(|pair| pair[1] == pair[0] + 1), "{seconds:?}");
    assert_eq!((&status["state"], &status["progress"]), (&json!("completed"), &json!(100.0)));
    wait_for("no active run", LIMIT, async || site.load.views().active().await.unwrap().is_empty()).await;
    // The connection of a run that ended long ago is closed.
    let update = sql("UPDATE load_run SET ended_at = ended_at - 600000 WHERE id = $1").bind(run.as_str());
    site.context.database.execute(update).await.unwrap();
    let (mut socket, _) = connect_async(url(0)).await.unwrap();
    let mut last = Value::Null;
    while let Some(frame) = next(&mut socket).await {
        last = frame;
    }
    assert_eq!(last["data"]["state"], "completed");
}

/// The fields of the API and of live frames are in snake case, and the values of states in lower case.
#[tokio::test]
async fn api_has_one_style() {
    let site = Site::open().await;
    let plan = site.add(30, "1s").await;
    let run = site.run(plan).await;
    let url = format!("ws://{}/api/v1/load/runs/{run}/live", site.app.address());
    let (mut socket, _) = connect_async(url).await.unwrap();
    let mut shown = Vec::new();
    while shown.last().is_none_or(|frame: &Value| frame["data"]["state"] != "completed") {
        let frame = tokio::time::timeout(LIMIT, socket.next()).await.expect("timeout waiting for a frame");
        if let Message::Text(text) = frame.unwrap().unwrap() {
            shown.push(serde_json::from_str(&text).unwrap());
        }
    }
    assert!(shown.iter().any(|frame| frame["kind"] == "second" && frame["data"]["total_succeeded"].is_u64()));
    let line = LogLine::new(1_706_430_000_000, LogLevel::Warn, "slow");
    let line = LogLine { user_id: Some("user_001".into()), ..line };
    site.load.logs().write(&run.parse().unwrap(), &[line]).await.unwrap();
    for path in ["", "/timeline", "/logs", "/report"] {
        shown.push(site.app.get(&format!("/api/v1/load/runs/{run}{path}")).await.json());
    }
    for path in ["plans".to_owned(), format!("plans/{plan}"), "runs".to_owned()] {
        shown.push(site.app.get(&format!("/api/v1/load/{path}")).await.json());
    }
    let lines = shown[shown.len() - 5]["lines"].as_array().unwrap().clone();
    let written = json!({"timestamp": 1_706_430_000_000_i64, "level": "warn", "message": "slow", "user_id": "user_001"});
    assert!(lines.contains(&written), "{lines:?}");
    shown.iter().for_each(assert_style);
}

fn assert_style(value: &Value) {
    match value {
        Value::Array(items) => items.iter().for_each(assert_style),
        Value::Object(fields) => {
            for (name, value) in fields {
                let snake = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
                assert!(name.bytes().all(snake), "{name}");
                if let ("state" | "status" | "level" | "kind" | "format", Some(text)) =
                    (name.as_str(), value.as_str())
                {
                    assert_eq!(text, text.to_lowercase(), "{name}");
                }
                assert_style(value);
            }
        }
        _ => {}
    }
}

#[tokio::test]
async fn live_connection_ends_when_its_token_is_revoked() {
    let site = Site::open().await;
    let run = site.run(site.add(10, "10m").await).await;
    site.wait_for(&run, RunState::Running).await;
    let request = json!({"name": "viewer", "scopes": ["load:read"]});
    let created: Value = site.app.post("/api/v1/tokens", &request).await.json();
    let url = format!("ws://{}/api/v1/load/runs/{run}/live", site.app.address());
    let mut upgrade = url.into_client_request().unwrap();
    let bearer = format!("Bearer {}", created["secret"].as_str().unwrap());
    upgrade.headers_mut().insert("authorization", bearer.parse().unwrap());
    let (mut socket, _) = connect_async(upgrade).await.unwrap();
    let revoke = format!("/api/v1/tokens/{}", created["token"]["id"].as_str().unwrap());
    assert_eq!(site.app.delete(&revoke).await.status, StatusCode::NO_CONTENT);
    let ended = async { while let Some(Ok(Message::Text(_) | Message::Ping(_))) = socket.next().await {} };
    tokio::time::timeout(LIMIT, ended).await.expect("the connection ends in time");
    assert_eq!(site.state(&run).await, RunState::Running.to_string(), "the run continues");
}

#[tokio::test]
async fn pages_work_without_scripts() {
    let site = Site::open().await;
    let source = plan(&site.server.url(""), 20, "2s");
    let response = site.app.submit("/load/plans", &[("source", "name = 1"), ("format", "toml")]).await;
    assert!(response.text().contains("line 1"), "{}", response.text());
    let response = site.app.submit("/load/plans", &[("source", &source), ("format", "toml")]).await;
    assert_eq!(response.header("location"), "/load/plans/1", "{}", response.text());
    let request = [("run_type", "smoke"), ("priority", "1"), ("runners", "1"), ("max_users", "")];
    let mut runs = Vec::new();
    for _ in 0..2 {
        let response = site.app.submit("/load/plans/1/runs", &request).await;
        let page = response.header("location").to_owned();
        let id = page.rsplit('/').next().unwrap().to_owned();
        site.wait_for(&id, RunState::Completed).await;
        let text = site.app.get(&page).await.text();
        for words in ["completed", "Requests per second", "home", "error_rate &lt; 50%", "status 404"] {
            assert!(
                text.contains(words) || text.contains(&words.replace("&lt;", "&#60;")),
                "{words} is not in {text}"
            );
        }
        runs.push(id);
    }
    let text = site.app.get("/load").await.text();
    assert!(text.contains(&runs[0]) && text.contains("Site check"));
    for words in ["<th class=\"num\">p95</th>", "<td class=\"num\">40</td>", "10\u{a0}%"] {
        assert!(text.contains(words), "{words} is not in {text}");
    }
    let text = site.app.get("/load/plans/1").await.text();
    assert!(text.contains(&runs[1]) && text.contains("GET /?who="));
    let filed =
        source.replace("users = [{ login = \"ann\" }, { login = \"bob\" }]", "csv_file = \"users.csv\"");
    let draft = [("source", filed.as_str()), ("format", "toml"), ("version", "1")];
    let response = site.app.submit("/load/plans/1", &draft).await;
    assert!(
        response.text().contains("no file") && response.text().contains("users.csv"),
        "{}",
        response.text()
    );
    let draft = [&draft[..], &[("file_name", "users.csv"), ("file", "login\r\ncarl\r\n")]].concat();
    let response = site.app.submit("/load/plans/1", &draft).await;
    assert_eq!(response.header("location"), "/load/plans/1", "{}", response.text());
    assert!(site.app.get("/load/plans/1").await.text().contains("users.csv (13 bytes)"));
    let plan: Value = site.app.get("/api/v1/load/plans/1").await.json();
    assert_eq!((&plan["version"], &plan["files"]["users.csv"]), (&json!(2), &json!("login\r\ncarl\r\n")));
    let text = site.app.get(&format!("/load/compare?a={}&b={}", runs[0], runs[1])).await.text();
    for words in
        ["p99.9", ">All steps</th>", ">home</th>", "p95 from the intended start", ">A<", ">B<", "0:01"]
    {
        assert!(text.contains(words), "{words} is not in {text}");
    }
    let text = site.app.get(&format!("/load/compare?b={}", runs[1])).await.text();
    assert!(text.contains("name=\"a\"") && text.contains(&runs[0]) && !text.contains("All steps"), "{text}");
    let file = site.app.get(&format!("/load/runs/{}/report.html", runs[0])).await;
    assert!(
        file.text().starts_with("<!doctype html>") && !file.text().contains("href=\"/"),
        "the file is self-contained"
    );
}
