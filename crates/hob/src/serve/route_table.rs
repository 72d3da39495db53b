//! Every route of the program with what it asks for, held to a page that is read by people: a route that nobody
//! listed fails, and so does one that lets in whom it should not.

use std::fmt::Write;
use std::net::SocketAddr;

use axum::http::Method;
use hob_service::config::SecretRef;
use hob_service::keys::Keys;
use hob_service::{Live, ServiceContext};
use hob_testkit::{Layout, Needs, TestApp, TestContext};
use hob_web::{Access, App, Config, Creation, Entry, NewToken, Routes, Scope, Scopes, Stage, Tokens, Web};
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio_util::sync::CancellationToken;

use crate::pages;
use crate::serve::http::{self, Parts, Place};
use crate::services::{self, Services};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/routes.md");

const HEAD: &str = "\
# Routes

Every route, and the scope that a token or a session needs for it. `public` needs none, `known` any. Made by
`UPDATE_DOCS=1 cargo test -p hob table`; what is not on this page fails the tests.

| method | path | scope |
|---|---|---|
";

fn needs() -> Needs {
    Needs { schemas: crate::schema::SERVICES, migrations: services::migrations().leak() }
}

/// All routes, as `hob serve` mounts them.
async fn routes(context: &ServiceContext, web: &Web) -> Routes {
    let services = Services::open(web, &crate::config::LiveServices::defaults(), &[], None).await.unwrap();
    let keys = Keys::from_env(context.layout, &|_| None).unwrap();
    let place = Place {
        listen: SocketAddr::from(([127, 0, 0, 1], 7070)),
        scheme: "http",
        embedded: None,
        store: String::new(),
        database: String::new(),
        services: Vec::new(),
    };
    let metrics = PrometheusBuilder::new().build_recorder().handle();
    let parts = Parts { context: context.clone(), engine: None, stopping: CancellationToken::new(), metrics };
    let pages = pages::around(&services, web, &keys, &place).unwrap();
    pages.merge(http::routes(parts))
}

fn scope(access: &Access) -> String {
    match access {
        Access::Public => "public".to_owned(),
        Access::Known => "known".to_owned(),
        Access::Scope(scope) => scope.to_string(),
    }
}

#[tokio::test]
async fn every_route_is_listed_with_what_it_asks_for() {
    let context = TestContext::embedded(needs(), Layout::Plain).await;
    let web = Web::open(&context, Live::fixed(Config::default())).unwrap();
    let routes = routes(&context, &web).await;
    assert_eq!(routes.clashes(), [] as [String; 0], "two schemas of the API document share a name");
    let app = App::new(&web, routes, Stage::Real);
    assert_eq!(app.undocumented(), [], "routes of the API that its document lacks");

    let mut entries: Vec<&Entry> = app.entries().iter().collect();
    entries.sort();
    let page = entries.iter().fold(HEAD.to_owned(), |mut page, entry| {
        let _ = writeln!(page, "| {} | `{}` | {} |", entry.method, entry.path, scope(&entry.access));
        page
    });
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(PAGE, &page).unwrap();
    }
    let kept = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert_eq!(kept, page, "docs/routes.md is stale: UPDATE_DOCS=1 cargo test -p hob table");
}

#[tokio::test]
async fn no_route_lets_in_whom_it_should_not() {
    let context = TestContext::embedded(needs(), Layout::Plain).await;
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&secret, "an admin token nobody guesses").unwrap();
    let config = Config { admin_token: Some(SecretRef::File(secret.path().into())), ..Config::default() };
    let listing = Web::open(&context, Live::fixed(config.clone())).unwrap();
    let routes = routes(&context, &listing).await;
    let entries = App::new(&listing, routes.clone(), Stage::Real).entries().to_vec();
    let mut app = TestApp::configured(&context, Live::fixed(config), |_| routes).await;
    app.use_header(axum::http::header::ACCEPT, "application/json");

    let guarded: Vec<&Entry> = entries.iter().filter(|entry| entry.access != Access::Public).collect();
    assert!(guarded.len() > 20, "{guarded:?}");
    for entry in &guarded {
        assert_eq!(ask(&app, entry).await, 401, "{entry:?} without a token");
    }
    let scopes = Scopes::new(vec![Scope::read("nothing")]).unwrap();
    let stranger = NewToken { name: "stranger".to_owned(), scopes, expires_at: None };
    let Creation::Created { text, .. } =
        Tokens::new(&context.database).create(&stranger, "test").await.unwrap()
    else {
        panic!("no token");
    };
    app.use_token(&text);
    for entry in guarded.iter().filter(|entry| matches!(entry.access, Access::Scope(_))) {
        assert_eq!(ask(&app, entry).await, 403, "{entry:?} with a token for something else");
    }
}

async fn ask(app: &TestApp, entry: &Entry) -> u16 {
    let path: Vec<&str> =
        entry.path.split('/').map(|part| if part.starts_with('{') { "1" } else { part }).collect();
    let method: Method = entry.method.parse().unwrap();
    app.ask(method, &path.join("/"), None).await.status.as_u16()
}
