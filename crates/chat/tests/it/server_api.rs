//! The server API: its key, its errors, and its commands on all nodes, over HTTP and with `cent`, the Python client.

use std::process::Stdio;

use axum::http::header::{AUTHORIZATION, HeaderName};
use hob_chat::{Chat, Config};
use hob_fixtures::{TestApp, every_service};
use hob_service::{SecretRef, ServiceContext};
use hob_testkit::{LIMIT, wait_for};
use hob_web::Service as _;
use serde_json::{Value, json};

use crate::client::Client;
use crate::harness::{NEEDS, room, start};
use crate::namespaces::with_namespaces;

const KEY: &str = "the key of the back end";

/// A chat whose API has a key. The file with the key must outlive the start only.
async fn open(context: &ServiceContext) -> (Chat, TestApp) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    std::fs::write(&path, KEY).unwrap();
    let config = Config { api_key: Some(SecretRef::File(path)), ..with_namespaces() };
    let chat = start(context, config).await;
    let mut app = TestApp::start(context, chat.routes()).await;
    app.use_header(HeaderName::from_static("x-api-key"), KEY);
    (chat, app)
}

async fn call(app: &TestApp, method: &str, request: Value) -> Value {
    let response = app.post(&format!("/centrifugo/api/{method}"), &request).await;
    assert_eq!(response.status, 200, "{method}: {}", response.text());
    response.json()
}

async fn done(app: &TestApp, method: &str, request: Value) -> Value {
    let mut reply = call(app, method, request.clone()).await;
    assert!(reply["result"].is_object(), "{method} {request}: {reply}");
    reply["result"].take()
}

every_service! {
    NEEDS;

    async fn back_end_publishes_and_reads_the_history(context: TestContext) {
        let (chat, app) = open(&context).await;
        let mut anna = Client::connect(&app, &chat, "anna").await;
        anna.subscribe("news:a").await;
        let first = done(&app, "publish", json!({ "channel": "news:a", "data": { "n": 1 }, "tags": { "a": "b" } })).await;
        assert_eq!(first["offset"], 1, "{first}");
        let push = anna.push_where(|push| push["pub"].is_object()).await;
        assert_eq!(push["pub"], json!({ "offset": 1, "data": { "n": 1 }, "tags": { "a": "b" } }));
        // Line breaks separate the messages of a frame, so they must not remain in the data.
        let body = b"{\n\"channel\": \"plain:a\",\r\n\"data\": {\n\"text\":\n\"two\\nlines\"\n}\n}".to_vec();
        anna.subscribe("plain:a").await;
        let path = "/centrifugo/api/publish";
        let response = app.request(axum::http::Method::POST, path, Some(("application/json", body))).await;
        assert_eq!(response.json::<Value>(), json!({ "result": {} }));
        let push = anna.push_where(|push| push["channel"] == "plain:a").await;
        assert_eq!(push["pub"]["data"], json!({ "text": "two\nlines" }));
        // Repeated with the same key, it publishes nothing.
        let request = json!({ "channel": "news:a", "data": 2, "idempotency_key": "once" });
        let second = done(&app, "publish", request.clone()).await;
        assert_eq!(second, json!({ "offset": 2, "epoch": first["epoch"] }));
        assert_eq!(done(&app, "publish", request).await, second);
        let skipped = done(&app, "publish", json!({ "channel": "news:a", "data": 3, "skip_history": true })).await;
        assert_eq!(skipped, json!({}));
        let in_base64 = done(&app, "publish", json!({ "channel": "news:a", "b64data": "eyJuIjo0fQ==" })).await;
        assert_eq!(in_base64["offset"], 3);
        let request = json!({ "channels": ["news:a", "other:x", "plain:a"], "data": "all" });
        let all = done(&app, "broadcast", request).await["responses"].take();
        assert_eq!(all[0]["result"]["offset"], 4, "{all}");
        assert_eq!(all[1]["error"]["code"], 102, "{all}");
        assert_eq!(all[2]["result"], json!({}), "{all}");

        let history = done(&app, "history", json!({ "channel": "news:a", "limit": 10 })).await;
        let data: Vec<&Value> = history["publications"].as_array().unwrap().iter().map(|one| &one["data"]).collect();
        assert_eq!(data, [&json!({ "n": 1 }), &json!(2), &json!({ "n": 4 }), &json!("all")]);
        assert_eq!(history["epoch"], first["epoch"]);
        assert_eq!(done(&app, "history_remove", json!({ "channel": "news:a" })).await, json!({}));
        let history = done(&app, "history", json!({ "channel": "news:a", "limit": 10 })).await;
        assert_eq!((&history["publications"], &history["offset"]), (&json!([]), &json!(4)));
    }

    async fn back_end_controls_the_connections_of_all_nodes(context: TestContext) {
        let (chat, app) = open(&context).await;
        let other = context.another_node().await;
        let (there, app_there) = open(&other).await;
        let mut phone = Client::connect(&app, &chat, "anna").await;
        let mut laptop = Client::connect(&app_there, &there, "anna").await;
        let mut bert = Client::connect(&app_there, &there, "bert").await;
        room(&chat, "r", &["anna", "bert"]).await;
        bert.subscribe("conv:r").await;

        let request = json!({ "user": "anna", "channel": "$news:vip", "data": { "welcome": true } });
        assert_eq!(done(&app, "subscribe", request).await, json!({}));
        for client in [&mut phone, &mut laptop] {
            let push = client.push_where(|push| push["subscribe"].is_object()).await;
            assert_eq!(push["channel"], "$news:vip");
            assert_eq!(push["subscribe"]["data"], json!({ "welcome": true }), "{push}");
        }
        done(&app, "publish", json!({ "channel": "$news:vip", "data": 1 })).await;
        for client in [&mut phone, &mut laptop] {
            assert_eq!(client.push_where(|push| push["pub"].is_object()).await["pub"]["data"], 1);
        }
        let presence = done(&app, "presence", json!({ "channel": "$news:vip" })).await["presence"].take();
        assert_eq!(presence.as_object().unwrap().len(), 2, "{presence}");
        assert_eq!(presence[&laptop.socket_id]["user"], "anna");
        let stats = json!({ "num_clients": 2, "num_users": 1 });
        assert_eq!(done(&app, "presence_stats", json!({ "channel": "$news:vip" })).await, stats);
        let stats = json!({ "num_clients": 3, "num_users": 2 });
        assert_eq!(done(&app, "presence_stats", json!({ "channel": "conv:r" })).await, stats);

        let channels = done(&app, "channels", json!({})).await["channels"].take();
        assert_eq!(channels, json!({ "$news:vip": { "num_clients": 2 }, "conv:r": { "num_clients": 1 } }));
        let channels = done(&app, "channels", json!({ "pattern": "conv:*" })).await["channels"].take();
        assert_eq!(channels, json!({ "conv:r": { "num_clients": 1 } }));
        let nodes = done(&app, "info", json!({})).await["nodes"].take();
        let clients: u64 = nodes.as_array().unwrap().iter().map(|node| node["num_clients"].as_u64().unwrap()).sum();
        assert_eq!((nodes.as_array().unwrap().len(), clients), (2, 3), "{nodes}");

        let request = json!({ "user": "anna", "channel": "$news:vip", "client": laptop.socket_id });
        done(&app, "unsubscribe", request).await;
        let push = laptop.push_where(|push| push["unsubscribe"].is_object()).await;
        assert_eq!((&push["channel"], &push["unsubscribe"]["code"]), (&json!("$news:vip"), &json!(2000)));
        done(&app, "unsubscribe", json!({ "user": "bert", "channel": "conv:r" })).await;
        assert_eq!(bert.push_where(|push| push["unsubscribe"].is_object()).await["channel"], "conv:r");

        let expire_at = i64::MAX / 4;
        done(&app, "refresh", json!({ "user": "anna", "client": phone.socket_id, "expire_at": expire_at })).await;
        assert_eq!(phone.push_where(|push| push["refresh"].is_object()).await["refresh"]["expires"], true);
        done(&app, "refresh", json!({ "user": "bert", "expired": true })).await;
        assert_eq!(bert.end().await, 3005);
        done(&app, "disconnect", json!({ "user": "anna", "whitelist": [phone.socket_id] })).await;
        assert_eq!(laptop.end().await, 3503);
        let reason = json!({ "code": 4_100, "reason": "enough" });
        done(&app, "disconnect", json!({ "user": "anna", "disconnect": reason })).await;
        assert_eq!(phone.close_frame().await, (4_100, "enough".to_owned()));
        wait_for("no channel to be left", LIMIT, async || {
            done(&app, "channels", json!({})).await["channels"] == json!({})
        })
        .await;
        other.tasks.stop(LIMIT).await;
    }
}

#[tokio::test]
async fn key_is_required_and_guesses_are_throttled() {
    let context = hob_fixtures::TestContext::embedded(NEEDS, hob_fixtures::Layout::Plain).await;
    let (_chat, mut app) = open(context.context()).await;
    let publish = json!({ "channel": "plain:a", "data": 1 });
    assert!(call(&app, "publish", publish.clone()).await["result"].is_object());
    app.forget_headers();
    app.use_header(AUTHORIZATION, &format!("apikey {KEY}"));
    assert!(call(&app, "publish", publish.clone()).await["result"].is_object());
    app.forget_headers();
    let path = "/centrifugo/api/publish";
    assert_eq!(app.post(path, &publish).await.status, 401);
    for guess in 0..10 {
        app.use_header(HeaderName::from_static("x-api-key"), &format!("guess {guess}"));
        assert_eq!(app.post(path, &publish).await.status, 401, "{guess}");
    }
    app.use_header(HeaderName::from_static("x-api-key"), KEY);
    assert_eq!(app.post(path, &publish).await.status, 429);
}

#[tokio::test]
async fn api_is_off_without_a_key() {
    let context = hob_fixtures::TestContext::embedded(NEEDS, hob_fixtures::Layout::Plain).await;
    let chat = start(context.context(), with_namespaces()).await;
    let mut app = TestApp::start(context.context(), chat.routes()).await;
    app.use_header(HeaderName::from_static("x-api-key"), "");
    assert_eq!(app.post("/centrifugo/api/info", &json!({})).await.status, 404);
}

#[tokio::test]
async fn errors_have_the_documented_codes_and_statuses() {
    let context = hob_fixtures::TestContext::embedded(NEEDS, hob_fixtures::Layout::Plain).await;
    let (_chat, mut app) = open(context.context()).await;
    let cases = [
        ("publish", json!({ "channel": "other:a", "data": 1 }), 102, 404),
        ("publish", json!({ "channel": "conv:r", "data": 1 }), 108, 400),
        ("publish", json!({ "data": 1 }), 107, 400),
        ("publish", json!({ "channel": "plain:a" }), 107, 400),
        ("publish", json!({ "channel": "plain:a", "data": "x".repeat(70_000) }), 107, 400),
        ("broadcast", json!({ "channels": [], "data": 1 }), 107, 400),
        ("history", json!({ "channel": "plain:a" }), 108, 400),
        (
            "history",
            json!({ "channel": "news:a", "limit": 1, "since": { "offset": 0, "epoch": "x" } }),
            112,
            416,
        ),
        ("presence", json!({ "channel": "plain:a" }), 108, 400),
        ("subscribe", json!({ "channel": "news:a" }), 107, 400),
        ("disconnect", json!({ "user": "anna", "disconnect": { "code": 1000 } }), 107, 400),
        ("refresh", json!({ "user": "anna" }), 107, 400),
    ];
    for (method, request, code, _) in &cases {
        let reply = call(&app, method, request.clone()).await;
        assert_eq!(reply["error"]["code"], *code, "{method}: {reply}");
    }
    app.use_header(HeaderName::from_static("x-centrifugo-error-mode"), "transport");
    for (method, request, code, status) in &cases {
        let response = app.post(&format!("/centrifugo/api/{method}"), request).await;
        assert_eq!(response.status.as_u16(), *status, "{method}");
        assert_eq!(response.json::<Value>()["code"], *code, "{method}");
    }
    assert_eq!(app.post("/centrifugo/api/destroy", &json!({})).await.status, 404);
    assert_eq!(app.post("/centrifugo/api/publish", &json!([1])).await.status, 400);
    let commands = json!([
        { "publish": { "channel": "news:a", "data": 1 } },
        { "publish": { "channel": "other:a", "data": 1 } },
        { "destroy": {} },
        {},
        { "presence_stats": { "channel": "news:a" } },
    ]);
    for parallel in [false, true] {
        let reply =
            app.post("/centrifugo/api/batch", &json!({ "commands": commands, "parallel": parallel })).await;
        let replies = reply.json::<Value>()["replies"].take();
        assert!(replies[0]["publish"]["offset"].as_u64() > Some(0), "{replies}");
        let codes: Vec<&Value> = (1..4).map(|at| &replies[at]["error"]["code"]).collect();
        assert_eq!(codes, [102, 104, 107], "{replies}");
        assert_eq!(replies[4]["presence_stats"]["num_clients"], 0, "{replies}");
    }
}

/// `cent` from PyPI, unmodified. On the embedded engine with SQLite, and on Redis with PostgreSQL.
async fn use_cent(context: hob_fixtures::TestContext) {
    let (chat, app) = open(context.context()).await;
    let mut anna = Client::connect(&app, &chat, "anna").await;
    anna.subscribe("news:a").await;
    let mut python = tokio::process::Command::new(hob_testkit::python());
    python.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/sdk/server_api.py"));
    python
        .args([&app.url("/centrifugo/api"), KEY, &anna.socket_id])
        .env_remove("HTTP_PROXY")
        .env("NO_PROXY", "*");
    let run = python.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).output();
    let output = tokio::time::timeout(LIMIT, run).await.expect("the program ends in time").unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert_eq!(out.trim(), "done");
    let push = anna.push_where(|push| push["pub"].is_object()).await;
    assert_eq!(push["pub"]["data"], json!({ "text": "hello" }));
    assert_eq!(anna.end().await, 4_001);
}

#[tokio::test(flavor = "multi_thread")]
async fn cent_works_unmodified_on_the_embedded_engine() {
    use_cent(hob_fixtures::TestContext::embedded(NEEDS, hob_fixtures::Layout::Plain).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cent_works_unmodified_on_redis() {
    use_cent(hob_fixtures::TestContext::redis(NEEDS).await).await;
}
