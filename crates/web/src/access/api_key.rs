//! The key of an API that has its own credential. It is checked like a token: in constant time, and an address that sends wrong
//! ones has to wait.

use std::net::IpAddr;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use hob_service::config::Secret;
use hob_units::AuthThrottle;

use super::credential::Hash;
use crate::Problem;
use crate::console::AppContext;
use crate::server::middleware::Sender;

/// Checks the API key of a request. An extractor.
#[derive(Clone, Debug)]
pub struct ApiKeyCheck {
    throttle: AuthThrottle,
    client: IpAddr,
}

impl ApiKeyCheck {
    /// Compares the key of the request with the expected one. Wrong keys count as wrong credentials of the sender's address.
    pub fn check(&self, given: Option<&str>, expected: &Secret) -> Result<(), Problem> {
        if let Some(wait) = self.throttle.blocked_for(self.client) {
            return Err(Problem::throttled(wait));
        }
        let unauthorized = || Problem::new(StatusCode::UNAUTHORIZED, "Send a valid API key: X-API-Key: …");
        let given = Hash::of(given.ok_or_else(unauthorized)?);
        if Hash::of(expected.reveal()).is(given.bytes()) {
            return Ok(());
        }
        self.throttle.record_failure(self.client, given.bytes());
        Err(unauthorized())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for ApiKeyCheck {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let client = Sender::from_request_parts(parts, state).await?.address;
        let Some(frame) = parts.extensions.get::<AppContext>() else {
            return Err(Problem::internal("the route of this request was not registered through `App`"));
        };
        Ok(Self { throttle: frame.web().auth_throttle().clone(), client })
    }
}
