//! TLS handshakes and certificates.

use std::sync::Arc;
use std::time::Instant;

use rustls::client::Resumption;
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use url::Host;

use super::Probe;
use super::trace::{Stage, Trace};
use crate::monitor::check::{CertificateExpiry, Endpoint, Failure, FailureClass, HttpVersion};

/// Built once: a configuration costs more than a handshake.
pub(super) struct TlsConnectors {
    auto: TlsConnector,
    http1: TlsConnector,
    http2: TlsConnector,
    no_alpn: TlsConnector,
}

/// The protocols that the handshake offers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Alpn {
    Http(HttpVersion),
    /// No ALPN: the protocol behind TLS does not matter.
    None,
}

impl TlsConnectors {
    pub(super) fn new(more_roots: &[CertificateDer<'static>]) -> Self {
        let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        let (_, ignored) = roots.add_parsable_certificates(more_roots.iter().cloned());
        if ignored > 0 {
            tracing::warn!(ignored, "invalid root certificates ignored");
        }
        let roots = Arc::new(roots);
        let connector = |protocols: &[&[u8]]| {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let mut config = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap_or_else(|error| unreachable!("ring knows the default versions: {error}"))
                .with_root_certificates(Arc::clone(&roots))
                .with_no_client_auth();
            config.resumption = Resumption::disabled();
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            TlsConnector::from(Arc::new(config))
        };
        Self {
            auto: connector(&[b"h2", b"http/1.1"]),
            http1: connector(&[b"http/1.1"]),
            http2: connector(&[b"h2"]),
            no_alpn: connector(&[]),
        }
    }

    fn connector(&self, offer: Alpn) -> &TlsConnector {
        match offer {
            Alpn::Http(HttpVersion::Auto) => &self.auto,
            Alpn::Http(HttpVersion::Http1) => &self.http1,
            Alpn::Http(HttpVersion::Http2) => &self.http2,
            Alpn::None => &self.no_alpn,
        }
    }
}

impl Probe {
    pub(super) async fn handshake<S: AsRef<str>>(
        &self,
        stream: TcpStream,
        host: &Host<S>,
        offer: Alpn,
        trace: &mut Trace,
    ) -> Result<TlsStream<TcpStream>, Failure> {
        trace.stage = Stage::Handshake;
        let started = Instant::now();
        let name = server_name(host)?;
        let connected = self.settings().tls.connector(offer).connect(name, stream).await;
        let stream = connected.map_err(|error| tls_failure(&error, trace))?;
        trace.phases.tls = Some(started.elapsed());
        let certificates = stream.get_ref().1.peer_certificates();
        trace.certificate = certificates.and_then(|chain| chain.first()).and_then(expiry);
        Ok(stream)
    }

    pub(super) async fn certificate(&self, endpoint: &Endpoint, trace: &mut Trace) -> Result<(), Failure> {
        let stream = self.connect(&endpoint.host, endpoint.port, trace).await?;
        self.handshake(stream, &endpoint.host, Alpn::None, trace).await.map(drop)
    }
}

fn server_name<S: AsRef<str>>(host: &Host<S>) -> Result<ServerName<'static>, Failure> {
    match host {
        Host::Ipv4(address) => Ok(ServerName::from(std::net::IpAddr::V4(*address))),
        Host::Ipv6(address) => Ok(ServerName::from(std::net::IpAddr::V6(*address))),
        Host::Domain(name) => ServerName::try_from(name.as_ref().to_owned()).map_err(|_| {
            Failure::new(FailureClass::Misconfigured, "the host is not a valid name for a certificate")
        }),
    }
}

fn expiry(certificate: &CertificateDer<'_>) -> Option<CertificateExpiry> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(CertificateExpiry { unix_s: parsed.validity().not_after.timestamp() })
}

fn tls_failure(error: &std::io::Error, trace: &mut Trace) -> Failure {
    let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else {
        return Failure::new(FailureClass::Closed, format!("during the TLS handshake: {error}"));
    };
    let tls = |message: String| Failure::new(FailureClass::Tls, message);
    match error {
        rustls::Error::InvalidCertificate(reason) => {
            if let CertificateError::ExpiredContext { not_after, .. } = reason {
                trace.certificate = Some(CertificateExpiry { unix_s: not_after.as_secs().cast_signed() });
            }
            tls(certificate_problem(reason))
        }
        rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol)
        | rustls::Error::NoApplicationProtocol => {
            Failure::new(FailureClass::Protocol, "the server does not support the requested version of HTTP")
        }
        error => tls(error.to_string()),
    }
}

fn certificate_problem(reason: &CertificateError) -> String {
    match reason {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the certificate has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the certificate is not valid yet".to_owned()
        }
        CertificateError::UnknownIssuer => "the certificate is signed by an unknown issuer".to_owned(),
        CertificateError::NotValidForName => "the certificate is for another name".to_owned(),
        CertificateError::NotValidForNameContext { presented, .. } => {
            let names: Vec<&str> = presented.iter().map(|name| strip_variant(name)).collect();
            format!("the certificate is for other names: {}", names.join(", "))
        }
        CertificateError::Revoked => "the certificate has been revoked".to_owned(),
        CertificateError::BadSignature => "the signature of the certificate is wrong".to_owned(),
        CertificateError::BadEncoding => "the certificate is malformed".to_owned(),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "the certificate is not for servers".to_owned()
        }
        CertificateError::UnhandledCriticalExtension => {
            "the certificate has a critical extension that is not supported".to_owned()
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "the certificate is signed with an algorithm that is not supported".to_owned()
        }
        CertificateError::Other(reason) => match reason.to_string().as_str() {
            // What `openssl req -x509` creates.
            "CaUsedAsEndEntity" => {
                "the certificate is self-signed, or is that of an authority instead of a server".to_owned()
            }
            name => format!("the certificate is invalid: {}", split_words(name)),
        },
        reason => format!("the certificate is invalid: {}", split_words(&reason.to_string())),
    }
}

/// The name of an error of rustls as words: `MaximumPathDepthExceeded` becomes `maximum path depth exceeded`. A message
/// that is a sentence stays as it is.
fn split_words(name: &str) -> String {
    if name.contains(' ') || name.contains('(') {
        return name.to_owned();
    }
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    words
}

/// The name in what rustls writes as `DnsName("a.example")`.
fn strip_variant(presented: &str) -> &str {
    let inner = presented.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(presented).trim_matches('"')
}

impl std::fmt::Debug for TlsConnectors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handshakes").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_certificates_are_words() {
        assert_eq!(certificate_problem(&CertificateError::Revoked), "the certificate has been revoked");
        let other = |name: &'static str| {
            certificate_problem(&CertificateError::Other(rustls::OtherError(Arc::new(
                std::io::Error::other(name),
            ))))
        };
        assert!(other("CaUsedAsEndEntity").contains("self-signed"), "{}", other("CaUsedAsEndEntity"));
        let unknown = other("MaximumPathDepthExceeded");
        assert_eq!(unknown, "the certificate is invalid: maximum path depth exceeded");
        let unnamed = certificate_problem(&CertificateError::ApplicationVerificationFailure);
        assert_eq!(unnamed, "the certificate is invalid: application verification failure");
    }
}
