//! A message to somebody, sent as guarded as a check: once, without following anything.

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
    /// What the other side said to it, in a number. Whatever else it said is not read.
    pub(crate) async fn post(&self, post: Post<'_>, timeout: Duration) -> Result<StatusCode, Failure> {
        let mut trace = Trace::begin(timeout);
        let headers = post.headers.iter().cloned().collect();
        let hop = Hop::only(Method::POST, post.url.clone(), headers, post.body);
        let asked = self.request(&hop, HttpVersion::Auto, BodyPolicy::Ignore, &mut trace);
        match tokio::time::timeout(timeout, asked).await {
            Ok(answered) => answered.map(|answer| answer.status),
            Err(_) => Err(trace.timeout_failure(timeout)),
        }
    }
}
