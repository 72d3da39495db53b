//! One client of a feed, from its request to the end of its stream.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::feed::{Attached, Event, Feed, Missed};
use crate::Problem;
use crate::console::Frame;

/// A quiet stream says that it is still there, so that proxies keep it and a client that is gone is noticed.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(15);
pub(super) const HEARTBEAT_BYTES: &[u8] = b":\n\n";

/// How long a browser waits before it comes back, in milliseconds. Told at the beginning.
pub(super) const GREETING: &[u8] = b"retry: 2000\n\n";

/// Who wants to listen; an extractor.
#[derive(Clone, Debug)]
pub struct Client {
    last: Option<String>,
    stopping: CancellationToken,
}

impl Client {
    /// The response that streams the events of a feed that the client wants, until it leaves, falls behind, or the
    /// server stops. In the latter cases it comes back with the number that it saw last.
    pub fn stream(self, feed: &Feed, wants: impl Fn(&str) -> bool + Send + 'static) -> Response {
        let attached = feed.attach(self.last.as_deref());
        self.respond(events(attached, HEARTBEAT, wants))
    }

    /// What the client says that it has seen last.
    pub(super) fn last(&self) -> Option<&str> {
        self.last.as_deref()
    }

    pub(super) fn respond(self, events: impl Stream<Item = Bytes> + Send + 'static) -> Response {
        let events = events.take_until(self.stopping.cancelled_owned());
        let head = [
            (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        ];
        (head, Body::from_stream(events.map(Ok::<_, Infallible>))).into_response()
    }
}

fn events(
    attached: Attached,
    heartbeat: Duration,
    wants: impl Fn(&str) -> bool + Send + 'static,
) -> impl Stream<Item = Bytes> + Send {
    let wanted = move |event: &Event| event.topic.as_deref().is_none_or(&wants);
    let mut first = vec![Bytes::from_static(GREETING)];
    match attached.missed {
        Missed::Events(missed) => first.extend(missed.into_iter().filter(&wanted).map(|event| event.wire)),
        Missed::TooMuch(reset) => first.push(reset),
    }
    let news = stream::unfold((attached.news, wanted), move |(mut news, wanted)| async move {
        // Not per event: those that this client does not want would keep the stream silent.
        let beat = Instant::now() + heartbeat;
        loop {
            match timeout_at(beat, news.recv()).await {
                Err(_) => return Some((Bytes::from_static(HEARTBEAT_BYTES), (news, wanted))),
                Ok(Ok(event)) if wanted(&event) => return Some((event.wire, (news, wanted))),
                Ok(Ok(_)) => {}
                Ok(Err(RecvError::Lagged(_) | RecvError::Closed)) => return None,
            }
        }
    });
    stream::iter(first).chain(news)
}

impl<S: Send + Sync> FromRequestParts<S> for Client {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let Some(frame) = parts.extensions.get::<Frame>() else {
            return Err(Problem::internal("a stream was asked for outside of an app"));
        };
        let last = parts.headers.get("last-event-id").and_then(|value| value.to_str().ok());
        Ok(Self { last: last.map(str::to_owned), stopping: frame.stopping().clone() })
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    #[tokio::test]
    async fn who_falls_behind_is_cut_off() {
        let feed = Feed::new();
        let mut slow = pin!(events(feed.attach(None), HEARTBEAT, |_| true));
        assert_eq!(slow.next().await.unwrap(), GREETING);
        for _ in 0..2_000 {
            feed.send("garden", "changed", "garden");
        }
        assert_eq!(slow.next().await, None);
    }

    #[tokio::test]
    async fn a_quiet_stream_says_that_it_is_still_there() {
        let feed = Feed::new();
        let mut quiet = pin!(events(feed.attach(None), Duration::from_millis(10), |topic| topic == "garden"));
        quiet.next().await;
        feed.send("pond", "changed", "pond");
        assert_eq!(quiet.next().await.unwrap(), HEARTBEAT_BYTES);
        feed.reset();
        assert!(quiet.next().await.unwrap().starts_with(b"id: "), "a reset is for everybody");
    }
}
