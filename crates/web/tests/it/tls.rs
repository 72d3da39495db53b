//! TLS by certificate files.

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

use crate::door::NEEDS;
use crate::garden::{Garden, routes};
use crate::server::ask_many_at_once;

/// Writes a new certificate and its key, and answers with a configuration that names them.
fn certify(folder: &Path) -> Config {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    Config { tls_certificate: Some(certificate), tls_key: Some(key), ..Config::default() }
}

/// Connects, trusting what the file holds; an error if the server shows another certificate.
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

async fn ask(app: &TestApp, config: &Config, path: &str) -> std::io::Result<String> {
    let mut stream = connect(app, config, &[]).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).await?;
    Ok(String::from_utf8_lossy(&heard).into_owned())
}

#[tokio::test]
async fn certificate_is_used_and_replaced_without_a_restart() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let folder = tempfile::tempdir().unwrap();
    let config = certify(folder.path());
    let (live, replace) = Live::new(config.clone());
    let app = TestApp::start_with_config(&context, live, |_| routes(Garden::default())).await;
    let heard = ask(&app, &config, "/garden").await.unwrap();
    assert!(heard.starts_with("HTTP/1.1 200"), "{heard}");
    assert!(heard.contains("strict-transport-security: max-age="), "{heard}");

    let config = certify(folder.path());
    assert!(ask(&app, &config, "/garden").await.is_err(), "the server still shows the last one");
    replace.replace(config.clone());
    wait_for("the new certificate", LIMIT, async || ask(&app, &config, "/garden").await).await;

    std::fs::write(config.tls_key.as_ref().unwrap(), "no key").unwrap();
    replace.replace(config.clone());
    ask(&app, &config, "/garden").await.expect("what cannot be read leaves the last one in use");
}

#[tokio::test]
async fn http_2_is_agreed_on_over_tls() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let folder = tempfile::tempdir().unwrap();
    let config = certify(folder.path());
    let app =
        TestApp::start_with_config(&context, Live::fixed(config.clone()), |_| routes(Garden::default()))
            .await;
    let stream = connect(&app, &config, &["h2", "http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
    ask_many_at_once(stream, "https://localhost").await;
}

#[tokio::test]
async fn plain_http_on_a_tls_port_is_rejected() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let folder = tempfile::tempdir().unwrap();
    let app = TestApp::start_with_config(&context, Live::fixed(certify(folder.path())), |_| {
        routes(Garden::default())
    })
    .await;
    let mut stream = TcpStream::connect(app.address()).await.unwrap();
    stream.write_all(b"GET /garden HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut heard = Vec::new();
    let _ = stream.read_to_end(&mut heard).await;
    assert!(!heard.starts_with(b"HTTP"), "{heard:?}");
}

#[tokio::test]
async fn certificate_without_a_key_is_rejected() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let folder = tempfile::tempdir().unwrap();
    let whole = certify(folder.path());
    let half = Config { tls_key: None, ..whole.clone() };
    assert!(matches!(Web::open(&context, Live::fixed(half)).unwrap_err(), Error::IncompleteTls));
    let gone = Config { tls_key: Some(folder.path().join("none.pem")), ..whole };
    let refused = Web::open(&context, Live::fixed(gone)).unwrap_err();
    assert!(refused.to_string().contains("none.pem"), "{refused}");
}
