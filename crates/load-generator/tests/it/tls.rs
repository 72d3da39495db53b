//! HTTPS targets.

use std::sync::Arc;

use hob_load_generator::Fault;
use hob_load_generator::plan::{Format, Plan, PlanFiles, PlanSource};
use rustls::ServerConfig;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::accuracy::run;

/// Starts a server with a self-signed certificate for localhost; returns its port and the certificate as PEM.
async fn serve() -> (u16, String) {
    let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signed.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![signed.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut buffer = [0; 4096];
                while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {
                    let response = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret";
                    stream.write_all(response).await.unwrap();
                }
            });
        }
    });
    (port, signed.cert.pem())
}

fn text(port: u16, tls: &str) -> String {
    format!(
        "name = 't'\ntarget = 'https://localhost:{port}'\n{tls}\n[[scenario]]\nname = 's'\n\
         load = {{ rate = 20, for = '1s' }}\nstep = [{{ name = 'a', request = 'GET /', expect = {{ contains = 'secret' }} }}]"
    )
}

fn plan(port: u16, tls: &str) -> Plan {
    Plan::read(&text(port, tls), Format::Toml).unwrap()
}

#[tokio::test]
async fn server_is_trusted_with_the_ca_of_the_plan() {
    let (port, ca) = serve().await;
    let totals = run(&plan(port, &format!("tls = {{ ca = '''{ca}''' }}")), 1).await;
    assert_eq!((totals.requests(), totals.failed()), (20, 0), "{:?}", totals.steps());
}

#[tokio::test]
async fn ca_is_a_file_of_the_plan() {
    let (port, ca) = serve().await;
    let source = |files: &[(&str, &str)]| PlanSource {
        source: text(port, "tls = { ca = 'ca.pem' }"),
        format: Format::Toml,
        files: PlanFiles::new(files.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect()),
    };
    let totals = run(&source(&[("ca.pem", &ca)]).read().unwrap(), 1).await;
    assert_eq!((totals.requests(), totals.failed()), (20, 0), "{:?}", totals.steps());
    // A file of the server is never read.
    for (files, expected) in [
        (&[][..], "no file \"ca.pem\" in the files of the plan; upload it with the plan"),
        (
            &[("ca.pem", "secret")],
            "no certificate found; give a certificate as PEM, or the name of a PEM file",
        ),
    ] {
        let mistake = source(files).read().unwrap_err();
        assert_eq!(
            (mistake.at.line, mistake.field.as_str(), mistake.message.as_str()),
            (3, "tls.ca", expected)
        );
    }
}

#[tokio::test]
async fn unknown_issuer_is_rejected() {
    let (port, _) = serve().await;
    let totals = run(&plan(port, ""), 1).await;
    assert_eq!(totals.steps()[0].faults.keys().collect::<Vec<_>>(), [&Fault::Tls]);
}
