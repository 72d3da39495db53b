//! One client of a feed.

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

use super::feed::{Event, Feed, Missed, Subscription};
use crate::Problem;
use crate::console::AppContext;

/// An idle stream sends a heartbeat, so that proxies keep it open and dead clients are detected.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(15);
pub(super) const HEARTBEAT_BYTES: &[u8] = b":\n\n";

/// The start of every stream: the reconnection delay of the browser, in milliseconds.
pub(super) const PREAMBLE: &[u8] = b"retry: 2000\n\n";

/// A client that requests a stream. An extractor.
#[derive(Clone, Debug)]
pub struct Client {
    last: Option<String>,
    stopping: CancellationToken,
}

impl Client {
    /// Streams the wanted events of a feed until the client disconnects, is too slow, or the server stops. In the last two
    /// cases the client reconnects with the id of its last event.
    pub fn stream(self, feed: &Feed, wants: impl Fn(&str) -> bool + Send + 'static) -> Response {
        let attached = feed.attach(self.last.as_deref());
        self.respond(events(attached, HEARTBEAT, wants))
    }

    /// The `Last-Event-ID` of the client.
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
    attached: Subscription,
    heartbeat: Duration,
    wants: impl Fn(&str) -> bool + Send + 'static,
) -> impl Stream<Item = Bytes> + Send {
    let wanted = move |event: &Event| event.topic.as_deref().is_none_or(&wants);
    let mut first = vec![Bytes::from_static(PREAMBLE)];
    match attached.missed {
        Missed::Events(missed) => first.extend(missed.into_iter().filter(&wanted).map(|event| event.encoded)),
        Missed::TooMuch(reset) => first.push(reset),
    }
    let receiver = stream::unfold((attached.receiver, wanted), move |(mut receiver, wanted)| async move {
        // The time is set outside of the loop: otherwise each unwanted event would delay the heartbeat.
        let beat = Instant::now() + heartbeat;
        loop {
            match timeout_at(beat, receiver.recv()).await {
                Err(_) => return Some((Bytes::from_static(HEARTBEAT_BYTES), (receiver, wanted))),
                Ok(Ok(event)) if wanted(&event) => return Some((event.encoded, (receiver, wanted))),
                Ok(Ok(_)) => {}
                Ok(Err(RecvError::Lagged(_) | RecvError::Closed)) => return None,
            }
        }
    });
    stream::iter(first).chain(receiver)
}

impl<S: Send + Sync> FromRequestParts<S> for Client {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let Some(frame) = parts.extensions.get::<AppContext>() else {
            return Err(Problem::internal("the route of this stream was not registered through `App`"));
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
    async fn slow_client_is_disconnected() {
        let feed = Feed::new();
        let mut slow = pin!(events(feed.attach(None), HEARTBEAT, |_| true));
        assert_eq!(slow.next().await.unwrap(), PREAMBLE);
        for _ in 0..2_000 {
            feed.send("garden", "changed", "garden");
        }
        assert_eq!(slow.next().await, None);
    }

    #[tokio::test]
    async fn idle_stream_sends_comments() {
        let feed = Feed::new();
        let mut quiet = pin!(events(feed.attach(None), Duration::from_millis(10), |topic| topic == "garden"));
        quiet.next().await;
        feed.send("pond", "changed", "pond");
        assert_eq!(quiet.next().await.unwrap(), HEARTBEAT_BYTES);
        feed.reset();
        assert!(quiet.next().await.unwrap().starts_with(b"id: "), "a reset reaches every client");
    }
}
