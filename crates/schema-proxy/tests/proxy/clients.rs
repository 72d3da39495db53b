//! Third-party clients and libraries, unmodified, with their ready-made schemas enforced.

use std::path::{Path, PathBuf};
use std::process::Command;

use hob_schema_audit::ready_schema;
use hob_testkit::{node_modules, python};

use super::*;

/// Runs a script with the port of a proxy that enforces a schema; returns what the proxy has found.
async fn run(schema: Schema, script: &Path) -> String {
    let redis = RedisServer::start();
    let catalog = Catalog::new(vec![schema], Layout::Plain).unwrap();
    // On a busy machine, a library needs some time between two commands that complete a key.
    let options = Options { grace: Duration::from_secs(2), ..options(Mode::Enforce, &redis.url()) };
    let proxy = Proxy::start(catalog, options).await.unwrap();
    let program =
        if script.extension().is_some_and(|kind| kind == "js") { PathBuf::from("node") } else { python() };
    let mut command = Command::new(program);
    command.env("NODE_PATH", node_modules()).env("NODE_NO_WARNINGS", "1").env("PYTHONDONTWRITEBYTECODE", "1");
    command.arg(script).arg(proxy.address().port().to_string());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let totals = proxy.totals();
    proxy.stop().await;
    assert!(output.status.success() && out.trim_end().ends_with("done"), "{out}{err}\n{}", totals.report());
    assert!(metric(&totals, "hob_schema_proxy_writes_total ") > 0, "the clients did not use the proxy");
    let report = totals.report();
    report.split_once('\n').map(|(_, findings)| findings.to_owned()).unwrap()
}

/// A script that expects refusals of an undeclared key, and nothing else.
async fn expects_refusals(script: &str) {
    let findings = run(shop(), &own(script)).await;
    assert!(
        findings.starts_with("undeclared: undeclared-key (") && findings.lines().count() == 1,
        "{findings}"
    );
}

/// A library whose writes all match its ready-made schema.
async fn matches(name: &str, script: &str) {
    let findings = run(ready_schema(name).unwrap(), &ready(script)).await;
    assert_eq!(findings, "all writes match the schemas\n");
}

fn own(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/proxy/scripts").join(name)
}

fn ready(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../hob/tests/ready").join(name)
}

fn shop() -> Schema {
    Schema::parse("shop.toml", SCHEMA).unwrap_or_else(|errors| panic!("{errors}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_py_works() {
    expects_refusals("redis_py.py").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ioredis_works() {
    expects_refusals("ioredis.js").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_redis_works() {
    expects_refusals("node_redis.js").await;
}

mod slow {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn bullmq_works() {
        matches("bullmq", "bullmq.js").await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn celery_works() {
        matches("celery", "celery_app.py").await;
    }
}
