//! What a program implements to count the requests that an [`Admission`](crate::Admission) has checked.

use std::fmt::Debug;
use std::time::Instant;

use http::Method;

/// Counts requests, for metrics. A check calls it twice per request, so it should be fast.
pub trait RequestCounter: Debug + Send + Sync {
    /// The endpoint that a request counts as. `path` is the first route template that matches, or the path in its normal form;
    /// as clients choose it, there can be any number of different ones.
    fn endpoint(&self, method: &Method, path: &str) -> EndpointId;

    /// Counts a request that started at `started` and was answered at `answered`. A request whose client disconnected before
    /// the response has status 499.
    fn record(
        &self,
        endpoint: EndpointId,
        status: u16,
        outcome: RequestOutcome,
        started: Instant,
        answered: Instant,
    );
}

/// An endpoint of a [`RequestCounter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointId(pub u32);

impl EndpointId {
    /// Counts the requests without their own endpoint, such as those with an ambiguous path.
    pub const OTHER: Self = Self(0);
}

/// What was decided about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// Let through to the service.
    Allowed,
    /// Refused before it reached the service.
    Refused,
}
