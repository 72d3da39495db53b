//! The API and the pages through the real router, and the tower layer.

use hob_fixtures::{TestApp, every_service};
use hob_testkit::{LIMIT, wait_for};
use hob_web::Service as _;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::kit::{NEEDS, TestInstance};

const RULES: &str = "[[rules]]\nname = \"calls\"\nwindows = \"3/1h\"\napplies_to = \"checks\"\n\
                     [[rules]]\nname = \"trial\"\nwindows = \"1/1h\"\nshadow = true\napplies_to = \"checks\"\n";

every_service! {
    NEEDS;

    async fn limits_are_checked_over_the_api(context: TestContext) {
        let instance = TestInstance::start(&context, RULES).await;
        let app = TestApp::start(&context, instance.gateway.routes()).await;
        let check = async |rule: &str, cost: u32| {
            let check = json!({ "rule": rule, "key": "user:123", "cost": cost });
            app.post("/api/v1/limits/check", &check).await.json::<Value>()
        };
        let first = check("calls", 2).await;
        assert_eq!((&first["allowed"], &first["limit"], &first["remaining"]), (&json!(true), &json!(3), &json!(1)));
        assert_eq!(first["headers"]["RateLimit-Policy"], "\"calls\";q=3;w=3600");
        let refused = check("calls", 2).await;
        assert_eq!((&refused["allowed"], &refused["remaining"]), (&json!(false), &json!(1)));
        assert!(refused["retry_after_ms"].as_u64().is_some_and(|ms| (1..=3_600_000).contains(&ms)));
        assert!(refused["headers"]["Retry-After"].as_str().is_some());
        // A cost of 0 counts nothing.
        assert_eq!(check("calls", 0).await["remaining"], 1);
        check("trial", 1).await;
        let shadowed = check("trial", 1).await;
        assert_eq!((&shadowed["allowed"], &shadowed["shadow"]), (&json!(true), &json!(false)));

        let check = json!({ "rule": "calls", "key": "user:456" });
        let batch = app.post("/api/v1/limits/check/batch", &json!({ "checks": vec![check; 4] })).await.json::<Value>();
        let allowed = batch["results"].as_array().unwrap().iter().filter(|result| result["allowed"] == true).count();
        assert_eq!(allowed, 3);

        // A batch with an invalid check counts nothing.
        let check = |rule: &str| json!({ "rule": rule, "key": "user:789", "cost": 2 });
        let mixed = json!({ "checks": [check("calls"), check("none")] });
        let mixed = app.post("/api/v1/limits/check/batch", &mixed).await;
        assert_eq!(mixed.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(mixed.json::<Value>()["errors"][0]["field"], "checks[1].rule");
        let after = app.post("/api/v1/limits/check", &check("calls")).await.json::<Value>();
        assert_eq!((&after["allowed"], &after["remaining"]), (&json!(true), &json!(1)));
    }

    /// G19, over HTTP and on the pages.
    async fn statistics_are_shown_on_api_and_pages(context: TestContext) {
        let instance = TestInstance::start(&context, "instance = \"gw-1\"\n[[rules]]\nname = \"few\"\nwindows = \"2/1h\"\n").await;
        let app = TestApp::start(&context, instance.gateway.routes()).await;
        for status in [200, 500, 200, 200] {
            instance.request(Method::GET, "/api/users", status).await;
        }
        let get = async |path: &str| app.get(path).await.json::<Value>();
        let summary = wait_for("the requests to be counted", LIMIT, async || {
            let summary = get("/api/v1/gateway/summary").await;
            (summary["total"] == 4).then_some(summary)
        })
        .await;
        assert_eq!((&summary["accepted"], &summary["limited"], &summary["errors"]), (&json!(2), &json!(2), &json!(3)));
        let endpoints = get("/api/v1/gateway/endpoints").await;
        assert_eq!((&endpoints[0]["endpoint"], &endpoints[0]["requests"]), (&json!("GET /api/users"), &json!(4)));
        assert_eq!(endpoints[0]["limited"], 2);
        assert_eq!((&endpoints[0]["server_errors"], &endpoints[0]["client_errors"]), (&json!(1), &json!(0)));
        assert_eq!((&summary["server_errors"], &summary["client_errors"]), (&json!(1), &json!(0)));
        let errors = get("/api/v1/gateway/errors").await;
        assert_eq!((&errors["server"], &errors["client"]), (&json!(1), &json!(0)));
        assert_eq!(errors["by_status"], json!([{ "status": 429, "count": 2 }, { "status": 500, "count": 1 }]));
        assert_eq!(get("/api/v1/gateway/instances").await[0]["id"], "gw-1");
        assert_eq!(get("/api/v1/gateway/hourly").await.as_array().unwrap().len(), 24);
        let latency = get("/api/v1/gateway/latency?endpoint=GET%20/api/users&minutes=5").await;
        assert_eq!(latency["overall"]["count"], 2);
        assert!(latency["overall"]["p99"].as_f64().is_some_and(|ms| ms >= 0.0));

        let page = app.get("/gateway?sort=server_errors&q=users").await;
        assert_eq!(page.status, StatusCode::OK);
        for part in ["GET /api/users", "gw-1", "<svg", "data-live=\"gateway\"", "429"] {
            assert!(page.text().contains(part), "{part}");
        }
        assert!(!app.get("/gateway?q=nothing").await.text().contains("GET /api/users"));
        wait_for("the rule on its page", LIMIT, async || {
            let page = app.get("/gateway/limits").await.text();
            page.contains("few") && page.contains("203.0.113.7")
        })
        .await;
    }
}

/// An error names the invalid field.
#[tokio::test]
async fn invalid_input_is_refused_with_its_field() {
    let context = hob_fixtures::TestContext::embedded(NEEDS, hob_fixtures::Layout::Plain).await;
    let instance = TestInstance::start(&context, RULES).await;
    let app = TestApp::start(&context, instance.gateway.routes()).await;
    for (body, field) in [
        (json!({ "rule": "none", "key": "a" }), "rule"),
        (json!({ "rule": "calls", "key": "" }), "key"),
        (json!({ "rule": "calls", "key": "x".repeat(257) }), "key"),
        (json!({ "rule": "calls", "key": "a", "cost": 4 }), "cost"),
        (json!({ "rule": "calls", "key": "a", "cost": -1 }), "cost"),
    ] {
        let answer = app.post("/api/v1/limits/check", &body).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{body}");
        assert_eq!(answer.json::<Value>()["errors"][0]["field"], field, "{body}");
    }
    let many = json!({ "checks": vec![json!({ "rule": "calls", "key": "a" }); 101] });
    assert_eq!(app.post("/api/v1/limits/check/batch", &many).await.status, StatusCode::UNPROCESSABLE_ENTITY);
    for path in ["latency?minutes=0", "latency?minutes=1441", "latency?endpoint=nonsense%20"] {
        let answer = app.get(&format!("/api/v1/gateway/{path}")).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{path}");
    }
}

/// Paths from clients are escaped on pages.
#[tokio::test]
async fn paths_are_escaped_on_pages() {
    let context = hob_fixtures::TestContext::embedded(NEEDS, hob_fixtures::Layout::Plain).await;
    let instance = TestInstance::start(&context, "").await;
    let app = TestApp::start(&context, instance.gateway.routes()).await;
    instance.request(Method::GET, "/<script>alert(1)</script>", 200).await;
    let page = wait_for("the path on the page", LIMIT, async || {
        let page = app.get("/gateway?q=alert").await.text();
        page.contains("alert(1)").then_some(page)
    })
    .await;
    assert!(!page.contains("<script>alert"));
}

/// The layer limits and counts as the proxy does.
#[tokio::test]
async fn layer_limits_and_counts_a_rust_service() {
    let context = hob_fixtures::TestContext::embedded(NEEDS, hob_fixtures::Layout::Plain).await;
    let instance = TestInstance::start(
        &context,
        "count_loopback = true\n[[rules]]\nname = \"two\"\nwindows = \"2/1h\"\n",
    )
    .await;
    let service = axum::Router::new()
        .route("/", axum::routing::get(async || "hello"))
        .layer(instance.gateway.layer())
        .into_make_service_with_connect_info::<std::net::SocketAddr>();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, service).await });
    let executor = hyper_util::rt::TokioExecutor::new();
    let client: hyper_util::client::legacy::Client<_, http_body_util::Empty<bytes::Bytes>> =
        hyper_util::client::legacy::Client::builder(executor).build_http();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let response = client.get(format!("http://{address}/").parse().unwrap()).await.unwrap();
        assert!(response.headers().contains_key("ratelimit"));
        seen.push(response.status().as_u16());
    }
    assert_eq!(seen, [200, 200, 429]);
    wait_for("the requests to be counted", LIMIT, async || {
        let summary = instance.gateway.statistics().summary().await.unwrap();
        (summary.total, summary.limited) == (3, 1)
    })
    .await;
}
