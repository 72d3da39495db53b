//! Tracks the requests of a connection, so that idle connections can be closed.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Frame, SizeHint};

/// The requests of one connection.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// A request of a connection, until its response is sent or dropped.
#[derive(Debug)]
pub(crate) struct ActiveRequest(Arc<Activity>);

impl Activity {
    pub(crate) fn begin(self: &Arc<Self>) -> ActiveRequest {
        self.begun.fetch_add(1, SeqCst);
        ActiveRequest(Arc::clone(self))
    }

    /// Completes when the connection has had no active request for `timeout`; this may take up to twice as long. This
    /// is needed because hyper's header timeout starts with the first byte and exists only for HTTP/1: it covers
    /// neither a client that sends nothing nor an idle HTTP/2 connection.
    pub(crate) async fn idle(&self, timeout: Duration) {
        loop {
            let begun = self.begun.load(SeqCst);
            let idle = self.ended.load(SeqCst) == begun;
            tokio::time::sleep(timeout).await;
            if idle && self.begun.load(SeqCst) == begun {
                return;
            }
        }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, SeqCst);
    }
}

/// The body of a response, which keeps its request active until it is sent.
#[derive(Debug)]
pub struct ResponseBody<B> {
    pub(crate) body: B,
    pub(crate) _request: ActiveRequest,
}

impl<B: Body + Unpin> Body for ResponseBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
