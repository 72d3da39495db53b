//! TLS with certificate files.

use std::path::Path;
use std::sync::Arc;

use hob_fixtures::{Layout, TestApp, TestContext};
use hob_service::Live;
use hob_testkit::{LIMIT, wait_for};
use hob_web::{Config, Error, Web};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::garden::{Garden, routes};
use crate::protected::NEEDS;
use crate::server::send_concurrently;

/// Writes a new certificate and its key, and returns a configuration that names them.
fn write_certificate(folder: &Path) -> Config {
    let generated = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    std::fs::write(&certificate, generated.cert.pem()).unwrap();
    std::fs::write(&key, generated.signing_key.serialize_pem()).unwrap();
    Config { tls_certificate: Some(certificate), tls_key: Some(key), ..Config::default() }
}

/// Connects with trust in the certificate file only. Fails if the server presents another certificate.
async fn connect(
    app: &TestApp,
    config: &Config,
    protocols: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    let file = config.tls_certificate.as_ref().unwrap();
    roots.add(CertificateDer::from_pem_file(file).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut client = client.with_root_certificates(roots).with_no_client_auth();
    client.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(app.address()).await?;
    TlsConnector::from(Arc::new(client)).connect("localhost".try_into().unwrap(), stream).await
}

async fn get(app: &TestApp, config: &Config, path: &str) -> std::io::Result<String> {
    let mut stream = connect(app, config, &[]).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut received = Vec::new();
    stream.read_to_end(&mut received).await?;
    Ok(String::from_utf8_lossy(&received).into_owned())
}

#[tokio::test]
async fn certificate_is_used_and_replaced_without_a_restart() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let folder = tempfile::tempdir().unwrap();
    let config = write_certificate(folder.path());
    let (live, replace) = Live::new(config.clone());
    let app = TestApp::start_with_config(&context, live, |_| routes(Garden::default())).await;
    let received = get(&app, &config, "/garden").await.unwrap();
    assert!(received.starts_with("HTTP/1.1 200"), "{received}");
    assert!(received.contains("strict-transport-security: max-age="), "{received}");

    let config = write_certificate(folder.path());
    assert!(
        get(&app, &config, "/garden").await.is_err(),
        "the server presents the previous certificate until a reload"
    );
    replace.replace(config.clone());
    wait_for("the new certificate", LIMIT, async || get(&app, &config, "/garden").await).await;

    std::fs::write(config.tls_key.as_ref().unwrap(), "no key").unwrap();
    replace.replace(config.clone());
    get(&app, &config, "/garden").await.expect("an unreadable key leaves the previous certificate in use");
}

#[tokio::test]
async fn http_2_is_negotiated_over_tls() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let folder = tempfile::tempdir().unwrap();
    let config = write_certificate(folder.path());
    let app =
        TestApp::start_with_config(&context, Live::fixed(config.clone()), |_| routes(Garden::default()))
            .await;
    let stream = connect(&app, &config, &["h2", "http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
    send_concurrently(stream, "https://localhost").await;
}

#[tokio::test]
async fn plain_http_on_a_tls_port_is_rejected() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let folder = tempfile::tempdir().unwrap();
    let app = TestApp::start_with_config(&context, Live::fixed(write_certificate(folder.path())), |_| {
        routes(Garden::default())
    })
    .await;
    let mut stream = TcpStream::connect(app.address()).await.unwrap();
    stream.write_all(b"GET /garden HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut received = Vec::new();
    let _ = stream.read_to_end(&mut received).await;
    assert!(!received.starts_with(b"HTTP"), "{received:?}");
}

#[tokio::test]
async fn certificate_without_a_key_is_rejected() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let folder = tempfile::tempdir().unwrap();
    let complete = write_certificate(folder.path());
    let incomplete = Config { tls_key: None, ..complete.clone() };
    assert!(matches!(Web::open(&context, Live::fixed(incomplete)).unwrap_err(), Error::IncompleteTls));
    let missing = Config { tls_key: Some(folder.path().join("none.pem")), ..complete };
    let refused = Web::open(&context, Live::fixed(missing)).unwrap_err();
    assert!(refused.to_string().contains("none.pem"), "{refused}");
}
