//! Servers, Sentinel sets, Clusters and TLS by their URLs, and errors that name the server and the reason.

use std::fs;

use hob_schema::Layout;
use hob_schema_audit::{CleanAction, CleanOptions, InferOptions, Pace, clean, connect, infer};
use hob_testkit::{RedisOptions, RedisServer, SentinelSet};

use crate::{chat_catalog, open, run_audit};

async fn connect_error(url: &str) -> String {
    connect(&url.parse().unwrap()).await.unwrap_err().to_string()
}

#[tokio::test]
async fn master_of_a_sentinel_set_is_audited_inferred_and_cleaned() {
    let (sentinels, catalog) = (SentinelSet::start(), chat_catalog(Layout::Plain));
    sentinels.master().command::<()>(&["SET", "lastseen:u1", "2025-11-16T10:00:00Z"]);
    let store = open(&sentinels.url()).await;
    let report = run_audit(&store, &catalog).await;
    assert_eq!((report.keys, report.nodes, report.worst()), (1, 1, None), "{}", report.text());
    let proposal = infer(&store, &InferOptions::default()).await.unwrap();
    assert!(proposal.text.contains("lastseen:u1"), "{}", proposal.text);
    let options = CleanOptions { action: CleanAction::Delete, pace: Pace::Full, apply: true };
    let report = clean(&store, &catalog, "last_seen", options, &mut |_| {}).await.unwrap();
    assert_eq!(report.changed, 1);
    assert_eq!(sentinels.master().command::<u64>(&["DBSIZE"]), 0);
}

#[tokio::test]
async fn unknown_master_name_is_an_error_with_the_name() {
    let sentinels = SentinelSet::start();
    let error = connect_error(&sentinels.url().replace("mymaster", "nosuch")).await;
    assert!(error.contains("nosuch"), "{error}");
}

#[tokio::test]
async fn tls_server_is_audited_when_its_authority_is_given() {
    let options = RedisOptions { tls: true, password: Some("secret".into()), ..RedisOptions::default() };
    let (server, catalog) = (RedisServer::start_with(&options), chat_catalog(Layout::Plain));
    server.command::<()>(&["SET", "lastseen:u1", "2025-11-16T10:00:00Z"]);
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    fs::write(&ca, server.authority_pem()).unwrap();
    let store = open(&format!("{}?ca={}", server.tls_url(), ca.display())).await;
    assert_eq!(run_audit(&store, &catalog).await.keys, 1);
    let error = connect_error(&server.tls_url()).await;
    assert!(error.contains("certificate") && !error.contains("secret"), "{error}");
}

#[tokio::test]
async fn missing_server_and_a_missing_password_are_errors_with_the_reason() {
    let error = connect_error("redis://:hunter2@127.0.0.1:1").await;
    assert!(error.contains("127.0.0.1:1") && !error.contains("hunter2"), "{error}");
    let server =
        RedisServer::start_with(&RedisOptions { password: Some("secret".into()), ..RedisOptions::default() });
    let error = connect_error(&format!("redis://127.0.0.1:{}", server.port())).await;
    assert!(error.contains("NOAUTH") || error.contains("Authentication"), "{error}");
    assert_eq!(run_audit(&open(&server.url()).await, &chat_catalog(Layout::Plain)).await.keys, 0);
}

#[tokio::test]
async fn embedded_store_of_another_process_cannot_be_opened() {
    let error = connect_error("embedded://").await;
    assert!(error.contains("redis://127.0.0.1:7379"), "{error}");
}
