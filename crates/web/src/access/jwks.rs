//! The keys that an identity provider publishes at a URL (JWKS), cached.
//!
//! Keys are fetched again regularly, and when a token names a key that is not among them, so that a provider can replace
//! its keys at any time. While the URL cannot be fetched, the cached keys stay valid up to a maximum age.

mod key_set;

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hob_net::{HttpClient, HttpClientError};
use http::StatusCode;
use serde::de::DeserializeOwned;
use url::Url;

pub use key_set::{KeySet, SignatureError};

/// How often unknown keys may cause the keys to be fetched again, and how often a failed request is repeated while there are
/// cached keys.
const REFETCH_INTERVAL: Duration = Duration::from_secs(30);
/// After a failed request, no request is sent for this long.
const FAILURE_PAUSE: Duration = Duration::from_secs(2);

/// Fetches and caches the keys of one provider.
#[derive(Debug)]
pub struct Jwks {
    client: HttpClient,
    lifetime: KeyLifetime,
    cache: Mutex<Cache>,
    /// Held during a request, so that only one is sent at a time.
    turn: tokio::sync::Mutex<()>,
}

/// How long fetched keys are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyLifetime {
    /// Keys of this age are fetched again. A key that the provider has withdrawn is accepted for up to this time.
    pub refresh: Duration,
    /// Keys of this age are not used, even if they cannot be fetched again.
    pub max_age: Duration,
}

#[derive(Debug, Default)]
struct Cache {
    fetched: Option<Fetched>,
    /// When an unknown key last caused a request.
    refetched_at: Option<Instant>,
    failed_at: Option<Instant>,
}

#[derive(Debug)]
struct Fetched {
    url: Url,
    keys: Arc<KeySet>,
    at: Instant,
}

/// Why the keys are not available.
#[derive(Debug, thiserror::Error)]
pub enum JwksError {
    #[error("cannot fetch {url}: {source}")]
    Unreachable { url: String, source: HttpClientError },
    #[error("{url} responded with status {status}")]
    Status { url: String, status: StatusCode },
    #[error("cannot use the response of {url}: {reason}")]
    Document { url: String, reason: String },
    #[error("a request for the keys failed a moment ago; Hob waits before the next one")]
    FailedBefore,
}

impl Jwks {
    #[must_use]
    pub fn new(client: HttpClient, lifetime: KeyLifetime) -> Self {
        Self { client, lifetime, cache: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    /// The claims of a token that one of the keys has signed. Checks only the signature.
    pub async fn verify<T: DeserializeOwned>(
        &self,
        url: &Url,
        token: &str,
    ) -> Result<Result<T, SignatureError>, JwksError> {
        let keys = self.keys(url).await?;
        match keys.verify(token) {
            Err(SignatureError::UnknownKey) => match self.newer(url, &keys).await? {
                Some(keys) => Ok(keys.verify(token)),
                None => Ok(Err(SignatureError::NotFetched)),
            },
            verified => Ok(verified),
        }
    }

    async fn keys(&self, url: &Url) -> Result<Arc<KeySet>, JwksError> {
        let refresh = self.lifetime.refresh.min(self.lifetime.max_age);
        if let Some(keys) = self.cached(url, refresh) {
            return Ok(keys);
        }
        let usable = self.cached(url, self.lifetime.max_age);
        let _turn = match (&usable, self.turn.try_lock()) {
            (_, Ok(turn)) => turn,
            // Another caller fetches them.
            (Some(keys), Err(_)) => return Ok(Arc::clone(keys)),
            (None, Err(_)) => self.turn.lock().await,
        };
        if let Some(keys) = self.cached(url, refresh) {
            return Ok(keys);
        }
        let Some(usable) = usable else { return self.fetch(url, FAILURE_PAUSE).await };
        match self.fetch(url, REFETCH_INTERVAL).await {
            Err(JwksError::FailedBefore) => Ok(usable),
            Err(error) => {
                tracing::warn!(%error, "failed to fetch token keys, the cached keys are used");
                Ok(usable)
            }
            fetched => fetched,
        }
    }

    /// Keys that were fetched after the given ones; `None` if they were fetched again a short time ago.
    async fn newer(&self, url: &Url, than: &Arc<KeySet>) -> Result<Option<Arc<KeySet>>, JwksError> {
        let _turn = self.turn.lock().await;
        if let Some(keys) = self.cached(url, self.lifetime.max_age).filter(|keys| !Arc::ptr_eq(keys, than)) {
            return Ok(Some(keys));
        }
        {
            let mut cache = self.cache();
            if cache.refetched_at.is_some_and(|at| at.elapsed() < REFETCH_INTERVAL) {
                return Ok(None);
            }
            cache.refetched_at = Some(Instant::now());
        }
        self.fetch(url, FAILURE_PAUSE).await.map(Some)
    }

    /// Fetches the keys, unless the last request has failed within `pause`.
    async fn fetch(&self, url: &Url, pause: Duration) -> Result<Arc<KeySet>, JwksError> {
        if self.cache().failed_at.is_some_and(|at| at.elapsed() < pause) {
            return Err(JwksError::FailedBefore);
        }
        let fetched = self.request(url).await;
        let mut cache = self.cache();
        cache.failed_at = fetched.is_err().then(Instant::now);
        let keys = Arc::new(fetched?);
        cache.fetched = Some(Fetched { url: url.clone(), keys: Arc::clone(&keys), at: Instant::now() });
        Ok(keys)
    }

    async fn request(&self, url: &Url) -> Result<KeySet, JwksError> {
        let response = self.client.get(url).await;
        let response = response.map_err(|source| JwksError::Unreachable { url: url.to_string(), source })?;
        if response.status != StatusCode::OK {
            return Err(JwksError::Status { url: url.to_string(), status: response.status });
        }
        KeySet::parse(&response.body).map_err(|error| JwksError::document(url, &error))
    }

    fn cached(&self, url: &Url, max_age: Duration) -> Option<Arc<KeySet>> {
        let cache = self.cache();
        let fetched = cache.fetched.as_ref()?;
        (fetched.url == *url && fetched.at.elapsed() < max_age).then(|| Arc::clone(&fetched.keys))
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl JwksError {
    fn document(url: &Url, reason: &dyn Display) -> Self {
        Self::Document { url: url.to_string(), reason: reason.to_string() }
    }
}
