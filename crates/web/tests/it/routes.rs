//! Routes, problems and pages.

use hob_fixtures::{Layout, Needs, TestApp, TestContext, every_service};
use hob_web::{Access, App, DataKind, Routes, Web};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::garden::{Garden, routes};

const NEEDS: Needs = Needs { schemas: &[], migrations: &[] };

async fn app(context: &TestContext) -> TestApp {
    TestApp::start(context, routes(Garden::default())).await
}

every_service! {
    NEEDS;

    async fn service_answers_through_the_real_server(context: TestContext) {
        let app = app(&context).await;
        let added = app.post("/api/v1/garden/gnomes", &json!({"name": "robin", "height_cm": 30})).await;
        assert_eq!(added.status, StatusCode::CREATED, "{}", added.text());
        let listed: Vec<Value> = app.get("/api/v1/garden/gnomes?min_height_cm=30").await.json();
        assert_eq!(listed, [json!({"name": "robin", "height_cm": 30})]);
        let page = app.get("/garden").await;
        assert!(page.text().contains("<li>robin</li>"), "{}", page.text());
        app.stop().await;
    }
}

#[tokio::test]
async fn problem_names_the_invalid_field() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let app = app(&context).await;
    let wrong = app.post("/api/v1/garden/gnomes", &json!({"name": "robin", "height_cm": -3})).await;
    assert_eq!(wrong.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(wrong.header("content-type"), "application/problem+json");
    let body: Value = wrong.json();
    assert_eq!(body["errors"][0]["field"], "height_cm", "{body}");
    assert_eq!(body["status"], 422);
    assert_eq!(body["instance"], wrong.header("x-request-id"));

    let query: Value = app.get("/api/v1/garden/gnomes?min_height_cm=tall").await.json();
    assert_eq!(query["errors"][0]["field"], "min_height_cm", "{query}");

    for (method, path, body, status) in [
        (Method::GET, "/api/v1/garden/gnomes/unknown", None, 404),
        (Method::GET, "/api/v1/nothing", None, 404),
        (Method::DELETE, "/api/v1/garden/gnomes", None, 405),
        (Method::POST, "/api/v1/garden/gnomes", Some(("text/plain", b"{}".to_vec())), 415),
        (Method::POST, "/api/v1/garden/gnomes", Some(("application/json", b"{".to_vec())), 400),
        (Method::POST, "/api/v1/garden/gnomes", Some(("application/json", vec![b' '; 2_000_000])), 413),
        (Method::GET, "/api/v1/garden/trip", None, 500),
    ] {
        let answer = app.request(method.clone(), path, body).await;
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
        assert_eq!(answer.header("content-type"), "application/problem+json", "{method} {path}");
        assert_eq!(answer.json::<Value>()["status"], status);
        let allowed = if status == 405 { "GET,HEAD,POST" } else { "" };
        assert_eq!(answer.header("allow"), allowed, "{method} {path}");
    }
}

#[tokio::test]
async fn problems_of_pages_are_pages() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let app = app(&context).await;
    let page = app.get("/garden/broken").await;
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(page.header("content-type").starts_with("text/html"));
    assert!(page.text().contains(page.header("x-request-id")));
    assert!(!page.text().contains("<b>not here"), "user input is escaped");
    assert!(app.get("/no/such/page").await.text().contains("<main"));
}

#[tokio::test]
async fn every_route_is_in_the_table_and_those_of_the_api_in_the_document() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let web = Web::open(&context, hob_service::Live::fixed(hob_web::Config::default())).unwrap();
    let app = App::new(&web, routes(Garden::default()), DataKind::Real);
    let in_garden = |entry: &&hob_web::RouteEntry| entry.path.contains("garden");
    let table: Vec<String> = app
        .entries()
        .iter()
        .filter(in_garden)
        .map(|entry| format!("{} {} {}", entry.method, entry.path, entry.access))
        .collect();
    assert_eq!(
        table,
        [
            "GET /api/v1/garden/gnomes garden:read",
            "POST /api/v1/garden/gnomes garden:write",
            "GET /api/v1/garden/gnomes/{name} garden:read",
            "GET /api/v1/garden/trip public",
            "GET /garden garden:read",
            "GET /garden/broken public",
            "GET /garden/hay public",
            "GET /garden/nap public",
            "POST /garden garden:write",
        ]
    );
    assert_eq!(app.undocumented(), []);
}

#[tokio::test]
async fn plain_text_errors_become_problems() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let teapot = async || (StatusCode::IM_A_TEAPOT, "short and stout");
    let routes = hob_web::Routes::new().page(hob_web::Access::Public, "/api/v1/teapot", teapot).page(
        hob_web::Access::Public,
        "/teapot",
        teapot,
    );
    let app = TestApp::start(&context, routes).await;
    let answer = app.get("/api/v1/teapot").await;
    assert_eq!(answer.status, StatusCode::IM_A_TEAPOT);
    assert_eq!(answer.json::<Value>()["detail"], "short and stout");
    let page = app.get("/teapot").await;
    assert_eq!(page.status, StatusCode::IM_A_TEAPOT);
    assert!(page.text().contains("short and stout"), "{}", page.text());
    assert!(page.header("content-type").starts_with("text/html"));
}

#[test]
#[should_panic(expected = "must be registered with `write`")]
fn change_cannot_be_registered_without_an_audit_entry() {
    let _ = Routes::<()>::new().api(Access::Public, utoipa_axum::routes!(unlogged_change));
}

#[utoipa::path(post, path = "/api/v1/garden/unlogged", responses((status = 204)))]
async fn unlogged_change() {}
