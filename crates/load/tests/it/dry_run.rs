//! Dry runs over the API: one user sends each request once, and nothing is stored.

use http::StatusCode;
use serde_json::{Value, json};

use crate::api::Site;
use hob_testkit::{HttpServer, Reply};

const PATH: &str = "/api/v1/load/plans/dry-run";

/// A server that answers with a token.
pub(crate) fn token_server() -> HttpServer {
    HttpServer::start(|_| {
        let body = r#"{"token": "abc"}"#;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        Reply::Raw(format!("{head}{body}").into_bytes())
    })
}

/// Two scenarios with think times; the second step uses a value of the first.
pub(crate) fn plan(url: &str, expected: &str) -> String {
    format!(
        r#"name = "Orders"
target = "{url}"
[[scenario]]
name = "shop"
load = {{ rate = 50, for = "1h" }}
think = "1m"
[[scenario.step]]
name = "login"
request = "POST /login?user=${{user}}"
expect = {{ status = 200, contains = "{expected}" }}
extract = {{ token = "json $.token" }}
[[scenario.step]]
name = "order"
request = "GET /orders/${{token}}"
[[scenario]]
name = "watch"
load = {{ users = 20, for = "1h" }}
[[scenario.step]]
name = "health"
request = "GET /health"
"#
    )
}

#[tokio::test]
async fn dry_run_sends_each_request_once_and_stores_nothing() {
    let (site, server) = (Site::open().await, token_server());
    let response = site.app.post(PATH, &json!({ "source": plan(&server.url(""), "token") })).await;
    assert_eq!(response.status, StatusCode::OK, "{}", response.text());
    let result: Value = response.json();
    let steps = result["steps"].as_array().unwrap();
    let names: Vec<&Value> = steps.iter().map(|step| &step["step"]).collect();
    assert_eq!(names, ["login", "order", "health"], "{result}");
    assert_eq!((&result["plan"], &result["skipped"]), (&json!("Orders"), &json!([])));
    let login = &steps[0];
    assert_eq!(login["url"], server.url("/login?user=0"));
    assert_eq!((&login["method"], &login["status"]), (&json!("POST"), &json!(200)));
    assert_eq!(login["failure"], Value::Null);
    let checks =
        json!([{ "check": "status 200", "passed": true }, { "check": "contains \"token\"", "passed": true }]);
    assert_eq!(login["checks"], checks);
    assert_eq!(login["values"], json!([{ "name": "token", "value": "abc" }]));
    assert_eq!(steps[1]["url"], server.url("/orders/abc"));
    assert_eq!(server.requests(), 3);
    for path in ["/api/v1/load/plans", "/api/v1/load/runs"] {
        let list: Value = site.app.get(path).await.json();
        assert_eq!(list["items"], json!([]), "{path}");
    }
}

#[tokio::test]
async fn failed_step_ends_its_scenario_and_shows_which_check_failed() {
    let (site, server) = (Site::open().await, token_server());
    let result: Value =
        site.app.post(PATH, &json!({ "source": plan(&server.url(""), "welcome") })).await.json();
    assert_eq!(result["steps"][0]["failure"], "expected contains \"welcome\"", "{result}");
    assert_eq!(result["steps"][0]["checks"][0]["passed"], true);
    assert_eq!(result["steps"][0]["checks"][1]["passed"], false);
    assert_eq!(result["skipped"], json!(["order"]));
    assert_eq!(result["steps"][1]["step"], "health");
    assert_eq!(server.requests(), 2);
}

#[tokio::test]
async fn dry_run_is_refused_like_a_run() {
    let (site, server) = (Site::open().await, token_server());
    let refused = async |body: Value| {
        let response = site.app.post(PATH, &body).await;
        assert_eq!(response.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", response.text());
        response.text()
    };
    let elsewhere = refused(json!({ "source": plan("http://shop.example", "token") })).await;
    assert!(elsewhere.contains("shop.example may not be tested"), "{elsewhere}");
    let invalid = refused(json!({ "source": "name = 1" })).await;
    assert!(invalid.contains("source:1:"), "{invalid}");
    let source = plan(&server.url(""), "token");
    let run_type = refused(json!({ "source": source, "run_type": "none" })).await;
    assert!(run_type.contains("run_type"), "{run_type}");
    assert_eq!(server.requests(), 0);
}
