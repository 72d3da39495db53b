//! Valid and invalid certificates, signed by a test authority.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

/// Signs certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A flaw of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    Expired,
    WrongHost,
    SelfSigned,
    /// As `openssl req -x509` signs certificates: as an authority.
    SelfSignedAuthority,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "test authority");
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// The root certificate.
    pub(crate) fn root(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    /// The root certificate as PEM.
    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A TLS server with a certificate for 127.0.0.1 and `good.example`, or one with this flaw.
    pub(crate) fn acceptor(&self, flaw: Flaw, protocols: &[&str]) -> TlsAcceptor {
        let names = match flaw {
            Flaw::WrongHost => vec!["other.example".to_owned()],
            _ => vec!["127.0.0.1".to_owned(), "good.example".to_owned()],
        };
        let mut params = CertificateParams::new(names).unwrap();
        if flaw == Flaw::Expired {
            params.not_after = date_time_ymd(2020, 1, 1);
        }
        if flaw == Flaw::SelfSignedAuthority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = match flaw {
            Flaw::SelfSigned | Flaw::SelfSignedAuthority => params.self_signed(&key),
            _ => params.signed_by(&key, &self.0),
        };
        let certificate = certificate.unwrap().der().clone();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.unwrap().with_no_client_auth();
        let mut config = config.with_single_cert(vec![certificate], key).unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }
}
