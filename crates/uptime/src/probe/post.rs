//! Posts an alert with the limits of a check: one request, redirects are not followed.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, StatusCode};
use hyper::body::Bytes;
use url::Url;

use super::Probe;
use super::http::BodyPolicy;
use super::redirect::Hop;
use super::trace::Trace;
use crate::monitor::check::{Failure, HttpVersion};

#[derive(Debug)]
pub(crate) struct Post<'a> {
    pub(crate) url: &'a Url,
    pub(crate) headers: &'a [(HeaderName, HeaderValue)],
    pub(crate) body: Bytes,
}

impl Probe {
    /// Sends the request and returns the status. The response body is not read.
    pub(crate) async fn post(&self, post: Post<'_>, timeout: Duration) -> Result<StatusCode, Failure> {
        let mut trace = Trace::begin(timeout);
        let headers = post.headers.iter().cloned().collect();
        let hop = Hop::only(Method::POST, post.url.clone(), headers, post.body);
        let request = self.request(&hop, HttpVersion::Auto, BodyPolicy::Ignore, &mut trace);
        match tokio::time::timeout(timeout, request).await {
            Ok(response) => response.map(|response| response.status),
            Err(_) => Err(trace.timeout_failure(timeout)),
        }
    }
}
