//! Tests that GET and HEAD change nothing. Any page on the web can send them, with the cookie of the visitor.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::{Method, StatusCode};
use hob_database::{Database, Query, Read as _, sql};
use hob_fixtures::{Layout, TestApp, TestContext};
use hob_service::Live;
use hob_store::{Store, cmd};
use hob_web::{AnyService, App, Config, DataKind, RouteEntry, Web};
use serde_json::{Value, json};

use super::route_table::{needs, routes_of};
use crate::config::LiveServices;
use crate::services::{ALL, Services};

/// GET routes that change something. The token in the path protects them: it is the secret that a page of another site
/// does not have. They accept GET because a job calls them with any tool, such as `curl` or `wget` without options.
const CHANGING: &[&str] = &["/heartbeat/{token}", "/heartbeat/{token}/fail", "/heartbeat/{token}/start"];

/// Streams, which do not end.
const STREAMS: &[&str] = &["/live", "/api/v1/chat/events", "/connection/sse"];

/// Answered with an error here, and why.
const NOT_FOUND_HERE: &[(&str, &str)] = &[
    ("/api/v1/chat/users/{id}/deletion", "no deletion was requested"),
    ("/connection/websocket", "without an upgrade"),
    ("/api/v1/load/runs/{id}/live", "without an upgrade"),
    ("/api/v1/load/runs/{id}/report", "the run has not ended"),
    ("/load/runs/{id}/report.html", "the run has not ended"),
    ("/sign-in/oidc", "no provider is configured"),
    ("/sign-in/oidc/callback", "no provider is configured; with one, it requires the state of a sign-in"),
];

/// Keys that a read may write: the cache of the latest messages, filled from the database. It decides nothing.
const CACHES: &[&str] = &["messages:", "chat:recent_range:"];

/// A field that a read may write: the latest time that a script has seen, so that its clock never runs backwards.
const CLOCK_FIELD: &str = "seen_ms";

/// Everything in the database and the store.
#[derive(Debug, PartialEq)]
struct Contents {
    rows: BTreeMap<String, Vec<String>>,
    keys: BTreeMap<String, String>,
}

impl Contents {
    async fn of(context: &TestContext) -> Self {
        Self { rows: rows(&context.database).await, keys: keys(&context.store).await }
    }

    /// The tables and keys that differ.
    fn differences(&self, other: &Self) -> Vec<String> {
        let rows = differing(&self.rows, &other.rows);
        rows.chain(differing(&self.keys, &other.keys)).collect()
    }
}

fn differing<'a, V: PartialEq + std::fmt::Debug>(
    one: &'a BTreeMap<String, V>,
    other: &'a BTreeMap<String, V>,
) -> impl Iterator<Item = String> + 'a {
    let mut names: Vec<&String> = one.keys().chain(other.keys()).collect();
    names.sort();
    names.dedup();
    let differs = |name: &&String| one.get(*name) != other.get(*name);
    names
        .into_iter()
        .filter(differs)
        .map(|name| format!("{name}: {:?} is now {:?}", one.get(name), other.get(name)))
}

/// The rows of every table, as text.
async fn rows(database: &Database) -> BTreeMap<String, Vec<String>> {
    let tables: Query<(String,)> =
        sql("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'");
    let mut all = BTreeMap::new();
    for (table,) in database.all(tables).await.unwrap() {
        let columns: Query<(String,)> = sql("SELECT name FROM pragma_table_info($1)");
        let columns = database.all(columns.bind(&table)).await.unwrap();
        let texts: Vec<String> = columns.iter().map(|(name,)| format!("quote(\"{name}\")")).collect();
        let select = format!("SELECT {} FROM \"{table}\" ORDER BY 1", texts.join(" || ', ' || "));
        // SQL is a literal of the program, and this is a test.
        let rows: Query<(String,)> = sql(&*select.leak());
        all.insert(table, database.all(rows).await.unwrap().into_iter().map(|(row,)| row).collect());
    }
    all
}

/// The type, value and expiry of every key.
async fn keys(store: &Store) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let names: Vec<String> = store.run(cmd("KEYS").arg("*").take()).await.unwrap();
    for key in names.into_iter().filter(|key| !CACHES.iter().any(|cache| key.starts_with(cache))) {
        let expires: i64 = store.run(cmd("PEXPIRETIME").arg(&key).take()).await.unwrap();
        if let Some(value) = value(store, &key).await {
            all.insert(key, format!("{value} until {expires}"));
        }
    }
    all
}

/// The type and value of a key as text; `None` if it holds nothing but the clock of its scripts.
async fn value(store: &Store, key: &str) -> Option<String> {
    let kind: String = store.run(cmd("TYPE").arg(key).take()).await.unwrap();
    let read = match kind.as_str() {
        "hash" => {
            let read = cmd("HGETALL").arg(key).take();
            let mut fields: BTreeMap<String, String> = store.run(read).await.unwrap();
            fields.remove(CLOCK_FIELD);
            return (!fields.is_empty()).then(|| format!("hash {fields:?}"));
        }
        "list" => cmd("LRANGE").arg(key).arg(0).arg(-1).take(),
        "set" => cmd("SMEMBERS").arg(key).take(),
        "zset" => cmd("ZRANGE").arg(key).arg(0).arg(-1).arg("WITHSCORES").take(),
        _ => cmd("GET").arg(key).take(),
    };
    let value: hob_store::Value = store.run(read).await.unwrap();
    Some(format!("{kind} {value:?}"))
}

/// The app with all services. They are not started: background tasks would change things as well.
async fn app(context: &TestContext) -> (TestApp, Vec<RouteEntry>) {
    let config = LiveServices::defaults();
    let mut services: Vec<Arc<dyn AnyService>> = Vec::new();
    for service in ALL {
        services.push(service.open(context, config.section(service)).await.unwrap().into());
    }
    let services = Services::of(services);
    let listing = Web::open(context, Live::fixed(Config::default())).unwrap();
    let routes = routes_of(&services, context, &listing);
    let entries = App::new(&listing, routes.clone(), DataKind::Real).entries().to_vec();
    (TestApp::start(context, routes).await, entries)
}

/// What is written for the parameters of a path.
struct Seed(Vec<(&'static str, String)>);

impl Seed {
    /// Adds one of everything, over the API.
    async fn add(app: &TestApp) -> Self {
        let create = async |path: &str, body: Value| -> Value {
            let response = app.post(path, &body).await;
            assert!(response.status.is_success(), "{path}: {}", response.text());
            serde_json::from_slice(&response.body).unwrap_or_default()
        };
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let room = json!({ "id": "kitchen", "title": "Kitchen", "created_by": "bert", "members": ["anna"] });
        create("/api/v1/chat/conversations", room).await;
        let message = json!({ "sender_id": "bert", "content": "The soup is ready" });
        let message = text(&create("/api/v1/chat/conversations/kitchen/messages", message).await["id"]);

        let shop = json!({ "name": "Shop", "kind": "http", "target": "http://127.0.0.1:1/", "interval_s": 3600,
                           "retries": 0, "published": true });
        let monitor = text(&create("/api/v1/uptime/monitors", shop).await["id"]);
        create(&format!("/api/v1/uptime/monitors/{monitor}/check"), json!({})).await;
        let incidents: Value = app.get("/api/v1/uptime/incidents").await.json();
        let incident = text(&incidents["items"][0]["id"]);
        let backup = json!({ "name": "Backup", "kind": "heartbeat", "interval_s": 3600 });
        let heartbeat = text(&create("/api/v1/uptime/monitors", backup).await["heartbeat_path"]);
        create(&heartbeat, json!({})).await;
        let hook = json!({ "name": "Hook", "kind": "webhook", "url": "http://127.0.0.1:1/" });
        let channel = text(&create("/api/v1/uptime/channels", hook).await["id"]);
        let window = json!({ "title": "Move", "covers": [monitor], "starts_at_ms": 1, "ends_at_ms": 2_000 });
        create("/api/v1/uptime/maintenance", window).await;
        let page = app.put("/api/v1/uptime/pages/shop", &json!({ "title": "Shop" })).await;
        assert_eq!(page.status, 200, "{}", page.text());

        let plan = "name = \"Site\"\ntarget = \"http://127.0.0.1:1\"\n[[scenario]]\nname = \"browse\"\n\
                    load = { rate = 1, for = \"1s\" }\n[[scenario.step]]\nname = \"home\"\nrequest = \"GET /\"\n";
        let plan = create("/api/v1/load/plans", json!({ "source": plan })).await["id"].to_string();
        let run = text(&create(&format!("/api/v1/load/plans/{plan}/runs"), json!({})).await["id"]);

        let quota = app.put("/api/v1/quota/api", &json!({ "windows": "5/1m" })).await;
        assert_eq!(quota.status, 200, "{}", quota.text());
        let pipeline = "name = \"dockets\"\nquota = { name = \"api\" }\n\
                        source = { step = \"s\", list = [\"1\"] }\n\
                        [step.s]\nget = \"http://127.0.0.1:1/${key}\"\n";
        create("/api/v1/pipelines", json!({ "source": pipeline })).await;
        create("/api/v1/pipelines/dockets/runs", json!({ "id": "first" })).await;
        create("/api/v1/tokens", json!({ "name": "ci", "scopes": ["chat:read"] })).await;

        let home = app.get("/").await.text();
        let asset = home.split('"').find(|part| part.starts_with("/assets/")).expect("an asset").to_owned();

        Self(vec![
            ("/messages/{message}", format!("/messages/{message}")),
            ("/chat/conversations/{id}", "/chat/conversations/kitchen".to_owned()),
            ("/chat/users/{id}/search", "/chat/users/anna/search?q=soup".to_owned()),
            ("/chat/users/{id}", "/chat/users/anna".to_owned()),
            ("/uptime/monitors/{id}", format!("/uptime/monitors/{monitor}")),
            ("/uptime/incidents/{id}", format!("/uptime/incidents/{incident}")),
            ("/uptime/channels/{id}", format!("/uptime/channels/{channel}")),
            ("/uptime/pages/{slug}", "/uptime/pages/shop".to_owned()),
            ("/status/{slug}", "/status/shop".to_owned()),
            ("/badge/{id}/{fact}", format!("/badge/{monitor}/status.svg")),
            ("/heartbeat/{token}", heartbeat),
            ("/load/plans/{id}", format!("/load/plans/{plan}")),
            ("/load/runs/{id}", format!("/load/runs/{run}")),
            ("/load/compare", format!("/load/compare?a={run}&b={run}")),
            ("/pipelines/runs/{id}", "/pipelines/runs/first".to_owned()),
            ("/quota/{name}", "/quota/api".to_owned()),
            ("/keys/{schema}/{family}", "/keys/chat/unread".to_owned()),
            ("/assets/{file}", asset),
            ("/api/docs/{operation}", "/api/docs/chat_send_message".to_owned()),
        ])
    }

    fn path(&self, route: &str) -> String {
        let path = match route {
            "/chat" => "/chat?as=anna&conversation=kitchen".to_owned(),
            "/live" => "/live?topics=uptime".to_owned(),
            _ => self.0.iter().fold(route.to_owned(), |path, (from, to)| path.replace(from, to)),
        };
        assert!(!path.contains('{'), "add a value for the parameter of {route} to this test");
        path
    }
}

#[tokio::test]
async fn get_and_head_change_nothing() {
    let context = TestContext::embedded(needs(), Layout::Plain).await;
    let (app, entries) = app(&context).await;
    let seed = Seed::add(&app).await;

    let routes = entries.iter().filter(|entry| entry.method == "GET");
    let (changing, safe): (Vec<&RouteEntry>, Vec<&RouteEntry>) =
        routes.partition(|entry| entry.audited.is_some());
    let mut declared: Vec<&str> = changing.iter().map(|entry| entry.path.as_str()).collect();
    declared.sort_unstable();
    assert_eq!(declared, CHANGING, "GET routes that change something");
    assert!(safe.len() > 80, "{} routes", safe.len());

    let mut problems = Vec::new();
    let mut before = Contents::of(&context).await;
    for RouteEntry { path: route, .. } in safe {
        let path = seed.path(route);
        for method in [Method::GET, Method::HEAD] {
            let status = ask(&app, &method, route, &path).await;
            let is_answered = status.is_success() || status.is_redirection();
            let is_expected = is_answered || NOT_FOUND_HERE.iter().any(|(other, _)| other == route);
            if !is_expected {
                problems.push(format!("{method} {path}: {status}"));
            }
            let after = Contents::of(&context).await;
            problems.extend(
                before.differences(&after).into_iter().map(|what| format!("{method} {path}: {what}")),
            );
            before = after;
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));

    // The comparison finds changes of both.
    for route in CHANGING {
        assert_eq!(app.get(&seed.path(route)).await.status, 200);
        let after = Contents::of(&context).await;
        assert_ne!(before.keys, after.keys, "{route}");
        before = after;
    }
    let read = json!({ "user_id": "anna", "sequence": 3 });
    app.post("/api/v1/chat/conversations/kitchen/read", &read).await;
    assert_ne!(before.rows, Contents::of(&context).await.rows);
}

async fn ask(app: &TestApp, method: &Method, route: &str, path: &str) -> StatusCode {
    match method {
        &Method::GET if STREAMS.contains(&route) => app.open(path).await.status(),
        method => app.request(method.clone(), path, None).await.status,
    }
}
