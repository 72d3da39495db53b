//! The HTTP API and the console pages.

use hob_fixtures::{TestApp, TestStore, every_service};
use hob_pipeline::fake_api::{FakeApi, FakeApiConfig};
use hob_pipeline::quota::{Limits, QuotaFeedback, ReserveDecision};
use hob_pipeline::run::RunState;
use hob_testkit::{LIMIT, TestDatabase, run, wait_for};
use hob_web::Service as _;
use http::Method;
use serde_json::{Value, json};

use crate::runs::{api_config, plan, wait_for_state};
use crate::support::{NEEDS, Node, TestEnv, new_reservation};

async fn app(node: &Node) -> TestApp {
    TestApp::start_with(node.web.clone(), node.pipelines.routes()).await
}

/// P8: a script, such as an Airflow task, uses the quota over HTTP.
#[test]
fn script_shares_the_quota() {
    run(async {
        let env = TestEnv::embedded().await;
        let node = env.node().await;
        let app = app(&node).await;
        let put = app.put("/api/v1/quota/api", &json!({ "windows": "3/1h", "buffer": 1 })).await;
        assert_eq!(put.status, 200, "{put:?}");
        let reserve = async || -> Value { app.post("/api/v1/quota/api/reserve", &json!({})).await.json() };
        let (first, second, third) = (reserve().await, reserve().await, reserve().await);
        assert_eq!(
            (&first["granted"], &second["granted"], &third["granted"]),
            (&json!(true), &json!(true), &json!(false))
        );
        // The window is full for an hour, but the script keeps its place by asking again.
        assert_eq!(third["wait_ms"], 2000, "{third}");
        let at: jiff::Timestamp = third["at"].as_str().unwrap().parse().unwrap();
        let wait = at.duration_since(jiff::Timestamp::now()).as_secs();
        assert!((3_500..=3_600).contains(&wait), "{third}");

        let done = app.post("/api/v1/quota/api/commit", &json!({ "id": first["id"] })).await;
        assert_eq!(done.status, 204);
        let released = app.post("/api/v1/quota/api/release", &json!({ "id": second["id"] })).await;
        assert_eq!(released.status, 204);
        let twice = app.post("/api/v1/quota/api/release", &json!({ "id": second["id"] })).await;
        assert_eq!(twice.status, 404);
        let quota: Value = app.get("/api/v1/quota/api").await.json();
        assert_eq!((&quota["usage"][0]["used"], &quota["usage"][0]["left"]), (&json!(1), &json!(1)));
        let all: Value = app.get("/api/v1/quota").await.json();
        assert_eq!(all[0]["name"], "api");
    });
}

/// P8: the example in docs/pipelines.md, with only the URL changed.
#[test]
fn documented_python_shares_the_quota() {
    const DOCUMENT: &str = include_str!("../../../../docs/pipelines.md");
    run(async {
        let env = TestEnv::embedded().await;
        let node = env.node().await;
        let app = app(&node).await;
        app.put("/api/v1/quota/courtlistener", &json!({ "windows": "2/1s, 100/1h" })).await;
        let start_run = DOCUMENT.find("```python\n").unwrap() + "```python\n".len();
        let example = &DOCUMENT[start_run..start_run + DOCUMENT[start_run..].find("```").unwrap()];
        let script = example.replace("http://127.0.0.1:7070", &app.url(""))
            + r#"
def refused():
    raise ConnectionRefusedError

print([call(lambda: n) for n in range(5)])
try:
    call(refused)
except ConnectionRefusedError:
    print("refused")
"#;
        let mut python = tokio::process::Command::new(hob_testkit::python());
        let output = python.args(["-c", &script]).kill_on_drop(true).output().await.unwrap();
        let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(out, "[0, 1, 2, 3, 4]\nrefused\n", "{error}");
        let quota: Value = app.get("/api/v1/quota/courtlistener").await.json();
        assert_eq!((&quota["in_flight"], &quota["usage"][1]["used"]), (&json!(0), &json!(5)), "{quota}");
    });
}

every_service! {
    NEEDS;

    /// P10, P11
    async fn health_has_the_documented_fields(context: TestContext) {
        let env = TestEnv::new(context);
        let node = env.node().await;
        let app = app(&node).await;
        let health: Value = app.get("/api/v1/pipelines/health").await.json();
        assert_eq!(health["is_connection_healthy"], true, "{health}");
        assert_eq!((&health["success_rate"], &health["consecutive_failures"]), (&json!(1.0), &json!(0)));
        app.put("/api/v1/quota/api", &json!({ "windows": "5/1m" })).await;
        let health: Value = app.get("/api/v1/pipelines/health").await.json();
        assert!(health["operations"]["peak"]["calls"].as_u64().unwrap() > 0, "{health}");
        assert!(health["operations"]["average_ms"].as_f64().unwrap() > 0.0, "{health}");
    }
}

/// P11, P12
#[test]
fn health_shows_a_lost_connection_and_its_recovery() {
    run(async {
        let env = TestEnv::over(TestStore::redis().await, TestDatabase::sqlite()).await;
        let node = env.node().await;
        let app = app(&node).await;
        let wait_for_health = async |healthy: bool| -> Value {
            wait_for(format!("is_connection_healthy to be {healthy}"), LIMIT, async || {
                let health: Value = app.get("/api/v1/pipelines/health").await.json();
                let failures = health["consecutive_failures"].as_u64().unwrap();
                (health["is_connection_healthy"] == healthy && (failures == 0) == healthy).then_some(health)
            })
            .await
        };
        let before = wait_for_health(true).await;
        env.redis().kill();
        let unhealthy = wait_for_health(false).await;
        assert!(unhealthy["connection_attempts"].as_u64() > before["connection_attempts"].as_u64());
        assert!(unhealthy["success_rate"].as_f64().unwrap() < 1.0, "{unhealthy}");
        env.redis().restart();
        wait_for_health(true).await;
    });
}

#[test]
fn invalid_requests_are_rejected_by_field() {
    run(async {
        let env = TestEnv::embedded().await;
        let node = env.node().await;
        let app = app(&node).await;
        let field = async |path: &str, body: Value| -> (u16, String) {
            let response = if path.ends_with("quota/api") {
                app.put(path, &body).await
            } else {
                app.post(path, &body).await
            };
            let problem: Value = response.json();
            (response.status.as_u16(), problem["errors"][0]["field"].as_str().unwrap_or_default().to_owned())
        };
        let named = |field: &str| (422, field.to_owned());
        assert_eq!(field("/api/v1/quota/api", json!({ "windows": "many" })).await, named("windows"));
        assert_eq!(
            field("/api/v1/quota/api", json!({ "windows": "5/1m", "buffer": 5 })).await,
            named("buffer")
        );
        app.put("/api/v1/quota/api", &json!({ "windows": "5/1m" })).await;
        assert_eq!(field("/api/v1/quota/api/reserve", json!({ "calls": 6 })).await, named("calls"));
        assert_eq!(field("/api/v1/quota/api/reserve", json!({ "hold_seconds": 9999 })).await, named("hold"));
        assert_eq!(field("/api/v1/pipelines", json!({ "source": "name = 1" })).await, named("name"));
        let plan = json!({ "plan": { "name": "x", "quota": { "name": "api" }, "source": { "step": "y", "list": [] } } });
        assert_eq!(field("/api/v1/pipelines", plan).await, named("source.step"));
        let secret = "name = \"x\"\nquota = { name = \"api\" }\nsource = { step = \"s\", list = [] }\n[step.s]\nget = \"http://h/${secret.t}\"";
        assert_eq!(field("/api/v1/pipelines", json!({ "source": secret })).await, named("step.s.get"));
        for path in ["/api/v1/quota/other", "/api/v1/quota/a%20b", "/api/v1/pipelines/runs/none"] {
            assert_eq!(app.get(path).await.status, 404, "{path}");
        }
    });
}

/// P3, P5, P11
#[test]
fn run_is_started_controlled_and_read() {
    run(async {
        let env = TestEnv::embedded().await;
        let server = FakeApi::start(FakeApiConfig { dockets: 4, entries: 0, ..api_config() }).await.unwrap();
        server.fail("/dockets/2/", hob_pipeline::fake_api::Fault::Status(403));
        let node = env.node().await;
        let app = app(&node).await;
        let toml = plan(&server);
        let dry: Value =
            app.post("/api/v1/pipelines", &json!({ "source": toml, "dry_run": true })).await.json();
        assert_eq!((&dry["kept"], &dry["items"]), (&json!(false), &json!(null)));
        assert_eq!(dry["following"], json!(["entry"]), "{dry}");
        assert_eq!(dry["preview"][0]["request"]["method"], "GET", "{dry}");
        assert_eq!(server.served(), 0, "a dry run makes no call");
        let listed: Value = app.get("/api/v1/pipelines").await.json();
        assert_eq!(listed, json!([]));
        assert_eq!(app.post("/api/v1/pipelines", &json!({ "source": toml })).await.status, 201);

        let id = "manual_2024-09-17T14:30:00+00:00";
        let path = "/api/v1/pipelines/runs/manual_2024-09-17T14%3A30%3A00%2B00%3A00";
        let started = app.post("/api/v1/pipelines/dockets/runs", &json!({ "id": id })).await;
        assert_eq!(started.status, 201, "{started:?}");
        let run = node.pipelines.run(&id.parse().unwrap()).await.unwrap();
        wait_for_state(&node.pipelines, &run, RunState::Completed).await;
        let shown: Value = app.get(path).await.json();
        assert_eq!((&shown["state"], &shown["items"]["quarantined"]), (&json!("completed"), &json!(1)));
        let file = "out/dockets-manual_2024-09-17T14%3A30%3A00%2B00%3A00.jsonl";
        assert_eq!(shown["outputs"][0], json!({ "sink": "dockets", "file": file, "rows": 3 }));
        assert!(node.folder().join(file).is_file());
        let failed: Value = app.get(&format!("{path}/failed")).await.json();
        assert_eq!(
            (&failed["items"][0]["key"], &failed["items"][0]["class"]),
            (&json!("2"), &json!("client"))
        );
        let items: Value = app.get(&format!("{path}/items?state=done&limit=2")).await.json();
        assert_eq!((items["items"].as_array().unwrap().len(), items["next"].is_string()), (2, true));
        let forecast: Value = app.get(&format!("{path}/forecast")).await.json();
        assert_eq!(forecast["calls_expected"], 0);
        assert_eq!(app.post(&format!("{path}/pause"), &json!({})).await.status, 409);
        let replayed: Value = app.post(&format!("{path}/replay"), &json!({ "class": "client" })).await.json();
        assert_eq!(replayed["items"], 1);
        wait_for_state(&node.pipelines, &run, RunState::Completed).await;
        let runs: Value = app.get("/api/v1/pipelines/runs").await.json();
        assert_eq!((&runs["items"][0]["id"], &runs["items"][0]["calls"]), (&json!(id), &json!(6)));
        assert_eq!(app.post(&format!("{path}/archive"), &json!({})).await.status, 200);
        // All members have defaults, so the body may be missing.
        let started = app.request(Method::POST, "/api/v1/pipelines/dockets/runs", None).await;
        assert_eq!(started.status, 201, "{started:?}");
        let other = ("text/plain", b"{}".to_vec());
        let refused = app.request(Method::POST, "/api/v1/pipelines/dockets/runs", Some(other)).await;
        assert_eq!(refused.status, 415, "{refused:?}");
        let id = started.json::<Value>()["id"].as_str().unwrap().to_owned();
        let again = node.pipelines.run(&id.parse().unwrap()).await.unwrap();
        wait_for_state(&node.pipelines, &again, RunState::Completed).await;
        let replay = format!("/api/v1/pipelines/runs/{id}/replay");
        assert_eq!(app.request(Method::POST, &replay, None).await.status, 200);

        for page in ["/pipelines", "/pipelines/runs/manual_2024-09-17T14%3A30%3A00%2B00%3A00"] {
            let response = app.get(page).await;
            assert_eq!(response.status, 200, "{page}: {response:?}");
        }
        let rejected = app.submit("/pipelines", &[("source", "name = 7")]).await;
        assert!(String::from_utf8_lossy(&rejected.body).contains("line 1"), "{rejected:?}");
    });
}

/// The figure and the sparkline count the same calls.
#[test]
fn card_shows_the_calls_of_all_quotas() {
    run(async {
        let env = TestEnv::embedded().await;
        let node = env.node().await;
        let quotas = node.pipelines.quotas();
        for (name, calls) in [("api", 2), ("other", 3)] {
            let name = name.parse().unwrap();
            quotas.define(&name, &Limits::parse("9/1h", 0).unwrap()).await.unwrap();
            for call in 0..calls {
                let decision =
                    quotas.reserve(&name, &new_reservation(&format!("{name}-{call}"))).await.unwrap();
                let ReserveDecision::Granted(reserve) = decision else { panic!("{decision:?}") };
                if call > 0 {
                    quotas.settle(&reserve, 1, QuotaFeedback::default()).await.unwrap();
                }
            }
        }
        let card = node.pipelines.card().await;
        assert_eq!(card.figures[0].value, hob_web::components::Quantity::count(5_u64));
        assert_eq!(card.spark.iter().flatten().sum::<f64>(), 5.0, "{:?}", card.spark);
        assert_eq!(card.spark.len(), 60, "including steps without calls");
    });
}

#[test]
fn card_is_bad_while_the_database_is_unavailable() {
    run(async {
        let env = TestEnv::embedded().await;
        let node = env.node().await;
        assert_eq!(node.pipelines.card().await.status, "no run");
        env.database.close().await;
        let card = node.pipelines.card().await;
        assert_eq!((card.tone, card.status.as_str()), (hob_web::components::Tone::Bad, "unknown"));
        assert_eq!(card.problems.len(), 1, "{card:?}");
    });
}

mod browser {
    use std::time::Duration;

    use hob_testkit::page::{check_pages, fill, find, press_labelled, text, wait_for_text};
    use hob_testkit::{Browser, Window};

    use super::*;

    #[test]
    fn run_is_started_paused_resumed_and_replayed() {
        run(async {
            let env = TestEnv::embedded().await;
            let api_config = FakeApiConfig {
                dockets: 60,
                entries: 0,
                // Slow enough that the run has not ended when a slow browser pauses it.
                latency: Duration::from_secs(1),
                ..api_config()
            };
            let server = FakeApi::start(api_config).await.unwrap();
            server.fail("/dockets/1/", hob_pipeline::fake_api::Fault::Status(403));
            let node = env.node().await;
            let app = app(&node).await;
            node.pipelines.put_plan(&plan(&server)).await.unwrap();
            let browser = Browser::start();
            let page = browser.open(Window::default()).await;
            page.goto(&app.url("/pipelines")).await.unwrap();
            press_labelled(&page, "Start run").await;
            wait_for_text(&page, "#main", "running").await;
            wait_for_text(&page, "#main", "docket").await;
            press_labelled(&page, "Pause").await;
            wait_for_text(&page, "#main", "paused").await;
            press_labelled(&page, "Resume").await;
            wait_for_text(&page, "#main", "completed").await;
            wait_for_text(&page, "#failures", "1 dead letters").await;
            press_labelled(&page, "Replay client").await;
            wait_for("all dead letters to be replayed", LIMIT, async || {
                !text(&page, "#main").await.contains("dead letters,")
            })
            .await;
            wait_for_text(&page, "#main", "completed").await;
            page.close().await.unwrap();
        });
    }

    /// A dry run shows the first requests without sending them, and keeps the text as unsaved.
    #[test]
    fn dry_run_shows_the_first_requests_and_makes_no_call() {
        run(async {
            let env = TestEnv::embedded().await;
            let server = FakeApi::start(api_config()).await.unwrap();
            let node = env.node().await;
            let app = app(&node).await;
            let source = plan(&server);
            let browser = Browser::start();
            let page = browser.open(Window::default()).await;
            page.goto(&app.url("/pipelines")).await.unwrap();
            fill(&page, "textarea[name=source]", &source).await;
            press_labelled(&page, "Dry run").await;
            wait_for_text(&page, "#dry-run", "No request was sent").await;
            wait_for_text(&page, "#dry-run pre", &format!("GET {}/dockets/", server.url())).await;
            assert_eq!(server.served(), 0);
            let unsaved = find(&page, "form[data-guard=unsaved] textarea").await;
            assert_eq!(unsaved.prop("value").await.unwrap(), Some(source.clone()));
            // An invalid plan keeps its text, too.
            fill(&page, "textarea[name=source]", &source.replace("${key}", "${kex}")).await;
            press_labelled(&page, "Dry run").await;
            wait_for_text(&page, "form.editor", "unknown variable").await;
            // A saved plan is opened in the editor.
            fill(&page, "textarea[name=source]", &source).await;
            press_labelled(&page, "Save").await;
            press_labelled(&page, "Edit").await;
            wait_for("the saved plan", LIMIT, async || {
                let field = find(&page, "textarea[name=source]").await;
                field.prop("value").await.unwrap() == Some(source.clone())
            })
            .await;
            page.close().await.unwrap();
        });
    }

    /// Long ids and errors wrap instead of making a table wider than its panel.
    #[test]
    fn tables_fit_a_window_of_1200_pixels() {
        const WIDER: &str = "return [...document.querySelectorAll('.table')]
            .filter(table => table.scrollWidth > table.clientWidth).map(table => table.innerText)";
        run(async {
            let env = TestEnv::embedded().await;
            let server = FakeApi::start(api_config()).await.unwrap();
            for id in [1, 2] {
                server.fail(&format!("/dockets/{id}/"), hob_pipeline::fake_api::Fault::Status(403));
            }
            let node = env.node().await;
            let app = app(&node).await;
            node.pipelines.put_plan(&plan(&server)).await.unwrap();
            let id = format!("scheduled__{}", "2026-11-16T00:00:00+00:00".repeat(3));
            let id = Some(id.parse().unwrap());
            let started = node.pipelines.start_run(&"dockets".parse().unwrap(), id).await.unwrap();
            wait_for_state(&node.pipelines, &started, RunState::Completed).await;
            let browser = Browser::start();
            let page = browser.open(Window { width: 1200, ..Window::default() }).await;
            let run: String = url::form_urlencoded::byte_serialize(started.id.as_str().as_bytes()).collect();
            for path in ["/pipelines".to_owned(), format!("/pipelines/runs/{run}")] {
                page.goto(&app.url(&path)).await.unwrap();
                wait_for_text(&page, "#main", "completed").await;
                let wider = page.execute(WIDER, Vec::new()).await.unwrap();
                assert_eq!(wider, json!([]), "{path}");
            }
            page.close().await.unwrap();
        });
    }

    #[test]
    fn pages_are_readable_wide_narrow_and_dark() {
        run(async {
            let env = TestEnv::embedded().await;
            let api_config =
                FakeApiConfig { dockets: 400, latency: Duration::from_millis(60), ..api_config() };
            let server = FakeApi::start(api_config).await.unwrap();
            for id in [1, 2, 3] {
                server.fail(&format!("/dockets/{id}/"), hob_pipeline::fake_api::Fault::Status(403));
            }
            let node = env.node().await;
            let app = app(&node).await;
            node.pipelines.put_plan(&plan(&server)).await.unwrap();
            let started = node.pipelines.start_run(&"dockets".parse().unwrap(), None).await.unwrap();
            wait_for("failures", LIMIT, async || {
                !node.pipelines.progress(&started.id).await.unwrap().failures.is_empty()
            })
            .await;
            let run = format!("/pipelines/runs/{}", started.id);
            let pages = [("pipelines", app.url("/pipelines")), ("pipeline-run", app.url(&run))];
            check_pages(&Browser::start(), &pages).await;
        });
    }
}
