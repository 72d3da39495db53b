//! The provider: its metadata and keys, which are cached, and the exchange of a code for an ID token.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hob_database::UnixMs;
use hob_net::{HttpClient, HttpResponse, Outbound, client_tls};
use hob_service::SecretRef;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use tokio::sync::Mutex;
use url::Url;

use super::OidcError;
use super::config::OidcConfig;
use super::id_token::{self, Claims, Expected, TokenError};
use super::login::Login;
use crate::access::jwks::{Jwks, KeyLifetime};
use crate::access::protected_url::protected_url;

/// How long metadata and keys are cached.
const CACHE_FOR: Duration = Duration::from_secs(600);
/// After a failed request for the metadata, no request is sent to the provider for this long.
const FAILURE_PAUSE: Duration = Duration::from_secs(2);

pub(super) struct Provider {
    pub(super) config: OidcConfig,
    client: HttpClient,
    keys: Jwks,
    /// Only one request runs at a time. Other callers wait for it and use its result.
    cache: Mutex<Cache>,
}

#[derive(Default)]
struct Cache {
    metadata: Option<Fetched>,
    failed_at: Option<Instant>,
}

struct Fetched {
    value: Arc<Metadata>,
    at: Instant,
}

/// The URLs of the provider, and how it authenticates clients.
struct Metadata {
    authorization: Url,
    token: Url,
    keys: Url,
    authentication: ClientAuthentication,
}

/// How the client sends its secret.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientAuthentication {
    Basic,
    Post,
}

/// The discovery document.
#[derive(Deserialize)]
struct Document {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct TokenResponse {
    id_token: String,
}

#[derive(Default, Deserialize)]
struct ErrorResponse {
    #[serde(default)]
    error: String,
}

/// The answer to a code.
pub(super) enum Redeemed {
    Claims(Box<Claims>),
    /// The code is unknown, was used before, or belongs to another login.
    BadCode,
    BadToken(TokenError),
}

impl Provider {
    pub(super) fn new(config: &OidcConfig, outbound: &Outbound) -> Result<Self, OidcError> {
        let tls = client_tls(config.ca_file.as_deref())?;
        let client = HttpClient::new(outbound, tls).trusting(config.issuer.url());
        let lifetime = KeyLifetime { refresh: CACHE_FOR, max_age: CACHE_FOR };
        let keys = Jwks::new(client.clone(), lifetime);
        Ok(Self { config: config.clone(), client, keys, cache: Mutex::default() })
    }

    /// The URL to which the browser is sent to sign in.
    pub(super) async fn authorization_url(&self, login: &Login) -> Result<Url, OidcError> {
        let config = &self.config;
        let mut url = self.metadata().await?.authorization.clone();
        let mut scopes = config.request_scopes.clone();
        if !scopes.iter().any(|scope| scope == "openid") {
            scopes.insert(0, "openid".to_owned());
        }
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &config.client_id)
            .append_pair("redirect_uri", config.redirect_url.as_str())
            .append_pair("scope", &scopes.join(" "))
            .append_pair("state", &login.state(config))
            .append_pair("nonce", &login.nonce(config))
            .append_pair("code_challenge", &login.challenge(config))
            .append_pair("code_challenge_method", "S256");
        Ok(url)
    }

    /// Exchanges a code for an ID token, and verifies it.
    pub(super) async fn redeem(&self, code: &str, login: &Login) -> Result<Redeemed, OidcError> {
        let Some(token) = self.exchange(code, login).await? else { return Ok(Redeemed::BadCode) };
        let nonce = login.nonce(&self.config);
        let expected = Expected {
            issuer: self.config.issuer.as_str(),
            client_id: &self.config.client_id,
            nonce: &nonce,
            now_s: UnixMs::now().0 / 1_000,
        };
        let metadata = self.metadata().await?;
        let signed = self.keys.verify(&metadata.keys, &token).await?;
        let verified = signed.map_err(TokenError::from).and_then(|all| id_token::check(all, expected));
        Ok(verified.map_or_else(Redeemed::BadToken, |claims| Redeemed::Claims(Box::new(claims))))
    }

    /// The ID token for a code; `None` if the provider does not accept the code.
    async fn exchange(&self, code: &str, login: &Login) -> Result<Option<String>, OidcError> {
        let (config, metadata) = (&self.config, self.metadata().await?);
        let verifier = login.verifier(config);
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", config.redirect_url.as_str()),
            ("code_verifier", &verifier),
        ];
        let mut headers = HeaderMap::new();
        // Read each time, so that a replaced file takes effect.
        let secret = config.client_secret.as_ref().map(SecretRef::read).transpose()?;
        match &secret {
            Some(secret) if metadata.authentication == ClientAuthentication::Basic => {
                headers.insert(header::AUTHORIZATION, basic(&config.client_id, secret.reveal())?);
            }
            Some(secret) => {
                form.extend([("client_id", &*config.client_id), ("client_secret", secret.reveal())]);
            }
            None => form.push(("client_id", &config.client_id)),
        }
        let form = serde_urlencoded::to_string(&form)
            .map_err(|error| OidcError::document(&metadata.token, &error))?;
        let content_type = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(header::CONTENT_TYPE, content_type);
        let response = self.client.post(&metadata.token, headers, form).await;
        let HttpResponse { status, body } =
            response.map_err(|source| OidcError::unreachable(&metadata.token, source))?;
        if status == StatusCode::OK {
            let parsed = serde_json::from_slice::<TokenResponse>(&body);
            return parsed
                .map(|found| Some(found.id_token))
                .map_err(|error| OidcError::document(&metadata.token, &error));
        }
        let ErrorResponse { error } = serde_json::from_slice(&body).unwrap_or_default();
        if error == "invalid_grant" {
            return Ok(None);
        }
        Err(OidcError::Status { url: metadata.token.to_string(), status, error })
    }

    async fn metadata(&self) -> Result<Arc<Metadata>, OidcError> {
        let mut cache = self.cache.lock().await;
        if let Some(metadata) = cache.metadata.as_ref().filter(|fetched| fetched.at.elapsed() < CACHE_FOR) {
            return Ok(Arc::clone(&metadata.value));
        }
        if cache.failed_at.is_some_and(|at| at.elapsed() < FAILURE_PAUSE) {
            return Err(OidcError::FailedBefore);
        }
        let metadata = self.fetch_metadata().await;
        cache.failed_at = metadata.is_err().then(Instant::now);
        let value = Arc::new(metadata?);
        cache.metadata = Some(Fetched { value: Arc::clone(&value), at: Instant::now() });
        Ok(value)
    }

    async fn fetch_metadata(&self) -> Result<Metadata, OidcError> {
        let issuer = self.config.issuer.as_str();
        let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let url = Url::parse(&url).map_err(|error| OidcError::Document { url, reason: error.to_string() })?;
        let body = self.get(&url).await?;
        let document: Document =
            serde_json::from_slice(&body).map_err(|error| OidcError::document(&url, &error))?;
        if document.issuer != issuer {
            let reason =
                format!("it names the issuer {:?}; set `issuer` to exactly this text", document.issuer);
            return Err(OidcError::document(&url, &reason));
        }
        let endpoint = |text: &str| protected_url(text).map_err(|reason| OidcError::document(&url, &reason));
        let methods = document.token_endpoint_auth_methods_supported.unwrap_or_default();
        let takes = |name: &str| methods.iter().any(|method| method == name);
        let only_post = takes("client_secret_post") && !takes("client_secret_basic");
        Ok(Metadata {
            authorization: endpoint(&document.authorization_endpoint)?,
            token: endpoint(&document.token_endpoint)?,
            keys: endpoint(&document.jwks_uri)?,
            authentication: if only_post { ClientAuthentication::Post } else { ClientAuthentication::Basic },
        })
    }

    async fn get(&self, url: &Url) -> Result<hyper::body::Bytes, OidcError> {
        let response = self.client.get(url).await.map_err(|source| OidcError::unreachable(url, source))?;
        match response.status {
            StatusCode::OK => Ok(response.body),
            status => Err(OidcError::Status { url: url.to_string(), status, error: String::new() }),
        }
    }
}

/// `Authorization: Basic`, with both parts encoded like those of a form (RFC 6749, section 2.3.1).
fn basic(client_id: &str, secret: &str) -> Result<HeaderValue, OidcError> {
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let pair = format!("{}:{}", encoded(client_id), encoded(secret));
    let text = format!("Basic {}", STANDARD.encode(pair));
    let mut value = HeaderValue::from_str(&text).map_err(OidcError::Header)?;
    value.set_sensitive(true);
    Ok(value)
}
