//! The keys that an identity provider publishes at a URL.

use hob_net::{HttpClient, Outbound, client_tls};
use hob_web::ProtectedUrl;
use hob_web::jwks::{Jwks, JwksError, KeyLifetime, SignatureError};

use super::{BadToken, Claims};
use crate::{Config, Error};

#[derive(Debug)]
pub(super) struct PublishedKeys {
    url: ProtectedUrl,
    keys: Jwks,
}

impl PublishedKeys {
    /// Nothing is fetched yet, so that a node starts while the URL is not reachable.
    pub(super) fn from_config(config: &Config, outbound: &Outbound) -> Result<Option<Self>, Error> {
        let Some(url) = &config.token_jwks_url else { return Ok(None) };
        let tls = client_tls(config.token_jwks_ca_file.as_deref());
        let tls = tls.map_err(|error| Error::Config(format!("token_jwks_ca_file: {error}")))?;
        let client = HttpClient::new(outbound, tls).trusting(url.url());
        let lifetime = KeyLifetime {
            refresh: config.token_jwks_refresh.get(),
            max_age: config.token_jwks_max_age.get(),
        };
        Ok(Some(Self { url: url.clone(), keys: Jwks::new(client, lifetime) }))
    }

    /// The claims of a token that one of the keys has signed.
    pub(super) async fn claims(&self, token: &str) -> Result<Claims, BadToken> {
        match self.keys.verify(self.url.url(), token).await {
            Ok(Ok(claims)) => Ok(claims),
            // The key may be new. The client tries again, and the keys are fetched again by then.
            Ok(Err(SignatureError::NotFetched)) | Err(JwksError::FailedBefore) => Err(BadToken::Unavailable),
            Ok(Err(_)) => Err(BadToken::Invalid),
            Err(error) => {
                tracing::warn!(%error, "failed to fetch token keys, tokens are not accepted");
                Err(BadToken::Unavailable)
            }
        }
    }
}
