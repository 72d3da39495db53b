//! A certificate for a server on loopback, for one test.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// A server's certificate and key, and the authority that signed it.
#[derive(Debug)]
pub struct Identity {
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub authority: PathBuf,
    pub authority_pem: String,
}

impl Identity {
    /// Creates an authority and a certificate for `localhost` and `127.0.0.1`, and writes them to `folder`.
    pub fn create(folder: &Path) -> Self {
        Self::try_create(folder).unwrap_or_else(|error| panic!("cannot create a certificate: {error}"))
    }

    fn try_create(folder: &Path) -> Result<Self, Box<dyn std::error::Error>> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // OpenSSL treats a certificate as self-signed if its issuer has the same name.
        params.distinguished_name.push(DnType::CommonName, "Hob test authority");
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let certificate = CertificateParams::new(names)?.signed_by(&key, &authority)?;
        let identity = Self {
            certificate: folder.join("server.crt"),
            key: folder.join("server.key"),
            authority: folder.join("ca.crt"),
            authority_pem: authority.pem(),
        };
        fs::write(&identity.certificate, certificate.pem())?;
        fs::write(&identity.key, key.serialize_pem())?;
        fs::write(&identity.authority, &identity.authority_pem)?;
        Ok(identity)
    }
}
