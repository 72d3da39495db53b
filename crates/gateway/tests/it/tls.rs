//! TLS on both sides of the proxy.

use std::path::Path;
use std::sync::Arc;

use hob_gateway::Config;
use hob_service::Live;
use hob_testkit::{LIMIT, wait_for};
use http::StatusCode;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

use crate::upstream::{TestProxy, Upstream};

/// Writes a new certificate and its key, and returns a configuration that names them.
fn certify(folder: &Path, upstream: &Upstream) -> Config {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let toml = format!(
        "listen = \"127.0.0.1:0\"\nupstream = [\"http://{}\"]\ntls_certificate = {certificate:?}\ntls_key = {key:?}\n",
        upstream.address
    );
    toml::from_str(&toml).unwrap()
}

/// Sends a request over a new connection that trusts only the certificate in the file.
async fn get(proxy: &TestProxy, config: &Config, path: &str) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(config.tls_certificate.as_ref().unwrap()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let client = client.with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(proxy.address).await?;
    let mut stream =
        TlsConnector::from(Arc::new(client)).connect("localhost".try_into().unwrap(), stream).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await?;
    Ok(String::from_utf8_lossy(&response).into_owned())
}

#[tokio::test]
async fn clients_connect_with_tls() {
    let (upstream, folder) = (Upstream::start().await, tempfile::tempdir().unwrap());
    let config = certify(folder.path(), &upstream);
    let proxy = TestProxy::with_config(Live::fixed(config.clone())).await;
    let response = get(&proxy, &config, "/headers").await.unwrap();
    assert!(response.contains("x-forwarded-proto: https\n"), "{response}");
}

#[tokio::test]
async fn renewed_certificate_is_served_after_a_reload() {
    let (upstream, folder) = (Upstream::start().await, tempfile::tempdir().unwrap());
    let config = certify(folder.path(), &upstream);
    let (live, replace) = Live::new(config.clone());
    let proxy = TestProxy::with_config(live).await;
    get(&proxy, &config, "/").await.unwrap();

    let config = certify(folder.path(), &upstream);
    assert!(get(&proxy, &config, "/").await.is_err(), "the new certificate is served before a reload");
    replace.replace(config.clone());
    wait_for("the new certificate", LIMIT, async || get(&proxy, &config, "/").await).await;

    // A key file that cannot be read leaves the certificate, and everything else, as it is.
    let next = Upstream::start().await;
    std::fs::write(config.tls_key.as_ref().unwrap(), "not a key").unwrap();
    replace.replace(Config { upstream: vec![format!("http://{}", next.address)], ..config.clone() });
    for _ in 0..20 {
        get(&proxy, &config, "/").await.expect("the previous certificate is still served");
    }
    assert_eq!(next.hits(), 0);
}

/// An https upstream must have a certificate from a root in `upstream_ca_file`.
#[tokio::test]
async fn https_upstreams_are_verified_against_the_configured_roots() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let roots = folder.path().join("roots.pem");
    std::fs::write(&roots, made.cert.pem()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A client that does not trust the certificate closes the connection.
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let answer = hyper::service::service_fn(async |_| {
                Ok::<_, std::convert::Infallible>(http::Response::new("over TLS".to_owned()))
            });
            let served =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
            tokio::spawn(served);
        }
    });
    let upstream = format!("https://localhost:{port}");
    let proxy = TestProxy::with_urls(&[&upstream], &format!("upstream_ca_file = {roots:?}")).await;
    for _ in 0..3 {
        let (status, _, body) = proxy.get("/").await;
        assert_eq!((status, body.as_str()), (StatusCode::OK, "over TLS"));
    }
    let strict = TestProxy::with_urls(&[&upstream], "").await;
    assert_eq!(strict.get("/").await.0, StatusCode::BAD_GATEWAY);
}
