//! The body of a client's request. It records when the client has sent something last, so that a long upload does not run
//! into the timeout for the response.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use parking_lot::Mutex;

/// A client's body as it arrives.
#[derive(Debug)]
pub(crate) struct ClientBody {
    body: Incoming,
    upload: Upload,
}

/// How far a client's body has been forwarded. Clones share their state.
#[derive(Clone, Debug)]
pub(crate) struct Upload(Arc<Mutex<Progress>>);

#[derive(Clone, Copy, Debug)]
struct Progress {
    /// When the last part was forwarded.
    at: Instant,
    waits_for: WaitsFor,
}

/// What the upload needs to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    Client,
    Upstream,
}

impl ClientBody {
    pub(crate) fn new(body: Incoming) -> Self {
        let progress = Progress { at: Instant::now(), waits_for: WaitsFor::Upstream };
        Self { body, upload: Upload(Arc::new(Mutex::new(progress))) }
    }

    pub(crate) fn upload(&self) -> Upload {
        self.upload.clone()
    }
}

impl Upload {
    /// When the last part was forwarded, and what the next one needs.
    pub(crate) fn progress(&self) -> (Instant, WaitsFor) {
        let progress = *self.0.lock();
        (progress.at, progress.waits_for)
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        let mut progress = self.upload.0.lock();
        if frame.is_pending() {
            progress.waits_for = WaitsFor::Client;
        } else {
            *progress = Progress { at: Instant::now(), waits_for: WaitsFor::Upstream };
        }
        drop(progress);
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
