//! A secret is sent only by its configured systems, and only to its configured hosts.

use hob_fixtures::{Layout, TestApp, TestContext};
use hob_service::SecretRef;
use hob_service::config::{Hosts, Live, SecretEntry, Secrets, SecretsConfig};
use hob_uptime::probe::{Limits, Probe};
use hob_uptime::{Config, Uptime};
use hob_web::Service as _;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::NEEDS;
use crate::target::{Target, answer, check, outcome, run};

const VALUE: &str = "s3cret-that-stays-hidden";

/// A secret for these systems and hosts.
pub(crate) fn secret(folder: &TempDir, value: &str, systems: &[&str], hosts: &[&str]) -> SecretsConfig {
    let path = folder.path().join("token");
    std::fs::write(&path, value).unwrap();
    SecretsConfig::from_iter([("token".parse().unwrap(), entry(SecretRef::File(path), systems, hosts))])
}

pub(crate) fn entry(from: SecretRef, systems: &[&str], hosts: &[&str]) -> SecretEntry {
    let systems = systems.iter().map(|system| (*system).to_owned()).collect();
    let hosts = Hosts::Listed(hosts.iter().map(|host| host.parse().unwrap()).collect());
    SecretEntry { from, services: systems, hosts }
}

fn bearer(target: &str, headers: &Value) -> Value {
    json!({"name": "x", "kind": "http", "target": target, "interval_s": 3600,
           "http": {"auth": {"bearer": {"token": "token"}}, "headers": headers}})
}

#[tokio::test]
async fn secret_is_only_sent_to_its_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let target = Target::responding(|_| answer(200, "", "")).await;
    let (port, other) = (target.address.port(), target.address.port() ^ 1);
    let (here, elsewhere) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{other}"));
    for (systems, hosts, headers, says) in [
        (vec!["uptime"], vec!["127.0.0.1"], json!({}), ""),
        (vec!["pipeline", "uptime"], vec!["a.example", here.as_str()], json!({}), ""),
        (vec!["uptime"], vec!["127.0.0.1", "shop.example"], json!({"Host": "shop.example"}), ""),
        (vec!["pipeline"], vec!["127.0.0.1"], json!({}), "the service uptime may not use the secret"),
        (vec!["uptime"], vec!["localhost"], json!({}), "may not be sent to 127.0.0.1"),
        (vec!["uptime"], vec![elsewhere.as_str()], json!({}), "may not be sent to 127.0.0.1"),
        // A CDN would forward it to the host of the header.
        (
            vec!["uptime"],
            vec!["127.0.0.1"],
            json!({"Host": "evil.example"}),
            "may not be sent to evil.example",
        ),
        (vec!["uptime"], vec!["127.0.0.1"], json!({"hOST": "evil.example:1:2"}), "invalid Host header"),
    ] {
        let probe = Probe::new(
            Limits::default(),
            Secrets::new(Live::fixed(secret(&folder, VALUE, &systems, &hosts))),
        );
        let before = target.connections();
        let (class, message) =
            outcome(&run(&probe, &check(&bearer(&target.url("/"), &headers).to_string()), &[]).await);
        if says.is_empty() {
            assert_eq!(
                (class.as_str(), target.connections()),
                ("ok", before + 1),
                "{systems:?} {hosts:?}: {message}"
            );
            assert!(target.requests().last().unwrap().contains(&format!("authorization: Bearer {VALUE}")));
        } else {
            assert_eq!(
                (class.as_str(), target.connections()),
                ("misconfigured", before),
                "{systems:?} {hosts:?}"
            );
            assert!(message.contains(says) && message.contains("token"), "{message}");
        }
    }
}

#[tokio::test]
async fn changed_configuration_applies_to_the_next_check() {
    let folder = tempfile::tempdir().unwrap();
    let target = Target::responding(|_| answer(200, "", "")).await;
    let (live, replace) = Live::new(secret(&folder, VALUE, &["uptime"], &["127.0.0.1"]));
    let probe = Probe::new(Limits::default(), Secrets::new(live));
    let check = check(&bearer(&target.url("/"), &json!({})).to_string());
    assert_eq!(outcome(&run(&probe, &check, &[]).await).0, "ok");
    replace.replace(secret(&folder, VALUE, &["uptime"], &["a.example"]));
    assert_eq!(outcome(&run(&probe, &check, &[]).await).0, "misconfigured");
    assert_eq!(target.connections(), 1);
}

#[tokio::test]
async fn secret_in_a_response_is_masked() {
    let folder = tempfile::tempdir().unwrap();
    let basic = "YW5uOnMzY3JldC10aGF0LXN0YXlzLWhpZGRlbg==";
    let body = format!(r#"{{"you_sent": "Basic {basic} {VALUE}", "again": "{}"}}"#, VALUE.repeat(3));
    let headers = format!("x-echo: {VALUE}\r\n");
    let target = Target::responding(move |_| answer(200, &headers, &body)).await;
    let listed = secret(&folder, VALUE, &["uptime"], &["127.0.0.1"]);
    let probe = Probe::new(Limits::default(), Secrets::new(Live::fixed(listed)));
    let monitor = json!({"kind": "http", "target": target.url("/"),
                         "http": {"auth": {"basic": {"user": "ann", "password": "token"}}}});
    let asserted =
        ["body == \"x\"", "header x-echo == \"x\"", "json $.you_sent == \"x\"", "json $.again == \"x\""];
    let seen = run(&probe, &check(&monitor.to_string()), &asserted).await;
    assert!(target.requests()[0].contains(basic), "{:?}", target.requests());
    let found: Vec<&str> = seen.assertions.iter().map(|one| one.found.as_str()).collect();
    assert_eq!(found[1..], ["…", "Basic … …", "………"], "{found:?}");
    let shown = format!("{seen:?} {}", outcome(&seen).1);
    for hidden in [VALUE, &VALUE[..8], basic] {
        assert!(!shown.contains(hidden), "{shown}");
    }
}

async fn app(secrets: Secrets) -> (TestContext, TestApp) {
    let test = TestContext::embedded(NEEDS, Layout::Plain).await;
    let context = hob_service::ServiceContext { secrets, ..test.context().clone() };
    let uptime =
        Uptime::open(&context, Live::fixed(Config { concurrency: 0, ..Config::default() })).await.unwrap();
    let app = TestApp::start(&context, uptime.routes()).await;
    (test, app)
}

fn problem(answer: &hob_fixtures::TestResponse) -> (u16, String, String) {
    let problem: Value = serde_json::from_slice(&answer.body).unwrap();
    let text = |member: &str| problem["errors"][0][member].as_str().unwrap_or_default().to_owned();
    (answer.status.as_u16(), text("field"), text("message"))
}

#[tokio::test]
async fn monitor_with_a_forbidden_secret_is_not_saved() {
    let folder = tempfile::tempdir().unwrap();
    let (live, replace) = Live::new(secret(&folder, VALUE, &["uptime"], &["api.example"]));
    let (_test, app) = app(Secrets::new(live)).await;
    let path = "/api/v1/uptime/monitors";
    for (target, headers, says) in [
        ("https://evil.example/", json!({}), "the secret token may not be sent to evil.example:443"),
        ("https://api.example/", json!({"Host": "evil.example"}), "may not be sent to evil.example:443"),
    ] {
        let (status, field, message) = problem(&app.post(path, &bearer(target, &headers)).await);
        assert_eq!((status, field.as_str()), (422, "http.auth.bearer.token"), "{message}");
        assert!(message.contains(says) && !message.contains(VALUE), "{message}");
    }
    let added = app.post(path, &bearer("https://api.example/", &json!({}))).await;
    assert_eq!(added.status, 201);
    let added: Value = serde_json::from_slice(&added.body).unwrap();
    let own = format!("{path}/{}", added["id"].as_str().unwrap());
    let moved = app.patch(&own, &json!({"target": "https://evil.example/"})).await;
    assert_eq!(problem(&moved).1, "http.auth.bearer.token");
    let password = json!({"http": {"auth": {"bearer": null, "basic": {"user": "a", "password": "other"}}}});
    let (_, field, message) = problem(&app.patch(&own, &password).await);
    assert_eq!(
        (field.as_str(), message.contains("there is no secret other")),
        ("http.auth.basic.password", true)
    );

    // After the secret was withdrawn, the monitor can be renamed and paused, but not moved.
    replace.replace(SecretsConfig::default());
    assert_eq!(app.patch(&own, &json!({"name": "renamed"})).await.status, 200);
    assert_eq!(app.post(&format!("{own}/pause"), &json!({})).await.status, 200);
    assert_eq!(problem(&app.patch(&own, &json!({"target": "https://api.example/2"})).await).0, 422);
}

#[tokio::test]
async fn channel_with_a_forbidden_secret_is_not_saved() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("https://hooks.example/{VALUE}");
    let (live, replace) = Live::new(secret(&folder, &url, &["uptime"], &["hooks.example"]));
    let (_test, app) = app(Secrets::new(live)).await;
    let path = "/api/v1/uptime/channels";
    let slack = json!({"name": "Slack", "kind": "slack", "secret": "token"});
    let webhook = |host: &str| json!({"name": "Hook", "kind": "webhook", "url": format!("https://{host}/"), "secret": "token"});
    let refused = async |body: &Value, says: &str| {
        let (status, field, message) = problem(&app.post(path, body).await);
        assert_eq!((status, field.as_str()), (422, "secret"), "{message}");
        assert!(message.contains(says) && !message.contains(VALUE), "{message}");
    };
    refused(&webhook("evil.example"), "may not be sent to evil.example:443").await;
    assert_eq!(app.post(path, &webhook("hooks.example")).await.status, 201);
    assert_eq!(app.post(path, &slack).await.status, 201);
    let other = json!({"name": "Discord", "kind": "discord", "secret": "token"});
    replace.replace(secret(&folder, &url, &["uptime"], &["other.example"]));
    refused(&other, "the host of the URL in the secret token is not in `hosts`").await;
    replace.replace(secret(&folder, &url, &["pipeline"], &["hooks.example"]));
    refused(&other, "the service uptime may not use the secret").await;
    replace.replace(secret(&folder, VALUE, &["uptime"], &["hooks.example"]));
    refused(&other, "is not a URL").await;
}
